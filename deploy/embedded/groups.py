"""Consumer groups as a Kafka coordinator runs them: join, sync, heartbeat, leave, session timeout.

The states are Kafka's own: a group is *preparing* while members join, *completing* while its leader works
out the assignment, *stable* once everybody has it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from enum import Enum

NO_ERROR = 0
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER = 25
REBALANCE_IN_PROGRESS = 27

#: The answers to the leader and to the followers of a finished join.
JoinAnswer = tuple[int, int, str, str, str, list[tuple[str, str | None, bytes]]]
SyncAnswer = tuple[int, bytes]


class State(Enum):
    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a client says of itself; times in milliseconds."""

    member_id: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    protocols: list[tuple[str, bytes]]


@dataclass(slots=True)
class Member:
    """One consumer in a group; `deadline` is when its session ends unless it sends a heartbeat."""

    member_id: str
    asked: JoinRequest
    deadline: float = 0.0
    joining: asyncio.Future[JoinAnswer] | None = None
    syncing: asyncio.Future[SyncAnswer] | None = None
    assignment: bytes = b""

    def touch(self) -> None:
        self.deadline = time.monotonic() + self.asked.session_ms / 1000


@dataclass(slots=True)
class Group:
    """A consumer group and the offsets it has committed."""

    state: State = State.EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    join_ends: float = 0.0

    async def join(self, asked: JoinRequest) -> JoinAnswer:
        """Join the group, or join again, and wait until all members have."""
        if asked.member_id and asked.member_id not in self.members:
            return UNKNOWN_MEMBER, -1, "", "", asked.member_id, []
        replaced = None
        if not asked.member_id and asked.instance_id is not None:
            named = (m for m in self.members.values() if m.asked.instance_id == asked.instance_id)
            replaced = next(named, None)
        member = self._enter(asked, replaced)
        if replaced and self.state is State.STABLE:
            # A static member came back within its session: it gets its assignment without a rebalance.
            # Its former id is named as the leader's, so that it computes no assignment.
            return NO_ERROR, self.generation, self.protocol, replaced.member_id, member.member_id, []
        self._prepare()
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        member.joining = answer
        self._complete_if_all_joined()
        try:
            return await answer
        finally:
            member.touch()
            if member.joining is answer:
                member.joining = None

    def _enter(self, asked: JoinRequest, replaced: Member | None) -> Member:
        member = Member(asked.member_id or f"member-{uuid.uuid4()}", asked)
        former = replaced or self.members.get(member.member_id)
        if former:
            member.assignment = former.assignment
            self._release(former, UNKNOWN_MEMBER)
            del self.members[former.member_id]
            if self.leader == former.member_id:
                self.leader = member.member_id
        member.touch()
        self.members[member.member_id] = member
        return member

    def _release(self, member: Member, error: int) -> None:
        if member.joining and not member.joining.done():
            member.joining.set_result((error, -1, "", "", member.member_id, []))
        if member.syncing and not member.syncing.done():
            member.syncing.set_result((error, b""))

    def _prepare(self) -> None:
        if self.state is State.PREPARING:
            return
        self.state = State.PREPARING
        self.join_ends = time.monotonic() + max(m.asked.rebalance_ms for m in self.members.values()) / 1000
        for member in self.members.values():
            if member.syncing and not member.syncing.done():
                member.syncing.set_result((REBALANCE_IN_PROGRESS, b""))

    def _complete_if_all_joined(self, *, late: bool = False) -> None:
        """End the join once all members have joined; `late` ends it without the others."""
        if self.state is not State.PREPARING:
            return
        waiting = [m for m in self.members.values() if m.joining and not m.joining.done()]
        if len(waiting) < len(self.members) and not late:
            return
        self.members = {m.member_id: m for m in waiting}
        self.generation += 1
        if not waiting:
            self.state = State.EMPTY
            return
        self.state = State.COMPLETING
        if self.leader not in self.members:
            self.leader = waiting[0].member_id
        shared = set.intersection(*({name for name, _ in m.asked.protocols} for m in waiting))
        offered = self.members[self.leader].asked.protocols
        self.protocol = next((name for name, _ in offered if name in shared), offered[0][0])
        for member in waiting:
            member.assignment = b""
        roster = [
            (m.member_id, m.asked.instance_id, dict(m.asked.protocols)[self.protocol])
            for m in self.members.values()
        ]
        for member in waiting:
            if member.joining and not member.joining.done():
                member.touch()
                told = roster if member.member_id == self.leader else []
                answer = (NO_ERROR, self.generation, self.protocol, self.leader, member.member_id, told)
                member.joining.set_result(answer)

    def check(self, member_id: str, generation: int) -> int:
        """Return Kafka's error code for a request of a member of some generation."""
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER
        if generation != self.generation:
            return ILLEGAL_GENERATION
        member.touch()
        return NO_ERROR

    async def sync(self, member_id: str, generation: int, assignments: list[tuple[str, bytes]]) -> SyncAnswer:
        """Hand in the leader's assignment, or wait for it."""
        error = self.check(member_id, generation)
        if error or self.state is State.PREPARING:
            return error or REBALANCE_IN_PROGRESS, b""
        member = self.members[member_id]
        if self.state is State.COMPLETING and member_id == self.leader:
            assigned = dict(assignments)
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = assigned.get(each.member_id, b"")
                each.touch()
                if each.syncing and not each.syncing.done():
                    each.syncing.set_result((NO_ERROR, each.assignment))
        if self.state is State.STABLE:
            return NO_ERROR, member.assignment
        waiting: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        member.syncing = waiting
        return await waiting

    def heartbeat(self, member_id: str, generation: int) -> int:
        """Keep a session alive; the member is asked to join again while the group rebalances."""
        error = self.check(member_id, generation)
        return error or (REBALANCE_IN_PROGRESS if self.state is State.PREPARING else NO_ERROR)

    def may_commit(self, member_id: str, generation: int) -> int:
        """Return Kafka's error code for a commit; a client outside any group may commit to an empty one."""
        if generation < 0 and self.state is State.EMPTY:
            return NO_ERROR
        error = self.check(member_id, generation)
        return error or (REBALANCE_IN_PROGRESS if self.state is State.COMPLETING else NO_ERROR)

    def leave(self, member_id: str) -> int:
        member = self.members.pop(member_id, None)
        if member is None:
            return UNKNOWN_MEMBER
        self._release(member, UNKNOWN_MEMBER)
        if self.members:
            self._prepare()
            self._complete_if_all_joined()
        else:
            self.generation += 1
            self.state = State.EMPTY
        return NO_ERROR

    def expire(self) -> None:
        """Drop members whose session has ended, and end a join that has taken too long."""
        now = time.monotonic()
        for member in list(self.members.values()):
            waits = any(future and not future.done() for future in (member.joining, member.syncing))
            if member.deadline < now and not waits:
                self.leave(member.member_id)
        if self.state is State.PREPARING and self.join_ends < now:
            self._complete_if_all_joined(late=True)

    def touch_all(self) -> None:
        """Start every session anew, as a broker does when it comes back."""
        for member in self.members.values():
            member.touch()
