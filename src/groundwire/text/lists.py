"""Lists of words, kept in the `words.txt` of a package: `[name]` begins a list, `#` a comment."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def tables(package: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for line in (files(package) / "words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def words_in(package: str, name: str) -> frozenset[str]:
    return frozenset(tables(package)[name].split())
