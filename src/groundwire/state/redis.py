"""State in Redis: a batch is fetched, decided here and committed by two scripts.

docs/run/state.md lists the keys. All start with the topic prefix, and the scripts compute them. In a cluster the tag of
the user's partition follows the prefix; a policy, epoch, scheme and lock are stored under each tag, and an action has a
second key, under the tag of its tenant: `a:<action>:of` with its subject.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from itertools import chain
from typing import Any, Final

from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.messages.identity import Subject
from groundwire.state import lifecycle
from groundwire.state.cluster import server_of
from groundwire.state.codec import Argument, action_digest, pack, read_held, read_status, short_bytes
from groundwire.state.exchange import Batch, Contexts, Fetched, Named, wanted
from groundwire.state.model import (
    CANDIDATE_BYTES,
    DEFAULT_LIMITS,
    MAX_CANDIDATES,
    HeldEntry,
    InFlightMark,
    QueueLimits,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectStatus,
)
from groundwire.state.queue_use import QueueUse
from groundwire.state.server import HIDDEN, PATIENCE, Client, Command, script
from groundwire.state.workspace import counter_names, user_name

IDEMPOTENCY_TTL: Final = 31 * 86_400
"""Seconds: the retention of the claims topic and a day."""

ACTION_TTL: Final = 91 * 86_400
"""Seconds: the retention of the review-decisions topic and a day."""

LAYOUT: Final = "layout-3"
"""Part of the scheme: other layouts cannot be read."""

_LOCK: Final = "rebuild"
_LOST: Final = b"LOST"
_OTHER: Final = b"OTHER"
_ROUNDS: Final = 100
"""Rounds in a row without an answer: other writers change what each was decided from."""

_HEAD: Final = 24
"""Last byte of an entry that tells its state and revision."""

_SCANNED: Final = 1000
_PAGE: Final = 100
"""Candidates of one call."""

_TAG: Final = re.compile(rb"\{\d+\}")
_POLICY: Final = b"policy:"
_REBUILT: Final = (b"s:", b"k:", b"b:", b"m:", b"x:", b"w:", b"d:", b"r:", b"q:")
"""Keys that a rebuild makes again."""

Guard = tuple[str, str, str]
"""Name and value of a key that a script requires, and the run of the server; empty: any. See packed.lua."""

GLOB: Final = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})
"""Escapes a prefix in a pattern of SCAN."""


class RedisState:
    """The state of a deployment in Redis.

    Args:
        prefix: the topic prefix, of every key.
        scheme: of keys and signatures, from `groundwire.checks.dedup.keys.scheme`.
        partitions: of the topics of users' records: a cluster has a tag for each.
        idempotency_ttl: seconds for outcomes without a place in index or queue.
        action_ttl: seconds for actions of people, and what they blocked.
        require_aof: refuse a server without an append-only file.
        max_candidates: stored claims to compare one claim with, at 400 bytes of signature on average.

    Attributes:
        trusted: the run of the server (`Server.server_run`) that may decide, by partition; None: any may.

    Raises:
        ValueError: a lifetime is not above 0.
    """

    def __init__(  # noqa: PLR0913 - independent settings, most with a default
        self,
        redis: Client,
        prefix: str,
        *,
        scheme: str,
        partitions: int,
        idempotency_ttl: int = IDEMPOTENCY_TTL,
        action_ttl: int = ACTION_TTL,
        patience: float = PATIENCE,
        require_aof: bool = True,
        max_candidates: int = MAX_CANDIDATES,
    ) -> None:
        if min(idempotency_ttl, action_ttl) <= 0:
            raise ValueError("idempotency_ttl and action_ttl are seconds, above 0")
        self.server = server_of(redis, patience, partitions)
        self.prefix = prefix
        self.prefixes = [prefix + tag for tag in self.server.tags]
        self.is_cluster = self.prefixes != [prefix]
        self.scheme = f"{scheme}/{LAYOUT}" + (f"/{partitions} partitions" if self.is_cluster else "")
        self._queue = QueueUse(self.server, self.prefixes)
        self._ttl = idempotency_ttl
        self._action_ttl = max(action_ttl, idempotency_ttl)
        self._require_aof = require_aof
        self._max_candidates = max_candidates
        self.trusted: dict[int, str] | None = None
        self._epoch: str | None = None
        self._contexts = Contexts()

    @property
    def epoch(self) -> str | None:
        return self._epoch

    def partition_of(self, subject: Subject) -> int:
        return self.server.partition_of(subject.tenant_id, subject.user_id)

    def actions_partition(self, tenant_id: str) -> int:
        """Return the partition under whose tag the action ids of a tenant are."""
        return self.server.partition_of(tenant_id, "")

    async def open(self) -> str | None:
        """Check the server and adopt its epoch; None: state is lost or new, and has to be rebuilt.

        Raises: UsageError: the server is unsuitable; SchemeMismatch; StateUnavailable.
        """
        await self.server.check(require_aof=self._require_aof)
        return await self.adopt_epoch()

    async def adopt_epoch(self) -> str | None:
        """Adopt the epoch of the partitions that answer. Raises: SchemeMismatch."""
        epoch = await self.read_epoch(some=True)
        if epoch != self._epoch:
            self._contexts.forget()
        self._epoch = epoch
        return epoch

    async def read_epoch(self, *, some: bool = False) -> str | None:
        """Return the epoch of all partitions, or of those that answer; None if they differ. Raises: SchemeMismatch."""
        for scheme in await self.schemes() - {self.scheme}:
            raise SchemeMismatch(
                f"state is of scheme {scheme}, this process makes {self.scheme}:"
                " run `groundwire rebuild`, or give this process the policy, partitions or version of the state"
            )
        epochs = set(await self.everywhere(lambda own: ("GET", own + "epoch"), some=some))
        epoch = epochs.pop() if len(epochs) == 1 else None
        return epoch.decode() if epoch else None

    async def schemes(self) -> set[str]:
        """Return the schemes that the partitions which answer carry: one, or none where state is lost."""
        found = await self.everywhere(lambda own: ("GET", own + "scheme"), some=True)
        return {scheme.decode() for scheme in found if scheme is not None}

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        def decide(batch: Batch, request: StepRequest) -> StepAnswer:
            return lifecycle.step(batch, request, limits, deferred=deferred)

        return await self._exchange(requests, decide, limits=limits)

    async def review(
        self, requests: Sequence[ReviewRequest], limits: QueueLimits = DEFAULT_LIMITS
    ) -> list[ReviewAnswer]:
        reused = await self._reused(requests)

        def carry_out(batch: Batch, request: ReviewRequest) -> ReviewAnswer:
            return lifecycle.review(batch, request, action_digest(request), limits)

        left = [request for request in requests if id(request) not in reused]
        takes_places = any(request.action is ReviewAction.OVERRULE for request in left)
        answers = iter(await self._exchange(left, carry_out, limits=limits if takes_places else None))
        return [
            RefusedAction("action_id_reused", None) if id(request) in reused else next(answers)
            for request in requests
        ]

    async def _reused(self, requests: Sequence[ReviewRequest]) -> set[int]:
        """Return the ids (of Python) of requests whose action id belongs to another subject, as its tenant's tag tells.

        One Redis finds that in the action itself.
        """
        reused: set[int] = set()
        for request in requests if self.is_cluster else ():
            if request.action is ReviewAction.EXPIRE or request.only_recorded:
                continue  # ids of expiries contain the subject
            partition = self.actions_partition(request.subject.tenant_id)
            key = b"a:" + short_bytes(action_digest(request)) + b":of"
            subject = short_bytes(request.subject.digest)
            if not request.forgets:
                reserve = pack([key, b"", key, subject, b"%d" % self._action_ttl])
                allowed = await self._deciding(partition)
                if await self.run("commit", partition, *allowed, "vS", reserve) == b"1":
                    continue
            if await self.server.call("GET", self.prefixes[partition].encode() + key) not in (None, subject):
                reused.add(id(request))
        return reused

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        entries = await self._entries_of(subjects)
        with _readable("held"):
            return [read_held(entry) for entry in entries]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        heads = await self._look_up(subjects, _HEAD)
        with _readable("statuses"):
            return [read_status(head) for head in heads]

    async def reassert(self, outcomes: Sequence[StoredOutcome], run: str = HIDDEN) -> int:
        """See `State`; `run`: of the server that has all of them. Raises: StateUnavailable, also if it is another."""
        guard = ("epoch", await self._known_epoch(), _shown(run))
        return await self.load(lambda _partition: guard, outcomes)

    async def load(self, guard: Callable[[int], Guard], outcomes: Sequence[StoredOutcome]) -> int:
        """Record published outcomes while a key of their partition has a value; see `reassert`.

        Raises: StateLost: it has another; StateUnavailable.
        """
        return sum(await self._exchange(outcomes, lifecycle.load, guard=guard))

    def rebuilding(self, ttl: float = 30.0) -> AbstractAsyncContextManager[Rebuild | None]:
        """Hold the rebuild lock; None if another worker does. A dead worker's lock expires after `ttl` seconds."""
        return Rebuild(self, ttl).held()

    async def mark(
        self, topic: str, partition: int, mark: InFlightMark | None, *, answered: bool = True
    ) -> None:
        """Set the in-flight mark of a partition, or clear it (None); marks take effect in the order of calls.

        `answered`: wait for state's answer; if not, the mark is sent on return, even if this process dies then.
        """
        key = self._mark_key(topic, partition)
        command: list[Argument] = ["DEL", key]
        if mark is not None:
            command = ["SET", key, f"{mark.first} {mark.last} {mark.crashes}", "EX", 86_400]
        await self.server.send_in_order(*command, answered=answered)

    async def marks(self, topic: str, partition: int) -> InFlightMark | None:
        value = await self.server.call("GET", self._mark_key(topic, partition))
        return None if value is None else InFlightMark(*map(int, value.split()))

    def _mark_key(self, topic: str, partition: int) -> str:
        return f"{self.prefixes[partition % len(self.prefixes)]}f:{topic}:{partition}"

    async def give_up(self, subject: Subject) -> bool:
        """Release a waiting claim whose record becomes a dead letter; a later record is decided anew.

        Returns False, and changes nothing, if state holds an outcome. Raises: StateUnavailable, StateLost.
        """

        def give_up(batch: Batch, named: Named) -> bool:
            return lifecycle.give_up(batch, named.subject)

        return bool((await self._exchange([Named(subject)], give_up))[0])

    async def forget(self, subjects: Sequence[Subject]) -> None:
        """Remove what a rebuild keeps of subjects: decisions that an action superseded. Raises: StateUnavailable."""
        for partition, places in self._by_partition(subjects).items():
            keys = [
                f"{self.prefixes[partition]}o:{short_bytes(subjects[at].digest).decode()}" for at in places
            ]
            for first in range(0, len(keys), _SCANNED):
                await self.server.call("UNLINK", *keys[first : first + _SCANNED])

    async def probe(self) -> set[int]:
        """Write to each primary; return the partitions of those that refuse or do not answer.

        Raises: StateUnavailable: all do.
        """
        groups = {self.server.partitions_beside(at) for at in range(len(self.prefixes))}

        async def write(partitions: Sequence[int]) -> StateUnavailable | None:
            try:
                await self.server.call("SET", self.prefixes[partitions[0]] + "alive", "1", "EX", 60)
            except StateUnavailable as error:
                return error
            return None

        failed = dict(zip(groups, await asyncio.gather(*map(write, groups)), strict=True))
        errors = [error for error in failed.values() if error is not None]
        if len(errors) == len(groups):
            raise errors[0]
        return {at for group, error in failed.items() if error is not None for at in group}

    async def remember_run(self, partition: int, run: str, at: float) -> None:
        """Store the run of a partition's server whose outcomes were compared with the topics at a time, in seconds.

        Raises: StateUnavailable.
        """
        await self.server.call("SET", self.prefixes[partition] + "run", f"{run} {at:.3f}")

    async def remembered_run(self, partition: int) -> tuple[str, float] | None:
        """Return what `remember_run` stored last, by any worker. Raises: StateUnavailable."""
        value = await self.server.call("GET", self.prefixes[partition] + "run")
        run, _, at = (value or b"").decode().partition(" ")
        return (run, float(at)) if at else None

    async def waiting_count(self) -> int:
        """See `State`; of a cluster, from the primaries that answer."""
        return await self._queue.count("waiting")

    async def queue_depth(self) -> int:
        """See `State`; of a cluster, from the primaries that answer."""
        return await self._queue.count("total")

    async def tenants_use(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        return await self._queue.tenants()

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        """Store a policy for each partition that answers. Raises: StateUnavailable: none does."""
        await self.everywhere(lambda own: ("SET", f"{own}policy:{sha256}", policy), some=True)

    async def get_policy(self, sha256: str) -> bytes | None:
        """Return a policy or None. Raises: StateUnavailable: not found, and not all partitions answer."""
        away: StateUnavailable | None = None
        for own in self.prefixes:
            try:
                policy: bytes | None = await self.server.call("GET", f"{own}policy:{sha256}")
            except StateUnavailable as error:
                away = error
                continue
            if policy is not None:
                return policy
        if away is not None:
            raise away
        return None

    async def everywhere(self, command: Callable[[str], Command], *, some: bool = False) -> list[Any]:
        """Send a command made from each partition's prefix; return the answers, with `some` those that arrive, if any.

        Raises: StateUnavailable.
        """
        answers: list[Any] = []
        away: StateUnavailable | None = None
        for own in self.prefixes:
            try:
                answers.append(await self.server.call(*command(own)))
            except StateUnavailable as error:
                away = error
                if not some:
                    raise
        if away is not None and not answers:
            raise away
        return answers

    async def close(self) -> None:
        await self.server.close()

    async def _known_epoch(self) -> str:
        epoch = self._epoch or await self.open()
        if epoch is None:
            raise StateLost("state carries no epoch: it is empty or was flushed")
        return epoch

    async def _deciding(self, partition: int) -> Guard:
        """Return the guard of scripts that decide. Raises: StateUnavailable: the server is not trusted; StateLost."""
        run = HIDDEN if self.trusted is None else self.trusted.get(partition)
        if run is None:
            raise StateUnavailable(f"the server of partition {partition} is to be compared")
        return "epoch", await self._known_epoch(), _shown(run)

    async def _exchange(
        self,
        requests: Sequence[Any],
        decide: Callable[[Batch, Any], Any],
        *,
        guard: Callable[[int], Guard] | None = None,
        limits: QueueLimits | None = None,
    ) -> list[Any]:
        """Fetch what requests need, decide them in order and commit, one partition after the other; return the answers.

        What changed meanwhile, or did not fit into one fetch, goes to another round; after a lost one half as much.
        Raises: StateLost; StateUnavailable, also if too many rounds in a row answered none.
        """
        answers: dict[int, Any] = {}
        for partition, places in self._by_partition([request.subject for request in requests]).items():
            left, lost, most = places, 0, len(places)
            while left:
                some = left[:most]
                found = await self._round(partition, [requests[at] for at in some], decide, guard, limits)
                answers |= {some[at]: answer for at, answer in found.items()}
                left = [at for at in left if at not in answers]
                lost, most = (0, 2 * most) if found else (lost + 1, max(1, most // 2))
                if lost == _ROUNDS:
                    raise StateUnavailable(f"other writers changed state in each of {_ROUNDS} rounds")
                await asyncio.sleep(0)  # the event loop gets a turn
        return [answers[at] for at in range(len(requests))]

    async def _round(
        self,
        partition: int,
        asked: Sequence[Any],
        decide: Callable[[Batch, Any], Any],
        guard: Callable[[int], Guard] | None,
        limits: QueueLimits | None,
    ) -> dict[int, Any]:
        """Fetch, decide and commit once, on one run of a server; return the answers that were written, by position."""
        allowed = guard(partition) if guard else await self._deciding(partition)
        owners = {one.subject[:2]: one.subject for one in asked}.values()
        names = list(dict.fromkeys(chain.from_iterable(map(counter_names, owners))))
        users = list(dict.fromkeys(map(user_name, owners)))
        remote: dict[str, int] = {}
        most = len(asked)
        if limits:
            remote, most = await self._queue.elsewhere(partition, names, limits, most)
        sizes = (self._max_candidates, json.dumps(names), json.dumps(users))
        found = await self.run("fetch", partition, *allowed, *sizes, *map(wanted, asked))
        with _readable("fetch"):
            fetched = Fetched(found)
        await self._learn(partition, fetched.entries)
        asked = asked[: len(fetched.requests)]
        batch = Batch(self._max_candidates, (self._ttl, self._action_ttl), self._contexts, remote, limits)
        with _readable("fetch"):
            batch.take_in(asked, fetched, names, users)
            await self._fetch_unsent(partition, batch, asked)
        answers: dict[int, Any] = {}
        decided: list[tuple[int, Any]] = []
        writes: list[tuple[str, bytes]] = []
        for at, request in enumerate(asked):
            batch.begin(request)
            answer = decide(batch, request)
            if write := batch.end(request):
                writes.append(write)
                decided.append((at, answer))
            else:
                answers[at] = answer
            # the rest is for another round: comparing holds the event loop, and places are counted anew
            if batch.compared >= self._max_candidates or batch.granted >= most:
                break
        if writes:
            letters, packed = zip(*writes, strict=True)
            found = await self.run("commit", partition, *allowed, ",".join(letters), *packed)
            for letter, (at, answer) in zip(found.decode(), decided, strict=True):
                if letter == "1":
                    answers[at] = answer
        if remote and all(at in answers for at, _ in decided):  # else `batch` counts what was not written
            self._queue.note(partition, {name: batch.counts[name] - remote[name] for name in remote})
        return answers

    async def _fetch_unsent(self, partition: int, batch: Batch, requests: Sequence[Any]) -> None:
        """Fetch the candidates that had no room in the answer, some at a time, up to what a claim is compared with."""
        room = CANDIDATE_BYTES * self._max_candidates
        for scope, numbers in batch.unsent(requests).items():
            key = f"{self.prefixes[partition]}m:{short_bytes(scope).decode()}"
            for first in range(0, len(numbers), _PAGE):
                if room < 0:
                    return
                page = numbers[first : first + _PAGE]
                ids = [number.to_bytes(4, "little") for number in page]
                found = await self.server.call("HMGET", key, *ids)
                for number, member in zip(page, found, strict=True):
                    batch.take_candidate(scope, number, member)
                    room -= len(member or b"")

    async def _learn(self, partition: int, values: Iterable[bytes]) -> None:
        """Fetch the prefixes of payloads that are not known yet."""
        if names := list(self._contexts.missing(values)):
            found = await self.server.call("HMGET", self.prefixes[partition] + "c", *names)
            for name, text in zip(names, found, strict=True):
                if text is None:
                    raise StateUnavailable(f"the prefix {name.decode()!r} of a payload is not stored")
                self._contexts.learn(name, text)

    async def _entries_of(self, subjects: Sequence[Subject]) -> list[bytes]:
        """Return the entries of subjects with their whole payloads."""
        values = await self._look_up(subjects, -1)
        for partition, places in self._by_partition(subjects).items():
            await self._learn(partition, [values[at] for at in places])
        return [self._contexts.in_full(value) for value in values]

    async def _look_up(self, subjects: Sequence[Subject], last: int) -> list[bytes]:
        """Read entries up to a byte, each once, however often a batch names it."""
        each = list(dict.fromkeys(subjects))
        found: dict[Subject, bytes] = {}
        for partition, places in self._by_partition(each).items():
            digests = [short_bytes(each[at].digest) for at in places]
            allowed = ("epoch", await self._known_epoch(), "")
            answers = await self.run("look_up", partition, *allowed, last, *digests)
            found |= zip([each[at] for at in places], answers, strict=True)
        return [found[subject] for subject in subjects]

    async def run(self, name: str, partition: int, *arguments: Argument) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Run a script on a partition.

        Raises: StateLost: its guard has another value; StateUnavailable, also if another run of the server answers.
        """
        own = self.prefixes[partition]
        keys = self.server.absent_keys(own)
        answer = await self.server.run(script("packed", name), keys, own, *arguments)
        if answer == _LOST:
            raise StateLost(f"state does not carry epoch {self._epoch}: it was flushed, restored or rebuilt")
        if answer == _OTHER:
            if self.trusted:
                self.trusted.pop(partition, None)
            raise StateUnavailable(f"another server, or a restarted one, answers for partition {partition}")
        return answer

    def _by_partition(self, subjects: Sequence[Subject]) -> dict[int, Sequence[int]]:
        """Return the positions of subjects by partition."""
        places: defaultdict[int, list[int]] = defaultdict(list)
        for at, subject in enumerate(subjects):
            places[self.partition_of(subject)].append(at)
        return dict(places)


def _shown(run: str) -> str:
    """Return what scripts compare a run with: nothing if the server hides it."""
    return "" if run.startswith(HIDDEN) else run


class Rebuild:
    """A rebuild: `clear`, `load` repeatedly, `start_epoch`. All raise StateUnavailable, also if the lock was lost.

    The lock is one key per partition. A stalled worker may lose it unnoticed, and a server may lose what was just
    loaded. So each command checks in its script the lock and the run of the server.
    Processes with another number of partitions want one of these keys too: that of the tag 0.
    """

    def __init__(self, state: RedisState, ttl: float) -> None:
        self._state = state
        self._server = state.server
        self._token = secrets.token_hex(16)
        self._milliseconds = round(ttl * 1000)
        self._runs = [""] * len(state.prefixes)  # of the server of each partition; empty: any

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Rebuild | None]:
        """Hold the lock, renewed; None if it is taken."""
        renewing: asyncio.Task[None] | None = None
        try:
            taking = (self._token, "NX", "PX", self._milliseconds)
            taken = all(await self._state.everywhere(lambda own: ("SET", own + _LOCK, *taking)))
            if taken:
                self._runs = await self._runs_now()
                renewing = asyncio.create_task(self.renew())
            yield self if taken else None
        finally:
            if renewing is not None:
                # Python 3.11 may lose a cancellation in a call that ends at the same moment
                while not renewing.done():
                    renewing.cancel()
                    await asyncio.wait({renewing}, timeout=1)
                if not renewing.cancelled():
                    renewing.result()
            self._runs = [""] * len(self._runs)
            with suppress(StateUnavailable):  # it expires
                await self._run_everywhere(lambda own: ("DEL", own + _LOCK))

    async def renew(self) -> None:
        while True:
            await asyncio.sleep(self._milliseconds / 3000)
            with suppress(StateUnavailable):  # the next command raises it
                await self._run_everywhere(lambda own: ("PEXPIRE", own + _LOCK, self._milliseconds))

    async def _run(self, partition: int, *command: Argument) -> None:
        """Run a command on a partition. Raises: StateUnavailable, and nothing changed: lock or server are others'."""
        with self._fenced():
            await self._state.run("fenced", partition, *self._guard(partition), *command)

    def _guard(self, partition: int) -> tuple[str, str, str]:
        return _LOCK, self._token, _shown(self._runs[partition])

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        try:
            yield
        except StateLost:
            raise StateUnavailable("the rebuild's lock was lost to another worker") from None

    async def _run_everywhere(self, command: Callable[[str], Command]) -> None:
        """Run a command made from the prefix of each partition. Raises: as `_run`; all ran that could."""
        failed: StateUnavailable | None = None
        for partition, own in enumerate(self._state.prefixes):
            try:
                await self._run(partition, *command(own))
            except StateUnavailable as error:
                failed = error
        if failed is not None:
            raise failed

    async def clear(self) -> None:
        """Remove outcomes, index, queue and epoch, and all that is stored for another number of partitions.

        Workers pause from here on. Citations, policies, payload prefixes, marks, actions and superseded decisions stay,
        so that the first outcome of a published action stands; of those of another number only policies do.
        Raises: StateUnavailable, also if slots were moved meanwhile.
        """
        # first, so that nobody decides on a partial state
        await self._run_everywhere(lambda own: ("UNLINK", own + "epoch", own + "scheme", own + "q"))
        start = len(self._state.prefix.encode())
        own_tags, stopped = {tag.encode(): at for at, tag in enumerate(self._server.tags)}, set[bytes]()
        async for keys in self._server.scan(self._state.prefix.translate(GLOB) + "*", _SCANNED):
            rebuilt, foreign = defaultdict[bytes, list[bytes]](list), defaultdict[bytes, list[bytes]](list)
            for key in keys:
                found = _TAG.match(key, start)
                tag = found.group() if found else b""
                if tag not in own_tags:
                    foreign[tag].append(key)
                elif key.startswith(_REBUILT, start + len(tag)):
                    rebuilt[tag].append(key)
            for tag, some in rebuilt.items():
                for first in range(0, len(some), _SCANNED):
                    await self._run(own_tags[tag], "UNLINK", *some[first : first + _SCANNED])
            for tag in foreign.keys() - {b""}:
                own = self._state.prefix + tag.decode()
                # a script fences the keys of its own tag only
                await self._run(0, "EXISTS", self._state.prefixes[0] + _LOCK)
                if tag not in stopped:  # first, as above
                    await self._server.call("UNLINK", own + "epoch", own + "scheme", own + "q")
                    stopped.add(tag)
                await self._remove_foreign(foreign[tag], start + len(tag))
        await self._run_everywhere(lambda own: ("PEXPIRE", own + _LOCK, self._milliseconds))

    async def _remove_foreign(self, keys: Sequence[bytes], start: int) -> None:
        """Remove keys of a tag that is none of ours; policies are copied first. `start`: where their names begin."""
        for key in keys:
            if key.startswith(_POLICY, start) and (policy := await self._server.call("GET", key)):
                await self._state.put_policy(key[start + len(_POLICY) :].decode(), policy)
        for first in range(0, len(keys), _SCANNED):
            await self._server.call("UNLINK", *keys[first : first + _SCANNED])

    async def load(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Load outcomes in any order; the highest revision of a subject stays. Returns how many were taken.

        Raises: ValueError: an outcome is invalid.
        """
        with self._fenced():
            return await self._state.load(self._guard, outcomes)

    async def start_epoch(self, epoch: str) -> None:
        """Set epoch and scheme: workers decide again. Raises: StateUnavailable, also if servers changed meanwhile."""
        if await self._runs_now() != self._runs:
            raise StateUnavailable("slots were moved, or a server took over or restarted, during the rebuild")
        scheme = self._state.scheme
        await self._run_everywhere(lambda own: ("MSET", own + "epoch", epoch, own + "scheme", scheme))

    async def _runs_now(self) -> list[str]:
        """Return the run of the server of each partition."""
        await self._server.refresh_layout()
        return [await self._server.server_run(partition) for partition in range(len(self._server.tags))]


@contextmanager
def _readable(call: str) -> Iterator[None]:
    """Turn decoding errors into StateUnavailable."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise StateUnavailable(f"{call}: the answer cannot be read: {type(error).__name__}") from error
