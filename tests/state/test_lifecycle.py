"""The life cycle under random crashes: records sent again, workers that die between any two steps.

Two workers consume two partitions of claims and responses, the deferred topic, and review decisions; at times both hold
the same records, as after a rebalance that one of them missed. A worker takes a step of state, publishes, commits; each
may be its last, and may come long after another worker has done all of it. Redis takes whole batches, state in memory
the same requests one by one: their answers must agree.
"""

import asyncio
import copy
import uuid
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeVar

import pytest
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

from groundwire.checks.dedup.signature import compare, is_near
from groundwire.messages.decisions import Kind, MatchClass, Place
from groundwire.messages.identity import Subject, digest
from groundwire.state.memory import MemoryState
from groundwire.state.model import (
    Conflict,
    DedupQuery,
    Outcome,
    QueueLimits,
    RecordOrigin,
    ReviewAction,
    ReviewAnswer,
    Reviewed,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    SubjectState,
    SubjectStatus,
    Waiting,
)
from groundwire.state.server import connect
from tests.state.claims import (
    SCHEME,
    THRESHOLDS,
    A,
    B,
    Claims,
    P,
    People,
    V,
    W,
    origin,
    payloads_of,
    stored,
    subject,
)
from tests.state.conftest import PATIENCE, Overtaken, start

T = TypeVar("T")

BASE = "the ingest service retries every failed upload five times and then stops"
TEXTS = (
    BASE,
    f"{BASE} with",  # 12 of 13 words
    BASE.replace("five", "six"),
    BASE.replace("retries", "never retries"),
    BASE.replace("ingest service", "service ingest"),
    "backups are written to a second region",
)
NAMES = ("a", "b", "c", "d", "e", "f")
RESPONSES = ("r", "s", "a")  # one has the name of a claim
USERS = ("ada", "bob")
DEFERRED, REVIEWS = "deferred", "review-decisions"
INPUTS = ("claims-0", "claims-1")
PARTITIONS = (*INPUTS, DEFERRED, REVIEWS)
APPROVING = {ReviewAction.APPROVE, ReviewAction.EDIT}
REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}
WORKERS = (0, 1)


@dataclass
class InFlight:
    """A batch of a worker: its records up to an offset, and how far it has come."""

    partition: str
    end: int
    asks: list
    answers: list
    published: bool = False


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Return the answer of state in memory, which waits for nothing."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class Lifecycle(RuleBasedStateMachine):
    """Producers, two workers, reviewers, and two states."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.memory = MemoryState()
        connection = connect(url, patience=PATIENCE)
        self.redis = Overtaken(
            connection, f"test-{uuid.uuid4().hex}.", scheme=SCHEME, partitions=1, patience=PATIENCE
        )
        self.run(start(self.redis))
        self.claims = Claims()
        self.people = People(self.claims)
        self.sent: list[StepRequest] = []
        self.logs: dict[str, list] = {partition: [] for partition in PARTITIONS}
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.workers: dict[int, InFlight | None] = dict.fromkeys(WORKERS)
        self.decided: dict[tuple[Subject, int], Outcome] = {}
        self.published: set[tuple[Subject, int]] = set()
        self.orphans: set[tuple[Subject, int]] = set()  # superseded before they were published
        self.conflicts: set[RecordOrigin] = set()
        self.asks: dict[Subject, StepRequest] = {}
        self.queries: dict[tuple[Subject, int], DedupQuery | None] = {}  # the text a revision is found by
        self.rejected: set[tuple[Subject, int]] = set()
        self.earlier: list[StepAnswer] = []  # to what another worker overtook
        self.limits, self.few = QueueLimits(), False

    def teardown(self) -> None:
        try:
            self.workers = dict.fromkeys(WORKERS)
            while behind := self.behind():
                self.finish(behind[0])
            self.check_that_every_record_ended()
            self.check_that_committed_records_change_nothing()
            self.check_that_no_two_approved_claims_are_duplicates()
            self.check_that_a_rebuild_finds_the_same()
        finally:
            self.run(self.redis.close())
            self.runner.close()

    @initialize(
        per_user=st.integers(0, 2),
        per_tenant=st.integers(1, 3),
        tenant_bytes=st.sampled_from([0, 50, 500, 10**6]),
        total=st.integers(1, 3),
        reserved=st.integers(0, 3),
        few=st.booleans(),
    )
    def begin(self, per_user, per_tenant, total, reserved, tenant_bytes, few) -> None:
        self.limits = QueueLimits(per_user, per_tenant, total, tenant_bytes, reserved)
        self.few = few

    @rule(
        name=st.sampled_from(NAMES),
        user=st.sampled_from(USERS),
        text=st.sampled_from((*TEXTS, None)),
        tier=st.sampled_from((1, 1, 2, 2, 2, 3)),
        flags=st.fixed_dictionaries({name: st.booleans() for name in ("wait", "capped", "material")}),
        parent=st.sampled_from((None, None, *NAMES, *(f"response:{name}" for name in RESPONSES))),
        partition=st.sampled_from(INPUTS),
        at_once=st.booleans(),
    )
    def send(self, name, user, text, tier, parent, partition, flags, at_once) -> None:
        if self.few:  # much happens to two claims, instead of little to many
            name, user, text, tier, parent = "ab"[NAMES.index(name) % 2], USERS[0], BASE, 2, None
        kind = Kind.RESPONSE if parent and parent.startswith("response:") else Kind.CLAIM
        parents = () if parent is None else (subject(parent.split(":")[-1], user=user, kind=kind),)
        decisive = f"{text} {tier} {parent}"
        ask = self.claims.ask(name, text, tier, user=user, parents=parents, fingerprint=decisive, **flags)
        self.sent.append(ask)
        self.logs[partition].append(ask)
        if at_once:
            self.finish(partition)

    @rule(
        name=st.sampled_from(RESPONSES),
        user=st.sampled_from(USERS),
        tier=st.sampled_from((1, 2, 2, 3)),
        queued=st.booleans(),
        partition=st.sampled_from((*INPUTS, DEFERRED)),  # on `deferred` after an outage
    )
    def send_response(self, name, user, tier, queued, partition) -> None:
        ask = self.claims.respond(name, tier, user=user, queued=queued)
        self.sent.append(ask)
        self.logs[partition].append(ask)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), partition=st.sampled_from(INPUTS), wait=st.booleans(), same_time=st.booleans())
    def send_again(self, data, partition, wait, same_time) -> None:
        ask = data.draw(st.sampled_from(self.sent))
        self.claims.offset += 1
        where = origin(self.claims.offset, timestamp=ask.origin.timestamp if same_time else None)
        payload = b'{"at":%d}' % self.claims.offset
        self.sent.append(replace(ask, origin=where, wait=wait and ask.ordered, payload=payload))
        self.logs[partition].append(self.sent[-1])

    @precondition(lambda self: self.behind() and self.idle())
    @rule(data=st.data(), most=st.integers(1, 4), undisturbed=st.booleans())
    def step(self, data, most, undisturbed) -> None:
        worker, partition = data.draw(st.sampled_from(self.idle())), data.draw(st.sampled_from(self.behind()))
        self.take(worker, partition, most)
        if undisturbed:
            self.publish_batch(worker)
            self.commit_batch(worker)

    @precondition(lambda self: len(self.idle()) == len(WORKERS) and len(self.behind()) > 1)
    @rule(swapped=st.booleans(), most=st.integers(1, 4))
    def step_while_another_decides(self, swapped, most) -> None:
        """Both read before either writes; who writes first has decided first."""
        mine, other = sorted(self.behind()[:2], reverse=swapped)
        asks = self.logs[other][self.committed[other] :][:most]
        mixed = REVIEWS in (mine, other) or self.run(self.redis.waiting_count())
        if mixed or any(ask.wait for ask in asks):
            return
        answers: list[StepAnswer] = []

        async def overtake() -> None:
            earlier = copy.deepcopy(self.memory)
            for ask in self.logs[mine][self.committed[mine] :][:most]:
                self.earlier += await earlier.step([ask], self.limits, deferred=mine == DEFERRED)
            answers.extend(await self.redis.step(asks, self.limits, deferred=other == DEFERRED))
            for ask, answer in zip(asks, answers, strict=True):
                assert await self.memory.step([ask], self.limits, deferred=other == DEFERRED) == [answer]
                if isinstance(answer, Outcome) and answer.fresh:
                    self.check_fresh(ask, answer)

        self.redis.overtake = overtake
        self.take(WORKERS[0], mine, most)
        self.redis.overtake = None
        if answers:
            end = self.committed[other] + len(asks)
            self.workers[WORKERS[1]] = InFlight(other, end, asks, answers)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data())
    def step_again_before_publishing(self, data) -> None:
        batch = self.workers[data.draw(st.sampled_from(self.in_flight()))]
        batch.answers = self.ask(batch.partition, batch.asks)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data())
    def publish(self, data) -> None:
        self.publish_batch(data.draw(st.sampled_from(self.in_flight())))

    @precondition(lambda self: self.in_flight(published=True))
    @rule(data=st.data())
    def commit(self, data) -> None:
        self.commit_batch(data.draw(st.sampled_from(self.in_flight(published=True))))

    @precondition(lambda self: len(self.idle()) < len(WORKERS))
    @rule(data=st.data())
    def kill(self, data) -> None:
        self.workers[data.draw(st.sampled_from(self.in_flight() + self.in_flight(published=True)))] = None

    @precondition(lambda self: any(self.committed.values()))
    @rule(data=st.data(), most=st.integers(1, 4))
    def ask_once_more_and_die(self, data, most) -> None:
        """A stalled worker asks for records that others have long committed, and publishes nothing."""
        partition = data.draw(st.sampled_from([name for name in PARTITIONS if self.committed[name]]))
        end = data.draw(st.integers(1, self.committed[partition]))
        before = dict(self.decided)
        self.ask(partition, self.logs[partition][max(0, end - most) : end])
        if partition != DEFERRED:
            assert self.decided == before
        self.orphans |= self.decided.keys() - before.keys()

    @precondition(lambda self: self.asks)
    @rule(
        data=st.data(),
        aim=st.sampled_from((P, P, P, A, B, None)),
        action=st.sampled_from((*ReviewAction, ReviewAction.APPROVE, ReviewAction.EDIT)),
        aside=st.sampled_from((0, 0, 0, 0, 1, -1)),
        text=st.sampled_from((*TEXTS, "a text of its own")),
        flags=st.sampled_from(("", "", "", "", "", "", "", "expired", "dedup_failed", "refused")),
        at_once=st.sampled_from((True, True, False)),
    )
    def decide(self, data, aim, action, aside, text, flags, at_once) -> None:
        """A person decides on a subject at its revision, or at one that is not current."""
        current = self.current()
        aimed = [who for who, outcome in current.items() if outcome.state is aim] or list(current)
        who = data.draw(st.sampled_from(sorted(aimed)))
        action = {A: ReviewAction.RETRACT, B: ReviewAction.OVERRULE}.get(aim, action)
        ask, edited = self.asks[who], action is ReviewAction.EDIT and self.asks[who].dedup is not None
        changes = {flags: "unauthorized" if flags == "refused" else True} if flags else {}
        changes |= {"record": b"kept"} if action is ReviewAction.OVERRULE else {}
        revision = current[who].revision + aside
        act = self.people.act(action, ask, revision=revision, text=text if edited else None, **changes)
        self.logs[REVIEWS].append(replace(act, decisive=digest(action, text if edited else "")))
        if at_once:
            self.finish(REVIEWS)

    @precondition(lambda self: self.logs[REVIEWS])
    @rule(
        data=st.data(),
        changed=st.sampled_from(("", "", "subject", "action", "expected_revision", "decisive")),
        at_once=st.booleans(),
    )
    def decide_again(self, data, changed, at_once) -> None:
        """The same action id once more: redelivered, or used for something else."""
        act = data.draw(st.sampled_from(self.logs[REVIEWS]))
        self.claims.offset += 1
        changes = {
            "": {"payload": b'{"at":%d}' % self.claims.offset},
            "subject": {"subject": data.draw(st.sampled_from(sorted(self.asks)))},
            "action": {"action": data.draw(st.sampled_from(ReviewAction))},
            "expected_revision": {"expected_revision": act.expected_revision + 1},
            "decisive": {"decisive": b"another text"},
        }[changed]
        if "subject" in changes:
            changes["parents"] = self.asks[changes["subject"]].parents
        where = origin(self.claims.offset, topic=act.origin.topic)
        self.logs[REVIEWS].append(replace(act, origin=where, **changes))
        if at_once:
            self.finish(REVIEWS)

    @invariant()
    def counters_are_the_subjects_and_within_limits(self) -> None:
        current = {who: status for who in self.subjects() if (status := self.standing(who))}
        pending = [who for who, status in current.items() if status.state is P]
        waiting = sum(status.state is W for status in current.values())
        for state in (self.redis, self.memory):
            counts = self.run(state.queue_depth()), self.run(state.waiting_count())
            assert counts == (len(pending), waiting)
        size = sum(len(self.decided[who, current[who].revision].record) for who in pending)
        places, sizes = self.run(self.redis.tenants_use())
        assert (places.get(b"acme", 0), sizes.get(b"acme", 0)) == (len(pending), size)
        users = Counter(who.user_id for who in pending)
        assert len(pending) <= min(self.limits.per_tenant, max(self.limits.total, self.limits.reserved))
        assert all(count <= self.limits.per_user for count in users.values())
        assert size <= self.limits.tenant_bytes
        for who, status in current.items():
            revisions = {revision for other, revision in self.decided if other == who}
            assert revisions == set(range(1, status.revision + 1))

    def check_that_every_record_ended(self) -> None:
        """Each ends as a dead letter or as its subject's current Decision, which is published; nothing waits."""
        current = self.current()
        assert all(ask.origin in self.conflicts or ask.subject in current for ask in self.sent)
        assert self.run(self.redis.waiting_count()) == 0
        for who, outcome in current.items():
            assert self.standing(who) == SubjectStatus(outcome.state, outcome.revision)
            assert (who, outcome.revision) in self.published
        assert self.decided.keys() <= self.published | self.orphans
        subjects = self.subjects()
        expected = [current[who].payload if who in current else None for who in subjects]
        assert (
            self.run(payloads_of(self.redis, subjects))
            == self.run(payloads_of(self.memory, subjects))
            == expected
        )

    def check_that_committed_records_change_nothing(self) -> None:
        later = copy.deepcopy(self.memory)
        for partition in INPUTS:
            self.run(later.step(self.logs[partition][: self.committed[partition]], self.limits))
        self.run(later.review(self.logs[REVIEWS][: self.committed[REVIEWS]], self.limits))
        for name in ("statuses", "held"):
            found = [self.run(getattr(state, name)(self.subjects())) for state in (self.memory, later)]
            assert found[0] == found[1]

    def check_that_no_two_approved_claims_are_duplicates(self) -> None:
        approved = [who for who, one in self.current().items() if one.state is A and one.dedup_status == "ok"]
        finds = {}
        for who in approved:
            query = self.queries[who, self.current()[who].revision]
            finds[who] = set() if query is None else set(self.approved_duplicates(who, query))
        for who, other in combinations(approved, 2):
            # a claim whose rules see no difference may be approved after one whose rules saw one
            assert other not in finds[who] or who not in finds[other]

    def check_that_a_rebuild_finds_the_same(self) -> None:
        """Index, places and parents, from all revisions in an order of their own."""
        keys = sorted(self.decided, key=lambda key: (key[0].digest, -key[1]))
        known = [self.known(*key) for key in keys]

        async def rebuild() -> None:
            async with self.redis.rebuilding() as rebuilding:
                await rebuilding.clear()
                await rebuilding.load(known[::2] + known[1::2])
                await rebuilding.start_epoch("rebuilt")
            await self.redis.adopt_epoch()

        self.run(rebuild())
        current = self.current()
        asks = [self.asks[who] for who in current]
        assert self.run(self.redis.step(asks, self.limits)) == list(current.values())
        texts = [(n, text, user) for n, text in enumerate(TEXTS) for user in USERS]
        probes = [self.claims.ask(f"probe {n}", text, 3, user=user) for n, text, user in texts]
        ours, theirs = [
            self.run(s.step(probes, self.limits, deferred=True)) for s in (self.redis, self.memory)
        ]
        assert ours == theirs
        approved = [(who, outcome.revision) for who, outcome in current.items() if outcome.state is A]
        acts = [self.people.act("retract", self.asks[who], revision=number) for who, number in approved]
        ours, theirs = [self.run(state.review(acts, self.limits)) for state in (self.redis, self.memory)]
        assert ours == theirs, "the same claims rest on each"

    def subjects(self) -> list[Subject]:
        return sorted({ask.subject for ask in self.sent})

    def standing(self, who: Subject) -> SubjectStatus | None:
        (mine,), (theirs,) = [self.run(state.statuses([who])) for state in (self.memory, self.redis)]
        assert mine == theirs
        return mine

    def behind(self) -> list[str]:
        return [partition for partition, log in self.logs.items() if self.committed[partition] < len(log)]

    def idle(self) -> list[int]:
        return [worker for worker, batch in self.workers.items() if batch is None]

    def in_flight(self, *, published: bool = False) -> list[int]:
        return [worker for worker, batch in self.workers.items() if batch and batch.published is published]

    def take(self, worker: int, partition: str, most: int) -> None:
        begin = self.committed[partition]
        asks = self.logs[partition][begin : begin + most]
        self.workers[worker] = InFlight(partition, begin + len(asks), asks, self.ask(partition, asks))

    def publish_batch(self, worker: int) -> None:
        batch = self.workers[worker]
        for ask, answer in zip(batch.asks, batch.answers, strict=True):
            self.publish_one(ask, answer)
        batch.published = True

    def commit_batch(self, worker: int) -> None:
        """Commit, even where another worker is further: nothing may rest on Kafka refusing that."""
        batch = self.workers[worker]
        self.committed[batch.partition] = max(self.committed[batch.partition], batch.end)
        self.workers[worker] = None

    def finish(self, partition: str) -> None:
        """Let a worker that is idle process what there is."""
        while self.idle() and partition in self.behind():
            worker = self.idle()[0]
            self.take(worker, partition, 3)
            self.publish_batch(worker)
            self.commit_batch(worker)

    def ask(self, partition: str, asks: list) -> list:
        if partition == REVIEWS:
            return self.review(asks)
        return self.decide_both(asks, deferred=partition == DEFERRED)

    def review(self, asks: list[ReviewRequest]) -> list[ReviewAnswer]:
        answers = self.run(self.redis.review(asks, self.limits))
        for ask, answer in zip(asks, answers, strict=True):
            before = self.current().get(ask.subject)
            duplicates = self.approved_duplicates(ask.subject, ask.dedup) if ask.dedup else []
            assert self.run(self.memory.review([ask], self.limits)) == [answer]
            if isinstance(answer, Reviewed):
                if answer.fresh:
                    self.check_reviewed(ask, answer.outcome, before, duplicates)
                assert answer.outcome == self.decided[ask.subject, answer.revision]
        assert self.run(self.redis.review(asks, self.limits)) == answers
        return answers

    def check_reviewed(self, ask: ReviewRequest, outcome: Outcome, before: Outcome, duplicates: list) -> None:
        who, revision = ask.subject, outcome.revision
        assert revision == before.revision + 1
        blocked = ask.action not in APPROVING or ask.expired or (duplicates and not ask.dedup_failed)
        found = outcome.state, outcome.tier, outcome.origin, outcome.payload, outcome.record, outcome.place
        overruled = ask.action is ReviewAction.OVERRULE
        state, tier = (P, 2) if overruled else (B, 3) if blocked else (A, 1)
        place = Place.FREE if overruled else Place.NOT_NEEDED
        assert found == (state, tier, ask.origin, ask.payload, ask.record, place)
        assert outcome.first_origin == (before.first_origin or before.origin)
        edited = ask.action is ReviewAction.EDIT
        query = ask.dedup if edited or overruled else self.queries[who, before.revision]
        query = None if edited and ask.dedup_failed else query
        if ask.action in REJECTING and query:
            self.rejected.add((who, revision))
        kept = overruled or not blocked or ask.action in REJECTING
        self.queries[who, revision] = query if kept else None
        self.decided[who, revision] = outcome
        if (who, before.revision) not in self.published and not before.origin.topic.endswith(REVIEWS):
            self.orphans.add((who, before.revision))  # acted on before it was published

    def decide_both(self, asks: list[StepRequest], *, deferred: bool) -> list[StepAnswer]:
        answers = self.run(self.redis.step(asks, self.limits, deferred=deferred))
        alone = [self.run(self.memory.step([ask], self.limits, deferred=deferred))[0] for ask in asks]
        earlier, self.earlier = self.earlier or alone, []
        for answer, after, before in zip(answers, alone, earlier, strict=True):
            repeated = not (isinstance(answer, Outcome) and answer.fresh)
            assert answer == after or (repeated and answer == before)  # read before the other wrote
        current: dict[Subject, Outcome] = {}  # an older outcome may be repeated after the current one
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Outcome):
                if answer.fresh:
                    self.check_fresh(ask, answer)
                known = current.get(ask.subject, answer)
                current[ask.subject] = max(answer, known, key=lambda each: each.revision)
        again = self.run(self.redis.step(asks, self.limits, deferred=deferred))
        for ask, first, after, answer in zip(asks, answers, alone, again, strict=True):
            own = isinstance(first, Outcome) and first.origin == ask.origin
            expected = first if own else current.get(ask.subject)
            if isinstance(expected, Outcome) and isinstance(answer, Outcome) and first == after:
                assert answer == replace(expected, fresh=False)
        return answers

    def check_fresh(self, ask: StepRequest, outcome: Outcome) -> None:
        self.asks[ask.subject] = ask
        revisions = [revision for who, revision in self.decided if who == ask.subject]
        assert outcome.revision == 1 + max(revisions, default=0)
        self.decided[ask.subject, outcome.revision] = replace(outcome, fresh=False)
        self.queries[ask.subject, outcome.revision] = ask.dedup if outcome.state in {A, P} else None
        if outcome.state is A:
            assert ask.base_tier == 1
            assert not ask.capped
            assert all(parent.state == "approved" for parent in outcome.parents)
            assert not any(match.match_class is MatchClass.REJECTED for match in outcome.matches)
        if ask.subject.kind is Kind.RESPONSE:
            assert (outcome.state is V) == (ask.base_tier == 2 and not ask.queued)
            assert outcome.place is Place.NOT_NEEDED or ask.queued
            assert outcome.state is not SubjectState.JOINED
        if outcome.dedup_status == "ok" and self.approved_duplicates(ask.subject, ask.dedup):
            assert outcome.state is B

    def publish_one(self, ask: StepRequest | ReviewRequest, answer: StepAnswer | ReviewAnswer) -> None:
        match answer:
            case Reviewed() | Outcome():
                outcome = answer.outcome if isinstance(answer, Reviewed) else replace(answer, fresh=False)
                assert self.decided[ask.subject, answer.revision] == outcome
                self.published.add((ask.subject, answer.revision))
            case Waiting(publish=True):
                assert ask.subject.kind is Kind.CLAIM
                self.logs[DEFERRED].append(ask)
            case Conflict():
                self.conflicts.add(ask.origin)

    def current(self) -> dict[Subject, Outcome]:
        revisions = sorted(self.decided, key=lambda key: key[1])
        return {who: self.decided[who, revision] for who, revision in revisions}

    def approved_duplicates(self, who: Subject, query: DedupQuery) -> list[Subject]:
        """Name the approved claims that say the same, whether they can be found or not."""
        found = []
        for other, outcome in self.current().items():
            theirs = self.queries.get((other, outcome.revision))
            if outcome.state is not A or theirs is None or theirs.scope != query.scope:
                continue
            match = compare(query.signature, theirs.signature, THRESHOLDS)
            (status,) = at_once(self.memory.statuses([other]))
            if other.subject_id == who.subject_id or not match or (status and status.state is W):
                continue
            near = is_near(match.inter, match.union, THRESHOLDS.duplicate)
            if near and (match.difference == "none" or not query.rules.material_difference):
                found.append(other)
        return found

    def known(self, who: Subject, revision: int):
        outcome, leader = self.decided[who, revision], None
        if outcome.state is SubjectState.JOINED:
            pending = [match for match in outcome.matches if match.match_class is MatchClass.PENDING]
            leader = subject(pending[0].subject_id, user=who.user_id)
        parents = [parent for _, parent in self.asks[who].parents]
        ask = replace(self.asks[who], dedup=self.queries[who, revision])
        rejected = (who, revision) in self.rejected
        return stored(ask, outcome, rejected=rejected, joined_to=leader, parents=parents)


@pytest.mark.parametrize(("examples", "steps"), [(3, 25), pytest.param(45, 60, marks=pytest.mark.slow)])
def test_nothing_is_lost_doubled_or_approved_twice_whatever_crashes(redis_server, examples, steps):
    run_state_machine_as_test(
        lambda: Lifecycle(redis_server.url),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,  # a time limit that strikes while one is shrunk is no other
            suppress_health_check=list(HealthCheck),
        ),
    )
