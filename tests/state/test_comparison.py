"""The script compares claims exactly as `groundwire.checks.dedup.signature` does."""

import asyncio
import secrets
import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundwire.checks.dedup.signature import Thresholds, compare
from groundwire.state.memory import MemoryState
from groundwire.state.model import DedupQuery, MatchRules, QueueLimits
from tests.state.claims import Claims, People
from tests.state.conftest import start, state_at

# few of each, so that they meet
DIGESTS = st.sampled_from((b"none", b"some"))
FRAMES = st.sampled_from((bytes(4), b"kept", b"made"))
VALUE = st.builds(lambda kind, digest: kind.encode() + digest, st.sampled_from("NnQUDWOATSFP"), DIGESTS)
STEMS = st.sampled_from([bytes((first,)) + b"\0\nt" for first in range(6)])
TOKENS = st.builds(lambda stem, form: stem + form, STEMS, st.sampled_from((b"abcd", b"ab\0d")))
MARKED = st.builds(
    lambda marks, token: bytes((marks,)) + token, st.sampled_from((1, 2, 3, 9, 129, 137, 67, 75)), TOKENS
)
POINTS = st.sampled_from((1, 3333, 5000, 6667, 7500, 9200, 10_000))
RULES = st.builds(MatchRules, st.builds(Thresholds, POINTS, POINTS, POINTS), st.booleans(), st.booleans())


@st.composite
def signatures(draw) -> bytes:
    values = sorted(draw(st.sets(VALUE, max_size=6)))
    content = draw(st.lists(MARKED, max_size=8))
    others = draw(st.lists(TOKENS.map(lambda token: b"\0" + token), max_size=4))
    counts = draw(st.integers(0, 2)), draw(st.integers(0, 1))
    header = struct.pack("<BB4s4sII", *counts, draw(DIGESTS), draw(FRAMES), len(values), len(content))
    return b"".join((header, *values, *content, *others))


def query(sign: bytes, rules: MatchRules) -> DedupQuery:
    return DedupQuery(secrets.token_bytes(16), [b"same key"], [b"same key"], sign, rules)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(indexed=signatures(), asked=signatures(), rules=RULES, rejected=st.booleans())
def test_two_claims_compare_alike_in_the_script_and_in_python(redis_server, indexed, asked, rules, rejected):
    async def compare_both() -> None:
        redis = await start(state_at(redis_server.url, f"{secrets.token_hex(8)}."))
        memory, claims = MemoryState(), Claims()
        first = replace(claims.ask("c1", None), dedup=query(indexed, rules))
        second = replace(claims.ask("c2", None), dedup=replace(first.dedup, signature=asked))
        retracted = People(claims).act("retract", first)
        for state in (redis, memory):
            await state.step([first], QueueLimits())
            await state.review([retracted] if rejected else [])
        found, expected = [(await state.step([second], QueueLimits()))[0] for state in (redis, memory)]
        assert found == expected
        match = compare(second.dedup.signature, first.dedup.signature, rules.thresholds, rejected=rejected)
        facts = [(match.inter, match.union, match.difference) for match in found.matches]
        assert facts == ([(match.inter, match.union, match.difference.value)] if match else [])
        await redis.close()

    asyncio.run(compare_both())


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(signatures(), min_size=1, max_size=12),
    times=st.lists(st.integers(1, 3), min_size=12, max_size=12),
    tiers=st.lists(st.sampled_from((1, 2)), min_size=12, max_size=12),
    asked=signatures(),
    material=st.booleans(),
)
def test_of_many_matches_both_choose_the_same(redis_server, texts, times, tiers, asked, material):
    async def compare_both() -> None:
        redis = await start(state_at(redis_server.url, f"{secrets.token_hex(8)}."))
        memory, claims = MemoryState(), Claims()
        base = query(asked, MatchRules(Thresholds(3000, 3000, 3000), material))
        asks = []
        for n, (sign, time, tier) in enumerate(zip([*texts, asked], [*times, 9], [*tiers, 1], strict=False)):
            ask = claims.ask(f"c{(7 * n) % 13}-{n}", None, tier)
            where = replace(ask.origin, timestamp=time)
            asks.append(replace(ask, origin=where, dedup=replace(base, signature=sign)))
        assert await redis.step(asks, QueueLimits()) == await memory.step(asks, QueueLimits())
        await redis.close()

    asyncio.run(compare_both())
