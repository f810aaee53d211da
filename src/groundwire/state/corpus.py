"""The corpus of each tenant in Redis: entities and relations that answers are checked against (S3-02, S3-16).

Keys start with the deployment's prefix; `<tenant>` is a digest of the tenant's id. None of them expires, but
those of a load that was given up. In a cluster the digest stands in braces: a tenant's corpus is in one slot.

    corpus:<tenant>:e           hash: digest of an entity's id -> its index entry as JSON
    corpus:<tenant>:r           hash: digest of two names, in either order -> their relations, JSON lines
    corpus:<tenant>:<load>:e|r  the same while a corpus is being replaced; expire after an hour without progress

The empty field of a hash says that the corpus is whole. A corpus is replaced in one step, so that nobody reads
half of one.
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
from groundwire.state.codec import Argument, short
from groundwire.state.server import PATIENCE, Client, Server, script, tagged

MAX_PAIR_BYTES: Final = 48_000
"""Most bytes of relations between two names, as JSON: every answer that names both is compared with them."""
BATCH: Final = 500
"""Entities or relations that one command loads."""

_WHOLE: Final = b""
_STAGED_SECONDS: Final = 3600

Item = TypeVar("Item")
_ADD: Final = script("corpus_add")
_SWITCH: Final = script("corpus_switch")


class _Keys(NamedTuple):
    entities: str
    relations: str


class Loading:
    """A corpus while it is being loaded."""

    def __init__(self, server: Server, keys: _Keys, *, staged: bool) -> None:
        self._server = server
        self._keys = keys
        self._staged = staged
        self.given_up = False

    def give_up(self) -> None:
        """Leave the corpus before this one in its place; what was added to one that is in use stays."""
        self.given_up = True

    async def add_entities(self, entities: Iterable[CorpusEntity]) -> None:
        """Add entities; one that is there already is replaced."""
        for batch in _batches(entities):
            fields: list[Argument] = []
            for entity in batch:
                fields += [digest(entity.id), entity.model_dump_json(exclude={"id"}, exclude_none=True)]
            await self._server.call("HSET", self._keys.entities, *fields)
            await self._progress()

    async def add_relations(self, relations: Iterable[RelationClaim]) -> list[int]:
        """Add relations; one that is there already changes nothing.

        Returns:
            The places, from 0, of relations that were not added, for what is between their two names would be
            more than 64,000 bytes.
        """
        refused: list[int] = []
        for number, batch in enumerate(_batches(relations)):
            fields: list[Argument] = []
            for relation in batch:
                fields += [_pair(relation.subject, relation.object), _line(relation)]
            places = await self._server.run(_ADD, (self._keys.relations,), MAX_PAIR_BYTES, *fields)
            refused += [number * BATCH + int(place) for place in places]
            await self._progress()
        return refused

    async def _progress(self) -> None:
        if self._staged:
            for key in self._keys:
                await self._server.call("EXPIRE", key, _STAGED_SECONDS)


class CorpusIndex:
    """What is known of the entities of each tenant, and of how they relate.

    Every method raises StateUnavailable where Redis does not answer.

    Args:
        redis: A client as `groundwire.state.server.connect` makes it.
        prefix: The topic prefix, put before every key.
        patience: Seconds for one call.
    """

    def __init__(self, redis: Client, prefix: str, *, patience: float = PATIENCE) -> None:
        self._redis = redis
        self._server = server_of(redis, patience)
        self._prefix = prefix

    async def loaded(self, tenant: str) -> bool:
        """Tell whether a tenant has a corpus, be it an empty one."""
        return bool(await self._server.call("HEXISTS", self._keys(tenant).entities, _WHOLE))

    async def entities(self, tenant: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the index entries of those entities that the corpus holds, by id, in one call.

        Raises:
            CorpusUnusable: The tenant has no corpus, or one that cannot be read. An entity that a missing corpus
                does not hold must not pass for one that does not exist.
            StateUnavailable: Redis does not answer.
        """
        asked = list(dict.fromkeys(ids))
        found = await self._read(self._keys(tenant).entities, map(digest, asked))
        return {name: _parsed(entry) for name, entry in zip(asked, found, strict=True) if entry is not None}

    async def relations(self, tenant: str, pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return the ground truth between pairs of names, in either direction, in one call.

        Names are found as `groundwire.checks.relations` compares them. Each truth has the shape of a
        RelationClaim and comes once.

        Raises:
            CorpusUnusable, StateUnavailable: As `entities`.
        """
        fields = dict.fromkeys(_pair(subject, obj) for subject, obj in pairs)
        found = await self._read(self._keys(tenant).relations, fields)
        return [_parsed(line) for lines in found if lines for line in lines.splitlines()]

    @asynccontextmanager
    async def loading(self, tenant: str, *, replace: bool = False) -> AsyncIterator[Loading]:
        """Load a corpus piece by piece.

        A first corpus, or one that replaces another, is read once all of it is there: at the end of the context,
        unless that is given up or left by an exception. What is added to a corpus is read at once.
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
            await self._finish(loading, staged, live)

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
            tenant: Whose corpus it is.
            entities: Entity id to `{confidence, role?, provenance_id?, ...}`.
            relations: `{subject, relation, object, timestamp?, version?, qualifiers?}`.
            replace: Forget what was there.

        Raises:
            ValueError: An entity or a relation is none, or there is too much between two names.
        """
        entries = (CorpusEntity.of(name, entry) for name, entry in (entities or {}).items())
        truths = (RelationClaim.model_validate(truth) for truth in relations)
        async with self.loading(tenant, replace=replace) as loading:
            await loading.add_entities(entries)
            if await loading.add_relations(truths):
                raise ValueError(f"there are more than {MAX_PAIR_BYTES} bytes of relations between two names")

    async def forget(self, tenant: str) -> bool:
        """Remove a tenant's corpus; say whether there was one."""
        return bool(await self._server.call("UNLINK", *self._keys(tenant)))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._server.close()

    async def _finish(self, loading: Loading, staged: _Keys, live: _Keys) -> None:
        if loading.given_up:
            with suppress(StateUnavailable):  # then it expires
                await self._server.call("UNLINK", *staged)
        elif not await self._server.run(_SWITCH, (*staged, *live)):
            raise StateUnavailable("what was loaded of the corpus is gone: load it again")

    def _keys(self, tenant: str, load: str = "") -> _Keys:
        stem = f"{self._prefix}corpus:{tagged(self._redis, short(digest(tenant)))}:{load}"
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


def _line(relation: RelationClaim) -> str:
    return json.dumps(relation.model_dump(mode="json", exclude_none=True), ensure_ascii=False, sort_keys=True)


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(value)
    except ValueError:
        raise CorpusUnusable("the corpus holds something that is no JSON") from None
    return parsed
