"""A decision that was changed anywhere is found out, and the change named; what a file cannot show is a closed list."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groundwire.replay.store import FileRecords, decision_lines
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.state.policies import PolicyStore
from tests.unit.replay.town import town

FROM_OUTSIDE = re.compile(
    r"""\$\.(
        decided_at
      | (origin|subject_origin)\.(topic|partition|offset) | subject_origin\.timestamp
      | citations\[\d+\]\.(detail|checked_at)
      | facts\.attestation(\..*)?
      | facts\.dedup\.(status|matches(\[\d+\](\.(subject_id|inter|union|difference|class))?)?)
      | facts\.parents\[\d+\]\.state
      | facts\.relevance\[\d+\]\.score
      | facts\.(entities|relations)\b.*
      | facts\.reply_to\.(mode|attempt)
      | facts\.review\.key_id
      | facts\.error
    )""",
    re.VERBOSE,
)
"""Facts: a file cannot show that they were otherwise, where nothing else in the decision rests on them."""

KEPT = re.compile(r"\$\.facts\.relevance\[\d+\]\.relevant")
"""Of a person's decision: what was relevant under the policy of the revision before, which it does not name."""


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in items:
        yield from paths(child, (*path, name))


def as_text(path: tuple[str | int, ...]) -> str:
    parts = (
        f"[{part}]"
        if isinstance(part, int)
        else f".{part}"
        if re.fullmatch(r"\w+", part, re.ASCII)
        else f'["{part}"]'
        for part in path
    )
    return "$" + "".join(parts)


def others(value: Any) -> list[Any]:
    """Values near to one, and of other types."""
    if isinstance(value, bool):
        return [not value, None]
    if value is None:
        return ["x", 0, [], {}]
    if isinstance(value, str):
        times = ["2020-01-01T00:00:00Z"] if re.match(r"\d{4}-\d\d-\d\dT", value) else []
        return [value + "x", "", None, value.upper() + " ", *times]
    if isinstance(value, int | float):
        return [value + 1, value - 1, None, str(value)]
    if isinstance(value, list):
        return [[*value, "x"], value[:-1] if value else ["y"], None]
    return [{**value, "extra": 1}, None, {}]


def changed(decision: dict[str, Any], path: tuple[str | int, ...], value: Any) -> bytes:
    result = copy.deepcopy(decision)
    inner: Any = result
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return json.dumps(result).encode()


def one_of_each(values: list[bytes]) -> list[dict[str, Any]]:
    """One decision of each kind, revision, reason and whether its parts are there."""
    found = {}
    for value in values:
        plain = json.loads(value)
        shape = (
            *(plain[name] for name in ("kind", "revision", "reason_code")),
            *(bool(plain[name]) for name in ("citations", "hedges")),
            *(bool(fact) for fact in plain["facts"].values()),
        )
        found.setdefault(shape, plain)
    return list(found.values())


@pytest.fixture(scope="module")
def values(tmp_path_factory) -> tuple[Path, Path, list[bytes]]:
    """A town's folder, its policies, and its decisions."""
    folder = tmp_path_factory.mktemp("town")
    place = town(folder, 0)
    asyncio.run(place.live(10))
    decisions, _, policies = place.write(folder)
    return folder, policies, [value for _, value in decision_lines(decisions)]


@pytest.fixture
def check(values):
    folder, policies, _ = values
    with FileRecords(folder / "records.jsonl", folder / "decisions.jsonl") as found:
        yield Verifier(found, PolicyStore(policies, None)).verify


@pytest.mark.parametrize("decisions", [4, pytest.param(24, marks=pytest.mark.slow)])
async def test_every_change_of_a_single_field_is_found_and_named(values, check, decisions):
    draw, tried, unseen, unnamed = random.Random(3), 0, [], []
    for decision in draw.sample(one_of_each(values[2]), decisions):
        for path in paths(decision):
            value: Any = decision
            for part in path:
                value = value[part]
            near = [each for each in others(value) if each != value or type(each) is not type(value)]
            other = draw.choice(near)
            finding = await check(changed(decision, path, other))
            name = as_text(path)
            outside = FROM_OUTSIDE.match(name) or (KEPT.match(name) and decision["facts"]["review"])
            if finding.status is VerifyStatus.EQUAL and not outside:
                unseen.append((name, value, other))
            in_itself = not name.startswith(("$.facts", "$.origin", "$.subject_origin"))
            named = any(p.startswith(name) or name.startswith(p) for p in finding.paths)
            if finding.status is VerifyStatus.DIFFERS and in_itself and not named:
                unnamed.append((name, finding))
            tried += 1
    assert (unseen, unnamed) == ([], [])
    assert tried > 75 * decisions


async def test_every_field_that_is_left_out_or_added_is_found_and_named(values, check):
    decision = next(d for d in map(json.loads, values[2]) if d["revision"] == 2)
    for name in decision:
        finding = await check(json.dumps({k: v for k, v in decision.items() if k != name}).encode())
        assert (finding.status, finding.paths) == (VerifyStatus.DIFFERS, (f"$.{name}",))
    assert (await check(json.dumps({**decision, "tomorrow": 1}).encode())).paths == ("$.tomorrow",)
    twice = json.dumps(decision)[:-1] + ', "approved": true}'
    assert (await check(twice.encode())).paths == ("$",)


async def test_a_decision_made_to_look_approved_in_every_field_that_says_so_is_found(values, check):
    approved = {"tier": "tier_1", "verdict": "approved", "approved": True}
    approved |= {"reason": "From trusted source: user", "reason_code": "trusted_source"}
    others = one_of_each([value for value in values[2] if b'"approved":false' in value])
    found = [await check(json.dumps({**decision, **approved}).encode()) for decision in others]
    named = [one for one in found if {"$.tier", "$.verdict", "$.approved"} <= set(one.paths)]
    assert [one for one in found if one.status is not VerifyStatus.DIFFERS or one not in named] == []
    assert len(found) > 10
