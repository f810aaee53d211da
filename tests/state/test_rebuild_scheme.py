"""State of the version before, whose signatures and keys were others, is refused and carried over by a rebuild."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from groundwire.errors import SchemeMismatch
from groundwire.gate.claim_case import dedup_scheme
from groundwire.policy import Policy
from groundwire.replay.rebuild import Rebuilder
from groundwire.state.server import connect
from tests.state.conftest import start, state_at
from tests.unit.gate.test_rebuild_people import Topics
from tests.unit.gate.test_review_gate import Office

BEFORE = "minhash-16x8-affine32-s1/words-1/signature-2/9200/user_type"
KEPT = "The invoices are kept for 30 days."
WRONG = "The gate at the north entrance is painted green."


async def as_before(redis: Redis, prefix: str) -> None:
    """Give state the layout of the version before: 12 bytes of digests, 8 for each word, and other keys."""
    await redis.set(f"{prefix}scheme", BEFORE)
    for key in await redis.keys(f"{prefix}x:*"):
        await redis.delete(key)
    for key in await redis.keys(f"{prefix}m:*"):
        for name, member in (await redis.hgetall(key)).items():
            if name != b"n":
                head, _, _ = member.partition(b"\0")
                await redis.hset(key, name, head + b"\0" + bytes(12) + b"oldtoken" * 7)
    for key in await redis.keys(f"{prefix}k:*"):
        await redis.set(key, b"key1" + (1).to_bytes(4, "little"))


async def test_state_of_the_scheme_before_is_refused_and_a_rebuild_carries_it_over(redis_server, prefix):
    redis = connect(redis_server.url)
    state = await start(state_at(redis_server.url, prefix, scheme=dedup_scheme(Policy())))
    office, topics = Office(state=state), Topics()
    (approved,) = await office.decide(office.claim("a", KEPT, source="user"))
    (waits,) = await office.decide(office.claim("b", WRONG, source="ai_synthesis"))
    (rejected,) = await office.carry_out(office.action("reject", waits, reason="incorrect"))
    topics.put(approved, waits, rejected)
    await as_before(redis, prefix)

    newer = state_at(redis_server.url, prefix, scheme=dedup_scheme(Policy()))
    with pytest.raises(SchemeMismatch, match="groundwire rebuild"):
        await newer.open()
    assert await Rebuilder(newer, Policy(), topics.read, quiet=0).rebuild()
    await newer.adopt_epoch()

    later = Office(state=newer)
    conflict = await later.one("Invoices are kept for 90 days.", "c", source="user")
    assert conflict.reason_code == "conflicting_near_duplicate"
    assert "conflicting_near_duplicate: a: number" in conflict.checks_failed
    assert (await later.one(KEPT, "d", source="user")).reason_code == "duplicate"
    again = await later.one(f"{WRONG[:-1]} permanently.", "e", source="user")
    assert again.reason_code == "previously_rejected"
    await redis.aclose()
    await state.close()
    await newer.close()
