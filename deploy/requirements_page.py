"""The page of every requirement id: what is required, which files carry it and which tests show it.

python -m deploy.requirements_page write|check docs/requirements.md

The texts stand in docs/requirements.toml. Files and tests are found by the ids in their comments and docstrings, so
that they follow what moves. For files that name no id themselves, such as pages of docs/, the tables `carried` and
`shown` do; `open` says why nothing shows an id.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from schemas.configuration import write_or_check

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("src", "agents", "topics", "deploy")
TESTS: Final = ("tests", "bench")
_MOST: Final = 3  # places of one id in a column

_ID: Final = re.compile(r"\b(S[0-4]|X|C)-(\d{2,3})(?:(?: to |\.\.)\1-(\d{2,3}))?\b")
"""An id, or a range of them: `S0-46`, `S0-46 to S0-63`, `S0-46..S0-63`."""

_TOP: Final = """# Requirements

Each behaviour that Groundwire promises has an id, which code names where it carries it out and tests name where they
show it (`pytest -k NAME` runs one). Look an id up here before you change what stands beside it; keep it with what you
move, give a new behaviour a line in `docs/requirements.toml`, and run `make generate`, which finds the last two
columns again.

S0 is about claims, S1 about quotes, S2 about the sources of an answer, S3 about entities and relations, S4 about what
an answer claims, X about streaming; C says how rules are read that contradict each other.
"""

Places = dict[str, dict[str, bool]]
"""Id -> file or test that names it -> whether by itself, not only within a range."""


def scan(folders: Sequence[str], root: Path = ROOT) -> Places:
    """Find the ids that the files below some folders name; within a test the test's name stands for the file.

    This file and its test have ids for examples only.
    """
    places: Places = defaultdict(dict)
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
        if path.suffix in {".py", ".lua"} and not path.stem.endswith("requirements_page"):
            for place, identity, alone in _named(path.relative_to(root).as_posix(), path.read_text("utf-8")):
                places[identity][place] = alone or places[identity].get(place, False)
    return places


def _named(name: str, text: str) -> Iterator[tuple[str, str, bool]]:
    """Return the place, the id, and whether it is named alone, of all ids of a file."""
    tests = dict(_tests(text)) if name.startswith("tests/") else {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in _ID.finditer(line):
            first, last = int(match[2]), int(match[3] or match[2])
            for one in range(first, last + 1):
                yield tests.get(number, name), f"{match[1]}-{one:02d}", first == last


def _tests(text: str) -> Iterator[tuple[int, str]]:
    """Return each line of each test, decorators included, with the test's name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            begin = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield from ((number, node.name) for number in range(begin, (node.end_lineno or begin) + 1))


def page(root: Path = ROOT) -> str:
    """Return the page.

    Raises:
        ValueError: an id has no text, nothing carries or shows it, or a place is gone.
    """
    source: dict[str, Any] = tomllib.loads((root / "docs/requirements.toml").read_text("utf-8"))
    carried, shown = scan(CODE, root), scan(TESTS, root)
    for column, places in ((carried, source["carried"]), (shown, source["shown"])):
        for name, ids in places.items():
            if not (root / name).exists():
                raise ValueError(f"docs/requirements.toml: there is no {name}")
            for identity in ids:
                column[identity][name] = True
    known = {identity for theme in source["theme"] for identity in theme["rows"]}
    if unknown := sorted((set(carried) | set(shown)) - known):
        raise ValueError(f"docs/requirements.toml has no text of {', '.join(unknown)}")
    if lost := sorted(known - set(carried)) + sorted(known - set(shown) - set(source["open"])):
        raise ValueError(f"no file or no test names {', '.join(lost)}: see docs/requirements.toml")
    themes = (_theme(theme, carried, shown, source["open"]) for theme in source["theme"])
    return _TOP + "".join(part for theme in themes for part in theme)


def _theme(theme: dict[str, Any], carried: Places, shown: Places, left: dict[str, str]) -> Iterator[str]:
    yield f"\n## {theme['title']}\n\n{theme['about']}\n\n"
    yield "| id | behaviour | carried by | shown by |\n|---|---|---|---|\n"
    for one, text in theme["rows"].items():
        yield f"| {one} | {text} | {_cell(carried[one])} | {_cell(shown.get(one, {})) or left[one]} |\n"


def _cell(places: dict[str, bool]) -> str:
    """Name the first places: those that name the id alone, else those that name it in a range."""
    names = [name for name, alone in places.items() if alone] or list(places)
    return ", ".join(f"`{name.removeprefix('src/groundwire/')}`" for name in names[:_MOST])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; return the exit status."""
    return write_or_check("python -m deploy.requirements_page", __doc__ or "", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
