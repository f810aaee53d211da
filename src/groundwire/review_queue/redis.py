"""The review queue's items in Redis: they survive restarts, and processes share them (S0-139, C-31)."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis

from groundwire.errors import StateUnavailable
from groundwire.review_queue.model import (
    DECIDED_SECONDS,
    EXPIRED_AT_ONCE,
    Attempt,
    Standing,
    StoredItem,
    Terms,
)
from groundwire.state.entries import Argument
from groundwire.state.server import PATIENCE, Script, Server, connect

_ITEM_PARTS: Final = 6


class RedisReviewStore:
    """Keeps the items of a deployment; each call is one script on the primary.

    The server must not evict keys, and must be one primary: Redis Cluster is refused. Both are looked at before
    the first call, and, unless told otherwise, that the server writes what it is given to disk.

    Args:
        redis: a client of `redis.asyncio` that gives bytes, or the URL of the server.
        prefix: put before every key; queues with the same prefix are one queue.
        patience: seconds for one call.
        require_aof: refuse a server without an append-only file.

    Raises:
        UsageError: the URL is none, or the client decodes responses; with the first call: queues must not live on
            this server.
    """

    def __init__(
        self,
        redis: Redis | str,
        prefix: str = "groundwire.",
        *,
        patience: float = PATIENCE,
        require_aof: bool = True,
    ) -> None:
        self._owns_client = isinstance(redis, str)
        self._server = Server(
            connect(redis, patience=patience) if isinstance(redis, str) else redis, patience
        )
        self._base = f"{prefix}rq:"
        self._require_aof = require_aof
        self._checked = False

    async def enqueue(self, attempt: Attempt, body: bytes, terms: Terms) -> str:
        """See `ReviewStore`."""
        limits = (terms.max_per_user, terms.max_total, EXPIRED_AT_ONCE)
        answer = await self._run("enqueue", terms, *_asked(attempt), body, *limits)
        return str(answer.decode())

    async def pending(self, owner: str, limit: int, terms: Terms) -> list[StoredItem]:
        """See `ReviewStore`."""
        return [_item(found) for found in await self._run("pending", terms, owner, limit)]

    async def get(self, queue_id: str, owner: str, terms: Terms) -> StoredItem | None:
        """See `ReviewStore`."""
        found = await self._run("get", terms, _key(queue_id), owner)
        return _item(found) if found else None

    async def begin(self, attempt: Attempt, terms: Terms) -> StoredItem | Standing:
        """See `ReviewStore`."""
        answer = await self._run("begin", terms, *_asked(attempt), terms.lease)
        return _item(answer) if len(answer) == _ITEM_PARTS else _standing(answer)

    async def settle(self, attempt: Attempt, memory_id: str, terms: Terms) -> Standing:
        """See `ReviewStore`."""
        return _standing(await self._run("settle", terms, *_asked(attempt), memory_id))

    async def reject(self, attempt: Attempt, terms: Terms) -> Standing:
        """See `ReviewStore`."""
        return _standing(await self._run("reject", terms, *_asked(attempt)))

    async def history(self, owner: str, limit: int) -> list[str]:
        """See `ReviewStore`."""
        done, denied = await self._run("history", None, owner, limit)
        rows = sorted(done + denied, key=lambda row: int(row.split(b" ", 1)[0]), reverse=True)
        return [row.decode() for row in rows[:limit]]

    async def close(self) -> None:
        """Let go of the connections, where the store made them itself."""
        if self._owns_client:
            await self._server.close()

    async def _run(self, name: str, terms: Terms | None, *arguments: Argument) -> Any:  # noqa: ANN401 - a reply is what a script returns
        if not self._checked:
            await self._server.check(require_aof=self._require_aof)
            self._checked = True
        now: Argument = "" if terms is None or terms.now is None else terms.now
        ttl, rows = (terms.ttl, terms.audit_rows) if terms else (0, 0)
        try:
            return await self._server.run(
                _script(name), (), self._base, now, ttl, rows, DECIDED_SECONDS * 1_000_000, *arguments
            )
        except StateUnavailable as error:
            raise StateUnavailable(f"review queue, {name}: {error}") from error


@cache
def _script(name: str) -> Script:
    package = files("groundwire.review_queue")
    source = "\n".join(package.joinpath(f"{part}.lua").read_text() for part in ("common", name))
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _asked(attempt: Attempt) -> tuple[Argument, ...]:
    who = (_key(attempt.queue_id), attempt.tenant, attempt.owner, int(attempt.delegated))
    return (*who, attempt.token, attempt.note)


def _key(queue_id: str) -> bytes:
    """Return an id as bytes; what is no text becomes an id that nobody has."""
    return queue_id.encode("utf-8", "replace")


def _item(found: list[bytes]) -> StoredItem:
    queue_id, body, at, state, error, attempts = found
    return StoredItem(queue_id.decode(), body, int(at), state.decode(), error.decode(), int(attempts))


def _standing(found: list[bytes]) -> Standing:
    state, memory_id = found
    return Standing(state.decode() or None, memory_id.decode())
