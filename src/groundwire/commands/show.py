"""Decisions as a person reads them: one line each, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TextIO

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from groundwire.client.text import cut
from groundwire.errors import RecordError
from groundwire.messages.decisions import CitationState, Decision, DedupMatch

STYLES: Final = {"approved": "green", "review": "yellow", "blocked": "red", "dead letter": "magenta"}

_QUIET: Final = {
    *(
        "citation_missing",
        "citation_unverified",
        "dedup_skipped",
        "source_not_trusted",
        "hedge_words_detected",
    ),
    *("duplicate", "conflicting_near_duplicate", "previously_rejected", "expired"),
    *("phantom_file", "snippet_mismatch", "stale_index", "unverified_fields", "source_tags_missing"),
    *("values_unsupported", "entity_grounding_failed", "relation_preservation_failed", "quote_polarity"),
}
"""Failed checks that say nothing the reason and the other notes do not say."""

_UNJUDGED: Final = {"verifier_unavailable", "verifier_unparseable"}
"""Why a claim is flagged that a model was asked about in vain."""

_VERDICT, _REASON, _CLAIM, _NOTE = 11, 26, 58, 200
"""Widths of the columns in cells, where no terminal sets the limit."""
_LEAST_CLAIM: Final = 30


class DecisionPrinter:
    """Prints decisions and errors as they come, and a summary of both.

    Nothing of a record reaches the terminal but as text; colours appear on a terminal only.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._counts: Counter[str] = Counter()
        self._headed = False

    def decision(self, decision: Decision, answer: str | None = None) -> None:
        """Print a decision: verdict, reason, the claim or answer, and what bore on it.

        `answer` is that of a response, which its decision does not repeat; without it, its id is shown.
        """
        verdict = str(decision.verdict)
        self._counts[verdict] += 1
        text = decision.evidence.claim if decision.evidence else answer or f"response {decision.subject_id}"
        self._row(verdict, decision.reason_code, " ".join(text.split()), "; ".join(_notes(decision)))

    def error(self, where: str, error: RecordError) -> None:
        """Print an error: where, its code, and what is wrong."""
        self._counts["dead letter"] += 1
        self._row("dead letter", error.code, where, error.message)

    def summary(self) -> None:
        """Print how many records came to what."""
        total = sum(self._counts.values())
        counts = ", ".join(f"{self._counts[name]} {name}" for name in STYLES if self._counts[name])
        self._console.print(f"\n{total} in: {counts or 'nothing'}", soft_wrap=True)

    def section(self, title: str) -> None:
        """Begin a group of rows under a title."""
        self._head()
        self._console.print(Text(f"\n{cut(title, _NOTE)}", style="bold"), soft_wrap=True)

    def _row(self, verdict: str, reason: str, claim: str, note: str) -> None:
        self._head()
        self._line(verdict, reason, claim, note, style="")

    def _head(self) -> None:
        if not self._headed:
            self._line("verdict", "reason", "claim", "because", style="bold")
            self._headed = True

    def _line(self, verdict: str, reason: str, claim: str, note: str, *, style: str) -> None:
        width = self._claim_width()
        cells = [
            set_cell_size(cut(cell, size), size)
            for cell, size in zip((verdict, reason, claim), (_VERDICT, _REASON, width), strict=True)
        ]
        text = Text(f"{cells[0]}  ", style=style or STYLES.get(verdict, ""))
        text.append(f"{cells[1]}  {cells[2]}  ", style=style or "default")
        text.append(cut(note, _NOTE), style=style or "dim")
        if self._console.is_terminal:  # one line a record: what has no room is left out
            self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(text, soft_wrap=True)

    def _claim_width(self) -> int:
        """Share a terminal's width between the claim and what bears on it."""
        if not self._console.is_terminal:
            return _CLAIM
        room = self._console.width - _VERDICT - _REASON - 6
        return max(_LEAST_CLAIM, min(_CLAIM, room * 11 // 20))


def _notes(decision: Decision) -> list[str]:
    """Return what a person needs to know beside the reason, most telling first."""
    notes = [_nearness(decision)] if decision.conflicting_memory_id is not None else []
    if decision.facts.review:
        notes.insert(0, _reviewer(decision.facts.review))
    if decision.hedges:
        notes.append("hedges: " + ", ".join(dict.fromkeys(hedge.text for hedge in decision.hedges)))
    for citation in decision.citations:
        sign = "✓" if citation.state == CitationState.VERIFIED else "✗"
        notes.append(f"{sign} {citation.detail or citation.state}: {citation.type} {citation.value}")
    notes += _report_notes(decision.report or {})
    notes += [check for check in decision.checks_failed if check.partition(":")[0] not in _QUIET]
    return list(dict.fromkeys(notes)) or [decision.reason]


def _reviewer(review: Mapping[str, Any]) -> str:
    """Say who did what, and the reason that they gave."""
    reason = f": {review['reason']}" if review.get("reason") else ""
    return f"{review['action']} by {review['reviewer']}{reason}"


def _report_notes(report: Mapping[str, Any]) -> list[str]:
    """Return what the report of a response has to say, in words."""
    notes = [str(warning["message"]) for warning in report.get("warnings") or ()]
    missing = (report.get("entities") or {}).get("missing_entities", ())
    violations = (report.get("relations") or {}).get("violations", ())
    notes += [f"entity {entity['entity_id']}: {entity['reason']}" for entity in missing]
    notes += [f"relation {violation['index']}: {violation['reason']}" for violation in violations]
    claims = (report.get("epistemic") or {}).get("claims", ())
    unjudged = Counter(claim["flag_reason"] for claim in claims if claim["flag_reason"] in _UNJUDGED)
    notes += [f"{reason}: {number}" for reason, number in sorted(unjudged.items())]
    if report.get("regenerate"):
        notes.append(f"to be asked again, mode {report['regenerate']['mode']}")
    if report.get("fallback"):
        notes.append(f"fall back to {report['fallback']}")
    return notes


def _nearness(decision: Decision) -> str:
    """Say which memory the claim is near to, how near, and in what it differs."""
    near = decision.conflicting_memory_id
    found = next((match for match in _matches(decision) if match.subject_id == near), None)
    near_by = f"{near} ({decision.similarity_score:.2f})"
    if found is None or found.difference == "none":
        return f"near {near_by}"
    return f"other {found.difference} than {near_by}"


def _matches(decision: Decision) -> list[DedupMatch]:
    return decision.facts.dedup.matches if decision.facts.dedup else []
