"""State in Redis: a batch is fetched, decided here and committed by two scripts; in a cluster, two per bucket of users.

docs/run/state.md says what keys cost in bytes. All start with the topic prefix, and the scripts compute them. In a
cluster the bucket's tag follows the prefix, except for in-flight marks; a policy is stored in several buckets, and an
action has a second key in the bucket of its tenant: `a:<action>:of` with its subject.

    s:<subject>    outcome of a claim or response                  none while approved, pending or waiting,
                                                                   else `idempotency_ttl`; blocked by a
                                                                   person: `action_ttl`
    k:<scope>      dedup key and local id, 4 bytes each            none
    b:<scope>      hash, once there are many: key -> local ids     none
    m:<scope>      hash: local id -> the claim to compare with;    none
                   n -> its version, the highest local id
    x:<scope>      local ids of the latest rejected texts          none
    c              hash: name -> shared prefix of payloads         none
    d:<parent>     set of approved claims derived from a subject   none
    a:<action>     outcome of a person's action                    `action_ttl`
    o:<subject>    a person's approval before its retraction       `action_ttl`
    r:<subject>,<place>     outcome superseded by a later record   `idempotency_ttl`
    w:<user>       set of the user's waiting subjects              none
    q              hash of counters: total, waiting,               none
                   t:<tenant>, b:<tenant> (bytes) and u:<user>
    f:<topic>:<partition>   in-flight mark of a worker             1 day
    policy:<sha256>         an effective policy                    none
    epoch, scheme           identity and layout of this state      none
    rebuild                 lock of the rebuilding worker          seconds, renewed
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.messages.identity import Subject
from groundwire.state import lifecycle
from groundwire.state.cluster import server_of
from groundwire.state.codec import Argument, action_digest, read_held, read_status, short_bytes
from groundwire.state.exchange import Batch, Contexts, Fetched, Named, counters_of, wanted
from groundwire.state.model import (
    CANDIDATE_BYTES,
    MAX_CANDIDATES,
    HeldEntry,
    InFlightMark,
    Outcome,
    QueueLimits,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectState,
    SubjectStatus,
)
from groundwire.state.queue_use import QueueUse
from groundwire.state.server import PATIENCE, Client, Command, ScriptCall, Server, ServerRun, script
from groundwire.state.workspace import user_name

IDEMPOTENCY_TTL: Final = 31 * 86_400
"""Seconds: the retention of the claims topic and a day."""

ACTION_TTL: Final = 91 * 86_400
"""Seconds: the retention of the review-decisions topic and a day."""

LAYOUT: Final = "layout-3"
"""Part of the scheme: other layouts cannot be read."""

_LOCK: Final = "rebuild"
_LOST: Final = b"LOST"
_ROUNDS: Final = 100
"""Rounds in a row without an answer: other writers change what each was decided from."""

_HEAD: Final = 24
"""Last byte of an entry that tells its state and revision."""

_SCANNED: Final = 1000
_PAGE: Final = 100
"""Candidates of one call."""

GLOB: Final = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})
"""Escapes a prefix in a pattern of SCAN."""


class RedisState:
    """The state of a deployment in Redis.

    Args:
        prefix: the topic prefix, of every key.
        scheme: of keys and signatures, from `groundwire.checks.dedup.keys.scheme`.
        idempotency_ttl: seconds for outcomes without a place in index or queue.
        action_ttl: seconds for actions of people, and what they blocked.
        require_aof: refuse a server without an append-only file.
        max_candidates: stored claims to compare one claim with, at 400 bytes of signature on average.
    """

    def __init__(
        self,
        redis: Client,
        prefix: str,
        *,
        scheme: str,
        idempotency_ttl: int = IDEMPOTENCY_TTL,
        action_ttl: int = ACTION_TTL,
        patience: float = PATIENCE,
        require_aof: bool = True,
        max_candidates: int = MAX_CANDIDATES,
    ) -> None:
        self.server = server_of(redis, patience)
        self._prefix = prefix
        self._prefixes = [prefix + tag for tag in self.server.tags]
        self._queue = QueueUse(self.server, self._prefixes)
        dealt = f"/{len(self._prefixes)} buckets" if len(self._prefixes) > 1 else ""
        self._scheme = f"{scheme}/{LAYOUT}{dealt}"
        self._ttl = idempotency_ttl
        self._action_ttl = max(action_ttl, idempotency_ttl)
        self._require_aof = require_aof
        self._max_candidates = max_candidates
        self._epoch: str | None = None
        self._contexts = Contexts()

    @property
    def epoch(self) -> str | None:
        return self._epoch

    async def open(self) -> str | None:
        """Check the server and adopt its epoch; None: state is lost or new, and has to be rebuilt.

        Raises: UsageError: the server is unsuitable; SchemeMismatch; StateUnavailable.
        """
        await self.server.check(require_aof=self._require_aof)
        return await self.adopt_epoch()

    async def adopt_epoch(self) -> str | None:
        """Adopt the epoch that state carries. Raises: SchemeMismatch."""
        epoch, schemes = await self._read_epoch(some=True)
        for scheme in schemes - {self._scheme}:
            raise SchemeMismatch(
                f"state is of scheme {scheme}, this process makes {self._scheme}:"
                " run `groundwire rebuild`, or go back to the policy or the version before"
            )
        if epoch != self._epoch:
            self._contexts.forget()
        self._epoch = epoch
        return epoch

    async def read_epoch(self) -> str | None:
        """Return the epoch without adopting it; None also if buckets differ."""
        return (await self._read_epoch())[0]

    async def _read_epoch(self, *, some: bool = False) -> tuple[str | None, set[str]]:
        """Return the epoch of all buckets, or of those that answer, and their schemes."""
        commands = {at: ("MGET", own + "epoch", own + "scheme") for at, own in enumerate(self._prefixes)}
        found = (await self.server.each(commands, some=some)).values()
        epochs = {epoch and epoch.decode() for epoch, _ in found}
        schemes = {scheme.decode() for _, scheme in found if scheme is not None}
        return epochs.pop() if len(epochs) == 1 else None, schemes

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        if not requests:
            return []
        answers: dict[int, StepAnswer] = {}
        left = _by_bucket(self.server, [request.subject for request in requests])

        def decide(batch: Batch, request: StepRequest) -> StepAnswer:
            return lifecycle.step(batch, request, limits, deferred=deferred)

        async for places in _rounds(left):
            turn = await self._queue.next_turn(places, requests, limits)
            some = {bucket: places[bucket] for bucket in turn}
            remote = {bucket: json.loads(counts) for bucket, counts in turn.items() if counts}
            answered = await self._exchange(requests, some, decide, remote=remote, limits=limits)
            _remove(left, answered)
            answers |= answered
            await self._queue.report(requests[at] for at, one in answered.items() if _has_place(one))
        return [answers[at] for at in range(len(requests))]

    async def review(self, requests: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        if not requests:
            return []
        reused = await self._reused(requests)
        answers: dict[int, ReviewAnswer] = {}
        left = _by_bucket(self.server, [request.subject for request in requests])
        taken = {
            at: RefusedAction("action_id_reused", None) for at, one in enumerate(requests) if one in reused
        }
        answers |= taken
        _remove(left, taken)

        def carry_out(batch: Batch, request: ReviewRequest) -> ReviewAnswer:
            return lifecycle.review(batch, request, action_digest(request))

        async for places in _rounds(left):
            answered = await self._exchange(requests, places, carry_out)
            _remove(left, answered)
            answers |= answered
        return [answers[at] for at in range(len(requests))]

    async def _reused(self, requests: Sequence[ReviewRequest]) -> list[ReviewRequest]:
        """Return the actions whose id belongs to another subject, as the bucket of the tenant in a cluster records."""
        if len(self._prefixes) == 1:
            return []
        reused: list[ReviewRequest] = []
        for request in requests:
            if request.action is ReviewAction.EXPIRE or request.only_recorded:
                continue  # ids of expiries contain the subject
            bucket = self.actions_bucket(request.subject.tenant_id)
            key = f"{self._prefixes[bucket]}a:{short_bytes(action_digest(request)).decode()}:of"
            subject = short_bytes(request.subject.digest)
            if not request.forgets:
                await self.server.call("SET", key, subject, "EX", self._action_ttl, "NX", needed=True)
            if await self.server.call("GET", key) not in (None, subject):
                reused.append(request)
        return reused

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        entries = await self._entries_of(subjects)
        with _readable("held"):
            return [read_held(entry) for entry in entries]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        heads = await self._look_up(subjects, _HEAD)
        with _readable("statuses"):
            return [read_status(head) for head in heads]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        return await self.load(("epoch", await self._known_epoch()), outcomes)

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        return [
            entry.split(b"\n", 3)[2] or None if entry else None for entry in await self._entries_of(subjects)
        ]

    def rebuilding(self, ttl: float = 30.0) -> AbstractAsyncContextManager[Rebuild | None]:
        """Hold the rebuild lock; None if another worker does. A dead worker's lock expires after `ttl` seconds."""
        return Rebuild(self, self._prefix, self._scheme, ttl).held()

    async def mark(self, topic: str, partition: int, mark: InFlightMark | None) -> asyncio.Future[Any]:
        """Set the in-flight mark of a partition, or clear it (None); marks take effect in the order of calls.

        State's answer may be late: the mark is sent even if this process dies.
        """
        key = self._mark_key(topic, partition)
        if mark is None:
            return await self.server.send_in_order("DEL", key)
        value = f"{mark.first} {mark.last} {mark.crashes}"
        return await self.server.send_in_order("SET", key, value, "EX", 86_400)

    async def marks(self, topic: str, partition: int) -> InFlightMark | None:
        value = await self.server.call("GET", self._mark_key(topic, partition))
        return None if value is None else InFlightMark(*map(int, value.split()))

    async def give_up(self, subject: Subject) -> bool:
        """Release a waiting claim whose record becomes a dead letter; a later record is decided anew.

        Returns False, and changes nothing, if state holds an outcome.
        """

        def give_up(batch: Batch, named: Named) -> bool:
            return lifecycle.give_up(batch, named.subject)

        left: dict[int, Sequence[int]] = {self.bucket_of(subject): [0]}
        released = {0: False}
        async for places in _rounds(left):
            released = await self._exchange([Named(subject)], places, give_up)
            _remove(left, released)
        return bool(released[0])

    async def forget(self, subjects: Sequence[Subject]) -> None:
        """Remove what a rebuild keeps of subjects: retracted approvals. Raises: StateUnavailable."""
        for first in range(0, len(subjects), _SCANNED):
            keys: defaultdict[int, list[str]] = defaultdict(list)
            for one in subjects[first : first + _SCANNED]:
                bucket = self.bucket_of(one)
                keys[bucket].append(f"{self._prefixes[bucket]}o:{short_bytes(one.digest).decode()}")
            await self.server.each({bucket: ("UNLINK", *some) for bucket, some in keys.items()})

    async def waiting_count(self) -> int:
        """See `State`; of a cluster, from the servers that answer."""
        return await self._queue.count("waiting")

    async def queue_depth(self) -> int:
        """See `State`; of a cluster, from the servers that answer."""
        return await self._queue.count("total")

    async def tenants_use(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        return await self._queue.tenants()

    def away(self) -> Mapping[int, float]:
        return self.server.away()

    def bucket_of(self, subject: Subject) -> int:
        return self.server.bucket_of(subject.tenant_id, subject.user_id)

    def actions_bucket(self, tenant_id: str) -> int:
        return self.server.bucket_of(tenant_id, "")

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        """Store a policy on each server that answers. Raises: StateUnavailable: none does."""
        copies = self._policy_keys(sha256).items()
        await self.server.each({at: ("SET", key, policy) for at, key in copies}, some=True)

    async def get_policy(self, sha256: str) -> bytes | None:
        """Return a policy or None. Raises: StateUnavailable: not found, and not all servers answer."""
        copies = self._policy_keys(sha256)
        found = await self.server.each({at: ("GET", key) for at, key in copies.items()}, some=True)
        policy: bytes | None = next((copy for copy in found.values() if copy is not None), None)
        if policy is None and len(found) < len(copies):
            raise StateUnavailable(f"policy {sha256}: it may be on an unreachable server")
        return policy

    def _policy_keys(self, sha256: str) -> dict[int, str]:
        apart = max(len(self._prefixes) // 16, 1)  # so that each of up to 16 primaries has one
        return {
            bucket: f"{self._prefixes[bucket]}policy:{sha256}"
            for bucket in range(0, len(self._prefixes), apart)
        }

    async def close(self) -> None:
        await self.server.close()

    async def _known_epoch(self) -> str:
        epoch = self._epoch or await self.open()
        if epoch is None:
            raise StateLost("state carries no epoch: it is empty or was flushed")
        return epoch

    async def _exchange(
        self,
        requests: Sequence[Any],
        left: Mapping[int, Sequence[int]],
        decide: Callable[[Batch, Any], Any],
        *,
        guard: tuple[str, str] | None = None,
        remote: Mapping[int, Mapping[str, tuple[int, int, int]]] | None = None,
        limits: QueueLimits | None = None,
    ) -> dict[int, Any]:
        """Fetch what requests need, decide them in order, and commit; return the answers of those that were written.

        What changed meanwhile, or did not fit into one fetch, is left to another round. Raises: StateLost.
        """
        deciding = guard is None
        guard = guard or ("epoch", await self._known_epoch())
        some = {bucket: [requests[at] for at in places] for bucket, places in left.items()}
        names = {bucket: _unique(map(counters_of, asked)) for bucket, asked in some.items()}
        users = {
            bucket: _unique([(user_name(one.subject),) for one in asked]) for bucket, asked in some.items()
        }
        calls: dict[int, Command] = {
            bucket: (
                *(*guard, self._max_candidates, json.dumps(names[bucket]), json.dumps(users[bucket])),
                *map(wanted, asked),
            )
            for bucket, asked in some.items()
        }
        answers: dict[int, Any] = {}
        commits: dict[int, Command] = {}
        decided: dict[int, list[tuple[int, Any]]] = {}
        for bucket, found in (await self._run("fetch", calls, deciding=deciding, needed=True)).items():
            with _readable("fetch"):
                fetched = Fetched(found)
            await self._learn(bucket, fetched.entries)
            count = len(fetched.requests)
            lifetimes = self._ttl, self._action_ttl
            of_others = (remote or {}).get(bucket)
            batch = Batch(self._max_candidates, lifetimes, self._contexts, of_others, limits)
            with _readable("fetch"):
                batch.take_in(some[bucket][:count], fetched, names[bucket], users[bucket])
                await self._fetch_unsent(bucket, batch, some[bucket][:count])
            writes: list[tuple[str, bytes]] = []
            of_bucket = decided[bucket] = []
            for at, request in zip(left[bucket][:count], some[bucket], strict=False):
                batch.begin(request)
                answer = decide(batch, request)
                write = batch.end(request)
                if write:
                    writes.append(write)
                    of_bucket.append((at, answer))
                else:
                    answers[at] = answer
                if batch.compared >= self._max_candidates:
                    break  # the rest is for another round: comparing holds the event loop
            if writes:
                letters, packed = zip(*writes, strict=True)
                commits[bucket] = (*guard, ",".join(letters), *packed)
        if commits:
            for bucket, letters in (
                await self._run("commit", commits, deciding=deciding, needed=True)
            ).items():
                for letter, (at, answer) in zip(letters.decode(), decided[bucket], strict=True):
                    if letter == "1":
                        answers[at] = answer
        return answers

    async def _fetch_unsent(self, bucket: int, batch: Batch, requests: Sequence[Any]) -> None:
        """Fetch the candidates that had no room in the answer, some at a time, up to what a claim is compared with."""
        room = CANDIDATE_BYTES * self._max_candidates
        for scope, numbers in batch.unsent(requests).items():
            key = f"{self._prefixes[bucket]}m:{short_bytes(scope).decode()}"
            for first in range(0, len(numbers), _PAGE):
                if room < 0:
                    return
                page = numbers[first : first + _PAGE]
                ids = [number.to_bytes(4, "little") for number in page]
                found = await self._call(bucket, "HMGET", key, *ids)
                for number, member in zip(page, found, strict=True):
                    batch.take_candidate(scope, number, member)
                    room -= len(member or b"")

    async def _learn(self, bucket: int, values: Iterable[bytes]) -> None:
        """Fetch the prefixes of payloads that are not known yet."""
        if names := list(self._contexts.missing(values)):
            found = await self._call(bucket, "HMGET", self._prefixes[bucket] + "c", *names)
            for name, text in zip(names, found, strict=True):
                if text is None:
                    raise StateUnavailable(f"the prefix {name.decode()!r} of a payload is not stored")
                self._contexts.learn(name, text)

    async def _call(self, bucket: int, *command: Argument) -> Any:  # noqa: ANN401 - a reply is what the server sends
        return (await self.server.each({bucket: command}))[bucket]

    async def load(self, guard: tuple[str, str], outcomes: Sequence[StoredOutcome]) -> int:
        """Record published outcomes while a key has a value; see `reassert`. Raises: StateLost: it has another."""
        taken = 0
        left = _by_bucket(self.server, [outcome.subject for outcome in outcomes])
        async for places in _rounds(left):
            done = await self._exchange(outcomes, places, lifecycle.load, guard=guard)
            _remove(left, done)
            taken += sum(done.values())
        return taken

    async def _entries_of(self, subjects: Sequence[Subject]) -> list[bytes]:
        """Return the entries of subjects with their whole payloads."""
        values = await self._look_up(subjects, -1)
        for bucket, places in _by_bucket(self.server, subjects).items():
            await self._learn(bucket, [values[at] for at in places])
        return [self._contexts.in_full(value) for value in values]

    async def _look_up(self, subjects: Sequence[Subject], last: int) -> list[bytes]:
        """Read entries up to a byte, each once, however often a batch names it."""
        if not subjects:
            return []
        each = list(dict.fromkeys(subjects))
        epoch = await self._known_epoch()
        calls: dict[int, Command] = {}
        places = _by_bucket(self.server, each)
        for bucket, some in places.items():
            calls[bucket] = ("epoch", epoch, last, *[short_bytes(each[at].digest) for at in some])
        found: dict[Subject, bytes] = {}
        for bucket, answers in (await self._run("look_up", calls)).items():
            found |= zip([each[at] for at in places[bucket]], answers, strict=True)
        return [found[subject] for subject in subjects]

    async def _run(
        self, name: str, calls: Mapping[int, Command], *, deciding: bool = False, needed: bool = False
    ) -> dict[int, Any]:
        sent: dict[int, ScriptCall] = {
            bucket: ((), (self._prefixes[bucket], *rest)) for bucket, rest in calls.items()
        }
        answers = await self.server.run_each(
            script("packed", name), self._prefix, sent, deciding=deciding, needed=needed
        )
        if _LOST in answers.values():
            raise StateLost(f"state does not carry epoch {self._epoch}: it was flushed, restored or rebuilt")
        return answers

    def _mark_key(self, topic: str, partition: int) -> str:
        return f"{self._prefix}f:{topic}:{partition}"


def _by_bucket(server: Server, subjects: Sequence[Subject]) -> dict[int, Sequence[int]]:
    """Return the positions of subjects by bucket."""
    if len(server.tags) == 1:
        return {0: range(len(subjects))}
    places: defaultdict[int, list[int]] = defaultdict(list)
    for at, subject in enumerate(subjects):
        places[server.bucket_of(subject.tenant_id, subject.user_id)].append(at)
    return dict(places)


async def _rounds(left: Mapping[int, Sequence[int]]) -> AsyncIterator[dict[int, Sequence[int]]]:
    """Yield what to try, by bucket, while requests are left; after a lost round half as much.

    Raises: StateUnavailable: too many rounds in a row answered none.
    """
    lost, most = 0, max(map(len, left.values()), default=0)
    while left:
        before = sum(map(len, left.values()))
        yield {bucket: places[:most] for bucket, places in left.items()}
        is_lost = sum(map(len, left.values())) == before
        lost, most = (lost + 1, max(1, most // 2)) if is_lost else (0, 2 * most)
        if lost == _ROUNDS:
            raise StateUnavailable(f"other writers changed state in each of {_ROUNDS} rounds")
        await asyncio.sleep(0)  # the event loop gets a turn


def _remove(left: dict[int, Sequence[int]], answered: Collection[int]) -> None:
    """Remove what was answered from what is left."""
    for bucket, places in list(left.items()):
        left[bucket] = [at for at in places if at not in answered]
        if not left[bucket]:
            del left[bucket]


def _unique(names: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _has_place(answer: object) -> bool:
    return isinstance(answer, Outcome) and answer.fresh and answer.state is SubjectState.PENDING


class Rebuild:
    """A rebuild: `clear`, `load` repeatedly, `start_epoch`. All raise StateUnavailable, also if the lock was lost.

    The lock is one key per bucket. A stalled worker may lose it unnoticed, so every command checks it in its script.
    """

    def __init__(self, state: RedisState, prefix: str, scheme: str, ttl: float) -> None:
        self._state = state
        self._server = server = state.server
        self._prefix = prefix
        self._prefixes = [prefix + tag for tag in server.tags]
        self._scheme = scheme
        self._token = secrets.token_hex(16)
        self._milliseconds = round(ttl * 1000)
        self._layout: dict[int, ServerRun] = {}

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Rebuild | None]:
        """Hold the lock, renewed; None if it is taken."""
        renewing: asyncio.Task[None] | None = None
        try:
            taking = (self._token, "NX", "PX", self._milliseconds)
            locks = {at: ("SET", own + _LOCK, *taking) for at, own in enumerate(self._prefixes)}
            taken = all((await self._server.each(locks)).values())
            renewing = asyncio.create_task(self.renew()) if taken else None
            yield self if taken else None
        finally:
            if renewing is not None:
                # Python 3.11 may lose a cancellation in a call that ends at the same moment
                while not renewing.done():
                    renewing.cancel()
                    await asyncio.wait({renewing}, timeout=1)
                if not renewing.cancelled():
                    renewing.result()
            with suppress(StateUnavailable):  # it expires
                await self._run_everywhere(lambda own: ("DEL", own + _LOCK))

    async def renew(self) -> None:
        while True:
            await asyncio.sleep(self._milliseconds / 3000)
            with suppress(StateUnavailable):  # the next command raises it
                await self._run_everywhere(lambda own: ("PEXPIRE", own + _LOCK, self._milliseconds))

    async def _run(self, commands: Mapping[int, Command]) -> None:
        """Run a command per bucket. Raises: StateUnavailable: the lock was lost in one, where nothing changed."""
        calls = {at: ((self._prefixes[at] + _LOCK,), (self._token, *one)) for at, one in commands.items()}
        if not all((await self._server.run_each(script("fenced"), self._prefix, calls)).values()):
            raise StateUnavailable("the rebuild's lock was lost to another worker")

    async def _run_everywhere(self, command: Callable[[str], Command]) -> None:
        """Run a command made from the prefix of each bucket. Raises: as `_run`."""
        await self._run({at: command(own) for at, own in enumerate(self._prefixes)})

    async def clear(self) -> None:
        """Remove outcomes, index, queue and epoch; workers pause from here on.

        Citations, policies, payload prefixes, marks, actions and superseded approvals stay, so that the first outcome
        of a published action stands. Raises: StateUnavailable, also if slots were moved meanwhile.
        """
        self._layout = await self._runs()
        # first, so that nobody decides on a partial state
        await self._run_everywhere(
            lambda own: ("UNLINK", own + "epoch", own + "scheme", own + "q", own + "g")
        )
        pattern = self._prefix.translate(GLOB) + ("{*}" if len(self._server.tags) > 1 else "")
        for kind in ("s:*", "k:*", "b:*", "m:*", "x:*", "w:*", "d:*", "r:*"):
            async for keys in self._server.scan(pattern + kind, _SCANNED):
                found: defaultdict[int, list[bytes]] = defaultdict(list)
                for key in keys:
                    bucket = self._server.bucket_of_key(key[len(self._prefix.encode()) :])
                    if bucket is not None:
                        found[bucket].append(key)
                for first in range(0, max(map(len, found.values()), default=0), _SCANNED):
                    parts = {at: some[first : first + _SCANNED] for at, some in found.items()}
                    await self._run({at: ("UNLINK", *part) for at, part in parts.items() if part})
        await self._run_everywhere(lambda own: ("PEXPIRE", own + _LOCK, self._milliseconds))
        await self._insist_unmoved("cleared")

    async def load(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Load outcomes in any order; the highest revision of a subject stays. Returns how many were taken.

        Raises: ValueError: an outcome is invalid.
        """
        try:
            return await self._state.load((_LOCK, self._token), outcomes)
        except StateLost:
            raise StateUnavailable("the rebuild's lock was lost to another worker") from None

    async def start_epoch(self, epoch: str) -> None:
        """Set epoch and scheme: workers decide again. Raises: StateUnavailable, also if servers changed meanwhile."""
        await self._insist_unmoved("loaded")
        await self._run_everywhere(lambda own: ("MSET", own + "epoch", epoch, own + "scheme", self._scheme))

    async def _runs(self) -> dict[int, ServerRun]:
        """Return the server of each bucket of a cluster."""
        buckets = range(len(self._server.tags))
        if len(buckets) == 1:
            return {}
        await self._server.refresh_layout()
        return await self._server.server_runs(buckets)

    async def _insist_unmoved(self, done: str) -> None:
        if self._layout and await self._runs() != self._layout:
            raise StateUnavailable(f"slots were moved, or a server took over, while state was {done}")


@contextmanager
def _readable(call: str) -> Iterator[None]:
    """Turn decoding errors into StateUnavailable."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise StateUnavailable(f"{call}: the answer cannot be read: {type(error).__name__}") from error
