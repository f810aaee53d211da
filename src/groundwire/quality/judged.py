"""Lets the verifier judge labelled rows, and measures it beside plain baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from groundwire.epistemic import VerificationConfig, detect_hallucinations, verify_claim
from groundwire.quality.figures import DRAWS, Estimate, Scored, best_threshold, estimates, wilson
from groundwire.quality.labelled import Labelled

FOLDS: Final = 5
"""Parts of the sources that are held out in turn where a threshold has to be chosen."""

VERIFIER: Final = "verifier"
WHOLE: Final = "verifier, whole answer"


class Judged(NamedTuple):
    """A labelled row and the verdict on it.

    Attributes:
        support: of its weakest claim, 0..1; the row is flagged where this is below the threshold.
        whole: support of the text as a whole, 0..1.
        length: characters of the text.
        declared: it was given as a single claim.
        supported: the label.
        group: its source.
    """

    support: float
    whole: float
    length: int
    declared: bool
    supported: bool
    group: str


_METHODS: Final[Mapping[str, Callable[[Judged], float]]] = {
    "all positive": lambda _: 1.0,
    "length": lambda row: float(row.length),
    VERIFIER: lambda row: 1 - row.support,
    WHOLE: lambda row: 1 - row.whole,
}
"""Baselines, then the verifier; a score is higher where less is supported."""


class Counted(NamedTuple):
    """Verdicts at a threshold: rows flagged of those that are supported, and passed of those that are not."""

    false_alarms: int
    supported: int
    missed: int
    unsupported: int

    @property
    def false_alarm_share(self) -> Estimate:
        """Supported rows that are flagged, with a Wilson interval."""
        return wilson(self.false_alarms, self.supported)

    @property
    def missed_share(self) -> Estimate:
        """Unsupported rows that are not flagged, with a Wilson interval."""
        return wilson(self.missed, self.unsupported)


def judge(row: Labelled) -> Judged:
    """Ask the deterministic verifier about a row.

    What claims nothing is flagged by nobody; its support is 1.0.
    """
    if row.declared:
        support = whole = verify_claim(row.text, list(row.evidence.values())).evidence_support
    else:
        report = detect_hallucinations(row.text, dict(row.evidence))
        support = min((claim.evidence_support for claim in report.claims), default=1.0)
        if report.unverified_claims:  # what was not looked at is supported by nothing
            support = 0.0
        whole = report.answer_support
    return Judged(support, whole, len(row.text), row.declared, row.supported, row.group)


def figures(
    rows: Sequence[Judged], config: VerificationConfig, *, draws: int = DRAWS
) -> dict[str, dict[str, Estimate]]:
    """Return method -> figure -> estimate, baselines first.

    The verifier's verdicts are those of the threshold in force; the others choose theirs on other sources than those
    that they are measured on.

    Args:
        rows: labelled rows with verdicts; both labels occur.
        config: the threshold in force.
        draws: of the bootstrap.
    """
    results: dict[str, dict[str, Estimate]] = {}
    for method, score in _METHODS.items():
        if method == WHOLE and all(row.declared for row in rows):
            continue  # a claim is a whole
        scored = [Scored(score(row), not row.supported, row.group) for row in rows]
        if method == VERIFIER:
            verdicts = [row.support < config.support_threshold for row in rows]
            scored = [row._replace(flagged=flag) for row, flag in zip(scored, verdicts, strict=True)]
        else:
            scored = held_out(scored)
        results[method] = estimates(scored, draws=draws)
    return results


def counted(rows: Sequence[Judged], threshold: float) -> Counted:
    """Count the verdicts at a threshold of support."""
    good = [row.support < threshold for row in rows if row.supported]
    bad = [row.support < threshold for row in rows if not row.supported]
    return Counted(sum(good), len(good), len(bad) - sum(bad), len(bad))


def held_out(rows: Sequence[Scored]) -> list[Scored]:
    """Return the rows with verdicts by thresholds that are chosen on other sources than theirs."""
    fold = folds(row.group for row in rows)
    others = {
        number: [row for row in rows if fold[row.group] != number] or rows for number in set(fold.values())
    }
    threshold = {number: best_threshold(part) for number, part in others.items()}
    return [row._replace(flagged=row.score >= threshold[fold[row.group]]) for row in rows]


def folds(groups: Iterable[str]) -> dict[str, int]:
    """Return group -> which of the parts it is held out with, the same for the same groups in any order."""
    ordered = sorted(set(groups), key=lambda group: blake2b(group.encode("utf-8", "surrogatepass")).digest())
    return {group: place % FOLDS for place, group in enumerate(ordered)}
