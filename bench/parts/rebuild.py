"""How fast lost state comes back: decisions read from the topics, derived again, and loaded into Redis."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator

from bench.claims import claims
from bench.inside import decide, new_gate
from bench.measure import Figure, Options, Part, Race, Target
from bench.services import open_broker, open_redis
from groundwire.config import Settings
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.connection import partition_of, producer
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import Rebuilder
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from topics.declare import declare

_PARTITIONS = 8
_PAGE = 500


async def publish(settings: Settings, policy: Policy, count: int) -> None:
    """Put claims on their topic, and on the output topics what a gate makes of them."""
    gate = new_gate(policy)
    async with producer(settings.brokers, 30.0) as client:
        page: list[InboundRecord] = []

        async def flush() -> None:
            outputs = await decide(gate, page)
            sent = [
                await client.send(settings.topic_prefix + one.topic, one.value, key=one.key)
                for one in outputs
            ]
            for one in sent:
                await one
            page.clear()

        topic, numbers = settings.topic_prefix + TopicName.CLAIMS, range(_PARTITIONS)
        sending = []
        for key, value in claims(count, users=count // 20):
            partition = partition_of(key, numbers)
            sending.append((key, value, await client.send(topic, value, key=key, partition=partition)))
            if len(sending) == _PAGE or len(sending) + len(page) == count:
                for own_key, own, future in sending:
                    at = await future
                    page.append(InboundRecord(topic, at.partition, at.offset, at.timestamp, own_key, own))
                sending = []
                await flush()
        for own_key, own, future in sending:
            at = await future
            page.append(InboundRecord(topic, at.partition, at.offset, at.timestamp, own_key, own))
        await flush()


async def _run(options: Options) -> AsyncIterator[Figure]:
    logging.disable(logging.WARNING)
    policy = Policy()
    count = options.of(4_000, 20_000, 200_000)
    with open_broker(options.broker) as broker, open_redis(options.redis) as server:
        settings = Settings(
            brokers=broker.bootstrap,
            redis_url=server.url,
            topic_prefix=f"b{secrets.token_hex(4)}.",
            partitions=_PARTITIONS,
            rebuild_wait=0,
        )
        await declare(settings)
        await publish(settings, policy, count)

        async def rebuild(*, derives: bool) -> float:
            state = RedisState(
                connect(server.url),
                settings.topic_prefix,
                scheme=dedup_scheme(policy),
                partitions=_PARTITIONS,
            )
            own = settings.model_copy(update={"rebuild_derives": derives})
            try:
                rebuilder = Rebuilder.of(own, state, policy, PolicyStore(None, None))
                began = time.perf_counter()
                await rebuilder.rebuild()
                took = time.perf_counter() - began
            finally:
                await state.close()
            if derives and rebuilder.counts.total() != count:
                raise RuntimeError(f"{count} decisions were published, {rebuilder.counts}")
            return count / took

        race = Race("decisions/s")
        race.add("loaded as published (GROUNDWIRE_REBUILD_DERIVES=0)", lambda: rebuild(derives=False))
        race.add("derived again, then loaded", lambda: rebuild(derives=True), Target(">=", 2_000), "rebuild")
        for figure in await race.figures(options.rounds, warm=False):
            yield figure


PART = Part(
    "rebuild", "a rebuild that derives each decision again, beside one that loads them", _run, "broker, Redis"
)
