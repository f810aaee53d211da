"""The script compares claims exactly as the functions of `groundwire.checks` do."""

import asyncio
import secrets
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundwire.checks.difference import difference, overlap
from groundwire.checks.similarity import is_near
from groundwire.state.memory import MemoryState
from groundwire.state.model import DedupQuery, Limits
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.state.claims import SCHEME, Claims
from tests.state.conftest import start

# Few of each, so that they meet: digests of negations, numbers and units; token ids, odd ones for articles.
DIGESTS = st.sampled_from((b"none", b"some"))
IDS = st.sampled_from([bytes((first,)) + b"\0\n token"[:7] for first in range(10)])
SIGNATURES = st.builds(
    lambda *parts: b"".join([*parts[:3], *parts[3]]), DIGESTS, DIGESTS, DIGESTS, st.lists(IDS, max_size=10)
)
KEY = b"same key"


def query(sign: bytes, parts: int, *, material: bool) -> DedupQuery:
    return DedupQuery(secrets.token_bytes(16), [KEY], [KEY], sign, parts, material)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    indexed=SIGNATURES,
    asked=SIGNATURES,
    parts=st.sampled_from((1, 3333, 5000, 6667, 7500, 9200, 10_000)),
    material=st.booleans(),
)
def test_two_claims_compare_alike_in_the_script_and_in_python(redis_server, indexed, asked, parts, material):
    async def compare() -> None:
        redis = await start(RedisState(connect(redis_server.url), f"{secrets.token_hex(8)}.", scheme=SCHEME))
        claims = Claims()
        first = replace(claims.ask("c1", None), dedup=query(indexed, parts, material=material))
        second = replace(claims.ask("c2", None), dedup=replace(first.dedup, signature=asked))
        answers = await redis.step([first, second], Limits())
        assert answers == await MemoryState().step([first, second], Limits())
        inter, union = overlap(first.dedup.signature, second.dedup.signature)
        found = [(match.inter, match.union, match.difference) for match in answers[1].matches]
        kind = difference(first.dedup.signature, second.dedup.signature)
        assert found == ([(inter, union, kind.value)] if is_near(inter, union, parts) else [])
        await redis.close()

    asyncio.run(compare())


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(SIGNATURES, min_size=1, max_size=12),
    times=st.lists(st.integers(1, 3), min_size=12, max_size=12),
    tiers=st.lists(st.sampled_from((1, 2)), min_size=12, max_size=12),
    asked=SIGNATURES,
    material=st.booleans(),
)
def test_of_many_matches_both_choose_the_same(redis_server, texts, times, tiers, asked, material):
    async def compare() -> None:
        redis = await start(RedisState(connect(redis_server.url), f"{secrets.token_hex(8)}.", scheme=SCHEME))
        memory, claims = MemoryState(), Claims()
        base = query(asked, 3000, material=material)
        asks = []
        for n, (sign, time, tier) in enumerate(zip([*texts, asked], [*times, 9], [*tiers, 1], strict=False)):
            ask = claims.ask(f"c{(7 * n) % 13}-{n}", None, tier)
            where = replace(ask.origin, timestamp=time)
            asks.append(replace(ask, origin=where, dedup=replace(base, signature=sign)))
        assert await redis.step(asks, Limits()) == await memory.step(asks, Limits())
        await redis.close()

    asyncio.run(compare())
