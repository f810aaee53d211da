"""Everything that `groundwire evaluate` has to say of labelled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from groundwire.epistemic import VerificationConfig
from groundwire.errors import UsageError
from groundwire.quality.figures import DRAWS, Estimate
from groundwire.quality.judged import Counted, Judged, counted, figures


class Measured(NamedTuple):
    """Figures of labelled rows.

    Attributes:
        rows: that were read.
        bad_rows: that could not be read; nothing below counts them.
        sources: groups of rows.
        support_threshold: in force.
        counted: the verdicts at that threshold.
        methods: method -> figure -> estimate, baselines first.
    """

    rows: int
    bad_rows: int
    sources: int
    support_threshold: float
    counted: Counted
    methods: Mapping[str, Mapping[str, Estimate]]


def measure(
    rows: Sequence[Judged], config: VerificationConfig, *, bad: int = 0, draws: int = DRAWS
) -> Measured:
    """Measure rows at the threshold in force.

    Args:
        rows: labelled rows with verdicts.
        config: the threshold.
        bad: rows that could not be read.
        draws: of the bootstrap.

    Raises:
        UsageError: only one of the two labels occurs: nothing can be told apart.
    """
    count = counted(rows, config.support_threshold)
    if not (count.supported and count.unsupported):
        raise UsageError(
            f"{count.supported} supported and {count.unsupported} unsupported rows: both are needed to measure"
        )
    sources = len({row.group for row in rows})
    methods = figures(rows, config, draws=draws)
    return Measured(len(rows), bad, sources, config.support_threshold, count, methods)
