"""What `groundwire dead-letters` prints and how it ends, over topics in memory."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from groundwire.cli import dead_letters as command
from groundwire.cli.main import main
from groundwire.errors import BrokerUnavailable, ErrorCode
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, PREFIX, FakeLog

SECRET = "my salary is 1234"


@pytest.fixture
def log(monkeypatch):
    fake = FakeLog()

    @asynccontextmanager
    async def kafka_log(*_where, **_how):
        yield fake

    monkeypatch.setattr(command, "kafka_log", kafka_log)
    fake.bury(SECRET.encode(), code=ErrorCode.WORKER_CRASH)
    fake.bury(b"{", code=ErrorCode.INVALID_JSON, headers=[("gw-attempts", b"2")])
    fake.bury(b"elsewhere", topic="t.approved", code=ErrorCode.INVALID_RECORD)
    return fake


def run(*arguments):
    return CliRunner().invoke(main, ["dead-letters", *arguments, "--prefix", PREFIX])


def test_a_list_has_a_line_for_each_letter_that_is_meant_and_no_value(log):
    result = run("list")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 4)
    assert SECRET not in result.stdout
    one = run("list", "--code", "invalid_json", "--format", "json")
    assert json.loads(one.stdout)["error"] == "invalid_json"
    by_topic = run("list", "--topic", "claims", "--format", "json")
    assert len(by_topic.stdout.splitlines()) == 2


def test_what_was_sent_back_is_left_out_of_a_list_of_what_is_open(log):
    run("redrive", "--code", "worker_crash", "--yes")
    assert "redriven t.claims[0]@0" in run("list").stdout
    codes = [
        json.loads(line)["error"] for line in run("list", "--open", "--format", "json").stdout.splitlines()
    ]
    assert codes == ["invalid_json", "invalid_record"]


def test_a_letter_is_shown_with_its_value_only_where_that_is_asked_for(log):
    assert SECRET not in run("show", "0@0").stdout
    assert SECRET in run("show", "0@0", "--value").stdout
    shown = json.loads(run("show", "0@0", "--value", "--format", "json").stdout)
    assert (shown["value"], shown["letter"], shown["state"]) == (SECRET, "0@0", "open")


def test_without_yes_nothing_is_sent_and_the_command_says_so(log):
    result = run("redrive")
    assert CLAIMS not in log.topics
    assert not log.topics[AUDIT]
    assert result.stdout.splitlines()[-1] == (
        "1 would be redriven, 2 refused (not_an_input_topic 1, too_many_attempts 1); --yes does it"
    )
    assert result.exit_code == 1, "some are refused"
    assert run("redrive", "--code", "worker_crash").exit_code == 0


def test_with_yes_letters_are_sent_once_and_the_summary_counts_them(log):
    options = ["redrive", "0@0", "0@1", "--max-attempts", "9", "--actor", "ann", "--yes"]
    first = run(*options, "--format", "json")
    assert (first.exit_code, first.stderr) == (0, "2 redriven\n")
    assert [json.loads(line)["outcome"] for line in first.stdout.splitlines()] == ["redriven"] * 2
    assert [record.value for record in log.topics[CLAIMS]] == [SECRET.encode(), b"{"]
    again = run(*options)
    assert again.stdout.splitlines()[-1] == "2 skipped (already_redriven 2)"
    assert again.exit_code == 0, "a run that is begun anew finds its work done"
    assert json.loads(log.topics[AUDIT][0].value)["actor"] == "ann"


def test_a_missing_letter_is_named(log):
    for place in ("0@99", "1@0"):
        shown = run("show", place)
        assert (shown.exit_code, shown.stdout, place in shown.stderr) == (1, "", True)
    result = run("redrive", "0@0", "0@7", "--yes")
    assert (result.exit_code, "0@7" in result.stderr, "0@0" in result.stderr) == (1, True, False)
    assert len(log.topics[CLAIMS]) == 1
    limited = run("redrive", "0@1", "0@7", "--max-attempts", "9", "--limit", "1", "--yes")
    assert (limited.exit_code, limited.stderr) == (0, ""), "it was not looked for"


def test_filters_that_mean_no_letter_are_no_error(log):
    result = run("redrive", "--tenant", "globex", "--yes")
    assert (result.exit_code, result.stdout) == (0, "no letter selected\n")


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (BrokerUnavailable("x"), 2)])
def test_an_interrupted_run_says_how_far_it_came(log, error, status):
    log.crash_after, log.crash = 4, error  # the fourth record: the note of the second letter
    result = run("redrive", "--max-attempts", "9", "--rate", "1.9", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (status, "1 redriven")


def test_a_run_whose_records_fail_again_stops_with_status_1(log, monkeypatch):
    for number in range(5):
        log.bury(str(number).encode())
    publish = log.publish

    async def refused(records):
        places = await publish(records)
        log.gate_refuses()
        return places

    monkeypatch.setattr(log, "publish", refused)
    result = run("redrive", "--code", "worker_crash", "--rate", "1", "--stop-after", "1", "--yes")
    assert result.exit_code == 1
    assert "1 records failed again" in result.stderr
    assert len(log.topics[CLAIMS]) == 1
