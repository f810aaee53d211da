"""Every regular expression is listed by its place, and costs in proportion to its text."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from groundwire.checks import hedges
from groundwire.checks.hedge_rules import HedgeRule
from tests.unit.pattern_cost import Automaton, alternatives, pumped, pumped_in_vain

_ROOT: Final = Path(__file__).parents[2]
_PLACES: Final = {
    "groundwire": _ROOT / "src/groundwire",
    "agents": _ROOT / "agents",
    "topics": _ROOT / "topics",
}
_METHODS: Final = frozenset(
    ["match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split", "scanner"]
)
_OTHER_CALLS: Final = frozenset({"escape", "purge"})
_BOUNDED: Final = 20  # from here on a count inside another repeat is as bad as none
_LONG: Final = 200  # from here on a count is no bound on what each start of a search costs


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for package, folder in _PLACES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, ast.parse(path.read_text("utf-8"))


def _is_call(node: ast.AST) -> bool:
    """Tell whether a node is a call of the module `re` with a pattern."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr not in _OTHER_CALLS
    )


def _calls(node: ast.AST, place: str, *, inside: bool = False) -> Iterator[tuple[str, ast.Call, bool]]:
    """Yield each call of `re` with the place that it stands in, and whether that is a function."""
    for child in ast.iter_child_nodes(node):
        here, within = place, inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here = f"{place}.{child.name}"
            within = inside or not isinstance(child, ast.ClassDef)
        if isinstance(child, ast.Call) and _is_call(child):
            yield here, child, within
        yield from _calls(child, here, inside=within)


def _held(value: object, place: str, seen: set[int]) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns in a value: itself, in containers, and in classes of the house."""
    if isinstance(value, re.Pattern):
        yield place, value
    elif isinstance(value, HedgeRule):
        for name in ("before", "after"):
            if (pattern := getattr(value, name)) is not None:
                yield f"{place}.{name}", pattern
    elif isinstance(value, dict | list | tuple | set | frozenset) and id(value) not in seen:
        seen.add(id(value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _held(item, f"{place}[{key}]", seen)
    elif isinstance(value, type) and value.__module__.partition(".")[0] in _PLACES and id(value) not in seen:
        seen.add(id(value))
        for key, item in vars(value).items():
            yield from _held(item, f"{place}.{key}", seen)


@cache
def _collected() -> Mapping[str, re.Pattern[Any]]:
    found = {}
    for name, tree in _modules():
        for place, call, inside in _calls(tree, name):
            if inside and isinstance(call.args[0], ast.Constant):
                assert isinstance(call.func, ast.Attribute)
                found[f"{place}:{call.lineno}.{call.func.attr}"] = re.compile(str(call.args[0].value))
        if not name.endswith("__main__"):
            for key, value in vars(importlib.import_module(name)).items():
                found.update(_held(value, f"{name}.{key}", set()))
    operator = hedges._compile(["we believe so", "maybe", "?? !!"])
    assert operator is not None
    first: dict[re.Pattern[Any], str] = {operator: "groundwire.checks.hedges._compile"}
    for place, pattern in found.items():
        first.setdefault(pattern, place)
    return {place: pattern for pattern, place in first.items()}


@cache
def _uses() -> Mapping[str, frozenset[str]]:
    """Return the methods that are called on each name: by module and name, and by name alone."""
    found: dict[str, set[str]] = {}
    for module, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _METHODS:
                name = node.value.id
                found.setdefault(f"{module}.{name}" if name.startswith("_") else name, set()).add(node.attr)
    return {name: frozenset(methods) for name, methods in found.items()}


def _methods(place: str) -> frozenset[str]:
    """Return how a pattern is used; where that is not plain to see, in every way."""
    name = place.rpartition(".")[2]
    if ":" in place and name in _METHODS:
        return frozenset({name})
    if place.startswith("groundwire.checks.hedge_rules.RULES["):
        return frozenset({"match"})  # behind the word that it is filed under, or in a window before it
    return _uses().get(place if name.startswith("_") else name, frozenset({"fullmatch", "search"}))


def _cost(pattern: re.Pattern[Any], methods: frozenset[str]) -> str | None:
    """Return a word that costs more the more often it is repeated, or None."""
    words = (word for tree in alternatives(pattern) for word in _words(pattern, tree, methods))
    return next((word for word in words if word is not None), None)


def _words(pattern: re.Pattern[Any], tree: Any, methods: frozenset[str]) -> Iterator[str | None]:
    if "fullmatch" in methods:
        yield pumped(Automaton(pattern, tree, unbounded=_BOUNDED, whole=True))
    if methods - {"fullmatch"}:
        yield pumped(Automaton(pattern, tree, unbounded=_BOUNDED))
    if methods - {"fullmatch", "match"}:
        searching = Automaton(pattern, tree, unbounded=_LONG, search=True)
        yield pumped(searching)
        if methods - {"fullmatch", "match", "search"}:
            yield pumped_in_vain(searching)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_pattern_costs_no_more_than_in_proportion_to_its_text() -> None:
    known = {
        "groundwire.cli.environment._OF_OTHERS": "names of environment variables, which the operator sets"
    }
    slow = {place: _cost(pattern, _methods(place)) for place, pattern in _collected().items()}
    told = {
        place: f"{word!r} many times over: {_collected()[place].pattern}"
        for place, word in slow.items()
        if word
    }
    assert told.keys() == known.keys(), "\n".join(f"{place} {why}" for place, why in told.items())


@pytest.mark.slow
def test_a_pattern_is_made_where_it_is_collected_by_the_module_re_under_its_name() -> None:
    made_while_running = {
        "groundwire.checks.hedges._compile": "an operator's phrases, escaped and joined by the one pattern for a space",
        "groundwire.checks.hedge_rules.HedgeRule.before": "compiled when first asked for; collected from RULES",
        "groundwire.checks.hedge_rules.HedgeRule.after": "as before",
        "groundwire.console.answer._Judged.places_of_file": "the name of a file, escaped, between two lookarounds",
    }
    collected = set(_collected().values())
    for name, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wrong = [a for a in node.names if a.name in {"regex", "re2"} or (a.name == "re" and a.asname)]
                assert not wrong, name
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in {"re", "regex", "re2"}, name
        named = {id(n.value): n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign)}
        for place, call, inside in _calls(tree, name):
            if place in made_while_running or (inside and isinstance(call.args[0], ast.Constant)):
                continue
            assert not inside, f"{place}:{call.lineno} makes a pattern that no test can list"
            statement = named.get(id(call))
            assert statement is not None, f"{place}:{call.lineno}: give the pattern a name"
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            assert isinstance(target, ast.Name)
            assert getattr(importlib.import_module(name), target.id) in collected


def test_a_planted_pattern_that_goes_back_over_its_text_is_found_and_a_bounded_one_passes():
    bads = [
        r"(a+)+$", r"(a|a)*b", r"(?:a|ab|b)*c", r"(a*)*b", r"(?:\w+\s?)*$", r"(?:a{1,30}){1,30}b",
        r"\s*\s*x", r".*.*=", r"(?i:[a-z]*)K*x", r"(a*)\1b",
    ]  # fmt: skip
    ways = [frozenset({method}) for method in ("fullmatch", "match", "search")]
    assert [(bad, way) for bad in bads for way in ways if not _cost(re.compile(bad), way)] == []
    far = [r"\s+$", r"\w+x", r"a(?=.*b)", r"[^.]{1,500}x", r"a(?:.*b)?", r"\w+(?:[\w\s]+=)?", r"\d|a(?:.*b)?"]
    finditer = frozenset({"finditer"})  # each start of which reads far
    assert [bad for bad in far if not _cost(re.compile(bad), finditer)] == []
    goods = [r"\w+", r"(?<!\w)\w+x", r"\b\w+ x", r"[0-9]+(?:\.[0-9]+)*", r"(?:\s*\s*x){0}a", r"a(?:b*)?"]
    assert [good for good in goods if _cost(re.compile(good), finditer) is not None] == []
