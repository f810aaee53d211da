"""The map of the house names what is there: functions, types, rooms."""

from __future__ import annotations

import re
import tomllib
from functools import reduce
from importlib import import_module

from groundwire.messages.decisions import Facts
from tests.unit.docs.pages import DOCS, ROOT

MAP = (DOCS / "develop" / "architecture.md").read_text("utf-8")
GLOSSARY = (DOCS / "reference" / "glossary.md").read_text("utf-8")
NAME = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*):([A-Za-z_]+(?:\.[A-Za-z_]+)*)`")
TOP = ("agents", "topics", "schemas", "deploy")
WORDS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in GLOSSARY.splitlines()
    if line.startswith("| ") and not line.startswith("| word |")
]


def rows(heading: str) -> list[str]:
    """Return the rows of the first table below a heading or comment of the map."""
    table = MAP.partition(heading)[2].partition("\n|")[2].partition("\n\n")[0]
    return table.splitlines()[2:]


def test_every_name_of_the_map_and_the_glossary_exists() -> None:
    wrong = []
    for module, attribute in sorted({pair for text in (MAP, GLOSSARY) for pair in NAME.findall(text)}):
        prefix = "" if module.partition(".")[0] in TOP else "groundwire."
        try:
            reduce(getattr, attribute.split("."), import_module(prefix + module))
        except (ImportError, AttributeError) as error:
            wrong.append(f"{module}:{attribute}: {error}")
    assert wrong == []


def test_a_walk_has_at_most_ten_steps_and_each_names_a_function() -> None:
    for heading in ("## One claim", "## One response", "## One review decision"):
        steps = rows(heading)
        assert int(steps[-1].split("|")[1]) == 10, heading
        assert [step for step in steps if not NAME.search(step)] == []


def test_the_rooms_of_the_map_stand_in_the_order_in_which_they_may_import() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["groundwire"])
    told = [re.findall(r"`(\w+)/?`", row.split("|")[1]) for row in rows("<!-- layers -->")]
    order = [room for row in told for room in row]
    allowed = [set(re.split(r" [:|] ", layer)) for layer in layers if layer != "__main__"]
    for layer in allowed:
        assert {order.pop(0) for _ in layer} == layer
    assert order == []


def test_the_map_tells_where_every_fact_comes_from() -> None:
    told = {
        code for row in rows("## Where facts come from") for code in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert told == set(Facts.model_fields)


def test_every_word_of_the_glossary_stands_there_once_with_what_carries_it() -> None:
    words = [word for cells in WORDS for word in cells[0].split(", ")]
    assert len(words) == len(set(words))
    assert [cells[0] for cells in WORDS if len(cells) != 3 or not NAME.search(cells[-1])] == []
