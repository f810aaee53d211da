"""`groundwire dead-letters` over topics in memory: what it selects and prints, and how it ends."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from agents.outputs import Output, outputs, unpublishable
from groundwire.cli import dead_letters as command
from groundwire.cli.dead_letters import LetterPrinter, PlaceParam, content_json, content_lines, letter_json
from groundwire.cli.main import main
from groundwire.dead_letters.letters import LetterPlace, Redriven, RedrivenPlace, Selection, read_letter
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError
from groundwire.gate.types import DeadLetter
from groundwire.messages.headers import InboundRecord, deferred_headers, deferred_record
from groundwire.messages.topics import TopicName
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, PREFIX, FakeLog

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]\r\nnew line"
SECRET = "my salary is 1234"
REDRIVEN = Redriven(datetime(2026, 1, 2, tzinfo=UTC), HOSTILE, RedrivenPlace("t.claims", 1, 5))


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


def buried(value=b'{"tenant_id": "acme", "user_id": "ann"}', **options):
    return read_letter(FakeLog().bury(value, **options))


# Letters -----------------------------------------------------------------------------------------------------


def test_a_redriven_record_that_fails_again_has_failed_once_more():
    error, wrong = RecordError(ErrorCode.INVALID_JSON, "why"), []
    for way in ("at once", "unpublishable", "from deferred"):
        for before in (0, 1, 41):
            letter = buried(headers=[("gw-attempts", str(before).encode())] if before else [])
            record = InboundRecord("t.claims", 0, 12, 1, letter.record.key, letter.record.value, letter.again)
            if way == "unpublishable":
                large = [("traceparent", b"0" * 1_000_000)]
                output = Output(TopicName.APPROVED, record.key, b"{}", large, record)
                failed = unpublishable(output, "MessageSizeTooLargeError")
            else:
                if way == "from deferred":
                    headers = tuple(deferred_headers(record))
                    waiting = InboundRecord("t.deferred", 0, 3, 2, record.key, record.value, headers)
                    record = deferred_record(waiting)
                failed, _audit = outputs([DeadLetter(record, error)])
            again = read_letter(
                InboundRecord("t.dead-letter", 0, 0, 3, failed.key, failed.value, failed.headers)
            )
            if (again.attempts, again.failed.offset) != (before + 2, 12):
                wrong.append((way, before, again.attempts))
    assert wrong == []


def test_a_refused_record_keeps_its_signature_and_loses_headers_that_fill_it_or_have_no_value():
    for headers, kept in (
        ([("gw-attestation", b"console:abc"), ("x", b"1")], {"gw-attestation": b"console:abc"}),
        ([("gw-attempts", b"9" * 1_000_000)], {"gw-attempts": b"1"}),
        ([("gw-attempts", None)], {"gw-attempts": b"1"}),
        ([("gw-attestation", None)], {"gw-attempts": b"1"}),
    ):
        record = InboundRecord("t.claims", 0, 0, 1, b"k", b"v", headers)
        output = Output(TopicName.APPROVED, b"k", b"{}", [("traceparent", b"0" * 1_000_000)], record)
        found = dict(unpublishable(output, "MessageSizeTooLargeError").headers)
        assert found.items() >= kept.items()
        assert "x" not in found
        assert None not in found.values()


def test_a_letter_is_selected_if_every_condition_holds():
    cases = (
        (Selection(), True),
        (Selection(codes={"worker_crash", "invalid_json"}), True),
        (Selection(codes={"invalid_json"}), False),
        (Selection(topic="t.claims"), True),
        (Selection(topic="claims"), False),
        (Selection(tenant="acme"), True),
        (Selection(tenant="acm"), False),
        (Selection(key=b"acme:ann"), True),
        (Selection(key=b"acme:an"), False),
        (Selection(partition=0), True),
        (Selection(partition=1), False),
        (Selection(places={LetterPlace(0, 0)}), True),
        (Selection(places={LetterPlace(0, 1)}), False),
        (Selection(end=1), True),
        (Selection(end=0), False),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), True),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)), False),
        (Selection(codes={"worker_crash"}, tenant="globex"), False),
    )
    assert [(one, selected) for one, selected in cases if (buried() in one) is not selected] == []
    unsure = (
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann"}'),
        (None, b'{"tenant_id": "acme", "user_id": "ann"}'),
        (b"\xff:ann", b"{}"),
        (b"acme", b"{}"),
    )
    for key, value in unsure:
        letter = buried(value, key=key)
        assert [letter in Selection(tenant=name) for name in ("acme", "globex")] == [False, False]
        assert letter_json(letter, None)["tenant_id"] is None


def test_only_the_offsets_of_the_named_letters_are_read():
    one = Selection(places={LetterPlace(2, 17)}).narrowed()
    assert (one.start, one.end, one.partition) == (17, 18, 2)
    two = Selection(places={LetterPlace(2, 17), LetterPlace(0, 3)}).narrowed()
    assert (two.start, two.end, two.partition) == (3, 18, None)
    for given in (Selection(start=5, places={LetterPlace(2, 17)}), Selection()):
        assert given.narrowed() == given


# What is printed ---------------------------------------------------------------------------------------------


def test_the_value_is_shown_on_request_only_and_headers_as_the_record_had_them():
    letter = buried(
        SECRET.encode(), headers=[("traceparent", b"00-a"), ("raw", b"\xff\n"), ("gw-attempts", b"1")]
    )
    lines = content_lines(letter, None, value=False)
    assert SECRET not in "".join(lines)
    assert content_lines(letter, None, value=True)[-1] == SECRET
    assert SECRET not in json.dumps({**letter_json(letter, None), **content_json(letter, value=False)})
    assert content_json(letter, value=True)["value"] == SECRET
    assert content_json(letter, value=False)["headers"] == [
        {"name": "traceparent", "value": "00-a"},
        {"name": "raw", "value_base64": "/wo="},
    ]
    parts = [line.split() for line in lines]
    assert ["header", "raw", r"\xff\n"] in parts
    assert ["attempts", "2"] in parts
    empty = read_letter(InboundRecord("t.dead-letter", 0, 0, -1, None, None, ()))
    assert (empty.attempts, letter_json(empty, None)["error"]) == (None, "unknown")
    assert content_lines(empty, None, value=True)
    assert content_json(empty, value=True) == {"headers": [], "value": None}


def test_a_table_has_a_line_for_each_letter_and_nothing_in_it_acts_on_a_terminal(capsys):
    for text in (HOSTILE, "\ud800"):
        data = text.encode("utf-8", "surrogatepass")
        letter = buried(data, key=data, headers=[("name" + HOSTILE, data)])
        assert [line for line in content_lines(letter, REDRIVEN, value=True) if not line.isprintable()] == []
    printer = LetterPrinter("table")
    printer.letter(buried(key=HOSTILE.encode()), None)
    printer.letter(buried(), REDRIVEN)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["letter", "error", "attempts", "state"]
    assert first.split()[:5] == ["0@0", "worker_crash", "1", "open", "t.claims[2]@7"]
    assert second.split()[:5] == ["0@0", "worker_crash", "1", "redriven", "t.claims[1]@5"]
    assert "\x1b" not in first


def test_json_has_one_object_a_line_without_the_value(capsys):
    LetterPrinter("json").letter(buried(SECRET.encode(), key=b"\xff"), REDRIVEN)
    (line,) = capsys.readouterr().out.splitlines()
    at = {"at": "2026-01-02T00:00:00Z", "actor": HOSTILE, "topic": "t.claims", "partition": 1, "offset": 5}
    assert json.loads(line) == {
        "letter": "0@0",
        "at": "2026-01-01T00:00:01Z",
        "error": "worker_crash",
        "message": "why",
        "attempts": 1,
        "topic": "t.claims",
        "partition": 2,
        "offset": 7,
        "key_base64": "/w==",
        "tenant_id": None,
        "user_id": None,
        "size": len(SECRET),
        "state": "redriven",
        "redriven": at,
    }


# The command -------------------------------------------------------------------------------------------------


def test_wrong_options_are_refused_by_name():
    for text in ("", "1", "@", "1@", "@1", "a@1", "1@2@3", "-1@2", "1@1" + "0" * 18, "²@1"):
        with pytest.raises(click.BadParameter, match="2@17"):
            PlaceParam().convert(text, None, None)
    assert str(PlaceParam().convert("2@17", None, None)) == "2@17"
    limits = (["--rate", "0"], ["--max-attempts", "0"], ["--limit", "0"], ["--code", "x"])
    for arguments in (
        *(["list", "--to", text] for text in ("earliest", "latest", "yesterday", "2026-01-01")),
        *(["redrive", *one] for one in limits),
    ):
        result = run(*arguments)
        assert (arguments, result.exit_code, arguments[1] in result.stderr) == (arguments, 2, True)


def test_list_and_show_select_letters_and_leave_out_values_and_what_was_sent_back(log):
    result = run("list")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 4)
    assert SECRET not in result.stdout + run("show", "0@0").stdout
    shown = json.loads(run("show", "0@0", "--value", "--format", "json").stdout)
    assert (shown["value"], shown["letter"], shown["state"]) == (SECRET, "0@0", "open")
    by_code = run("list", "--code", "invalid_json", "--format", "json")
    assert json.loads(by_code.stdout)["error"] == "invalid_json"
    by_topic = run("list", "--topic", "claims", "--format", "json")
    assert len(by_topic.stdout.splitlines()) == 2
    run("redrive", "--code", "worker_crash", "--yes")
    assert "redriven t.claims[0]@0" in run("list").stdout
    left = run("list", "--open", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["error"] for line in left] == ["invalid_json", "invalid_record"]


def test_without_yes_nothing_is_sent_and_the_command_says_so(log):
    result = run("redrive")
    assert CLAIMS not in log.topics
    assert not log.topics[AUDIT]
    assert result.stdout.splitlines()[-1] == (
        "1 would be redriven, 2 refused (not_an_input_topic 1, too_many_attempts 1); --yes does it"
    )
    assert result.exit_code == 1, "some are refused"
    assert run("redrive", "--code", "worker_crash").exit_code == 0
    nothing = run("redrive", "--tenant", "globex", "--yes")
    assert (nothing.exit_code, nothing.stdout) == (0, "no letter selected\n")


def test_with_yes_letters_are_sent_once_and_the_summary_counts_them(log):
    options = ["redrive", "0@0", "0@1", "--max-attempts", "9", "--actor", "ann", "--yes"]
    first = run(*options, "--format", "json")
    assert (first.exit_code, first.stderr) == (0, "2 redriven\n")
    assert [json.loads(line)["outcome"] for line in first.stdout.splitlines()] == ["redriven"] * 2
    assert [record.value for record in log.topics[CLAIMS]] == [SECRET.encode(), b"{"]
    again = run(*options)
    assert again.stdout.splitlines()[-1] == "2 skipped (already_redriven 2)"
    assert again.exit_code == 0, "a repeated run finds its work done"
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


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (BrokerUnavailable("x"), 2)])
def test_an_interrupted_run_reports_its_progress(log, error, status):
    log.crash_after, log.crash = 4, error  # the fourth record: the audit event of the second letter
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
    assert (result.exit_code, "1 records failed again" in result.stderr) == (1, True)
    assert len(log.topics[CLAIMS]) == 1
