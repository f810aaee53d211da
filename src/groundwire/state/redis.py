"""State in Redis: every step of a batch is one script on the primary; in a cluster, one per bucket of users.

docs/run/state.md says what keys cost in bytes. All start with the topic prefix, and the scripts compute them. In a
cluster the bucket's tag follows the prefix, except for in-flight marks; a policy is stored in several buckets, and an
action has a second key in the bucket of its tenant: `a:<action>:of` with its subject.

    s:<subject>    outcome of a claim or response                  none while approved, pending or waiting,
                                                                   else `idempotency_ttl`; blocked by a
                                                                   person: `action_ttl`
    k:<scope>      dedup key and local id, 4 bytes each            none
    b:<scope>      hash, once there are many: key -> local ids     none
    m:<scope>      hash: local id -> the claim to compare with;    none
                   n -> last local id
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
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.messages.identity import Subject
from groundwire.state.cluster import server_of
from groundwire.state.codec import (
    Argument,
    action_digest,
    is_place,
    read_answer,
    read_held,
    read_reviewed,
    read_status,
    short,
    user_digest,
    write_review,
    write_step,
    write_stored,
)
from groundwire.state.model import (
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
from groundwire.state.server import PATIENCE, Client, Command, ScriptCall, Server, ServerRun, script

IDEMPOTENCY_TTL: Final = 31 * 86_400
"""Seconds: the retention of the claims topic and a day."""

ACTION_TTL: Final = 91 * 86_400
"""Seconds: the retention of the review-decisions topic and a day."""

LAYOUT: Final = "layout-2"
"""Part of the scheme: other layouts cannot be read."""

_LOCK: Final = "rebuild"
_LOST: Final = b"LOST"
_STEP: Final = ("entries", "near", "step")
_LOAD: Final = ("entries", "load")
_REVIEW: Final = ("entries", "near", "review")
_LOOK_UP: Final = ("entries", "look_up")

_SCANNED: Final = 1000
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
        head: list[Argument] = [await self._known_epoch(), int(deferred), limits.per_user, limits.per_tenant]
        head += [limits.total, limits.tenant_bytes, self._max_candidates]
        packed = [write_step(request) for request in requests]
        left = _by_bucket(self.server, [request.subject for request in requests])
        answers: list[bytes] = [b""] * len(packed)
        while left:
            counts = await self._queue.next_turn(left, requests, limits)
            answered = await self._answer(
                _STEP, {at: (*head, some) for at, some in counts.items()}, packed, left
            )
            await self._queue.report(requests[at] for at, one in answered.items() if is_place(one))
            for at, one in answered.items():
                answers[at] = one
        with _readable("step"):
            return [read_answer(request, answer) for request, answer in zip(requests, answers, strict=True)]

    async def review(self, requests: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        if not requests:
            return []
        head: list[Argument] = [await self._known_epoch(), self._max_candidates]
        reused = await self._reused(requests)
        asked = [request for request in requests if request not in reused]
        packed = [write_review(request) for request in asked]
        left = _by_bucket(self.server, [request.subject for request in asked])
        found: dict[int, bytes] = {}
        while left:
            found |= await self._answer(_REVIEW, dict.fromkeys(left, head), packed, left, self._action_ttl)
        answers = iter([found[at] for at in range(len(asked))])
        with _readable("review"):
            return [
                RefusedAction("action_id_reused", None)
                if request in reused
                else read_reviewed(request, next(answers))
                for request in requests
            ]

    async def _reused(self, requests: Sequence[ReviewRequest]) -> list[ReviewRequest]:
        """Return the actions whose id belongs to another subject, as the bucket of the tenant in a cluster records."""
        if len(self._prefixes) == 1:
            return []
        reused: list[ReviewRequest] = []
        for request in requests:
            if request.action is ReviewAction.EXPIRE or request.only_recorded:
                continue  # ids of expiries contain the subject
            bucket = self.actions_bucket(request.subject.tenant_id)
            key = f"{self._prefixes[bucket]}a:{short(action_digest(request))}:of"
            subject = short(request.subject.digest)
            if not request.forgets:
                await self.server.call("SET", key, subject, "EX", self._action_ttl, "NX", needed=True)
            if await self.server.call("GET", key) not in (None, subject.encode()):
                reused.append(request)
        return reused

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        entries = await self._look_up("entry", subjects)
        with _readable("held"):
            return [read_held(entry) for entry in entries]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        texts = await self._look_up("status", subjects)
        with _readable("statuses"):
            return [read_status(text) for text in texts]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        head = ("epoch", await self._known_epoch(), self._action_ttl)
        return sum((await self._run(_LOAD, _loaded(self.server, head, outcomes), needed=True)).values())

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        return [payload or None for payload in await self._look_up("payload", subjects)]

    def rebuilding(self, ttl: float = 30.0) -> AbstractAsyncContextManager[Rebuild | None]:
        """Hold the rebuild lock; None if another worker does. A dead worker's lock expires after `ttl` seconds."""
        return Rebuild(self.server, self._prefix, self._scheme, ttl, (self._ttl, self._action_ttl)).held()

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
        bucket = self.bucket_of(subject)
        named = (short(subject.digest), user_digest(subject))
        return not (await self._run(("entries", "release"), {bucket: named}, deciding=True))[bucket]

    async def forget(self, subjects: Sequence[Subject]) -> None:
        """Remove what a rebuild keeps of subjects: retracted approvals. Raises: StateUnavailable."""
        for first in range(0, len(subjects), _SCANNED):
            keys: defaultdict[int, list[str]] = defaultdict(list)
            for one in subjects[first : first + _SCANNED]:
                bucket = self.bucket_of(one)
                keys[bucket].append(f"{self._prefixes[bucket]}o:{short(one.digest)}")
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

    async def _answer(
        self,
        files: tuple[str, ...],
        heads: Mapping[int, Sequence[Argument]],
        packed: Sequence[bytes],
        left: dict[int, Sequence[int]],
        ttl: int | None = None,
    ) -> dict[int, bytes]:
        """Run a script in some buckets concurrently; return its answers by position, and remove them from `left`.

        More calls follow if comparing takes long, or if a bucket did not answer: its requests stay in `left`.
        """
        calls = {bucket: (*head, *[packed[at] for at in left[bucket]]) for bucket, head in heads.items()}
        answered: dict[int, bytes] = {}
        for bucket, some in (await self._run(files, calls, ttl=ttl, deciding=True)).items():
            if not some:
                raise StateUnavailable(f"{files[-1]}: no answer where one was due")
            places = left.pop(bucket)
            answered |= zip(places, some, strict=False)
            if rest := places[len(some) :]:
                left[bucket] = rest
        return answered

    async def _look_up(self, name: str, subjects: Sequence[Subject]) -> list[bytes]:
        """Look up each subject once, however often a batch names it."""
        if not subjects:
            return []
        each = list(dict.fromkeys(subjects))
        head = (await self._known_epoch(), name)
        found: dict[Subject, bytes] = {}
        places = _by_bucket(self.server, each)
        calls = {bucket: (*head, *[short(each[at].digest) for at in some]) for bucket, some in places.items()}
        for bucket, answers in (await self._run(_LOOK_UP, calls)).items():
            found |= zip([each[at] for at in places[bucket]], answers, strict=True)
        return [found[subject] for subject in subjects]

    async def _run(
        self,
        files: tuple[str, ...],
        calls: Mapping[int, Command],
        *,
        ttl: int | None = None,
        deciding: bool = False,
        needed: bool = False,
    ) -> dict[int, Any]:
        sent: dict[int, ScriptCall] = {
            bucket: ((), (self._prefixes[bucket], ttl or self._ttl, *rest)) for bucket, rest in calls.items()
        }
        code = script(*files)
        answers = await self.server.run_each(code, self._prefix, sent, deciding=deciding, needed=needed)
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


def _loaded(
    server: Server, head: Sequence[Argument], outcomes: Sequence[StoredOutcome]
) -> dict[int, Sequence[Argument]]:
    places = _by_bucket(server, [outcome.subject for outcome in outcomes])
    return {bucket: (*head, *[write_stored(outcomes[at]) for at in some]) for bucket, some in places.items()}


class Rebuild:
    """A rebuild: `clear`, `load` repeatedly, `start_epoch`. All raise StateUnavailable, also if the lock was lost.

    The lock is one key per bucket. A stalled worker may lose it unnoticed, so every command checks it in its script.
    """

    def __init__(
        self, server: Server, prefix: str, scheme: str, ttl: float, lifetimes: tuple[int, int]
    ) -> None:
        self._server = server
        self._prefix = prefix
        self._prefixes = [prefix + tag for tag in server.tags]
        self._scheme = scheme
        self._lifetime, self._action_lifetime = lifetimes
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
        head = (_LOCK, self._token, self._action_lifetime)
        calls: dict[int, ScriptCall] = {
            bucket: ((), (self._prefixes[bucket], self._lifetime, *rest))
            for bucket, rest in _loaded(self._server, head, outcomes).items()
        }
        taken = await self._server.run_each(script(*_LOAD), self._prefix, calls)
        if _LOST in taken.values():
            raise StateUnavailable("the rebuild's lock was lost to another worker")
        return sum(taken.values())

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
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StateUnavailable(f"{call}: the answer cannot be read: {type(error).__name__}") from error
