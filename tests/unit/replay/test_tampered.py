"""A decision that was changed anywhere is found out, and the change named; what a file cannot show is a closed list."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from groundwire.replay.store import FileRecords, Job, RecordStore, ReplayOrder, decision_lines
from groundwire.replay.verify import Verifier, VerifyFinding, VerifyStatus, verify_topics
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import TOPIC
from tests.unit.replay.town import Town, town

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


async def verifications(seeds: range, folder) -> Any:
    for seed in seeds:
        place = town(folder / str(seed), seed)
        await place.live(10)
        decisions, records, policies = place.write(folder / str(seed))
        with FileRecords(records, decisions) as found:
            yield (
                Verifier(found, PolicyStore(policies, None)),
                [value for _, value in decision_lines(decisions)],
            )


async def test_every_change_of_a_single_field_is_found_and_named(tmp_path):
    draw, tried = random.Random(3), 0
    async for verifier, values in verifications(range(1), tmp_path):
        for decision in draw.sample(one_of_each(values), 12):
            for path in paths(decision):
                value: Any = decision
                for part in path:
                    value = value[part]
                other = draw.choice(
                    [each for each in others(value) if each != value or type(each) is not type(value)]
                )
                finding = await verifier.verify(changed(decision, path, other))
                name = as_text(path)
                outside = FROM_OUTSIDE.match(name) or (KEPT.match(name) and decision["facts"]["review"])
                assert finding.status is not VerifyStatus.EQUAL or outside, (name, value, other)
                if finding.status is VerifyStatus.DIFFERS and not name.startswith(
                    ("$.facts", "$.origin", "$.subject_origin")
                ):
                    assert any(p.startswith(name) or name.startswith(p) for p in finding.paths), (
                        name,
                        finding,
                    )
                tried += 1
    assert tried > 1_000


async def test_every_field_that_is_left_out_or_added_is_found_and_named(tmp_path):
    async for verifier, values in verifications(range(1), tmp_path):
        decision = next(d for d in map(json.loads, values) if d["revision"] == 2)
        for name in decision:
            finding = await verifier.verify(
                json.dumps({k: v for k, v in decision.items() if k != name}).encode()
            )
            assert finding.status is VerifyStatus.DIFFERS
            assert finding.paths == (f"$.{name}",)
        finding = await verifier.verify(json.dumps({**decision, "tomorrow": 1}).encode())
        assert finding.paths == ("$.tomorrow",)
        twice = json.dumps(decision)[:-1] + ', "approved": true}'
        assert (await verifier.verify(twice.encode())).paths == ("$",)


async def test_a_decision_made_to_look_approved_in_every_field_that_says_so_is_found(tmp_path):
    approved = {
        "tier": "tier_1",
        "verdict": "approved",
        "approved": True,
        "reason": "From trusted source: user",
        "reason_code": "trusted_source",
    }
    found = 0
    async for verifier, values in verifications(range(1), tmp_path):
        for decision in one_of_each([value for value in values if b'"approved":false' in value]):
            finding = await verifier.verify(json.dumps({**decision, **approved}).encode())
            assert finding.status is VerifyStatus.DIFFERS
            assert {"$.tier", "$.verdict", "$.approved"} <= set(finding.paths)
            found += 1
    assert found > 10


async def test_order_of_keys_and_spaces_say_nothing_in_a_file_but_on_a_topic_every_byte_counts(tmp_path):
    place = town(tmp_path)
    await place.send(place.claim("c", "The API returns JSON"))
    decisions, records, policies = place.write(tmp_path)
    (decision,) = place.published.values()
    other = json.dumps(json.loads(decision.to_bytes()), sort_keys=True).encode()
    with FileRecords(records, decisions) as found:
        store = PolicyStore(policies, None)
        await place.policies.put(place.policy)
        assert await Verifier(found, store).verify(other) == VerifyFinding(
            VerifyStatus.EQUAL, decision.decision_id, detail="written otherwise"
        )
        assert (await Verifier(found, store, exactly=True).verify(other)).status is VerifyStatus.DIFFERS
        assert (
            await Verifier(found, store, exactly=True).verify(decision.to_bytes())
        ).status is VerifyStatus.EQUAL


class Shelf:
    """Reads from a town what a reader reads from topics, after something was done to it."""

    def __init__(self, place: Town, spoil: Any) -> None:
        self.place, self.spoil = place, spoil

    async def plan(self, *_: Any) -> list[Any]:
        return []

    async def read(self, job: Job, *_: Any, **__: Any) -> None:
        keep = job.add_decision
        job.add_decision = lambda published, **more: [  # type: ignore[method-assign]
            keep(each, **more) for each in self.spoil(published)
        ]
        self.place.store_in(job)


def moved(name: str, value: Any) -> Any:
    """Spoil where the decision says that its record stands."""

    def spoil(published):
        decision = json.loads(published.value)
        if decision["origin"]["topic"] == TOPIC:
            decision["origin"][name] = value
        text = json.dumps(decision, ensure_ascii=False, separators=(",", ":"))
        return [type(published)(**{**vars(published), "value": text.encode()})]

    return spoil


def with_(**fields: Any) -> Any:
    def spoil(published):
        known = {name: value for name, value in vars(published).items() if name not in {"sha256", "origin"}}
        return [type(published)(**{**known, **fields})]

    return spoil


def twice(published):
    value = published.value.replace(b"12:00:00.25Z", b"12:00:00.26Z").replace(b".250Z", b".251Z")
    return [published, *with_(value=value, offset=99)(published)]


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda published: [published], set()),
        (moved("offset", 77), {"$.origin"}),
        (moved("partition", 1), {"$.origin"}),
        (moved("topic", "elsewhere"), {"$.origin"}),
        (moved("offset", 10**30), {"$.origin.offset"}),
        (moved("partition", -(2**53)), {"$.origin.partition"}),
        (with_(topic="groundwire.other"), {"topic"}),
        (with_(key=b"eve"), {"key"}),
        (with_(headers=()), {"header ce_id", "header ce_time", "header ce_subject"}),
        (with_(value=b"{}"), {"$"}),
        (with_(value=None), {"$"}),
        (twice, {"$", "header ce_time"}),
    ],
)
async def test_on_topics_place_key_headers_and_repeats_are_verified_too(tmp_path, spoil, named):
    place = town(tmp_path)
    await place.policies.put(place.policy)
    await place.send(place.claim("c", "The API returns JSON", source="user"))
    found = verify_topics(Shelf(place, spoil), "groundwire.", "earliest", place.policies, tmp_path)
    findings = [placed.finding async for placed in found]
    assert {path for finding in findings for path in finding.paths} == named
    assert findings
    assert all((finding.status is VerifyStatus.EQUAL) is not bool(finding.paths) for finding in findings)
    other = [finding.paths for finding in findings if finding.status is VerifyStatus.CONTRADICTED]
    assert other == ([("$",)] if spoil is twice else [])


def test_a_store_knows_no_place_that_it_has_not_read(tmp_path):
    with Job(
        tmp_path / "job", ReplayOrder("n", [], "earliest", "latest", None, simulate=False, output=None)
    ) as job:
        assert isinstance(job, RecordStore)
        assert job.value("no hash") is None
        assert job.missing_places() == []
