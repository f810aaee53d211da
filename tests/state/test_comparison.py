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
LIMIT = st.just(Thresholds(3000, 3000, 3000)) | st.builds(Thresholds, POINTS, POINTS, POINTS)
RULES = st.builds(MatchRules, LIMIT, st.booleans(), st.booleans())


@st.composite
def signatures(draw) -> bytes:
    values = sorted(draw(st.sets(VALUE, max_size=6)))
    content = draw(st.lists(MARKED, max_size=8))
    others = draw(st.lists(TOKENS.map(lambda token: b"\0" + token), max_size=4))
    counts = draw(st.integers(0, 2)), draw(st.integers(0, 1))
    header = struct.pack("<BB4s4sII", *counts, draw(DIGESTS), draw(FRAMES), len(values), len(content))
    return b"".join((header, *values, *content, *others))


@pytest.mark.parametrize("examples", [25, pytest.param(150, marks=pytest.mark.slow)])
def test_claims_compare_alike_in_the_script_and_in_python(redis_server, examples):
    """Of one and of many matches both choose the same, of rejected claims among them."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(
        earlier=st.lists(
            st.tuples(signatures(), st.integers(1, 3), st.sampled_from((1, 2))), min_size=1, max_size=12
        ),
        asked=signatures(),
        rules=RULES,
        rejected=st.booleans(),
    )
    def compare_both(earlier, asked, rules, rejected) -> None:
        base, claims, asks = DedupQuery(b"s" * 16, [b"same key"], [b"same key"], asked, rules), Claims(), []
        for n, (sign, time, tier) in enumerate([*earlier, (asked, 9, 1)]):
            ask = claims.ask(f"c{(7 * n) % 13}-{n}", None, tier)
            where = replace(ask.origin, timestamp=time)
            asks.append(replace(ask, origin=where, dedup=replace(base, signature=sign)))
        retracted = [People(claims).act("retract", asks[0])] * rejected

        async def answers(state) -> list:
            found = await state.step(asks[:-1], QueueLimits()) + await state.review(retracted)
            return found + await state.step(asks[-1:], QueueLimits())

        async def both() -> list[list]:
            redis = await start(state_at(redis_server.url, f"{secrets.token_hex(8)}."))
            found = [await answers(redis), await answers(MemoryState())]
            await redis.close()
            return found

        ours, theirs = asyncio.run(both())
        assert ours == theirs
        if len(earlier) == 1:
            rejected = rejected and earlier[0][2] == 1
            match = compare(asked, earlier[0][0], rules.thresholds, rejected=rejected)
            facts = [(match.inter, match.union, match.difference) for match in ours[-1].matches]
            assert facts == ([(match.inter, match.union, match.difference.value)] if match else [])

    compare_both()
