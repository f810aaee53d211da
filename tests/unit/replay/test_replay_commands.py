"""`groundwire verify` and `groundwire replay` as commands: what they print and refuse, and their exit status."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from groundwire.cli.main import main
from groundwire.errors import UsageError
from groundwire.messages.decisions import Decision, Verdict
from groundwire.policy import Policy
from groundwire.replay import report
from groundwire.replay.reading import Rate
from groundwire.replay.report import (
    FileWriter,
    Replayed,
    ReplayStatus,
    Summary,
    as_table,
    policy_changes,
    replay_topic,
    write_page,
)
from groundwire.replay.store import Job
from tests.unit.replay.town import ORDER, town


@pytest.fixture
def place(tmp_path):
    place = town(tmp_path)
    place.policy = Policy(version="of the test")

    async def send():
        await place.policies.put(place.policy)
        await place.send(*(place.claim(f"c{n}", f"Service {n} keeps {n} <b>sessions</b>") for n in range(3)))

    asyncio.run(send())
    place.write(tmp_path)
    return place


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def verify(folder, *more):
    files = {name: folder / f"{name}.jsonl" for name in ("decisions", "records")}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    return run("verify", *options, "--policies", folder / "policies", *more)


def test_verify_ends_with_0_1_or_3_and_names_decision_line_and_field(place, tmp_path):
    def edit(path, old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    counts = "3 equal, 0 differs, 0 contradicted, 0 expired, 0 other engine, 0 missing\n"
    assert verify(tmp_path) == (0, "", counts)
    name = next(iter(place.decisions))
    policy = next((tmp_path / "policies").iterdir())
    decisions, records = tmp_path / "decisions.jsonl", tmp_path / "records.jsonl"
    to_approved = '"approved":false', '"approved":true'
    for path, old, new, status, said in (
        (decisions, *to_approved, 1, [name, "differs", "$.approved"]),
        (records, "Service 1", "Service 9", 3, ["missing", "record"]),
        (decisions, '"engine":"', '"engine":"9.', 3, ["other_engine", "9."]),
        (policy, "of the test", "of another", 3, ["missing", "policy"]),
        (policy, "", None, 3, ["missing", "policy"]),
    ):
        before = path.read_text()
        path.unlink() if new is None else edit(path, old, new)
        found, out, err = verify(tmp_path)
        path.write_text(before)
        assert (found, [part for part in said if part not in out]) == (status, []), said
        assert out.startswith("line ")
        assert (", 0 differs" in err) is (status == 3)
    edit(decisions, *to_approved)
    assert json.loads(verify(tmp_path, "--format", "json")[1]) == {
        "where": "line 1",
        "decision_id": name,
        "status": "differs",
        "fields": ["$.approved"],
        "detail": None,
    }


def test_verify_accepts_windows_line_ends_and_a_replays_name_and_reports_a_line_that_is_no_decision(
    place, tmp_path
):
    for name in ("decisions", "records"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\n")
    assert verify(tmp_path)[0] == 0
    path = tmp_path / "decisions.jsonl"
    path.write_text(path.read_text().replace('"replay":null', '"replay":"july"'))
    assert verify(tmp_path, "--replay", "july")[0] == 0
    status, out, _ = verify(tmp_path)
    assert (status, "$.replay" in out) == (1, True)
    with path.open("a") as file:
        file.write('{"decision_id": "x"}\n')
    status, out, _ = verify(tmp_path, "--replay", "july")
    assert (status, out.startswith("line 5  ?  differs  $.revision")) == (1, True)


def test_wrong_usage_is_2_and_says_what_to_do(place, tmp_path, monkeypatch):
    monkeypatch.setenv("GROUNDWIRE_BROKERS", "127.0.0.1:1")
    output, records = ("--output", tmp_path / "o"), tmp_path / "records.jsonl"
    policies = ("--policies", tmp_path / "policies")
    topics = ("approved", "groundwire.approved", "replay.", "replay.a b", "replay.approved", "xreplay.a")
    wrong = []
    for arguments, named in (
        (("verify",), ""),
        (("verify", "--from-topics", "--records", records), ""),
        (("verify", "--decisions", records, "--records", tmp_path / "nowhere", *policies), "nowhere"),
        *((("replay", "--output-topic", name), "--output-topic") for name in topics),
        (("replay", "--from", "yesterday"), "--from"),
        (("replay", *output, "--output-topic", "replay.a"), ""),
        (("replay", *output, "--job", tmp_path / "o"), ""),
        (("replay", "--topic", "approved"), "--topic"),
        *(
            ((*command, "--rate", rate), "--rate")
            for rate in ("nan", "inf", "-inf", "0", "-1")
            for command in (["verify", "--from-topics"], ["replay"], ["dead-letters", "redrive"])
        ),
    ):
        status, _, err = run(*arguments)
        wrong += [(arguments, status, err)] * (status != 2 or named not in err)
    assert wrong == []
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, _, err = run("replay", "--from", "earliest", "--html", tmp_path / "page.html")
    assert (status, "groundwire[console]" in err) == (2, True), "refused before anything is read"


def test_a_replay_writes_to_topics_of_its_own_behind_the_prefix():
    for given, prefix, name in (
        ("replay.july", "groundwire.", "groundwire.replay.july"),
        ("groundwire.replay.july", "groundwire.", "groundwire.replay.july"),
        ("replay.july", "", "replay.july"),
        ("replay.claims.july", "", "replay.claims.july"),
    ):
        assert replay_topic(given, prefix) == name
    for given in ("review-decisions", "eu.approved", "a.b.claims", "eu-claims", "euaudit"):
        with pytest.raises(UsageError, match="live topic"):
            replay_topic(f"replay.{given}", "")


async def test_neither_another_replays_job_nor_a_shorter_output_is_continued(tmp_path):
    Job(tmp_path / "job", ORDER).close()
    Job(tmp_path / "job", ORDER).close()
    for change in ({"name": "other"}, {"engine": "0.0.9"}, {"facts_from": "7"}):
        with pytest.raises(UsageError, match="another replay"):
            Job(tmp_path / "job", replace(ORDER, **change))
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UsageError, match="no job file"):
        Job(tmp_path / "text", ORDER)
    (tmp_path / "out").write_bytes(b"short")
    writer = FileWriter(tmp_path / "out")
    with pytest.raises(UsageError, match="shorter"):
        await writer.resume(100)
    writer.close()


async def test_a_rate_is_kept_in_the_mean_and_without_one_nothing_waits():
    now, waited = [0.0], []

    async def sleep(seconds):
        waited.append(seconds)
        now[0] += seconds

    rate = Rate(100, clock=lambda: now[0], sleep=sleep)
    for _ in range(3):
        await rate.after(50)
    now[0] += 10
    await rate.after(50)
    free = Rate(None, clock=lambda: now[0], sleep=sleep)
    await free.after(10_000)
    assert waited == [0.5, 0.5, 0.5, 0.0, 0.0]


async def test_the_page_escapes_whatever_a_decision_holds_and_the_table_shows_no_text_of_claims(
    place, tmp_path
):
    before = next(iter(place.published.values()))
    evil = Decision.model_validate_json(
        before.to_bytes().replace(b'"subject_id":"c0"', b'"subject_id":"<script>"')
    )
    with Job(tmp_path / "job", replace(ORDER, name="<name>")) as job:
        summary = Summary()
        for after in (evil, None):
            status = ReplayStatus.DIFFERS if after else ReplayStatus.MISSING
            summary.add(Replayed(status, before, after, ("$.subject_id",)))
            values = before.to_bytes(), after.to_bytes() if after else None
            job.add_change(summary.changes, *values, ["$.subject_id"])
        write_page(tmp_path / "page.html", job, summary, [])
        page = (tmp_path / "page.html").read_text()
        table = "\n".join(as_table(job, summary))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;sessions&lt;/b&gt;" in page
    assert "<name>" not in page
    assert "sessions" not in table
    assert "review ungrounded -> nothing" in table


async def test_the_page_begins_with_range_policies_and_totals_and_stays_below_2_mb(
    place, tmp_path, monkeypatch
):
    """The rest goes to a second file; page and file name each change once, other verdicts first."""
    monkeypatch.setattr(report, "MAX_BYTES", 60_000)
    strict = Policy(version="strict", dedup_threshold=0.8)
    before = next(iter(place.published.values()))
    order = replace(ORDER, topics=["groundwire.claims"], start="7", end="latest")
    with Job(tmp_path / "job", order) as job:
        summary = Summary()
        for number in range(40):
            other = {"verdict": Verdict.BLOCKED} if number == 39 else {}
            after = before.model_copy(update={"subject_id": f"subject-{number}", **other})
            summary.add(Replayed(ReplayStatus.DIFFERS, before, after, ("$.subject_id",)))
            values = before.to_bytes(), after.to_bytes()
            job.add_change(summary.changes, *values, ["$.subject_id"], verdict=bool(other))
        monkeypatch.setattr("groundwire.replay.report.MAX_ROWS", 7)
        table = list(as_table(job, summary))
        changes = await policy_changes(summary, place.policies, strict)
        write_page(tmp_path / "page.html", job, summary, changes)
    page = (tmp_path / "page.html").read_text()
    rest = [json.loads(line) for line in (tmp_path / "page.rest.jsonl").read_text().splitlines()]
    assert len(page.encode()) <= 60_000
    parts = ("groundwire.claims from 7 to latest", "dedup_threshold", "<details>")
    assert [page.index(part) for part in parts] == sorted(page.index(part) for part in parts)
    assert page.index("<td>review</td><td>blocked</td>") < page.index("<td>review</td><td>review</td>")
    shown = [number for number in range(40) if f">subject-{number}<" in page]
    assert 39 in shown
    assert len(shown) + len(rest) == 40
    assert {each["after"]["subject_id"] for each in rest}.isdisjoint(f"subject-{n}" for n in shown)
    assert f"{len(rest)} more stand in <code>page.rest.jsonl</code>" in page
    assert sum(" subject-" in line for line in table) == 7
    assert table[-1] == "and 33 more: --format json lists them all"
