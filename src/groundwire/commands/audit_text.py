"""Verified claims as a person reads them: what is wrong with each, how far, and by which words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from groundwire.check import LineError
from groundwire.checks.warnings import ReportWarning
from groundwire.client.text import visible
from groundwire.epistemic import ClaimVerification, HallucinationReport, gap_band
from groundwire.epistemic.plan import LEAST_CHARACTERS
from groundwire.epistemic.types import ModelCall
from groundwire.messages.responses import LlmResponse
from groundwire.verify.models import HttpModel

SUPPORTED: Final = "supported"
_STYLES: Final = {SUPPORTED: "green", "partial_support": "yellow", "over_extrapolation": "yellow"}
_WRONG: Final = "red"
_SHOWN: Final = 3  # places of evidence that a line has room for
_WIDTH: Final = 21  # of a verdict or the type of a warning, one blank more than the longest
_NOT_DUE: Final = (
    f"as no claim is due: answers under {LEAST_CHARACTERS} characters, no evidence, or not in the sample"
)


class AuditPrinter:
    """Prints the claims of one response after the other, and a summary.

    Nothing of a record reaches the terminal but as text; colours appear on a terminal only.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._responses = self._claims = self._flagged = self._unseen = self._bad = self._warned = 0
        self._calls: list[ModelCall] = []

    def report(
        self, response: LlmResponse, report: HallucinationReport, warnings: Sequence[ReportWarning] = ()
    ) -> None:
        """Print what was found in a response: its claims, then what is wrong with what it cites."""
        self._responses += 1
        self._claims += report.total_claims
        self._flagged += report.flagged_claims
        self._unseen += report.unverified_claims
        self._calls += report.calls
        self._print(Text(_headline(response, report), style="bold"))
        at = places(response)
        for claim in report.claims:
            self._claim(claim, at)
        self._warned += bool(warnings)
        for warning in warnings:
            line = Text(f"  {str(warning.type).lower():<{_WIDTH}}", style=_WRONG)
            self._print(line.append(visible(" ".join(warning.message.split("\n"))), style="default"))
        self._print(Text())

    def error(self, bad: LineError) -> None:
        """Print a record that could not be read."""
        self._bad += 1
        self._print(
            Text(f"record {bad.line}: {bad.error.code}: {visible(bad.error.message)}", style="magenta")
        )

    def summary(self, model: HttpModel | None = None) -> None:
        """Print how many claims are flagged; where there is a model, what it was asked, or that it was not."""
        bad = f", {self._bad} bad" if self._bad else ""
        found = _counts(self._claims, self._flagged, self._unseen)
        warned = f"; {self._warned} with a warning about sources" if self._warned else ""
        self._print(Text(f"{self._responses} audited{bad}: {found}{warned}"))
        if self._calls:
            self._print(Text(f"model: {_asked(self._calls, model)}"))
        elif model is not None and self._responses:
            self._print(Text(f"model: not asked, {_NOT_DUE}"))

    def _claim(self, claim: ClaimVerification, at: dict[str, str]) -> None:
        verdict = claim.flag_reason or SUPPORTED
        style = _STYLES.get(verdict, _WRONG)
        line = Text(f"  {verdict:<{_WIDTH}}", style=style)
        line.append(
            f"support {claim.evidence_support:4.2f}  gap {claim.evidence_gap_bits:5.2f} bits, ",
            style="default",
        )
        line.append(f"{gap_band(claim.evidence_gap_bits):<20}", style="default")
        line.append(visible(_evidence(claim, at)), style="dim")
        self._print(line)
        self._print(_marked(claim, style))
        if claim.uncovered:
            words = ", ".join(dict.fromkeys(word.text for word in claim.uncovered))
            self._print(Text(f"    not covered: {visible(words)}", style="dim"))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=not self._console.is_terminal)


def places(response: LlmResponse) -> dict[str, str]:
    """Return id of evidence -> where it stands: file and lines of chunks, else the id."""
    if response.context is not None:
        return {name: name for name in response.context}
    found: dict[str, list[str]] = {}
    for chunk in response.chunks or ():
        found.setdefault(chunk.chunk_id, []).append(f"{chunk.file}:{chunk.start_line}-{chunk.end_line}")
    return {name: ", ".join(places) for name, places in found.items()}


def _asked(calls: Sequence[ModelCall], model: HttpModel | None) -> str:
    """Say what a model was asked, what that cost, and why some questions have no answer that counts."""
    cost = sum(call.cost_usd for call in calls)
    faults = Counter(call.fault for call in calls if call.fault is not None)
    why = "".join(f"; {number} {fault}" for fault, number in sorted(faults.items()))
    last = f" (last: {model.trouble})" if faults and model is not None and model.trouble else ""
    return f"{len(calls)} question{'s' * (len(calls) != 1)}, ${cost:.5f}{why}{last}"


def _counts(claims: int, flagged: int, unseen: int) -> str:
    """Say how many claims there are, are flagged, and were not looked at."""
    told = f"{claims} claim{'s' * (claims != 1)}, {flagged} flagged"
    return f"{told}, {unseen} not looked at" if unseen else told


def _headline(response: LlmResponse, report: HallucinationReport) -> str:
    parts = [_counts(report.total_claims, report.flagged_claims, report.unverified_claims)]
    if report.claims:
        parts.append(f"support of the whole {report.answer_support:.2f}")
        parts.append(f"widest gap {report.max_gap_bits:.2f} bits")
    elif not response.answer:
        parts.append("no answer")
    if not (response.context or response.chunks):
        parts.append("no evidence given, as context or chunks")
    return f"{visible(response.response_id)}: {', '.join(parts)}"


def _evidence(claim: ClaimVerification, at: dict[str, str]) -> str:
    """Say where the evidence of a claim stands; what it cites and is not there says so."""
    shown = [at.get(name, f"{name} (not there)") for name in claim.evidence_ids[:_SHOWN]]
    more = len(claim.evidence_ids) - _SHOWN
    return ", ".join([*shown, *([f"{more} more"] if more > 0 else [])]) or "no evidence"


def _marked(claim: ClaimVerification, style: str) -> Text:
    """Return a claim or step on one line, the words that no evidence holds marked."""
    text = Text(f"    {claim.claim_id.rpartition('/')[2].replace('#', ' ')}: ")
    for part, uncovered in _parts(claim):
        text.append(
            visible(" ".join(part.split("\n"))), style=f"bold underline {style}" if uncovered else "default"
        )
    return text


def _parts(claim: ClaimVerification) -> Iterator[tuple[str, bool]]:
    done = 0
    for word in claim.uncovered:
        start, end = word.start - claim.start, word.end - claim.start
        if start < done:
            continue
        yield claim.claim_text[done:start], False
        yield claim.claim_text[start:end], True
        done = end
    yield claim.claim_text[done:], False
