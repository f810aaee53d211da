"""Mutations of JSON values: valid records that are wrong in one place, or in several."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.fuzz.texts import NUMBERS, ODD, TIMES, length, scratched, text

Place = tuple[Any, Any]
"""A container, and the key or index in it."""


@dataclass(frozen=True)
class Written:
    """JSON, or what is none, that is written as it stands."""

    data: str


@dataclass(frozen=True)
class Doubled:
    """An object with a key that stands twice."""

    value: Mapping[str, Any]


_LITERALS: Final = (
    *(
        "NaN",
        "-Infinity",
        "1e400",
        "-1e400",
        "0x10",
        "01",
        "1.",
        ".5",
        "+1",
        "tru",
        "'a'",
        "[1,]",
        '{"a":1,}',
        "",
        "//",
    ),
    *(
        "1" * 4_000,
        "9" * 5_000,
        "0." + "1" * 5_000,
        "1e-5000",
        "[" * 63 + "]" * 63,
        "[" * 500 + "]" * 500,
        "[" * 20_000,
    ),
    *('{"a":' * 70 + "1" + "}" * 70, '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x41"', '"\t"', '"\\'),
)


def mutated(rng: Random, value: Any, least: int = 0, most: int = 4) -> Any:
    """Return a copy of a value with some of its places changed."""
    root = [copy.deepcopy(value)]
    for _ in range(rng.randint(least, most)):
        places = _places(root)
        if places:
            rng.choice(_CHANGES)(rng, *rng.choice(places))
    return root[0] if root else None


def written(rng: Random, value: Any) -> bytes:
    """Write a value as JSON; now and then with bytes broken, or in another encoding."""
    escape = rng.random() < 0.5
    data = "".join(_write(value, escape=escape)).encode("utf-8", "surrogatepass")
    kind = rng.random()
    if kind < 0.05:
        return scratched(rng, data)
    if kind < 0.06:
        encoding = rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "latin-1"))
        return data.decode("utf-8", "replace").encode(encoding, "replace")
    return data


def _places(root: list[Any]) -> list[Place]:
    found: list[Place] = []
    todo: list[Any] = [root]
    while todo:
        container = todo.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            found.append((container, key))
            if isinstance(value, dict | list):
                todo.append(value)
        if len(found) > 500:  # a wide value has no need of more
            break
    return found


def any_value(rng: Random, depth: int = 2) -> Any:  # noqa: PLR0911 - one for each kind
    """Make a value of any type."""
    match rng.randrange(8 if depth else 6):
        case 0:
            return None
        case 1:
            return rng.choice(NUMBERS)
        case 2 | 3:
            return text(rng)
        case 4:
            return rng.choice(TIMES)
        case 5:
            return Written(rng.choice(_LITERALS))
        case 6:
            return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            return {text(rng)[:50]: any_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def _replace(rng: Random, container: Any, key: Any) -> None:
    container[key] = any_value(rng)


def _remove(_rng: Random, container: Any, key: Any) -> None:
    del container[key]


def _rename(rng: Random, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        name = str(key)
        other = rng.choice(
            (name.upper(), name[:-1], f"{name} ", f"{name}\u200b", rng.choice(ODD), text(rng)[:300])
        )
        container[other] = container.pop(key)


def _add(rng: Random, container: Any, _key: Any) -> None:
    if isinstance(container, dict):
        container[text(rng)[:100]] = any_value(rng)
    else:
        container.insert(rng.randint(0, len(container)), any_value(rng))


def _repeat(rng: Random, container: Any, key: Any) -> None:
    value = container[key]
    times = length(rng, 3_000)
    if isinstance(value, str):
        container[key] = value * min(times, 30_000 // max(1, len(value)) + 1)
    elif isinstance(value, list):
        container[key] = (value * (times // max(1, len(value)) + 1))[:500]
    elif isinstance(value, dict) and len(value) < 200:
        container[key] = {**value, **{f"k{n}": any_value(rng, 0) for n in range(times % 300)}}


def _wrap(rng: Random, container: Any, key: Any) -> None:
    for _ in range(rng.choice((1, 1, 3, 62, 70, 200))):
        container[key] = [container[key]] if rng.random() < 0.5 else {"a": container[key]}


def _shorten(rng: Random, container: Any, key: Any) -> None:
    if isinstance(container[key], str | list):
        container[key] = container[key][: rng.choice((0, 1, 3))]


def _double(_rng: Random, container: Any, key: Any) -> None:
    if isinstance(container[key], dict):
        container[key] = Doubled(container[key])


def _spell(rng: Random, container: Any, key: Any) -> None:
    """Put something odd into a text, or append words to it."""
    value = container[key]
    if isinstance(value, str):
        at = rng.randint(0, len(value))
        container[key] = value[:at] + text(rng) + value[at:]
    elif isinstance(value, int | float):
        container[key] = rng.choice(NUMBERS)


def _swap(rng: Random, container: Any, key: Any) -> None:
    other = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
    container[key], container[other] = container[other], container[key]


_CHANGES: Final[tuple[Callable[[Random, Any, Any], None], ...]] = (
    *(_replace, _replace, _remove, _rename, _add, _repeat, _wrap, _shorten, _double, _swap),
    *(_spell, _spell, _spell, _spell),
)


def _write(value: Any, *, escape: bool) -> list[str]:
    """Return the pieces of a value's JSON, without recursion: nesting may be deep."""
    out: list[str] = []
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Written):
            out.append(one.data)
        elif isinstance(one, Doubled):
            parts = [
                part for name, each in one.value.items() for part in (_key(name, escape), each, Written(","))
            ]
            todo += [
                Written("}"),
                *reversed(parts[:2] + parts[2:-1] + [Written(",")] + parts[:2] if parts else []),
            ]
            out.append("{")
        elif isinstance(one, dict):
            parts = [part for name, each in one.items() for part in (_key(name, escape), each, Written(","))]
            todo += [Written("}"), *reversed(parts[:-1])]
            out.append("{")
        elif isinstance(one, list):
            parts = [part for each in one for part in (each, Written(","))]
            todo += [Written("]"), *reversed(parts[:-1])]
            out.append("[")
        else:
            out.append(json.dumps(one, ensure_ascii=escape))
    return out


def _key(name: str, escape: bool) -> Written:  # noqa: FBT001 - as in json.dumps
    return Written(json.dumps(name, ensure_ascii=escape) + ":")
