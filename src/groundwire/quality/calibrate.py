"""Chooses the operating point on labels of one's own, and writes it into a policy file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError

from groundwire.epistemic import VerificationConfig, evidence_gap_bits
from groundwire.errors import UsageError
from groundwire.policy import load_policy
from groundwire.quality.judged import Counted, Judged, counted, folds

TABLE: Final = "verification"
"""The policy's table that the thresholds stand in."""

_DEFAULT: Final = VerificationConfig().support_threshold
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


def calibrate(rows: Sequence[Judged], max_false_alarms: float, in_force: float = _DEFAULT) -> Calibration:
    """Choose the strictest threshold that flags at most a share of the supported rows.

    Args:
        rows: labelled rows with verdicts.
        max_false_alarms: that share, above 0 and below 1.
        in_force: the threshold in force, kept where another would give the same verdicts.

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
    threshold = choose(rows, max_false_alarms, in_force)
    parts = []
    for number in sorted(set(fold.values())):
        others = [row for row in rows if fold[row.group] != number]
        part = [row for row in rows if fold[row.group] == number]
        parts.append(counted(part, choose(others, max_false_alarms, in_force)))
    bits = max(0.0, ceil(evidence_gap_bits(threshold) * 1000) / 1000)
    held = Counted(*(sum(column) for column in zip(*parts, strict=True)))
    return Calibration(threshold, bits, counted(rows, threshold), held)


def choose(rows: Sequence[Judged], max_false_alarms: float, in_force: float = _DEFAULT) -> float:
    """Return a threshold of support that flags as much as may be, and at most a share of the supported rows.

    Of those with the same verdicts on the rows it is the one in force where that is among them; else the middle, with
    three decimals where there is room for them.
    """
    good = sorted(row.support for row in rows if row.supported)
    if not good:
        return 0.0
    top = good[min(int(max_false_alarms * len(good) + _ROUNDING), len(good) - 1)]
    below = max((row.support for row in rows if row.support < top), default=0.0)
    middle = round((below + top) / 2, 3)
    found = middle if below < middle <= top else top
    return in_force if counted(rows, in_force) == counted(rows, found) else found


def check_writable(path: Path) -> None:
    """Raise where thresholds could not be written to a file, before anything is measured; it need not be there yet.

    Raises:
        UsageError: it is a folder, or its own folder is not there or cannot be written to.
    """
    folder = path.resolve().parent
    try:
        is_folder = path.is_dir()
    except OSError as exc:
        raise UsageError(f"policy {path}: cannot be written in {folder}: {exc.strerror or exc}") from None
    if is_folder:
        raise UsageError(f"policy {path}: it is a folder; give a file")
    if not folder.is_dir():
        raise UsageError(f"policy {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"policy {path}: the folder {folder} cannot be written to")


def write_thresholds(path: Path, keys: Mapping[str, float]) -> None:
    """Write keys into the table `[verification]` of a policy file; all else in it stays as it is, comments too.

    A file that is not there is made.

    Raises:
        UsageError: it cannot be read or written, is no TOML file, or would be no policy; then it is left alone.
    """
    check_writable(path)
    place = path.resolve()  # a link stays one
    there = place.exists()
    try:
        document = tomlkit.parse(place.read_bytes().decode() if there else "")
        table = document.setdefault(TABLE, tomlkit.table())
        for name, value in keys.items():
            table[name] = value
        with tempfile.TemporaryDirectory(prefix=".groundwire-", dir=place.parent) as folder:
            written = Path(folder) / place.name
            written.write_bytes(tomlkit.dumps(document).encode())
            if there:
                shutil.copymode(place, written)
            load_policy(written, {})
            written.replace(place)
    except OSError as exc:  # not its own words, which name a file that is not there any more
        raise UsageError(
            f"policy {path}: cannot be written in {place.parent}: {exc.strerror or exc}"
        ) from None
    except (ValueError, TypeError, TOMLKitError) as exc:
        raise UsageError(f"policy {path}: {exc}") from None
