"""Sums the results of runs up, and shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.figures import by_kind

Result = dict[str, Any]

_HEAD = "{:18} {:>5} {:>5}" + " {:>6}" * 7


def load_results(folder: Path) -> list[Result]:
    """Read all results that runs left in a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def failed(results: Sequence[Result]) -> bool:
    """Whether a promise was broken, or a fault or part of the suite itself did not do what it should."""
    return any(
        any(result["violations"].values())
        or result["failed_faults"]
        or result["workers"]["tasks_broken"]
        or set(result["workers"]["stopped"]) - {"0"}
        for result in results
    )


def summed(results: Sequence[Result]) -> dict[str, Any]:
    """Return what all runs come to."""
    promises: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        for promise, broken in result["violations"].items():
            promises.setdefault(promise, []).extend({"seed": result["seed"], **one} for one in broken)
    count = Counter[str]()
    for result in results:
        count.update({name: told for name, told in result["told"].items() if isinstance(told, int)})
    return {
        "runs": [
            {name: result[name] for name in ("seed", "broker", "minutes", "session", "took")}
            for result in results
        ],
        "minutes": round(sum(result["minutes"] for result in results), 1),
        "faults": sum(len(result["faults"]) for result in results),
        "failed_faults": [why for result in results for why in result["failed_faults"]],
        "counts": dict(count),
        "reasons": dict(_sum(results, "reasons").most_common()),
        "dead_letters": dict(_sum(results, "dead_letters").most_common()),
        "violations": promises,
        "recovery": by_kind(one for result in results for one in result["faults"]),
    }


def table(results: Sequence[Result]) -> str:
    """Return the sum as a person reads it."""
    total = summed(results)
    seeds = ", ".join(f"{run['broker']} {run['seed']}" for run in total["runs"])
    lines = [
        f"{len(results)} runs, {total['minutes']:g} minutes, {total['faults']} faults (seeds: {seeds})",
        ", ".join(f"{count} {name}" for name, count in total["counts"].items()),
        "",
        _HEAD.format("fault", "count", "alone", "p50", "p90", "p99", "max", "after", "ratio", "p99"),
    ]
    for kind, figures in total["recovery"].items():
        stall, after, ratio = (figures[name] for name in ("stall", "after", "stall_by_session"))
        lines.append(
            f"{kind:18} {figures['faults']:5} {stall['count']:5} {_cells(stall, 'p50', 'p90', 'p99', 'max')}"
            f" {_cells(after, 'p99')} {_cells(ratio, 'p50', 'p99')}"
        )
    lines += [
        "p50 to max: seconds without decisions of a partition whose records waited, for faults that struck alone;",
        "after: p99 of the part after the fault was mended; ratio: p50 and p99 of the whole in session timeouts.",
        "",
    ]
    for promise, broken in total["violations"].items():
        lines.append(f"{'BROKEN' if broken else 'held':7} {promise}")
        lines += [f"        seed {v['seed']}: {v['record']}: {v['detail']}" for v in broken[:20]]
        lines += [f"        and {len(broken) - 20} more"] if len(broken) > 20 else []
    lines += [f"not brought about: {why}" for why in total["failed_faults"]]
    return "\n".join(lines)


def _cells(figures: dict[str, float], *names: str) -> str:
    return " ".join(f"{figures[name]:6.1f}" if name in figures else f"{'-':>6}" for name in names)


def _sum(results: Sequence[Result], field: str) -> Counter[str]:
    total = Counter[str]()
    for result in results:
        total.update(result["told"][field])
    return total
