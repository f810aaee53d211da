"""Keeps a board up to date from the output topics and from state; outages make it stale, and it recovers."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog
from aiokafka import TopicPartition

from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, StateError, StateLost, StateUnavailable, UsageError
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.reader import Start, TopicFollower, cluster_of, open_reader
from groundwire.kafka.store import SCRATCH
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.policy import load_policy
from groundwire.review.board import Board
from groundwire.state.model import SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect

log = structlog.get_logger()

WINDOW: Final = timedelta(days=7)
_PORTION: Final = 1_000
_FULL_ROUND: Final = 60
"""In one round of so many, state is asked about dropped items too."""
_RECENT: Final = (
    TopicName.APPROVED,
    TopicName.BLOCKED,
    TopicName.RETRACTIONS,
    TopicName.AUDIT,
    TopicName.REVIEW_DECISIONS,
    TopicName.DEAD_LETTER,
)

_NOBODY: Final = Subject("-", "-", Kind.CLAIM, "-")
"""Asked about where nothing is pending, so that an outage or loss of state is noticed."""


class StatusSource(Protocol):
    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return the status of subjects. Raises: StateError."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of the feed in seconds: waiting for records, between health checks, after a failure, for an answer."""

    poll: float = 0.5
    check: float = 5.0
    retry: float = 1.0
    answer: float = 10.0


class Feed:
    """Feeds one board; `run` does it until it is cancelled. Raises: UsageError: the board's file cannot be written.

    `state`: asked what is pending, None: not checked; `window`: how far back topics other than `review` are read.
    """

    def __init__(
        self,
        board: Board,
        state: StatusSource | None,
        *,
        brokers: str,
        prefix: str,
        window: timedelta = WINDOW,
        pace: Pace = Pace(),
    ) -> None:
        self._board = board
        self._state = state
        self._brokers = brokers
        self._prefix = prefix
        self._window = window
        self._pace = pace
        self._stale: dict[str, datetime] = {}
        self._read = False
        self._asked = state is None
        self._lost = False
        self._read_again = False
        self._rounds = 0

    @property
    def caught_up(self) -> bool:
        return self._read and self._asked

    @property
    def stale_since(self) -> datetime | None:
        """Since when the board may be stale; None where it is current."""
        return min(self._stale.values(), default=None)

    async def run(self) -> None:
        async def forget() -> None:
            while True:
                await asyncio.sleep(timedelta(hours=1).total_seconds())
                await asyncio.to_thread(self._board.forget, datetime.now(UTC) - self._window)

        try:
            async with asyncio.TaskGroup() as tasks:
                for loop in (self._read_loop, self._state_loop, forget):
                    tasks.create_task(loop())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def sync_state(self, *, dropped: bool = False) -> None:
        """Drop what state does not hold as pending; `dropped`: also restore what it does. Raises: StateError."""
        if self._state is None:
            return
        candidates = [subject for subject, _ in self._board.candidates(dropped=dropped)] or [_NOBODY]
        for start in range(0, len(candidates), _PORTION):
            portion = candidates[start : start + _PORTION]
            statuses = await self._state.statuses(portion)
            await asyncio.to_thread(self._board.apply_statuses, dict(zip(portion, statuses, strict=True)))

    async def _read_loop(self) -> None:
        pace = self._pace
        starts, continued = _begin(self._board, self._prefix, self._window)
        failed, pauses = partial(self._mark_stale, "broker"), (pace.poll, pace.check, pace.retry)
        while True:
            topics = TopicFollower(self._brokers, starts, pace.answer, failed, *pauses, continued)
            async with aclosing(topics.batches()) as batches:
                async for records in batches:
                    self._clear_stale("broker")
                    if records:
                        await asyncio.to_thread(self._board.add, records, self._prefix)
                    self._read = self._read or topics.caught_up
                    if self._read_again:
                        self._read_again, continued = False, {}
                        break

    async def _state_loop(self) -> None:
        while self._state is not None:
            try:
                if self._read:
                    await self.sync_state(dropped=self._rounds % _FULL_ROUND == 0)
                    if self._lost:  # rebuilt: what was deleted as decided may be pending again
                        self._lost, self._read_again = False, True
                    self._rounds += 1
                    self._asked = True
                    self._clear_stale("state")
            except StateError as exc:
                self._lost = self._lost or isinstance(exc, StateLost)
                self._rounds = 0
                self._mark_stale("state", exc)
            await asyncio.sleep(self._pace.check if self._asked else self._pace.poll)

    def _mark_stale(self, what: str, error: Exception) -> None:
        if what not in self._stale:
            self._stale[what] = datetime.now(UTC)
            log.warning("review_feed.stale", what=what, error=str(error))

    def _clear_stale(self, what: str) -> None:
        if self._stale.pop(what, None) is not None:
            log.info("review_feed.back", what=what)


async def fill(board: Board, brokers: str, prefix: str, window: timedelta, seconds: float) -> None:
    """Read the topics into a board once, up to their current ends. Raises: UsageError, BrokerUnavailable.

    A kept board reads on where it was, and forgets what is older than the window.
    """
    starts, continued = _begin(board, prefix, window)
    async with open_reader(brokers, seconds) as reader:
        await reader.begin(starts, continued=continued)
        async with aclosing(reader.rest()) as batches:
            async for records in batches:
                await asyncio.to_thread(board.add, records, prefix)
    await asyncio.to_thread(board.forget, datetime.now(UTC) - window)


async def open_board(path: Path | None, brokers: str, prefix: str, seconds: float) -> Board:
    """Open the board that is kept in a file; by default in the user's cache, and where that cannot be, a temporary one.

    Raises: UsageError: the named file is no board, or cannot be written.
    """
    if path is not None:
        return Board(path)
    cluster = None
    with suppress(BrokerUnavailable):  # whoever reads the topics says so
        cluster = await cluster_of(brokers, seconds)  # an address may come to be another one's
    return Board(SCRATCH) if cluster is None else _cached(f"{cluster}\0{prefix}")


def _cached(what: str) -> Board:
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home, "groundwire")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if (status.st_uid, status.st_mode & 0o077) == (os.getuid(), 0):
            return Board(folder / f"board-{hashlib.sha256(what.encode()).hexdigest()[:16]}.sqlite")
        why = f"others may read or write {folder}"
    except (OSError, RuntimeError, UsageError) as exc:
        why = str(exc)
    log.info("review_board.temporary", why=why)
    return Board(SCRATCH)


def _begin(
    board: Board, prefix: str, window: timedelta
) -> tuple[dict[str, Start], dict[TopicPartition, int]]:
    """Return where each topic begins, and where a kept board reads on instead."""
    since = datetime.now(UTC) - window
    recent = dict.fromkeys((prefix + topic for topic in _RECENT), since)
    return {prefix + TopicName.REVIEW: "earliest", **recent}, board.resume(since)


class RedisStatuses:
    """Reads the status of subjects from Redis; after a loss of state, from the rebuilt one."""

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._known = False

    @classmethod
    def of(cls, settings: Settings) -> RedisStatuses:
        policy = load_policy(settings.policy_file, os.environ)
        state = RedisState(
            connect(settings.redis_url),
            settings.topic_prefix,
            scheme=dedup_scheme(policy),
            partitions=settings.partitions,
            require_aof=False,
        )
        return cls(state)

    async def check_kind(self) -> None:
        """Refuse a server of another kind than the address says; one that is down is checked later."""
        with suppress(StateUnavailable):
            await self._state.server.check_kind()

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return the status of subjects. Raises: StateUnavailable, StateLost (once), SchemeMismatch."""
        if not self._known:
            if await self._state.open() is None:
                raise StateLost("state is lost, and not rebuilt yet")
            self._known = True
        try:
            return await self._state.statuses(subjects)
        except StateLost:
            self._known = False
            raise

    async def close(self) -> None:
        await self._state.close()
