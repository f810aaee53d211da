"""A deployment that is watched through whatever breaks, and read from the beginning once all is mended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groundwire.gate.dedup import dedup_scheme
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.state.model import Standing
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.faults.history import RESPONSES, REVIEWS, TOPICS, Limits, Place, place_of
from tests.stream.harness import Deployment, Seen

LIMITS = Limits(user=6, tenant=40, total=70)
POLICY = f"""
version = "faults"

[limits]
review_per_user = {LIMITS.user}
review_per_tenant = {LIMITS.tenant}
review_total = {LIMITS.total}

[verification]
on_failure = "ask"
"""
_GROUPS = (("claims", "claims"), ("responses", RESPONSES), ("deferred", "deferred"), ("reviews", REVIEWS))


class Watched(Deployment):
    """Keeps when each record was read, and goes on reading when the broker is away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen_at: dict[Place, float] = {}

    async def _watch(self) -> None:
        while True:
            try:
                fetched = await self._consumer.getmany(timeout_ms=100)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            now = time.monotonic()
            for tp, records in fetched.items():
                topic = tp.topic.removeprefix(self.prefix)
                for r in records:
                    seen = Seen(topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    self.seen_at[place_of(seen)] = now
                    self.seen[topic].append(seen)

    async def idle(self, seconds: float) -> list[str]:
        """Wait until every group has worked its topic off; return what it has not, once so long nothing has moved."""
        calm, behind, since = 0, ["nothing was asked yet"], time.monotonic()
        while calm < 2 and time.monotonic() - since < seconds:
            await asyncio.sleep(1.0)
            before, behind = behind, await self._behind()
            calm = 0 if behind else calm + 1
            since = since if behind == before else time.monotonic()
        return behind

    async def _behind(self) -> list[str]:
        try:
            return [
                f"{topic}/{partition}: {committed} of {ends[partition]}"
                for group, topic in _GROUPS
                for ends in [await self.ends(topic)]
                for partition, committed in (await self.committed(group, topic)).items()
                if committed != ends[partition]
            ]
        except (KafkaError, TimeoutError) as error:
            return [f"the broker does not say: {type(error).__name__}"]

    async def read_all(self) -> dict[str, list[Seen]]:
        """Read every topic from its beginning to its end."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            tps = [TopicPartition(self.prefix + topic, n) for topic in TOPICS for n in range(self.partitions)]
            ends = await consumer.end_offsets(tps)
            consumer.assign(tps)
            await consumer.seek_to_beginning()
            found: dict[str, list[Seen]] = {topic: [] for topic in TOPICS}
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    topic = tp.topic.removeprefix(self.prefix)
                    found[topic] += [
                        Seen(topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in records
                    ]
            return found
        finally:
            await consumer.stop()

    async def standings(self, policy: Path, subjects: list[Subject]) -> dict[Subject, Standing | None]:
        """Ask state where subjects stand."""
        scheme = dedup_scheme(load_policy(policy, {}))
        state = RedisState(connect(self.redis.url), self.prefix, scheme=scheme, require_aof=False)
        try:
            await state.open()
            found: dict[Subject, Standing | None] = {}
            for first in range(0, len(subjects), 200):
                some = subjects[first : first + 200]
                found |= zip(some, await state.standings(some), strict=True)
            return found
        finally:
            await state.close()
