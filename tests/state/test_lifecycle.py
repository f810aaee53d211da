"""The life cycle under random crashes: producers that send again, workers that die between any two steps.

Two workers consume two input partitions, of claims and responses, and the deferred topic; at times both hold the
same records, as after a rebalance that one of them missed. A worker takes a step of state, perhaps once more,
publishes, commits; each of these may be its last, and may come long after another worker has done all of it.
A commit counts even then: Kafka would refuse it, but nothing must rest on that. Redis takes whole batches, the
state in memory the same claims one by one: their answers must agree.
"""

import asyncio
import copy
import uuid
from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from groundwire.checks.difference import Difference, difference, overlap
from groundwire.checks.similarity import is_near
from groundwire.messages.decisions import Kind, MatchClass, Place
from groundwire.messages.identity import Subject
from groundwire.state.entries import user_digest
from groundwire.state.memory import MemoryState
from groundwire.state.model import (
    Answer,
    Ask,
    Conflict,
    Limits,
    Outcome,
    RecordOrigin,
    SubjectState,
    Waiting,
)
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.state.claims import PARTS, SCHEME, Claims, origin, stored, subject
from tests.state.conftest import start

BASE = "the ingest service retries every failed upload five times and then stops"
TEXTS = (
    BASE,
    f"{BASE} quietly",  # 12 of 13 words
    BASE.replace("retries", "never retries"),
    BASE.replace("ingest service", "service ingest"),
    "backups are written to a second region",
)
NAMES = ("a", "b", "c", "d", "e", "f")
RESPONSES = ("r", "s", "a")  # one that is called like a claim
USERS = ("ada", "bob")
DEFERRED = "deferred"
PARTITIONS = ("claims-0", "claims-1", DEFERRED)
WORKERS = (0, 1)
PATIENCE = 60.0  # seconds for an answer of Redis: a machine that is busy elsewhere is no outage


@dataclass
class InFlight:
    """What a worker has taken of a partition, up to which offset, and how far it has come."""

    partition: str
    end: int
    asks: list[Ask]
    answers: list[Answer]
    published: bool = False


class Lifecycle(RuleBasedStateMachine):
    """Producers, two workers, a reviewer, and state twice."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryState()
        self.redis = RedisState(
            connect(url, patience=PATIENCE),
            f"test-{uuid.uuid4().hex}.",
            scheme=SCHEME,
            patience=PATIENCE,
        )
        self.runner.run(start(self.redis))
        self.claims = Claims()
        self.sent: list[Ask] = []
        self.logs: dict[str, list[Ask]] = {partition: [] for partition in PARTITIONS}
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.workers: dict[int, InFlight | None] = dict.fromkeys(WORKERS)
        self.decided: dict[tuple[Subject, int], Outcome] = {}
        self.published: set[tuple[Subject, int]] = set()
        self.conflicts: set[RecordOrigin] = set()
        self.asks: dict[Subject, Ask] = {}
        self.limits = Limits()
        self.few = False

    def teardown(self) -> None:
        try:
            self.drain()
            self.check_that_every_record_ended()
        finally:
            self.runner.run(self.redis.close())
            self.runner.close()

    @initialize(
        per_user=st.integers(0, 2),
        per_tenant=st.integers(1, 3),
        total=st.integers(1, 3),
        few=st.booleans(),
    )
    def begin(self, per_user: int, per_tenant: int, total: int, few: bool) -> None:  # noqa: FBT001 - drawn
        self.limits = Limits(per_user, per_tenant, total)
        self.few = few

    # Producers

    @rule(
        name=st.sampled_from(NAMES),
        user=st.sampled_from(USERS),
        text=st.sampled_from((*TEXTS, None)),
        tier=st.sampled_from((1, 1, 2, 2, 3)),
        flags=st.fixed_dictionaries({name: st.booleans() for name in ("wait", "capped", "material")}),
        parent=st.sampled_from((None, None, *NAMES, *(f"response:{name}" for name in RESPONSES))),
        partition=st.sampled_from(PARTITIONS[:2]),
    )
    def send(self, name, user, text, tier, parent, partition, flags) -> None:
        if self.few:  # much happens to two claims, instead of little to many
            name, user, text, tier, parent = "ab"[NAMES.index(name) % 2], USERS[0], BASE, 2, None
        kind = Kind.RESPONSE if parent and parent.startswith("response:") else Kind.CLAIM
        parents = () if parent is None else (subject(parent.split(":")[-1], user=user, kind=kind),)
        ask = self.claims.ask(
            name,
            text,
            tier,
            user=user,
            parents=parents,
            fingerprint=f"{text} {tier} {parent}",
            **flags,
        )
        self.sent.append(ask)
        self.logs[partition].append(ask)

    @rule(
        name=st.sampled_from(RESPONSES),
        user=st.sampled_from(USERS),
        tier=st.sampled_from((1, 2, 2, 3)),
        queued=st.booleans(),
        partition=st.sampled_from(PARTITIONS),  # on `deferred` after an outage
    )
    def send_response(self, name, user, tier, queued, partition) -> None:
        ask = self.claims.respond(name, tier, user=user, queued=queued)
        self.sent.append(ask)
        self.logs[partition].append(ask)

    @precondition(lambda self: self.sent)
    @rule(
        data=st.data(), partition=st.sampled_from(PARTITIONS[:2]), wait=st.booleans(), same_time=st.booleans()
    )
    def send_again(self, data, partition, wait, same_time) -> None:
        ask = data.draw(st.sampled_from(self.sent))
        self.claims.offset += 1
        where = origin(self.claims.offset, timestamp=ask.origin.timestamp if same_time else None)
        payload = b'{"at":%d}' % self.claims.offset
        again = replace(ask, origin=where, wait=wait and ask.ordered, payload=payload)
        self.sent.append(again)
        self.logs[partition].append(again)

    # Workers

    @precondition(lambda self: self.behind() and self.idle())
    @rule(data=st.data(), most=st.integers(1, 4))
    def step(self, data, most) -> None:
        worker, partition = data.draw(st.sampled_from(self.idle())), data.draw(st.sampled_from(self.behind()))
        self.take(worker, partition, most)

    @precondition(lambda self: self.behind() and self.idle())
    @rule(data=st.data(), most=st.integers(1, 4))
    def settle(self, data, most) -> None:
        """Do all of it undisturbed."""
        worker, partition = data.draw(st.sampled_from(self.idle())), data.draw(st.sampled_from(self.behind()))
        self.take(worker, partition, most)
        self.send_out(worker)
        self.let_go(worker)

    @precondition(lambda self: self.unpublished())
    @rule(data=st.data())
    def step_again_before_publishing(self, data) -> None:
        batch = self.workers[data.draw(st.sampled_from(self.unpublished()))]
        batch.answers = self.ask_both(batch.asks, deferred=batch.partition == DEFERRED)

    @precondition(lambda self: self.unpublished())
    @rule(data=st.data())
    def publish(self, data) -> None:
        self.send_out(data.draw(st.sampled_from(self.unpublished())))

    @precondition(lambda self: self.uncommitted())
    @rule(data=st.data())
    def commit(self, data) -> None:
        self.let_go(data.draw(st.sampled_from(self.uncommitted())))

    @precondition(lambda self: len(self.idle()) < len(WORKERS))
    @rule(data=st.data())
    def kill(self, data) -> None:
        busy = [worker for worker in WORKERS if self.workers[worker]]
        self.workers[data.draw(st.sampled_from(busy))] = None

    @precondition(lambda self: any(self.committed.values()))
    @rule(data=st.data(), most=st.integers(1, 4))
    def ask_once_more_and_die(self, data, most) -> None:
        """A worker that stalled asks for records that others have long settled, and publishes nothing."""
        partition = data.draw(st.sampled_from([name for name in PARTITIONS if self.committed[name]]))
        end = data.draw(st.integers(1, self.committed[partition]))
        asks = self.logs[partition][max(0, end - most) : end]
        answers = self.ask_both(asks, deferred=partition == DEFERRED)
        if partition != DEFERRED:
            assert not any(isinstance(answer, Outcome) and answer.fresh for answer in answers)

    # A reviewer

    @rule(data=st.data(), approve=st.booleans())
    def review(self, data, approve) -> None:
        current = self.current()
        pending = [who for who, outcome in current.items() if outcome.state is SubjectState.PENDING]
        if not pending:
            return
        who = data.draw(st.sampled_from(sorted(pending)))
        before, ask = current[who], self.asks[who]
        approve = approve and not self.approved_duplicates(ask)
        after = replace(
            before,
            state=SubjectState.APPROVED if approve else SubjectState.BLOCKED,
            tier=1 if approve else 3,
            revision=before.revision + 1,
            first_origin=before.first_origin or before.origin,
            record=b"",
        )
        known = stored(ask, after, rejected=not approve)
        if before.dedup_status != "ok":
            known = replace(known, dedup=None)
        assert self.run(self.redis.reassert([known])) == self.run(self.memory.reassert([known])) == 1
        self.decided[who, after.revision] = after
        self.published.add((who, after.revision))

    # What must hold at any time

    @invariant()
    def counters_are_the_entries(self) -> None:
        """Places and waiting claims are counted as they stand, in both."""
        entries = self.memory._entries
        pending = [who for who, entry in entries.items() if entry.state is SubjectState.PENDING]
        waiting = [who for who, entry in entries.items() if entry.state is SubjectState.WAITING]
        expected = Counter(f"u:{user_digest(who)}" for who in pending)
        expected.update(f"t:{who.tenant_id}" for who in pending)
        expected.update({"total": len(pending), "waiting": len(waiting)})
        found = self.run(self.redis._server.call("HGETALL", self.redis._prefix + "q"))
        assert {key.decode(): int(value) for key, value in found.items()} == dict(+expected)
        assert self.run(self.memory.queue_depth()) == len(pending)
        assert self.run(self.memory.waiting_count()) == len(waiting)

    @rule(kind=st.sampled_from(Kind))
    def look_back(self, kind) -> None:
        """State gives back what was recorded with the current outcomes, and nothing of what waits."""
        names = RESPONSES if kind is Kind.RESPONSE else NAMES
        subjects = [subject(name, user=user, kind=kind) for name in names for user in USERS]
        current = self.current()
        expected = [
            current[who].payload if who in current and not self.waits(who) else None for who in subjects
        ]
        assert self.run(self.redis.payloads(subjects)) == self.run(self.memory.payloads(subjects)) == expected

    @invariant()
    def limits_hold(self) -> None:
        pending = [who for who, entry in self.memory._entries.items() if entry.state is SubjectState.PENDING]
        users = Counter((who.tenant_id, who.user_id) for who in pending)
        assert len(pending) <= min(self.limits.per_tenant, self.limits.total)
        assert all(count <= self.limits.per_user for count in users.values())

    @invariant()
    def records_behind_a_commit_change_nothing(self) -> None:
        """Whoever asks for them again may die over it: nobody reads them any more."""
        later = copy.deepcopy(self.memory)
        for partition in PARTITIONS[:2]:
            self.run(later.step(self.logs[partition][: self.committed[partition]], self.limits))
        assert later._entries == self.memory._entries

    @invariant()
    def no_two_approved_claims_are_plain_duplicates(self) -> None:
        approved = [
            who
            for who, entry in self.memory._entries.items()
            if entry.state is SubjectState.APPROVED and entry.outcome and entry.outcome.dedup_status == "ok"
        ]
        for who in approved:
            others = [other for other in approved if other != who]
            assert not set(self.approved_duplicates(self.asks[who])) & set(others)

    # Helpers

    def behind(self) -> list[str]:
        return [partition for partition, log in self.logs.items() if self.committed[partition] < len(log)]

    def idle(self) -> list[int]:
        return [worker for worker, batch in self.workers.items() if batch is None]

    def unpublished(self) -> list[int]:
        return [worker for worker, batch in self.workers.items() if batch and not batch.published]

    def uncommitted(self) -> list[int]:
        return [worker for worker, batch in self.workers.items() if batch and batch.published]

    def take(self, worker: int, partition: str, most: int) -> None:
        begin = self.committed[partition]
        asks = self.logs[partition][begin : begin + most]
        answers = self.ask_both(asks, deferred=partition == DEFERRED)
        self.workers[worker] = InFlight(partition, begin + len(asks), asks, answers)

    def send_out(self, worker: int) -> None:
        batch = self.workers[worker]
        for ask, answer in zip(batch.asks, batch.answers, strict=True):
            self.publish_one(ask, answer)
        batch.published = True

    def let_go(self, worker: int) -> None:
        batch = self.workers[worker]
        self.committed[batch.partition] = max(self.committed[batch.partition], batch.end)
        self.workers[worker] = None

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def ask_both(self, asks: list[Ask], *, deferred: bool) -> list[Answer]:
        answers = self.run(self.redis.step(asks, self.limits, deferred=deferred))
        single = [self.run(self.memory.step([ask], self.limits, deferred=deferred)) for ask in asks]
        assert answers == [answer for (answer,) in single]
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Outcome) and answer.fresh:
                self.check_fresh(ask, answer)
        last = {ask.subject: answer for ask, answer in zip(asks, answers, strict=True)}
        for ask, answer in zip(
            asks, self.run(self.redis.step(asks, self.limits, deferred=deferred)), strict=True
        ):
            if isinstance(last[ask.subject], Outcome) and isinstance(answer, Outcome):
                assert answer == replace(last[ask.subject], fresh=False)
        return answers

    def check_fresh(self, ask: Ask, outcome: Outcome) -> None:
        self.asks[ask.subject] = ask
        assert outcome.revision == 1 + max(
            (revision for who, revision in self.decided if who == ask.subject), default=0
        )
        self.decided[ask.subject, outcome.revision] = replace(outcome, fresh=False)
        if outcome.state is SubjectState.APPROVED:
            assert ask.base_tier == 1
            assert not ask.capped
            assert all(parent.state == "approved" for parent in outcome.parents)
            assert not any(match.match_class is MatchClass.REJECTED for match in outcome.matches)
        if ask.subject.kind is Kind.RESPONSE:
            in_review = outcome.state is SubjectState.REVIEW
            assert in_review == (ask.base_tier == 2 and not ask.queued)
            assert outcome.place is Place.NOT_NEEDED or ask.queued
            assert outcome.state is not SubjectState.JOINED
        if outcome.dedup_status == "ok" and self.approved_duplicates(ask, ask.dedup.material_difference):
            others = set(self.approved_duplicates(ask, ask.dedup.material_difference)) - {ask.subject}
            assert outcome.state is SubjectState.BLOCKED or not others

    def publish_one(self, ask: Ask, answer: Answer) -> None:
        match answer:
            case Outcome():
                assert self.decided[ask.subject, answer.revision] == replace(answer, fresh=False)
                self.published.add((ask.subject, answer.revision))
            case Waiting(publish=True):
                assert ask.subject.kind is Kind.CLAIM
                self.logs[DEFERRED].append(ask)
            case Conflict():
                self.conflicts.add(ask.origin)

    def waits(self, who: Subject) -> bool:
        return self.memory._entries[who].state is SubjectState.WAITING

    def current(self) -> dict[Subject, Outcome]:
        revisions = sorted(self.decided, key=lambda key: key[1])
        return {who: self.decided[who, revision] for who, revision in revisions}

    def approved_duplicates(self, ask: Ask, material: bool = True) -> list[Subject]:  # noqa: FBT001, FBT002 - a test's shorthand
        if ask.dedup is None:
            return []
        found = []
        for who, entry in self.memory._entries.items():
            other = self.asks[who].dedup if who in self.asks else None
            if entry.state is not SubjectState.APPROVED or other is None or other.scope != ask.dedup.scope:
                continue
            if not is_near(*overlap(ask.dedup.signature, other.signature), PARTS):
                continue
            plain = difference(ask.dedup.signature, other.signature) is Difference.NONE
            if who != ask.subject and (plain or not material):
                found.append(who)
        return found

    def drain(self) -> None:
        """Let workers finish what there is, undisturbed."""
        self.workers = dict.fromkeys(WORKERS)
        while behind := self.behind():
            self.take(0, behind[0], 4)
            self.send_out(0)
            self.let_go(0)

    def check_that_every_record_ended(self) -> None:
        """As a dead letter or as its subject's current Decision, which is published; nothing waits any more."""
        current = self.current()
        for ask in self.sent:
            assert ask.origin in self.conflicts or ask.subject in current
        assert self.run(self.redis.waiting_count()) == 0
        for who, outcome in current.items():
            entry = self.memory._entries[who]
            assert (entry.state, entry.revision) == (outcome.state, outcome.revision)
            assert (who, outcome.revision) in self.published


def test_nothing_is_lost_doubled_or_approved_twice_whatever_crashes(redis_server):
    run_state_machine_as_test(
        lambda: Lifecycle(redis_server.url),
        settings=settings(
            max_examples=60,
            stateful_step_count=60,
            deadline=None,
            report_multiple_bugs=False,  # a time limit that strikes while one is shrunk is no other
            suppress_health_check=list(HealthCheck),
        ),
    )
