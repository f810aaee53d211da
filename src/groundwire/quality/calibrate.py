"""Chooses the operating point on labels of one's own, and writes it into a policy file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError

from groundwire.epistemic import evidence_gap_bits
from groundwire.errors import UsageError
from groundwire.policy import load_policy
from groundwire.quality.judged import Counted, Judged, counted, folds

TABLE: Final = "verification"
"""The policy's table that the thresholds stand in."""

_ROUNDING: Final = 1e-9  # 0.29 of 100 rows are 29, whatever floating point says


class Calibration(NamedTuple):
    """An operating point.

    Attributes:
        support_threshold: claims with less support are flagged.
        gap_threshold_bits: the gap of a claim with just that support: what is flagged is critical (C-57).
        chosen_on: the verdicts on the rows that it was chosen on: better than what is to be expected.
        held_out: the verdicts on each part of the sources by a threshold chosen on the others.
    """

    support_threshold: float
    gap_threshold_bits: float
    chosen_on: Counted
    held_out: Counted

    @property
    def keys(self) -> dict[str, float]:
        """The keys of the policy's table, and their values."""
        return {
            "support_threshold": self.support_threshold,
            "gap_threshold_bits": self.gap_threshold_bits,
        }


def calibrate(rows: Sequence[Judged], max_false_alarms: float) -> Calibration:
    """Choose the strictest threshold that flags at most a share of the supported rows.

    Args:
        rows: labelled rows with verdicts.
        max_false_alarms: that share, above 0 and below 1.

    Raises:
        UsageError: too few supported rows to tell such a share, none that is not supported, or a single source.
    """
    good = sum(row.supported for row in rows)
    least = ceil(1 / max_false_alarms)
    if good < least:
        share = f"{100 * max_false_alarms:g} %"
        raise UsageError(
            f"{good} supported rows are too few to tell {share} of them: at least {least} are needed"
        )
    if good == len(rows):
        raise UsageError("no row is unsupported: there is nothing to detect")
    fold = folds(row.group for row in rows)
    if len(fold) < 2:
        raise UsageError("all rows are of one source: group: give at least two, so that one can be held out")
    threshold = choose(rows, max_false_alarms)
    parts = []
    for number in sorted(set(fold.values())):
        others = [row for row in rows if fold[row.group] != number]
        part = [row for row in rows if fold[row.group] == number]
        parts.append(counted(part, choose(others, max_false_alarms)))
    bits = max(0.0, ceil(evidence_gap_bits(threshold) * 1000) / 1000)
    held = Counted(*(sum(column) for column in zip(*parts, strict=True)))
    return Calibration(threshold, bits, counted(rows, threshold), held)


def choose(rows: Sequence[Judged], max_false_alarms: float) -> float:
    """Return the highest threshold of support that flags at most a share of the supported rows.

    It lies between the supports that rows have, not on one, and has three decimals where there is room for it.
    """
    good = sorted(row.support for row in rows if row.supported)
    if not good:
        return 0.0
    top = good[min(int(max_false_alarms * len(good) + _ROUNDING), len(good) - 1)]
    below = max((row.support for row in rows if row.support < top), default=0.0)
    middle = round((below + top) / 2, 3)
    return middle if below < middle <= top else top


def write_thresholds(path: Path, keys: Mapping[str, float]) -> None:
    """Write keys into the table `[verification]` of a policy file; all else in it stays as it is, comments too.

    Raises:
        UsageError: it cannot be read or written, is no TOML file, or would be no policy; then it is left alone.
    """
    place = path.resolve()  # a link stays one
    try:
        document = tomlkit.parse(place.read_bytes().decode())
        table = document.setdefault(TABLE, tomlkit.table())
        for name, value in keys.items():
            table[name] = value
        with tempfile.TemporaryDirectory(prefix=".groundwire-", dir=place.parent) as folder:
            written = Path(folder) / place.name
            written.write_bytes(tomlkit.dumps(document).encode())
            shutil.copymode(place, written)
            load_policy(written, {})
            written.replace(place)
    except (OSError, ValueError, TypeError, TOMLKitError) as exc:
        raise UsageError(f"policy {path}: {exc}") from None
