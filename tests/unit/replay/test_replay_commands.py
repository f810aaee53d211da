"""`groundwire verify` and `groundwire replay` as commands: what they print, refuse and end with."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from groundwire.cli.main import main
from groundwire.errors import UsageError
from groundwire.messages.decisions import Decision, Verdict
from groundwire.policy import Policy
from groundwire.replay import report as pages
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
from tests.unit.replay.checking import ORDER
from tests.unit.replay.town import Town, town


@pytest.fixture
def place(tmp_path) -> Town:
    return asyncio.run(life(tmp_path))


async def life(tmp_path: Path) -> Town:
    place = town(tmp_path)
    place.policy = Policy(version="of the test")
    await place.policies.put(place.policy)
    await place.send(*(place.claim(f"c{n}", f"Service {n} keeps {n} <b>sessions</b>") for n in range(3)))
    place.write(tmp_path)
    return place


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def verify(folder: Path, *more: object) -> tuple[int, str, str]:
    files = {name: folder / f"{name}.jsonl" for name in ("decisions", "records")}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    return run("verify", *options, "--policies", folder / "policies", *more)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_verify_ends_with_0_1_or_3_and_names_decision_line_and_field(place, tmp_path):
    counts = "3 equal, 0 differs, 0 contradicted, 0 expired, 0 other engine, 0 missing\n"
    assert verify(tmp_path) == (0, "", counts)
    name = next(iter(place.published))
    policy = next((tmp_path / "policies").iterdir())
    for path, old, new, status, said in (
        (
            tmp_path / "decisions.jsonl",
            '"approved":false',
            '"approved":true',
            1,
            [name, "differs", "$.approved"],
        ),
        (tmp_path / "records.jsonl", "Service 1", "Service 9", 3, ["missing", "record"]),
        (tmp_path / "decisions.jsonl", '"engine":"', '"engine":"9.', 3, ["other_engine", "9."]),
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
    edit(tmp_path / "decisions.jsonl", '"approved":false', '"approved":true')
    assert json.loads(verify(tmp_path, "--format", "json")[1]) == {
        "where": "line 1",
        "decision_id": name,
        "status": "differs",
        "fields": ["$.approved"],
        "detail": None,
    }


def test_a_line_that_is_no_decision_differs_and_lines_may_end_as_windows_ends_them(place, tmp_path):
    for name in ("decisions", "records"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\n")
    assert verify(tmp_path)[0] == 0
    with (tmp_path / "decisions.jsonl").open("a") as file:
        file.write('{"decision_id": "x"}\n')
    status, out, _ = verify(tmp_path)
    assert status == 1
    assert out.startswith("line 5  ?  differs  $.revision")


def test_a_replayed_decision_verifies_under_the_name_of_its_replay_only(place, tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_text(path.read_text().replace('"replay":null', '"replay":"july"'))
    assert verify(tmp_path, "--replay", "july")[0] == 0
    status, out, _ = verify(tmp_path)
    assert status == 1
    assert "$.replay" in out


def test_wrong_usage_is_2_and_says_what_to_do(place, tmp_path):
    assert run("verify")[0] == 2
    assert run("verify", "--from-topics", "--records", tmp_path / "records.jsonl")[0] == 2
    status, _, err = verify(tmp_path, "--records", tmp_path / "nowhere")
    assert (status, "nowhere" in err) == (2, True)
    for given in ("approved", "groundwire.approved", "replay.", "replay.a b", "replay.approved", "xreplay.a"):
        status, _, err = run("replay", "--output-topic", given)
        assert (status, "--output-topic" in err) == (2, True), given
    assert run("replay", "--from", "yesterday")[0] == 2
    assert run("replay", "--output", tmp_path / "o", "--output-topic", "replay.a")[0] == 2
    assert run("replay", "--output", tmp_path / "o", "--job", tmp_path / "o")[0] == 2
    assert run("replay", "--topic", "approved")[0] == 2


def test_a_replay_writes_to_topics_of_its_own_behind_the_prefix():
    assert replay_topic("replay.july", "groundwire.") == "groundwire.replay.july"
    assert replay_topic("groundwire.replay.july", "groundwire.") == "groundwire.replay.july"
    assert replay_topic("replay.july", "") == "replay.july"
    assert replay_topic("replay.claims.july", "") == "replay.claims.july"
    for given in (
        "replay.review-decisions",
        "replay.eu.approved",
        "replay.a.b.claims",
        "replay.eu-claims",
        "replay.euaudit",
    ):
        with pytest.raises(UsageError, match="live topic"):
            replay_topic(given, "")


def test_a_rate_that_is_no_number_above_zero_is_wrong_usage():
    for given in ("nan", "inf", "-inf", "0", "-1"):
        for command in (["verify", "--from-topics"], ["replay"], ["dead-letters", "redrive"]):
            status, _, err = run(*command, "--rate", given)
            assert (status, "--rate" in err) == (2, True), (command, given)


def test_a_job_goes_on_with_its_own_order_only(tmp_path):
    Job(tmp_path / "job", ORDER).close()
    Job(tmp_path / "job", ORDER).close()
    for change in ({"name": "other"}, {"engine": "0.0.9"}, {"facts_from": "7"}):
        with pytest.raises(UsageError, match="another replay"):
            Job(tmp_path / "job", replace(ORDER, **change))
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UsageError, match="no job file"):
        Job(tmp_path / "text", ORDER)


async def test_an_output_that_became_shorter_is_not_gone_on_with(tmp_path):
    (tmp_path / "out").write_bytes(b"short")
    writer = FileWriter(tmp_path / "out")
    with pytest.raises(UsageError, match="shorter"):
        await writer.resume(100)
    writer.close()


async def test_a_rate_is_kept_in_the_mean_and_without_one_nothing_waits():
    now, waited = [0.0], []

    async def sleep(seconds: float) -> None:
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


async def test_the_page_says_stretch_policies_and_totals_first_and_stays_below_2_mb(
    place, tmp_path, monkeypatch
):
    """What does not fit stands in a file beside it; page and file name each change once, other verdicts first."""
    monkeypatch.setattr(pages, "MAX_BYTES", 60_000)
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
    told = [
        page.index(text) for text in ("groundwire.claims from 7 to latest", "dedup_threshold", "<details>")
    ]
    assert told == sorted(told)
    assert page.index("<td>review</td><td>blocked</td>") < page.index("<td>review</td><td>review</td>")
    shown = [number for number in range(40) if f">subject-{number}<" in page]
    assert 39 in shown
    assert len(shown) + len(rest) == 40
    assert {each["after"]["subject_id"] for each in rest}.isdisjoint(f"subject-{n}" for n in shown)
    assert f"{len(rest)} more stand in <code>page.rest.jsonl</code>" in page
    assert sum(" subject-" in line for line in table) == 7
    assert table[-1] == "and 33 more: --format json lists them all"


def test_a_page_that_cannot_be_made_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setenv("GROUNDWIRE_BROKERS", "127.0.0.1:1")
    refused = CliRunner().invoke(
        main, ["replay", "--from", "earliest", "--html", str(tmp_path / "page.html")]
    )
    assert (refused.exit_code, "groundwire[console]" in refused.output) == (2, True)
