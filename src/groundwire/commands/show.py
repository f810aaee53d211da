"""Decisions as a person reads them: one line each, and why."""

from __future__ import annotations

from collections import Counter
from typing import Final, TextIO

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from groundwire.client.text import cut
from groundwire.errors import RecordError
from groundwire.messages.decisions import CitationState, Decision

STYLES: Final = {"approved": "green", "review": "yellow", "blocked": "red", "dead letter": "magenta"}

_QUIET: Final = {"citation_missing", "dedup_skipped", "source_not_trusted", "hedge_words_detected"}
"""Failed checks that say nothing the reason does not say."""

_WIDTHS: Final = (11, 27, 58)


class DecisionPrinter:
    """Prints decisions and errors as they come, and a summary of both.

    Nothing of a record reaches the terminal but as text; colours appear on a terminal only.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._counts: Counter[str] = Counter()
        self._headed = False

    def decision(self, decision: Decision) -> None:
        """Print a decision: verdict, reason, the claim, and what bore on it."""
        verdict = str(decision.verdict)
        self._counts[verdict] += 1
        claim = decision.evidence.claim if decision.evidence else decision.subject_id
        self._row(verdict, decision.reason_code, claim, "; ".join(_notes(decision)))

    def error(self, where: str, error: RecordError) -> None:
        """Print an error: where, its code, and what is wrong."""
        self._counts["dead letter"] += 1
        self._row("dead letter", error.code, where, error.message)

    def summary(self) -> None:
        """Print how many records came to what."""
        total = sum(self._counts.values())
        counts = ", ".join(f"{self._counts[name]} {name}" for name in STYLES if self._counts[name])
        self._console.print(f"\n{total} in: {counts or 'nothing'}", soft_wrap=True)

    def _row(self, verdict: str, reason: str, claim: str, note: str) -> None:
        if not self._headed:
            self._line("verdict", "reason", "claim", "because", style="bold")
            self._headed = True
        self._line(verdict, reason, claim, note, style="")

    def _line(self, verdict: str, reason: str, claim: str, note: str, *, style: str) -> None:
        cells = [
            set_cell_size(cut(cell, width), width)
            for cell, width in zip((verdict, reason, claim), _WIDTHS, strict=True)
        ]
        text = Text(f"{cells[0]}  ", style=style or STYLES.get(verdict, ""))
        text.append(f"{cells[1]}  {cells[2]}  ", style=style or "default")
        text.append(cut(note, 200), style=style or "dim")
        self._console.print(text, no_wrap=True, crop=False, soft_wrap=True)


def _notes(decision: Decision) -> list[str]:
    """Return what a person needs to know beside the reason, most telling first."""
    notes = []
    if decision.hedges:
        notes.append("hedges: " + ", ".join(dict.fromkeys(hedge.text for hedge in decision.hedges)))
    for citation in decision.citations:
        sign = "✓" if citation.state == CitationState.VERIFIED else "✗"
        notes.append(f"{sign} {citation.type}:{citation.value} {citation.detail}")
    if decision.conflicting_memory_id is not None:
        notes.append(f"near {decision.conflicting_memory_id} ({decision.similarity_score})")
    for check in decision.checks_failed:
        name = check.partition(":")[0]
        if name not in _QUIET and name != "citation_unverified":
            notes.append(check)
    return list(dict.fromkeys(notes)) or [decision.reason]
