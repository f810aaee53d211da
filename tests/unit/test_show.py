"""The table of decisions."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console

from groundwire.cli.check import DecisionPrinter
from groundwire.errors import ErrorCode, RecordError
from groundwire.library.check import Checker, LineError
from groundwire.messages.decisions import Decision
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier

LONG = "The nightly backup of the billing database starts at two and copies every single table to the archive"


async def _decisions(claims: Iterable[str], user: str = "documentation") -> list[Decision]:
    lines = [
        f'{{"claim_id": "c{n}", "user_id": "ann", "content": "{text}", "source": "{user}"}}'.encode()
        for n, text in enumerate(claims)
    ]
    checker = Checker(Policy(), CitationVerifier({}, network=False), now=datetime(2026, 1, 1, tzinfo=UTC))
    results = [result async for result in checker.check(lines)]
    assert not any(isinstance(result, LineError) for result in results)
    return [result for result in results if isinstance(result, Decision)]


async def _table(*claims: str, ids: bool = False) -> str:
    out = io.StringIO()
    printer = DecisionPrinter(out, ids=ids)
    for decision in await _decisions(claims):
        printer.decision(decision)
    return out.getvalue()


async def test_on_a_terminal_every_decision_is_one_line_of_its_width() -> None:
    for width in [60, 80, 120, 200]:
        out = io.StringIO()
        printer = DecisionPrinter(out)
        terminal = {"force_terminal": True, "color_system": None, "width": width}
        printer._console = Console(file=out, highlight=False, **terminal)
        for decision in await _decisions([LONG, "I think it may fail, see ADR-003 and ADR-004 and ADR-005"]):
            printer.decision(decision)
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in out.getvalue().splitlines()]
        assert [len(line) <= width for line in lines] == [True] * 3


async def test_a_near_duplicate_names_the_memory_the_likeness_and_the_difference() -> None:
    assert "other negation than c0 (0.94)" in await _table(LONG, LONG.replace("copies", "never copies"))


async def test_ids_have_a_column_where_they_are_asked_for_and_a_hedge_that_decides_nothing_is_no_reason() -> (
    None
):
    assert [" ".join(line.split()) for line in (await _table("One thing", ids=True)).splitlines()] == [
        "verdict reason id claim because",
        "approved trusted_source c0 One thing From trusted source: documentation",
    ]
    month = "May is the month when the drivers rest."
    assert (await _decisions([month]))[0].hedges
    assert "hedges" not in await _table(month)


async def test_a_flagged_answer_names_the_claims_that_are_wrong() -> None:
    line = b'{"response_id": "r", "user_id": "a", "answer": "It has 5 doors.", "context": {"a": "It has 3 doors."}}'
    checker = Checker(Policy(), CitationVerifier({}, network=False), now=datetime(2026, 1, 1, tzinfo=UTC))
    out = io.StringIO()
    async for decision in checker.check([line]):
        assert isinstance(decision, Decision)
        DecisionPrinter(out).decision(decision)
    assert "contradicted: “It has 5 doors.”" in out.getvalue()
    assert "flagged_claims: 1" not in out.getvalue()


async def test_an_unattested_source_says_what_is_wrong_with_its_signature() -> None:
    states = {"invalid": "not of these bytes", "expired": "expired", "unknown_key": "unknown key"}
    states |= {"not_entitled": "may not sign", "": "no header gw-attestation"}
    (decision,) = await _decisions(["One thing"])
    for state, told in states.items():
        attestation = {"key_id": "k", "state": state} if state else None
        facts = decision.facts.model_copy(update={"attestation": attestation})
        changed = {"facts": facts, "checks_failed": ["source_unattested: documentation"]}
        out = io.StringIO()
        DecisionPrinter(out).decision(decision.model_copy(update=changed))
        assert "source_unattested: documentation (" in out.getvalue()
        assert told in out.getvalue()


async def test_the_heading_comes_once_and_the_summary_counts_verdicts_and_dead_letters() -> None:
    out = io.StringIO()
    printer = DecisionPrinter(out)
    printer.section("First")
    for decision in await _decisions(["One thing", "Maybe another"]):
        printer.decision(decision)
    printer.section("Second")
    printer.error("line 3", RecordError(ErrorCode.INVALID_JSON, "not JSON"))
    lines = [line.split("  ")[0] for line in out.getvalue().splitlines()]
    assert lines == ["verdict", "", "First", "approved", "blocked", "", "Second", "dead letter"]
    printer.summary()
    assert out.getvalue().endswith("\n3 in: 1 approved, 1 blocked, 1 dead letter\n")
