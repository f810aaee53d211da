"""Where the items of a review queue live that outlive a process: in Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from groundwire.errors import StateUnavailable
from groundwire.library.review_queue.model import ItemState
from groundwire.library.review_queue.rules import DECIDED_SECONDS, Entries, StoreChange, StoredItem, T
from groundwire.state.cluster import server_of
from groundwire.state.codec import Argument
from groundwire.state.server import PATIENCE, Client, bounded, connect, tagged

_FIELDS: Final = ("owner", "tenant", "at", "state", "token", "ends", "error", "attempts", "memory")
"""What the hash of an item has beside its body; the attributes of `StoredItem` have the same names."""


class RedisReviewStore:
    """Keeps the items of a deployment in Redis: they survive restarts, and processes share them (S0-139, C-31).

    A transaction reads under WATCH and writes under MULTI; where somebody else was faster it is tried again, with
    what there is by then, until `patience` is over. The server must not evict keys: that is looked at before the first
    call, and, unless told otherwise, that the server writes what it is given to disk. In a Redis Cluster all of a
    deployment's queue is on one primary: `rq` stands in braces there.

    Keys, behind the prefix and `rq:`; times are microseconds:
        i:<queue id>  hash: an item; of a decided one without its body, for a week
        w, u:<owner>  sorted sets of the ids of open items, of all and of one owner, by number: oldest first
        a:<owner>     list of audit rows, newest first; d:<owner> the same of denied attempts
        number        the last number given, to an item's place or to a row

    Args:
        redis: a client of `redis.asyncio` that gives bytes, or the URL of the server as GROUNDWIRE_REDIS_URL has it.
        prefix: put before every key; queues with the same prefix are one queue.
        patience: seconds for one call.
        require_aof: refuse a server without an append-only file.

    Raises:
        UsageError: the URL is none, or the client decodes responses; with the first call: queues must not live on
            this server.
    """

    def __init__(
        self,
        redis: Client | str,
        prefix: str = "groundwire.",
        *,
        patience: float = PATIENCE,
        require_aof: bool = True,
    ) -> None:
        self._owns_client = isinstance(redis, str)
        client = connect(redis, patience=patience) if isinstance(redis, str) else redis
        self._server = server_of(client, patience)
        self._patience = patience
        self._base = f"{prefix}{tagged(client, 'rq')}:"
        self._require_aof = require_aof
        self._checked = False
        self._adding = asyncio.Lock()  # whoever adds an item changes the same index

    async def change(self, change: StoreChange[T]) -> T:
        """See `ReviewStore`."""
        alone = self._adding if change.owner else None
        return await self._try(change.name, lambda connection: self._transact(connection, change), alone)

    async def waiting(self, name: str, owner: str = "", most: int = 0) -> list[str]:
        """See `ReviewStore`."""
        key = self._index(owner)
        found = await self._try(name, lambda connection: _ask(connection, ("ZRANGE", key, 0, most - 1)))
        return [queue_id.decode() for queue_id in found[0]]

    async def history(self, owner: str, limit: int) -> list[str]:
        """See `ReviewStore`."""
        asked = [("LRANGE", f"{self._base}{kind}:{owner}", 0, limit - 1) for kind in "ad"]
        done, denied = await self._try("history", lambda connection: _ask(connection, *asked))
        rows = sorted(done + denied, key=lambda row: int(row.split(b" ", 1)[0]), reverse=True)
        return [row.decode() for row in rows[:limit]]

    async def close(self) -> None:
        """Close the connections, if the store made them itself."""
        if self._owns_client:
            await self._server.close()

    async def _try(
        self,
        name: str,
        work: Callable[[AbstractConnection], Awaitable[T]],
        alone: AbstractAsyncContextManager[None] | None = None,
    ) -> T:
        """Do what may be done twice: once more where the connection broke."""
        if not self._checked:
            await self._server.check(require_aof=self._require_aof)
            self._checked = True
        broken = False
        async with bounded((f"review queue, {name}",), self._patience), alone or nullcontext():
            while True:
                try:
                    async with self._server.lend(self._base) as connection:
                        return await work(connection)
                except RedisConnectionError:
                    if broken:
                        raise
                    broken = True

    async def _transact(self, connection: AbstractConnection, change: StoreChange[T]) -> T:
        # Held here too: a cancellation by `bounded` is lost where it meets the end of asyncio.wait_for (CPython 86296)
        time = asyncio.get_running_loop().time
        deadline = time() + self._patience
        tries = 0
        while True:
            entries = await self._read(connection, change)
            known = set(entries.items)
            answer = change.rule(entries)
            written = await self._writes(connection, entries, known)
            if not written:
                await _ask(connection, ("UNWATCH",))
                return answer
            *_, done = await _ask(connection, ("MULTI",), *written, ("EXEC",))
            for reply in done or ():
                if isinstance(reply, Exception):
                    raise reply
            if done is not None:
                return answer
            if time() >= deadline:
                raise TimeoutError
            tries += 1
            await asyncio.sleep(random.random() * 0.002 * tries)  # noqa: S311 - so that they do not meet again

    async def _read(self, connection: AbstractConnection, change: StoreChange[Any]) -> Entries:
        keys = [self._key(queue_id) for queue_id in change.queue_ids]
        index = [self._index(change.owner), self._index()] if change.owner else []
        _, time_, *found = await _ask(
            connection,
            ("WATCH", *keys, *index),
            ("TIME",),
            *[("HMGET", key, *_FIELDS, "body") for key in keys],
            *[("ZCARD", key) for key in index],
        )
        counts = found[len(keys) :]
        items = []
        for queue_id, values in zip(change.queue_ids, found, strict=False):
            if values[0] is None:
                continue
            *texts, body = (value or b"" for value in values)
            fields: dict[str, Any] = {name: text.decode() for name, text in zip(_FIELDS, texts, strict=True)}
            try:
                fields |= {name: int(fields[name]) for name in ("at", "ends", "attempts")}
                items.append(
                    StoredItem(queue_id, body=body, **fields | {"state": ItemState(fields["state"])})
                )
            except ValueError:
                raise StateUnavailable(f"review queue: the item {queue_id} cannot be read") from None
        now = change.terms.now
        if now is None:
            now = int(time_[0]) * 1_000_000 + int(time_[1])
        return Entries(change.terms, now, {item.queue_id: item for item in items}, *counts)

    async def _writes(
        self, connection: AbstractConnection, entries: Entries, known: set[str]
    ) -> list[Sequence[Argument]]:
        """Return the commands that write what was changed, with numbers that nobody else has."""
        needed = len(entries.changed) + len(entries.rows)
        if not needed:
            return []
        (last,) = await _ask(connection, ("INCRBY", f"{self._base}number", needed))
        numbers = count(last - needed + 1)
        written: list[Sequence[Argument]] = []
        for item in entries.changed.values():
            number, key = next(numbers), self._key(item.queue_id)
            fields = [part for name in _FIELDS for part in (name, getattr(item, name))]
            indexes = (self._index(), self._index(item.owner))
            if item.queue_id not in known:
                written.append(("HSET", key, *fields, "body", item.body))
                written += [("ZADD", index, number, item.queue_id) for index in indexes]
                continue
            written.append(("HSET", key, *fields))
            if not item.open:
                written += [("HDEL", key, "body"), ("PEXPIRE", key, DECIDED_SECONDS * 1000)]
                written += [("ZREM", index, item.queue_id) for index in indexes]
        for name, row in entries.rows:
            rows = f"{self._base}{name}"
            written.append(("LPUSH", rows, f"{next(numbers)} {row}"))
            written.append(("LTRIM", rows, 0, entries.terms.audit_rows - 1))
        return written

    def _key(self, queue_id: str) -> bytes:
        """Return the key of an item; what is no text becomes an id that nobody has."""
        return f"{self._base}i:{queue_id}".encode("utf-8", "replace")

    def _index(self, owner: str = "") -> str:
        return f"{self._base}u:{owner}" if owner else f"{self._base}w"


async def _ask(connection: AbstractConnection, *commands: Sequence[Argument]) -> list[Any]:
    """Send commands together, and return what each gave."""
    await connection.send_packed_command(connection.pack_commands(commands))
    return [await connection.read_response() for _ in commands]
