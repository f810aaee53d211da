"""What the demo is made of, without any service."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.console import exports, invitation
from demo.examples import WAVES, Example
from demo.ledger import Ledger
from demo.queue import POLICY, QUEUE
from demo.report import JsonReport, TableReport
from demo.services import environment
from demo.sources import made_in
from groundwire.cli.keys import token
from groundwire.cli.review import review
from groundwire.errors import ErrorCode, RecordError
from groundwire.library.check import Checker, LineError
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.headers import InboundRecord, dead_letter_headers
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy, load_policy
from groundwire.verify.citations import CitationVerifier
from groundwire.verify.citations import Sources as Lookup
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import UrlChecker

EXAMPLES = [example for wave in WAVES for example in wave.examples]


@pytest.mark.slow
async def test_groundwire_check_decides_every_example_as_the_stream_must(tmp_path: Path) -> None:
    waves = WAVES[: WAVES.index(next(wave for wave in WAVES if wave.title.startswith("People")))]
    examples = [e for wave in waves for e in wave.examples if e.record is not None]
    with made_in(tmp_path) as sources:
        urls = UrlChecker(AddressGuard(["127.0.0.1/32"], ports=[80, sources.port]))
        verifier = CitationVerifier({"*": Lookup(adr_dir=sources.adr_dir, repo=sources.repo)}, urls=urls)
        lines = [example.value(sources.places) or b"" for example in examples]
        results = [r async for r in Checker(Policy(), verifier, now=datetime.now(UTC)).check(lines)]
        await verifier.close()
        for example in EXAMPLES:
            record = json.loads(example.value(sources.places) or b"") if example.subject else {}
            text = record.get("content") or record.get("answer") or ""
            assert not re.search(r"\{\w+\}", text), "a placeholder is left"
    came = [str(r.error.code) if isinstance(r, LineError) else r.reason_code for r in results]
    assert came == [str(example.outcomes[0]) for example in examples]


def test_outcomes_of_examples_are_codes_that_exist_and_bytes_are_sent_unchanged() -> None:
    known = {str(code) for code in (*ReasonCode, *ErrorCode)}
    assert {str(outcome) for example in EXAMPLES for outcome in example.outcomes} <= known
    assert Example(b"{broken", ("invalid_json",)).value({"broken": "x"}) == b"{broken"
    assert Example(None, ("invalid_json",)).value({}) is None


def test_workers_get_none_of_the_users_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        bootstrap, url = "127.0.0.1:1", "redis://127.0.0.1:2/0"

    monkeypatch.setenv("GROUNDWIRE_POLICY_FILE", "/etc/strict.toml")
    made = environment(Server(), Server(), {"GROUNDWIRE_REPO": "/r"})  # type: ignore[arg-type]
    assert "GROUNDWIRE_POLICY_FILE" not in made
    assert (made["GROUNDWIRE_BROKERS"], made["GROUNDWIRE_REPO"]) == ("127.0.0.1:1", "/r")


def test_whoever_has_the_console_of_the_demo_gets_what_commands_and_the_api_need(tmp_path: Path) -> None:
    keys = tmp_path / "a folder" / "keys.toml"
    given_to_workers = {"BROKERS": "127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:2/0", "KEYS_FILE": keys}
    given_to_workers |= {
        "TOKENS_FILE": tmp_path / "tokens.toml",
        "ADR_DIR": tmp_path / "adr",
        "REPO": tmp_path,
    }
    settings = {f"GROUNDWIRE_{name}": str(value) for name, value in given_to_workers.items()} | {
        "PATH": "/bin"
    }
    lines = exports(settings)
    given = dict(shlex.split(line.removeprefix("export "))[0].split("=", 1) for line in lines)
    options = {name for command in (review.commands["list"], token.commands["list"]) for p in command.params
               if (name := p.envvar)}  # fmt: skip
    of_a_worker = {f"GROUNDWIRE_{name}" for name in ("REDIS_URL", "CONSOLE_KEY", "ADR_DIR", "REPO")}
    assert set(given) == options | of_a_worker
    assert given["GROUNDWIRE_CONSOLE_KEY"] == given["GROUNDWIRE_REVIEWER_KEY"]
    assert {name: settings[name] for name in settings if name in given}.items() <= given.items()
    text = invitation(
        ["http://127.0.0.1:5/signin#secret", "http://127.0.0.1:5/signin#other"], lines, "gwt_x", tmp_path
    )
    assert f"{tmp_path}/worker-*.log" in text
    assert "\n".join(lines) in text
    assert "\ngroundwire review list\n" in text
    assert "\ntoken=gwt_x console=http://127.0.0.1:5\n" in text
    assert '\ncurl -H "Authorization: Bearer $token" "$console/api/queue"\n' in text
    command = Path(sys.executable).with_name("groundwire")
    assert (f'export PATH={shlex.quote(str(command.parent))}:"$PATH"\n' in text) is command.exists()
    assert text.count("secret") == 1


def test_the_ledger_names_what_differs_or_is_missing_and_counts_the_last_revision_of_a_subject_once() -> None:
    ledger = Ledger()
    ledger.expect("a", "first", ("ungrounded",))
    ledger.expect("b", "second", ("ungrounded",))
    assert not ledger.complete
    for _ in range(3):  # delivered again
        ledger.came("a", "ungrounded", "review")
    ledger.came("b", "verified_citation", "approved")
    ledger.came("x", "ungrounded", "review")
    assert ledger.complete
    assert ledger.differences == [
        "second: expected ungrounded, got verified_citation",
        "x: expected nothing, got ungrounded",
    ]
    assert ledger.totals == {"review": 2, "approved": 1}
    for order in ((0, 1), (1, 0)):
        ledger = Ledger()
        for revision in order:
            ledger.came("a", "any", ("review", "approved")[revision], revision)
        assert ledger.totals == {"approved": 1}


def test_a_provisional_decision_does_not_complete_and_a_record_sent_again_is_a_repeat_and_no_second_subject() -> (
    None
):
    ledger = Ledger()
    ledger.expect("a", "first", ("dedup_unavailable", "trusted_source"))
    assert not ledger.answered
    ledger.came("a", "dedup_unavailable", "review", 0)
    assert ledger.answered
    assert ledger.missing == ["first: expected trusted_source, got nothing"]
    ledger = Ledger()
    for _ in range(2):
        ledger.expect("a", "first", ("ungrounded",))
    ledger.came("a", "ungrounded", "review")
    assert not ledger.complete
    ledger.came("a", "ungrounded", "review")
    assert (ledger.complete, ledger.repeats, ledger.totals.total()) == (True, 1, 1)


def test_reports_show_a_dead_letter_and_totals_as_json_lines_or_as_a_table_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = RecordError(ErrorCode.INVALID_JSON, "not JSON")
    headers = tuple(dead_letter_headers(error, "groundwire.claims", 0, 7, ()))
    letter = InboundRecord("groundwire.dead-letter", 0, 0, 0, None, b"\x1b[2J{", headers)
    ledger, lines, table = Ledger(), io.StringIO(), io.StringIO()
    for key, verdict in (("a", "approved"), ("b", "blocked"), ("c", "dead letter")):
        ledger.expect(key, key, ("any",))
        ledger.came(key, "any", verdict)
    for report in (JsonReport(lines), TableReport(table, {})):
        report.wave("A title")
        report.record(letter, TopicName.DEAD_LETTER)
        report.summary(ledger, 3.2)
    first, last = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (first["error"], last["summary"]["in"]) == ("invalid_json", 3)
    assert capsys.readouterr().out == ""
    assert "3 = 1 approved + 0 review + 1 blocked + 1 dead letter." in table.getvalue()
    assert "invalid_json" in table.getvalue()
    assert "\x1b" not in table.getvalue()


async def test_what_reviewers_of_the_demo_decide_waits_for_the_reason_that_was_planted(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    checker = Checker(
        load_policy(tmp_path / "policy.toml", {}), CitationVerifier({}, network=False), now=datetime.now(UTC)
    )
    lines = [example.value({}) or b"" for example in QUEUE.examples]
    decisions = [one async for one in checker.check(lines) if not isinstance(one, LineError)]
    assert [one.reason_code for one in decisions] == [str(example.outcomes[0]) for example in QUEUE.examples]
    assert {one.facts.place for one in decisions} == {"free"}
    assert sum(one.kind == "response" for one in decisions) >= 10
