"""Long-term memory for agents of LangGraph that holds what the gate has approved, and nothing else.

    async with Producer() as gate, GroundwireStore.open(gate) as store:
        graph = builder.compile(store=store)

Needs `groundwire[client]` and `langgraph-checkpoint`, which has the interface. A namespace is (tenant, user), a key the
id of a claim, and a value its fields, with its text as `content`. What stands under a key never changes: another
statement needs another key, and what is approved is withdrawn by people (`groundwire review retract`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Self

from langgraph.store.base import BaseStore, IndexConfig, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from groundwire.client import ApprovedTable, Change, Decision, Producer, changes

Place = tuple[tuple[str, ...], str]
"""A namespace and a key."""


class NotApproved(Exception):
    """The gate did not approve what was put; `decision` says why, so that an agent can say it better."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(f"{decision.verdict}, {decision.reason_code}: {decision.reason}")
        self.decision = decision


class GroundwireStore(BaseStore):
    """A store whose `put` asks the gate, and whose reads see what is approved, not withdrawn and not expired.

    `put` and `aput` return once what they put can be read. They raise NotApproved; RecordError where the gate cannot
    read the value, or the key stands for something else; TimeoutError where there is no decision in time.
    """

    def __init__(self, gate: Producer, index: IndexConfig | None, seconds: float) -> None:
        self._gate = gate
        self._seconds = seconds
        self._approved = InMemoryStore(index=index)
        self._ends: dict[Place, datetime] = {}
        self._changed = asyncio.Condition()
        self._caught_up = asyncio.Event()
        self._following: asyncio.Task[None]
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        gate: Producer,
        *,
        index: IndexConfig | None = None,
        seconds: float = 60.0,
        brokers: str | None = None,
        topic_prefix: str | None = None,
    ) -> AsyncIterator[Self]:
        """Read all that is approved, and go on with what comes.

        Args:
            gate: sends claims; entered already.
            index: how texts are embedded, as LangGraph's InMemoryStore takes it; None: a query finds everything.
            seconds: how long a `put` waits for its decision.
            brokers: as for the producer.
            topic_prefix: as for the producer.
        """
        store = cls(gate, index, seconds)
        store._following = asyncio.create_task(store._follow(brokers, topic_prefix))
        try:
            await store._caught_up.wait()
            yield store
        finally:
            store._following.cancel()
            with suppress(asyncio.CancelledError):
                await store._following

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations from another thread than that of the event loop, such as a tool's."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("the event loop would wait for itself: use aget, aput, asearch")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations; reads see what was there before. Raises: why the topics can no longer be read."""
        if self._following.done():
            self._following.result()
        for place in [place for place, end in self._ends.items() if end <= datetime.now(UTC)]:
            await self._forget(place)
        return await asyncio.gather(*map(self._one, ops))

    async def _one(self, op: Op) -> Result:
        if not isinstance(op, PutOp):
            return (await self._approved.abatch([op]))[0]
        if op.value is None:
            raise NotImplementedError("people withdraw what is approved: groundwire review retract")
        async with asyncio.timeout(self._seconds):
            await self._put(op.namespace, op.key, dict(op.value))
        return None

    async def _put(self, namespace: tuple[str, ...], key: str, fields: dict[str, Any]) -> None:
        if len(namespace) != 2 or "content" not in fields:
            raise ValueError("a namespace is (tenant, user), and a value has its text as content")
        tenant_id, user_id = namespace
        sent = await self._gate.claim(
            **fields | {"claim_id": key, "tenant_id": tenant_id, "user_id": user_id}
        )
        decision = await self._gate.decided(sent, self._seconds)
        if not decision.approved:
            raise NotApproved(decision)
        async with self._changed:  # the table reads the topics on its own
            await self._changed.wait_for(lambda: self._approved.get(namespace, key) is not None)

    async def _follow(self, brokers: str | None, topic_prefix: str | None) -> None:
        told = changes(
            ApprovedTable(), brokers=brokers, topic_prefix=topic_prefix, at_end=self._caught_up.set
        )
        try:
            async for change in told:
                await self._carry_out(change)
                async with self._changed:
                    self._changed.notify_all()
        finally:
            self._caught_up.set()

    async def _carry_out(self, change: Change) -> None:
        subject, memory = change
        place = (subject.tenant_id, subject.user_id), subject.subject_id
        if memory is None:
            await self._forget(place)
        else:
            value = {"content": memory.content, "memory_type": memory.memory_type, "source": memory.source}
            await self._approved.aput(*place, value)
            self._ends[place] = memory.valid_until or datetime.max.replace(tzinfo=UTC)

    async def _forget(self, place: Place) -> None:
        self._ends.pop(place, None)
        await self._approved.adelete(*place)
