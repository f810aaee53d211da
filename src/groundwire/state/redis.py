"""State in Redis: every step of a batch is one script on the primary.

docs/state.md says what keys cost in bytes. All of them start with the deployment's topic prefix, and the scripts
compute them: one primary is required, Redis Cluster is refused.

    s:<subject>    the outcome of a claim or response              none while approved, pending or waiting,
                                                                   else `idempotency_ttl`; blocked by a
                                                                   person: `action_ttl`
    k:<scope>      dedup key and local id, 4 bytes each, of all    none
                   claims, while they are few
    b:<scope>      later a hash: dedup key -> local ids            none
    m:<scope>      hash: local id -> the claim to compare with;    none
                   n -> last local id given
    x:<scope>      local ids of the latest rejected texts         none
    c              hash: name -> what derivation lines begin      none
                   with alike, up to a tab
    d:<parent>     set of approved claims that name the        none
                   subject in `derived_from`
    a:<action>     what became of an action of a person           `action_ttl`
    o:<subject>    what a person approved, as it was before        `action_ttl`
                   it was retracted
    w:<user>       set of the user's waiting subjects              none
    q              hash of counters: total, waiting,               none
                   t:<tenant>, b:<tenant> (bytes) and u:<user>
    f:<topic>:<partition>   what a worker has in flight            1 day
    policy:<sha256>         an effective policy                    none
    epoch, scheme           which state this is                    none
    rebuild                 lock of the worker that rebuilds       seconds, renewed
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from redis.asyncio import Redis

from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.messages.identity import Subject
from groundwire.state.codec import (
    Argument,
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
    ReviewAnswer,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectStatus,
)
from groundwire.state.server import PATIENCE, Server, SharedConnection, script

IDEMPOTENCY_TTL: Final = 31 * 86_400
"""Seconds: the retention of the claims topic and a day."""

ACTION_TTL: Final = 91 * 86_400
"""Seconds: the retention of the review-decisions topic and a day."""

LAYOUT: Final = "layout-2"
"""Part of the scheme: what another layout has written cannot be read."""

_MARK_TTL: Final = 86_400
_LOST: Final = b"LOST"
_STEP: Final = ("entries", "near", "step")
_LOAD: Final = ("entries", "load")
_REVIEW: Final = ("entries", "near", "review")
_LOOK_UP: Final = ("entries", "look_up")

_REBUILT_KEYS: Final = ("s:*", "k:*", "b:*", "m:*", "x:*", "w:*", "d:*", "r:*")
_SCANNED: Final = 1000
GLOB: Final = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})
"""Has a prefix stand for itself in a pattern of SCAN."""


class RedisState:
    """The state of a deployment in Redis.

    Args:
        redis: a client as `groundwire.state.server.connect` makes it.
        prefix: the topic prefix, put before every key.
        scheme: what dedup keys and signatures depend on, from `groundwire.checks.dedup.keys.scheme`.
        idempotency_ttl: seconds for which outcomes are kept that hold no place in index or queue.
        action_ttl: seconds for which actions of people, and what they blocked, are kept.
        patience: seconds for one call.
        require_aof: refuse a server without an append-only file.
        max_candidates: with how many stored claims one claim is compared; more, or more than 400 bytes of
            signature for each of them, and its deduplication has failed.
    """

    def __init__(
        self,
        redis: Redis,
        prefix: str,
        *,
        scheme: str,
        idempotency_ttl: int = IDEMPOTENCY_TTL,
        action_ttl: int = ACTION_TTL,
        patience: float = PATIENCE,
        require_aof: bool = True,
        max_candidates: int = MAX_CANDIDATES,
    ) -> None:
        self._server = Server(redis, patience)
        self._marks = SharedConnection(redis, patience)
        self._prefix = prefix
        self._scheme = f"{scheme}/{LAYOUT}"
        self._ttl = idempotency_ttl
        self._action_ttl = max(action_ttl, idempotency_ttl)
        self._require_aof = require_aof
        self._max_candidates = max_candidates
        self._epoch: str | None = None

    @property
    def epoch(self) -> str | None:
        """The epoch that this process takes for that of its state, or None before `open` found one."""
        return self._epoch

    async def open(self) -> str | None:
        """Check the server and take the epoch that it carries.

        Returns:
            The epoch; None where state is lost, or was never there: it has to be rebuilt.

        Raises:
            UsageError: state must not live on this server.
            SchemeMismatch: the keys in state are of another scheme.
            StateUnavailable: the server does not answer.
        """
        await self._server.check(require_aof=self._require_aof)
        return await self.adopt_epoch()

    async def adopt_epoch(self) -> str | None:
        """Take the epoch that state carries, as after a rebuild by another worker.

        Raises:
            SchemeMismatch: as `open`.
        """
        epoch, scheme = await self._server.call("MGET", self._prefix + "epoch", self._prefix + "scheme")
        if scheme is not None and scheme.decode() != self._scheme:
            raise SchemeMismatch(
                f"state is of scheme {scheme.decode()}, this process makes {self._scheme}:"
                " run `groundwire rebuild`, or go back to the policy or the version before"
            )
        self._epoch = None if epoch is None else epoch.decode()
        return self._epoch

    async def read_epoch(self) -> str | None:
        """Return the epoch that state carries now, without taking it."""
        epoch = await self._server.call("GET", self._prefix + "epoch")
        return None if epoch is None else str(epoch.decode())

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        """Decide a batch in one atomic step; see `groundwire.state.model.State`."""
        if not requests:
            return []
        head: list[Argument] = [await self._known_epoch(), int(deferred), limits.per_user, limits.per_tenant]
        head += [limits.total, limits.tenant_bytes, self._max_candidates]
        answers = await self._in_turn(_STEP, head, [write_step(request) for request in requests])
        with _readable("step"):
            return [read_answer(request, answer) for request, answer in zip(requests, answers, strict=True)]

    async def review(self, requests: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        """Carry out actions of people in one atomic step; see `groundwire.state.model.State`."""
        if not requests:
            return []
        head: list[Argument] = [await self._known_epoch(), self._max_candidates]
        answers = await self._in_turn(
            _REVIEW, head, [write_review(request) for request in requests], self._action_ttl
        )
        with _readable("review"):
            return [read_reviewed(request, answer) for request, answer in zip(requests, answers, strict=True)]

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        """Return what state holds of decided subjects, in one round trip; see `groundwire.state.model.State`."""
        entries = await self._look_up("entry", subjects)
        with _readable("held"):
            return [read_held(entry) for entry in entries]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return where subjects stand, in one round trip; see `groundwire.state.model.State`."""
        texts = await self._look_up("status", subjects)
        with _readable("statuses"):
            return [read_status(text) for text in texts]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Record outcomes that are known to be published; see `groundwire.state.model.State`."""
        head = ("epoch", await self._known_epoch(), self._action_ttl)
        arguments = [write_stored(outcome) for outcome in outcomes]
        return int(await self._run(_LOAD, *head, *arguments))

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        """Return what was recorded with each subject, in one round trip; see `groundwire.state.model.State`."""
        return [payload or None for payload in await self._look_up("payload", subjects)]

    @asynccontextmanager
    async def rebuilding(self, ttl: float = 30.0) -> AsyncIterator[Rebuild | None]:
        """Hold the lock of the rebuild; None where another worker holds it.

        Args:
            ttl: seconds after which the lock of a worker that died falls.
        """
        async with hold(self._server, self._prefix, ttl) as fence:
            yield (
                None
                if fence is None
                else Rebuild(fence, self._prefix, self._scheme, (self._ttl, self._action_ttl))
            )

    async def mark(
        self, topic: str, partition: int, mark: InFlightMark, *, written: Callable[[], None] = lambda: None
    ) -> None:
        """Note what is in flight, so that a worker that dies over it leaves a trace.

        Marks take effect in the order of the calls, without one waiting for another.

        Args:
            topic: that of the partition.
            partition: its number.
            mark: what is in flight.
            written: called once the mark is sent, whatever becomes of this process: its answer may be long in coming.
        """
        value = f"{mark.first} {mark.last} {mark.crashes}"
        key = self._mark_key(topic, partition)
        await self._marks.call("SET", key, value, "EX", _MARK_TTL, written=written)

    async def marks(self, topic: str, partition: int) -> InFlightMark | None:
        """Return what was in flight on a partition when its worker was last heard of, or None."""
        value = await self._server.call("GET", self._mark_key(topic, partition))
        return None if value is None else InFlightMark(*map(int, value.split()))

    async def unmark(self, topic: str, partition: int) -> None:
        """Forget the mark: all of it is settled."""
        await self._marks.call("DEL", self._mark_key(topic, partition))

    async def give_up(self, subject: Subject) -> bool:
        """Let go of a waiting claim whose record is to become a dead letter.

        Its user's later claims wait for it no longer, and a later record of it is decided anew.

        Returns:
            False where state holds an outcome of the subject: then nothing is changed, and the record is none.
        """
        user = user_digest(subject)
        held = await self._run(("entries", "release"), short(subject.digest), user)
        return not held

    async def forget(self, subjects: Sequence[Subject]) -> None:
        """Remove what a rebuild leaves of subjects: approvals that people retracted. Raises: StateUnavailable."""
        for first in range(0, len(subjects), _SCANNED):
            keys = [f"{self._prefix}o:{short(one.digest)}" for one in subjects[first : first + _SCANNED]]
            await self._server.call("UNLINK", *keys)

    async def waiting_count(self) -> int:
        """Return how many claims wait on `deferred`."""
        return int(await self._server.call("HGET", self._prefix + "q", "waiting") or 0)

    async def queue_depth(self) -> int:
        """Return how many claims and responses have a place in the review queue."""
        return int(await self._server.call("HGET", self._prefix + "q", "total") or 0)

    async def tenants_use(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Return the places in the review queue, and the bytes of pending records, of each tenant that has any."""
        places: dict[bytes, int] = {}
        stored: dict[bytes, int] = {}
        found = {b"t:": places, b"b:": stored}
        cursor = 0
        while True:
            cursor, page = await self._server.call(
                "HSCAN", self._prefix + "q", cursor, "MATCH", "[tb]:*", "COUNT", 1_000
            )
            for name, count in page.items():
                found[name[:2]][name[2:]] = int(count)
            if not int(cursor):
                return places, stored

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        """Keep an effective policy under its hash."""
        await self._server.call("SET", f"{self._prefix}policy:{sha256}", policy)

    async def get_policy(self, sha256: str) -> bytes | None:
        """Return the policy with this hash, or None."""
        policy: bytes | None = await self._server.call("GET", f"{self._prefix}policy:{sha256}")
        return policy

    async def close(self) -> None:
        """Let go of connections."""
        await self._server.close()

    async def _known_epoch(self) -> str:
        epoch = self._epoch or await self.open()
        if epoch is None:
            raise StateLost("state carries no epoch: it is empty or was flushed")
        return epoch

    async def _in_turn(
        self,
        files: tuple[str, ...],
        head: Sequence[Argument],
        packed: Sequence[bytes],
        ttl: int | None = None,
    ) -> list[bytes]:
        """Run a script until it has answered all: more than one call is needed only where comparing takes long."""
        answers: list[bytes] = []
        while len(answers) < len(packed):
            some = await self._run(files, *head, *packed[len(answers) :], ttl=ttl)
            if not some:
                raise StateUnavailable(f"{files[-1]}: no answer where one was due")
            answers += some
        return answers

    async def _look_up(self, name: str, subjects: Sequence[Subject]) -> list[bytes]:
        """Look up each subject once: a hostile batch may name one large entry again and again."""
        digests = [short(subject.digest) for subject in subjects]
        if not digests:
            return []
        each = list(dict.fromkeys(digests))
        found = dict(
            zip(each, await self._run(_LOOK_UP, await self._known_epoch(), name, *each), strict=True)
        )
        return [found[digest] for digest in digests]

    async def _run(self, files: tuple[str, ...], *arguments: Argument, ttl: int | None = None) -> Any:  # noqa: ANN401 - a reply is what the script returns
        answer = await self._server.run(script(*files), (), self._prefix, ttl or self._ttl, *arguments)
        if answer == _LOST:
            raise StateLost(f"state does not carry epoch {self._epoch}: it was flushed, restored or rebuilt")
        return answer

    def _mark_key(self, topic: str, partition: int) -> str:
        return f"{self._prefix}f:{topic}:{partition}"


class Fence:
    """The lock of a rebuild, as its holder knows it.

    A worker that stalls may lose the lock to another without noticing. So every command of a rebuild runs in a
    script that first asks whether the lock is still held, and a holder that came too late changes nothing.
    """

    def __init__(self, server: Server, key: str, token: str, ttl: float) -> None:
        self.server = server
        self.token = token
        self._key = key
        self._ttl = ttl

    async def run(self, *command: Argument) -> None:
        """Run one command as the lock's holder.

        Raises:
            StateUnavailable: the lock is no longer held; nothing was changed.
        """
        if not await self.server.run(script("fenced"), (self._key,), self.token, *command):
            raise StateUnavailable("the rebuild's lock was lost to another worker")

    async def renew(self) -> None:
        """Hold on to the lock for as long as the context lasts."""
        while True:
            await asyncio.sleep(self._ttl / 3)
            with suppress(StateUnavailable):  # the next command of the rebuild says so
                await self.run("PEXPIRE", self._key, round(self._ttl * 1000))

    async def release(self) -> None:
        """Give up the lock, if it is still ours."""
        with suppress(StateUnavailable):  # then it falls by itself
            await self.run("DEL", self._key)


@asynccontextmanager
async def hold(server: Server, prefix: str, ttl: float) -> AsyncIterator[Fence | None]:
    """Take the lock of the rebuild, renew it, and release it at the end; None where it is taken."""
    key, token = prefix + "rebuild", secrets.token_hex(16)
    if not await server.call("SET", key, token, "NX", "PX", round(ttl * 1000)):
        yield None
        return
    fence = Fence(server, key, token, ttl)
    renewing = asyncio.create_task(fence.renew())
    try:
        yield fence
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        await fence.release()


class Rebuild:
    """What the one worker may do that rebuilds state: `clear`, `load` as often as needed, `start_epoch`.

    Every method raises StateUnavailable where the server does not answer or the lock is lost.
    """

    def __init__(self, fence: Fence, prefix: str, scheme: str, lifetimes: tuple[int, int]) -> None:
        self._fence = fence
        self._prefix = prefix
        self._scheme = scheme
        self._lifetime, self._action_lifetime = lifetimes

    async def clear(self) -> None:
        """Remove outcomes, index, queue and epoch; workers pause from here on.

        Cached citations, policies, what derivation lines have alike, marks of what is in flight, actions of people
        and what they superseded stay: the first outcome of an action stands, where it was published.
        """
        # first, so that nobody decides on half a state
        await self._fence.run("UNLINK", *[self._prefix + name for name in ("epoch", "scheme", "q")])
        for pattern in _REBUILT_KEYS:
            await self._clear(self._prefix.translate(GLOB) + pattern)

    async def load(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Load outcomes; of a subject the highest revision stays.

        A joined claim may come before the one that it is joined to.

        Returns:
            How many were taken.

        Raises:
            ValueError: an outcome is none that state could have recorded.
        """
        arguments = [write_stored(outcome) for outcome in outcomes]
        head = (self._prefix, self._lifetime, "rebuild", self._fence.token, self._action_lifetime)
        taken = await self._fence.server.run(script("entries", "load"), (), *head, *arguments)
        if taken == b"LOST":
            raise StateUnavailable("the rebuild's lock was lost to another worker")
        return int(taken)

    async def start_epoch(self, epoch: str) -> None:
        """Give the state its epoch and scheme: workers may decide on it."""
        await self._fence.run("MSET", self._prefix + "epoch", epoch, self._prefix + "scheme", self._scheme)

    async def _clear(self, pattern: str) -> None:
        cursor = b"0"
        while True:
            cursor, keys = await self._fence.server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
            for first in range(0, len(keys), _SCANNED):
                await self._fence.run("UNLINK", *keys[first : first + _SCANNED])
            if int(cursor) == 0:
                return


@contextmanager
def _readable(call: str) -> Iterator[None]:
    """Turn an answer that cannot be read into an error of state."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StateUnavailable(f"{call}: the answer cannot be read: {type(error).__name__}") from error
