"""Chooses thresholds on labelled rows, and writes them into a policy file."""

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

from groundwire.epistemic.types import (
    AS_SCORED,
    OperatingPoint,
    VerificationConfig,
    evidence_gap_bits,
    share_of_threshold,
)
from groundwire.errors import UsageError
from groundwire.library.evaluate import FOLDS, Counted, Judged, counted, folds
from groundwire.policy import load_policy

TABLE: Final = "verification"
"""The policy's table that the thresholds stand in."""

_DEFAULTS: Final = VerificationConfig()
_ROUNDING: Final = 1e-9  # 0.29 of 100 rows are 29, whatever floating point says


Head = tuple[float, float, float, float]


class Calibration(NamedTuple):
    """A threshold for an operating point; a claim with just that support has a gap of `gap_threshold_bits` (C-57).

    `head`: what makes support of an entailment model's scores; None without a model.

    `chosen_on`: the verdicts on the rows that it was chosen on, better than what is to be expected. `held_out`: the
    verdicts on each part of the sources by a threshold chosen on the others.
    """

    point: OperatingPoint
    sources: int
    support_threshold: float
    gap_threshold_bits: float
    chosen_on: Counted
    held_out: Counted
    head: Head | None = None

    @property
    def few_sources(self) -> bool:
        """Whether too few sources were held out to tell what is to be expected."""
        return self.sources < FOLDS

    @property
    def keys(self) -> dict[str, object]:
        """The keys of the policy's table, and their values."""
        keys: dict[str, object] = {
            "support_threshold": self.support_threshold,
            "gap_threshold_bits": self.gap_threshold_bits,
        }
        return keys if self.head is None else keys | {"entailment_head": list(self.head)}


def calibrate(
    rows: Sequence[Judged], max_false_alarms: float, in_force: VerificationConfig = _DEFAULTS
) -> Calibration:
    """Choose the strictest threshold that flags at most a share of the supported rows, 0..1, at the point in force.

    The threshold in force is kept where another would give the same verdicts. Where a model scored claims, its head is
    fitted first.

    Raises:
        UsageError: too few supported rows to tell such a share, none that is not supported, a single source, or more
            supported rows than that share are flagged by what no threshold decides.
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
    hard = sum(row.hard for row in rows if row.supported)
    if hard > _may_be_flagged(good, max_false_alarms):
        raise UsageError(
            f"{hard} of {good} supported rows are flagged at every threshold, by a wrong value or a contradiction: "
            f"more than {100 * max_false_alarms:g} % (--misses lists them)"
        )
    fold = folds(row.group for row in rows)
    if len(fold) < 2:
        raise UsageError("all rows are of one source: group: give at least two, so that one can be held out")
    point, parts = in_force.operating_point, []
    for number in sorted(set(fold.values())):
        others, head = _under_fitted([row for row in rows if fold[row.group] != number])
        part = [row.under(head or AS_SCORED) for row in rows if fold[row.group] == number]
        parts.append(counted(part, choose(others, max_false_alarms, in_force), point))
    rows, head = _under_fitted(rows)
    threshold = choose(rows, max_false_alarms, in_force)
    bits = max(0.0, ceil(evidence_gap_bits(threshold) * 1000) / 1000)
    held = Counted(*(sum(column) for column in zip(*parts, strict=True)))
    return Calibration(point, len(fold), threshold, bits, counted(rows, threshold, point), held, head)


def _under_fitted(rows: Sequence[Judged]) -> tuple[list[Judged], Head | None]:
    """Return rows under a head that is fitted on them, and the head; None where no model scored any."""
    head = fit_head(rows) if any(row.scored for row in rows) else None
    return [row.under(head or AS_SCORED) for row in rows], head


_STEPS: Final = 40
_NEWTON: Final = 5
_RIDGE: Final = 0.05  # keeps weights finite where a feature tells the labels apart


def fit_head(rows: Sequence[Judged]) -> Head:
    """Fit a logistic head on labelled rows, whose label is that of all their claims together.

    A supported row supports each of its claims. Of one that is not, it is not known which claims are not: by
    expectation and maximisation each counts by how likely it is one of them, given that there is one.
    """
    import numpy as np  # noqa: PLC0415 - comes with what scores, and the rest does without

    scored = [row for row in rows if row.scored]
    features = np.array([claim.features for row in scored for claim in row.scored])
    of_row = np.repeat(np.arange(len(scored)), [len(row.scored) for row in scored])
    good = np.array([row.supported for row in scored])[of_row]
    weights = np.array(AS_SCORED)
    for _ in range(_STEPS):
        shares = 1 / (1 + np.exp(-np.clip(features @ weights, -20, 20)))
        whole = np.ones(len(scored))
        np.multiply.at(whole, of_row, shares)
        wrong = (1 - shares) / np.maximum(1 - whole[of_row], 1e-9)
        target = np.where(good, 1.0, 1 - np.minimum(wrong, 1.0))
        for _ in range(_NEWTON):
            shares = 1 / (1 + np.exp(-np.clip(features @ weights, -20, 20)))
            slope = features.T @ (shares - target) + _RIDGE * weights
            curve = (features * (shares * (1 - shares))[:, None]).T @ features + _RIDGE * np.eye(len(weights))
            step = np.linalg.solve(curve, slope)
            weights = weights - step / max(1.0, float(np.abs(step).max()))
    bias, by_model, by_rules, by_fault = (round(float(weight), 3) for weight in weights)
    return bias, by_model, by_rules, by_fault


def _may_be_flagged(supported: int, max_false_alarms: float) -> int:
    return int(max_false_alarms * supported + _ROUNDING)


def choose(
    rows: Sequence[Judged], max_false_alarms: float, in_force: VerificationConfig = _DEFAULTS
) -> float:
    """Return a threshold of support that flags as much as may be, and at most a share of the supported rows.

    Rows that are flagged at every threshold count, and 0 is what is left where they alone are too many. Of thresholds
    with the same verdicts on the rows it is the one in force where that is among them; else the middle, with three
    decimals where there is room for them.
    """
    point, kept = in_force.operating_point, in_force.support_threshold
    doubtful = [row for row in rows if not row.hard]
    good = sorted(row.support_at(point) for row in doubtful if row.supported)
    supported = sum(row.supported for row in rows)
    most = _may_be_flagged(supported, max_false_alarms) - (supported - len(good))
    if not good or most < 0:
        return 0.0
    top = good[min(most, len(good) - 1)]
    below = max((row.support_at(point) for row in doubtful if row.support_at(point) < top), default=0.0)
    middle = round((below + top) / 2, 3)
    found = middle if below < middle <= top else top
    if point == "lenient":
        found = min(1.0, round(found / share_of_threshold(point), 4))
    return kept if counted(rows, kept, point) == counted(rows, found, point) else found


def check_writable(path: Path) -> None:
    """Raise UsageError where thresholds could not be written to a file, which need not be there yet."""
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


def write_keys(path: Path, keys: Mapping[str, object]) -> None:
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
