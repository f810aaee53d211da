"""Results as a file, tables and a picture: what `python -m bench` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import sentence
from bench.measure import Figure

_MARKS = r"(?<=<!-- table: {} -->\n).*?(?=<!-- end -->)"
_HEADINGS = ("what", "median", "lowest to highest", "to the baseline", "target", "")


def merge(path: Path | None, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a file with those of this run in their place, and write them there."""
    before: dict[str, Any] = {}
    if path is not None and path.exists():
        before = json.loads(path.read_text("utf-8"))
    merged = {**before, **found}
    if path is not None and found:
        path.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return merged


def figures_of(result: Mapping[str, Any]) -> list[Figure]:
    return [Figure.from_json(figure) for figure in result["figures"]]


def table(figures: Sequence[Figure], cores: int) -> Iterator[str]:
    yield f"| {' | '.join(_HEADINGS)} |"
    yield f"|---|{'---:|' * 3}---|---|"
    for figure in figures:
        yield f"| {' | '.join(_cells(figure, cores))} |"


def _cells(figure: Figure, cores: int) -> Iterator[str]:
    yield figure.name
    yield f"{number(figure.median)} {figure.unit}"
    low, high = min(figure.values), max(figure.values)
    yield "" if len(figure.values) == 1 else f"{number(low)} to {number(high)}"
    yield "" if figure.ratio is None else f"{number(figure.ratio)} x"
    yield aim(figure)
    met = figure.met(cores)
    yield (
        {None: "", True: "met", False: "**missed**"}[met]
        if figure.target is None or met is not None
        else (f"needs {figure.target.cores} cores")
    )


def aim(figure: Figure) -> str:
    target = figure.target
    if target is None:
        return ""
    sign = {">=": "≥", "<=": "≤"}[target.sense]
    return f"{sign} {number(target.limit)} {'x' if target.of == 'ratio' else figure.unit}"


def number(value: float) -> str:
    """Write a number with three digits that count, a share near 1 with four."""
    if 0.99 < value < 1:
        return f"{value:.4f}"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return (
        f"{value:.{max(0, 3 - len(str(abs(int(value))).lstrip('0')))}f}"
        if abs(value) >= 0.1
        else f"{value:.2g}"
    )


def write_page(page: Path, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """Put tables between `<!-- table: NAME -->` and `<!-- end -->`; return the names that have no place."""
    text, left = page.read_text("utf-8"), []
    for name, lines in tables.items():
        mark = re.compile(_MARKS.format(re.escape(name)), re.DOTALL)
        if not mark.search(text):
            left.append(name)
            continue
        written = "\n".join(["", *lines, "", ""]).replace("\\", r"\\")
        text = mark.sub(written, text, count=1)
    page.write_text(text, "utf-8")
    return left


def targets(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of all targets, and on what they were measured."""
    yield "| what | promised | measured |"
    yield "|---|---:|---:|"
    shown = {name: [f for f in figures_of(result) if f.target] for name, result in results.items()}
    shown = {name: figures for name, figures in shown.items() if figures}
    for name, figures in shown.items():
        yield f"| **{name}** | | |"
        for figure in figures:
            *_, verdict = _cells(figure, results[name]["machine"]["cores"])
            reached = _reached(figure) + ("" if verdict == "met" else f", {verdict}")
            yield f"| {figure.name} | {aim(figure)} | {reached} |"
    yield ""
    by_machine: dict[str, list[str]] = {}
    for name in shown:
        by_machine.setdefault(sentence(results[name]["machine"], briefly=True), []).append(name)
    for machine, names in by_machine.items():
        yield f"Measured ({', '.join(names)}) on: {machine}."


def _reached(figure: Figure) -> str:
    of_ratio = figure.target is not None and figure.target.of == "ratio"
    return f"{number(figure.ratio or 0)} x" if of_ratio else f"{number(figure.median)} {figure.unit}"
