"""`groundwire check`: decides records of a file without any service."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, Final, TextIO

import click
from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from groundwire.cli.deciding import Deciding, DecidingOptions, deciding_options
from groundwire.cli.options import TimeParam, file_argument
from groundwire.cli.output import ONE_A_LINE, cut, print_line
from groundwire.cli.places import PlaceForecast
from groundwire.errors import ErrorCode, RecordError, UsageError
from groundwire.library.check import LineError, records_of, unwrapped
from groundwire.messages.decisions import CitationState, Decision
from groundwire.text.normalise import escape_controls

STYLES: Final = {"approved": "green", "review": "yellow", "blocked": "red", "dead letter": "magenta"}

_QUIET: Final = {
    *("citation_missing", "citation_unverified", "dedup_skipped", "source_not_trusted"),
    *(
        "hedge_words_detected",
        "duplicate",
        "conflicting_near_duplicate",
        "previously_rejected",
        "expired",
        "quote_polarity",
    ),
    *("phantom_file", "snippet_mismatch", "stale_index", "unverified_fields", "source_tags_missing"),
    *("flagged_claims", "critical_gap", "values_unsupported", "entity_grounding_failed"),
    "relation_preservation_failed",
}
"""Failed checks that say nothing the reason and the other notes do not say."""

_SIGNATURE: Final[Mapping[str | None, str]] = {
    None: "no header gw-attestation",
    "invalid": "the signature is not of these bytes",
    "expired": "the key has expired or is not valid yet",
    "unknown_key": "the signature is of an unknown key",
    "not_entitled": "the key may not sign this",
    "valid": "the signature holds",
}
_UNATTESTED: Final = {"source_unattested", "grounding_unattested"}

_CLAIMS, _QUOTED = 2, 80
"""Flagged claims that a line names, and how many characters of each."""

_UNJUDGED: Final = {"verifier_unavailable", "verifier_unparseable"}
"""Why a claim is flagged that a model was asked about in vain."""

_VERDICT, _REASON, _ID, _CLAIM, _NOTE = 11, 26, 12, 58, 200
"""Widths of the columns in cells, where no terminal sets the limit."""
_LEAST_CLAIM: Final = 30


class DecisionPrinter:
    """Prints decisions and errors as they come, and a summary of both; `ids`: a column names each record.

    Nothing of a record reaches the terminal but as text; colours appear on a terminal only.
    """

    def __init__(self, out: TextIO, *, ids: bool = False) -> None:
        self._ids = ids
        self._console = Console(file=out, highlight=False)
        self._counts: Counter[str] = Counter()
        self._headed = False

    def decision(self, decision: Decision, answer: str | None = None) -> None:
        verdict = str(decision.verdict)
        self._counts[verdict] += 1
        text = decision.evidence.claim if decision.evidence else answer or f"response {decision.subject_id}"
        claim, note = " ".join(text.split()), "; ".join(_notes(decision))
        self._line(verdict, decision.reason_code, decision.subject_id, claim, note)

    def error(self, where: str, error: RecordError) -> None:
        self._counts["dead letter"] += 1
        self._line("dead letter", error.code, "", where, error.message)

    def summary(self, notes: Iterable[str] = ()) -> None:
        total = sum(self._counts.values())
        counts = ", ".join(f"{self._counts[name]} {name}" for name in STYLES if self._counts[name])
        self._console.print(f"\n{total} in: {counts or 'nothing'}", soft_wrap=True)
        for number, note in enumerate(notes):
            self._console.print(Text(("" if number else "\n") + escape_controls(note)), soft_wrap=True)

    def section(self, title: str) -> None:
        self._head()
        self._console.print(Text(f"\n{cut(title, _NOTE)}", style="bold"), soft_wrap=True)

    def _head(self) -> None:
        if not self._headed:
            self._headed = True
            self._line("verdict", "reason", "id", "claim", "because", style="bold")

    def _line(self, *given: str, style: str = "") -> None:
        self._head()
        verdict, reason, subject_id, claim, note = given
        width = _CLAIM
        if self._console.is_terminal:  # which the claim and what bears on it share
            room = self._console.width - _VERDICT - _REASON - 6 - (_ID + 2) * self._ids
            width = max(_LEAST_CLAIM, min(_CLAIM, room * 11 // 20))
        sized = [(reason, _REASON), (subject_id, _ID), (claim, width)]
        cells = [set_cell_size(cut(cell, size), size) for cell, size in sized if self._ids or size != _ID]
        text = Text(f"{set_cell_size(verdict, _VERDICT)}  ", style=style or STYLES.get(verdict, ""))
        text.append("".join(f"{cell}  " for cell in cells), style=style or "default")
        text.append(cut(note, _NOTE), style=style or "dim")
        print_line(self._console, text)


def _notes(decision: Decision) -> list[str]:
    notes: list[str] = []
    if review := decision.facts.review:
        reason = f": {review['reason']}" if review.get("reason") else ""
        notes.append(f"{review['action']} by {review['reviewer']}{reason}")
    if (near := decision.conflicting_memory_id) is not None:
        matches = decision.facts.dedup.matches if decision.facts.dedup else []
        difference = next((match.difference for match in matches if match.subject_id == near), "none")
        near_by = f"{near} ({decision.similarity_score:.2f})"
        notes.append(f"near {near_by}" if difference == "none" else f"other {difference} than {near_by}")
    if hedges := dict.fromkeys(hedge.text for hedge in decision.hedges if hedge.action != "none"):
        notes.append("hedges: " + ", ".join(hedges))
    for citation in decision.citations:
        sign = "✓" if citation.state == CitationState.VERIFIED else "✗"
        notes.append(f"{sign} {citation.detail or citation.state}: {citation.type} {citation.value}")
    notes += _report_notes(decision.report or {})
    signature = _SIGNATURE[(decision.facts.attestation or {}).get("state")]
    for check in decision.checks_failed:
        name = check.partition(":")[0]
        if name not in _QUIET:
            notes.append(f"{check} ({signature})" if name in _UNATTESTED else check)
    return list(dict.fromkeys(notes)) or [decision.reason]


def _report_notes(report: Mapping[str, Any]) -> list[str]:
    notes = [str(warning["message"]) for warning in report.get("warnings") or ()]
    missing = (report.get("entities") or {}).get("missing_entities", ())
    violations = (report.get("relations") or {}).get("violations", ())
    notes += [f"entity {entity['entity_id']}: {entity['reason']}" for entity in missing]
    notes += [f"relation {violation['index']}: {violation['reason']}" for violation in violations]
    epistemic = report.get("epistemic") or {}
    claims = epistemic.get("claims", ())
    if epistemic.get("is_flagged"):
        known = [one for one in claims if one["is_flagged"] and one["flag_reason"] not in _UNJUDGED]
        for claim in known[:_CLAIMS]:
            why = str(claim["flag_reason"]).replace("_", " ")
            notes.append(f"{why}: “{claim['claim_text'][:_QUOTED]}”")
        if len(known) > _CLAIMS:
            notes.append(f"and {len(known) - _CLAIMS} more")
    unjudged = Counter(claim["flag_reason"] for claim in claims if claim["flag_reason"] in _UNJUDGED)
    notes += [f"{reason}: {number}" for reason, number in sorted(unjudged.items())]
    if report.get("regenerate"):
        notes.append(f"to be asked again, mode {report['regenerate']['mode']}")
    if report.get("fallback"):
        notes.append(f"fall back to {report['fallback']}")
    return notes


@click.command()
@file_argument
@deciding_options
@click.option("--now", type=TimeParam(), help="Clock of every record, RFC 3339.  [default: the start]")
@click.option("--format", "form", type=click.Choice(["json", "table"]), default="json", show_default=True)
def check(file: BinaryIO, given: DecidingOptions, now: datetime | None, form: str) -> None:
    """Decide claims and LLM responses, one JSON record a line, without Kafka and Redis.

    Prints one Decision a line, in the order of the input; a line that cannot be decided prints its error. FILE may
    also be one JSON array of records, or one record over several lines. State lives for the run: a later line can
    duplicate an earlier one that was approved. --format table also says how many places in the review queue a
    sample of 20 claims or more takes, and what would ground it. Where GROUNDWIRE_MODEL_API names a
    language model, it is asked about the claims of responses. A line may hold a record with its headers, so that
    signatures can be tried with --keys: {"headers": {"gw-attestation": "KEY:HMAC"}, "record": {...}}.

    Exit status: 0 when every line was decided, 1 when some were bad, 2 for wrong usage.

    Example: echo '{"claim_id":"1","user_id":"ann","content":"Maybe we could try GraphQL"}' | groundwire check
    """
    try:
        deciding = Deciding(given, now)
    except UsageError as exc:
        raise click.UsageError(str(exc)) from None
    deciding.advise()
    sys.exit(asyncio.run(_run(file, deciding, form)))


async def _run(file: BinaryIO, deciding: Deciding, form: str) -> int:
    answers: dict[int, str] = {}

    def noting(lines: Iterable[bytes]) -> Iterator[bytes]:
        for number, line in enumerate(lines):
            if b'"response_id"' in line:
                with suppress(ValueError, RecursionError, RecordError):
                    record = json.loads(unwrapped(line)[0])
                    if isinstance(record, dict) and isinstance(record.get("answer"), str):
                        answers[number] = record["answer"][:_NOTE]
            yield line

    status, began, out, table = 0, False, sys.stdout.buffer, form == "table"
    printer, places = DecisionPrinter(sys.stdout, ids=True), PlaceForecast(deciding.policy.limits)
    lines = records_of(file)
    async with deciding as checker:
        async for result in checker.check(noting(lines) if table else lines):
            if isinstance(result, LineError):
                if not began and result.error.code == ErrorCode.INVALID_JSON:
                    click.echo(ONE_A_LINE, err=True)
                status = 1
                if table:
                    printer.error(f"line {result.line}", result.error)
                else:
                    line = json.dumps(result.as_dict(), ensure_ascii=False)
                    out.write(line.encode("utf-8", "replace") + b"\n")
            else:
                places.add(result)
                if table:
                    printer.decision(result, answers.get(result.origin.offset))
                else:
                    out.write(result.to_bytes() + b"\n")
            began = True
            if not table:
                out.flush()
    if table:
        printer.summary(places.lines())
    elif places.refused:
        click.echo(
            f"warning: {places.refused} claims found no place in the review queue; --format table says what to do",
            err=True,
        )
    return status
