"""How anything here is measured: contenders beside a baseline, in turns, with medians, spread and ratios of one run.

A part is a name and a function that yields figures. A figure holds one value for each round; where it stands beside a
baseline, also the ratio of each round, so that what disturbs the machine disturbs both sides of it.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

_T = TypeVar("_T")

Size = Literal["quick", "normal", "full"]
Contender = Callable[[], float | Awaitable[float]]
"""Runs once and returns its rate or its time."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for.

    Attributes:
        rounds: how often each contender runs, after one run that warms up.
        size: `quick` for a look, `normal`, `full` for what takes a quarter of an hour.
        broker: `kafka`, `embedded`, or `auto` for the first that is installed.
        redis: `real`, `embedded`, or `auto`.
    """

    rounds: int = 5
    size: Size = "normal"
    broker: str = "auto"
    redis: str = "auto"

    def of(self, quick: _T, normal: _T, full: _T | None = None) -> _T:
        return {"quick": quick, "normal": normal, "full": normal if full is None else full}[self.size]


@dataclass(frozen=True, slots=True)
class Target:
    """A target: a limit of the median, or of the median ratio to the baseline.

    Attributes:
        sense: `>=` or `<=`.
        limit: in the figure's unit, or times the baseline.
        of: `value` or `ratio`.
        cores: how many cores the promise needs; with fewer nothing is said about it.
    """

    sense: Literal[">=", "<="]
    limit: float
    of: Literal["value", "ratio"] = "value"
    cores: int = 1

    def met(self, median: float) -> bool:
        return median >= self.limit if self.sense == ">=" else median <= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the tables.

    Attributes:
        name: what was measured.
        unit: of the values.
        values: one for each round.
        ratios: to the baseline of the same round; above 1 is quicker. Empty where there is no baseline.
        target: what is promised of it, if anything.
        key: a name for programs: the capacity guide reads figures by it.
    """

    name: str
    unit: str
    values: Sequence[float]
    ratios: Sequence[float] = ()
    target: Target | None = None
    key: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    def met(self, cores: int) -> bool | None:
        if self.target is None or cores < self.target.cores:
            return None
        measured = self.ratio if self.target.of == "ratio" else self.median
        return measured is not None and self.target.met(measured)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Figure:
        target = Target(**data["target"]) if data["target"] else None
        return cls(**{**data, "target": target})


@dataclass(frozen=True, slots=True)
class Part:
    """Something to measure.

    Attributes:
        name: as on the command line.
        title: one line; what stands beside what.
        run: yields the figures as they are measured.
        needs: services that it starts, for those who read the list.
    """

    name: str
    title: str
    run: Callable[[Options], AsyncIterator[Figure]]
    needs: str = ""


@dataclass(slots=True)
class Race:
    """Contenders that run in turns; the first one is the baseline.

    Args:
        unit: of what contenders return.
        higher: whether more is better: true for rates, false for times.
    """

    unit: str
    higher: bool = True
    _contenders: dict[str, Contender] = field(default_factory=dict)
    _more: dict[str, tuple[Target | None, str]] = field(default_factory=dict)

    def add(self, name: str, run: Contender, target: Target | None = None, key: str = "") -> None:
        """Add a contender; the first one added is the baseline."""
        self._contenders[name] = run
        self._more[name] = target, key

    async def figures(self, rounds: int, *, warm: bool = True) -> list[Figure]:
        """Run every contender once to warm up, then all of them in each round, and return a figure for each."""
        found: dict[str, list[float]] = {name: [] for name in self._contenders}
        for number in range(-1 if warm else 0, rounds):  # A B A B: noise of the machine meets all of them
            for name, run in self._contenders.items():
                value = run()
                if inspect.isawaitable(value):
                    value = await value
                if number >= 0:
                    found[name].append(value)
        baseline = next(iter(found))
        return [
            Figure(
                name,
                self.unit,
                values,
                () if name == baseline else tuple(self._ratios(values, found[baseline])),
                *self._more[name],
            )
            for name, values in found.items()
        ]

    def _ratios(self, values: Sequence[float], baseline: Sequence[float]) -> Iterator[float]:
        for value, base in zip(values, baseline, strict=True):
            yield value / base if self.higher else base / value


MICROSECONDS: Final = 1e6
