"""The corpus of each tenant in Redis: entities and relations to check answers against (S3-02, S3-16).

`<tenant>` is a digest of the tenant's id, in braces in a cluster. Only abandoned loads expire.

    corpus:<tenant>:e           hash: digest of an entity's id -> its index entry as JSON
    corpus:<tenant>:r           hash: digest of two names, in either order -> their relations, JSON lines
    corpus:<tenant>:<load>:e|r  a replacement while it is loaded; expires after an hour without progress

The empty field of a hash marks a complete corpus; a replacement is swapped in atomically.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from groundwire.checks.entities import comparable
from groundwire.errors import CorpusUnusable, StateUnavailable
from groundwire.messages.identity import digest
from groundwire.messages.records import CorpusEntity, IndexEntry, RelationClaim
from groundwire.state.cluster import server_of
from groundwire.state.codec import Argument, short_bytes
from groundwire.state.server import PATIENCE, Client, Server, script, tagged

MAX_PAIR_BYTES: Final = 48_000
"""Bytes of relations between two names, as JSON: every answer that names both is compared with them."""
BATCH: Final = 500
"""Entities or relations per command."""

_WHOLE: Final = b""

Item = TypeVar("Item")
_ADD: Final = script("corpus_add")
_SWITCH: Final = script("corpus_switch")


class _Keys(NamedTuple):
    entities: str
    relations: str


class Loading:
    def __init__(self, server: Server, keys: _Keys, *, staged: bool) -> None:
        self._server = server
        self._keys = keys
        self._staged = staged
        self.given_up = False

    def give_up(self) -> None:
        """Abandon the load; additions to a live corpus stay."""
        self.given_up = True

    async def add_entities(self, entities: Iterable[CorpusEntity]) -> None:
        for batch in _batches(entities):
            fields: list[Argument] = []
            for entity in batch:
                fields += [digest(entity.id), entity.model_dump_json(exclude={"id"}, exclude_none=True)]
            await self._server.call("HSET", self._keys.entities, *fields)
            await self._progress()

    async def add_relations(self, relations: Iterable[RelationClaim]) -> list[int]:
        """Add relations; return the positions of those beyond `MAX_PAIR_BYTES` of their two names."""
        refused: list[int] = []
        for number, batch in enumerate(_batches(relations)):
            fields: list[Argument] = []
            for relation in batch:
                written = relation.model_dump(mode="json", exclude_none=True)
                line = json.dumps(written, ensure_ascii=False, sort_keys=True)
                fields += [_pair(relation.subject, relation.object), line]
            places = await self._server.run(_ADD, (self._keys.relations,), MAX_PAIR_BYTES, *fields)
            refused += [number * BATCH + int(place) for place in places]
            await self._progress()
        return refused

    async def _progress(self) -> None:
        if self._staged:
            for key in self._keys:
                await self._server.call("EXPIRE", key, 3600)


class CorpusIndex:
    """The entities of each tenant, and their relations. Every method raises StateUnavailable."""

    def __init__(self, redis: Client, prefix: str, *, patience: float = PATIENCE) -> None:
        self._redis = redis
        self._server = server_of(redis, patience)
        self._prefix = prefix

    async def loaded(self, tenant: str) -> bool:
        """Return whether a tenant has a corpus, even an empty one."""
        return bool(await self._server.call("HEXISTS", self._keys(tenant).entities, _WHOLE))

    async def entities(self, tenant: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the index entries of known entities by id, in one call.

        Raises: CorpusUnusable: missing or unreadable.
        """
        asked = list(dict.fromkeys(ids))
        found = await self._read(self._keys(tenant).entities, map(digest, asked))
        return {name: _parsed(entry) for name, entry in zip(asked, found, strict=True) if entry is not None}

    async def relations(self, tenant: str, pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return the relations between pairs of names, in either direction, in one call, each once.

        Names are compared as in `groundwire.checks.relations`. Raises: CorpusUnusable.
        """
        fields = dict.fromkeys(_pair(subject, obj) for subject, obj in pairs)
        found = await self._read(self._keys(tenant).relations, fields)
        return [_parsed(line) for lines in found if lines for line in lines.splitlines()]

    @asynccontextmanager
    async def loading(self, tenant: str, *, replace: bool = False) -> AsyncIterator[Loading]:
        """Load a corpus piece by piece.

        A new corpus becomes visible at the end of the context, unless it is given up or left by an exception; additions
        to an existing one are visible at once.
        """
        live = self._keys(tenant)
        if not replace and await self.loaded(tenant):
            yield Loading(self._server, live, staged=False)
            return
        staged = self._keys(tenant, secrets.token_hex(8) + ":")
        for key in staged:
            await self._server.call("HSET", key, _WHOLE, b"1")
        loading = Loading(self._server, staged, staged=True)
        try:
            yield loading
        except BaseException:
            loading.give_up()
            raise
        finally:
            if loading.given_up:
                with suppress(StateUnavailable):  # then it expires
                    await self._server.call("UNLINK", *staged)
            elif not await self._server.run(_SWITCH, (*staged, *live)):
                raise StateUnavailable("what was loaded of the corpus is gone: load it again")

    async def load(
        self,
        tenant: str,
        *,
        entities: Mapping[str, IndexEntry | Mapping[str, Any]] | None = None,
        relations: Iterable[RelationClaim | Mapping[str, Any]] = (),
        replace: bool = False,
    ) -> None:
        """Load entities and relations.

        Args:
            tenant: whose corpus it is.
            entities: id to `{confidence, role?, provenance_id?, ...}`.
            relations: `{subject, relation, object, timestamp?, version?, qualifiers?}`.
            replace: drop the corpus before.

        Raises:
            ValueError: an entity or relation is invalid, or there is too much between two names.
        """
        entries = (CorpusEntity.of(name, entry) for name, entry in (entities or {}).items())
        truths = (RelationClaim.model_validate(truth) for truth in relations)
        async with self.loading(tenant, replace=replace) as loading:
            await loading.add_entities(entries)
            if await loading.add_relations(truths):
                raise ValueError(f"there are more than {MAX_PAIR_BYTES} bytes of relations between two names")

    async def forget(self, tenant: str) -> bool:
        return bool(await self._server.call("UNLINK", *self._keys(tenant)))

    async def close(self) -> None:
        await self._server.close()

    def _keys(self, tenant: str, load: str = "") -> _Keys:
        stem = f"{self._prefix}corpus:{tagged(self._redis, short_bytes(digest(tenant)).decode())}:{load}"
        return _Keys(stem + "e", stem + "r")

    async def _read(self, key: str, fields: Iterable[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = await self._server.call("HMGET", key, _WHOLE, *fields)
        if found[0] is None:
            raise CorpusUnusable("this tenant has no corpus")
        return found[1:]


def _batches(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _pair(subject: str, obj: str) -> bytes:
    return digest(*sorted((comparable(subject), comparable(obj))))


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(value)
    except ValueError:
        raise CorpusUnusable("the corpus holds something that is no JSON") from None
    return parsed
