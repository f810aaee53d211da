"""The life cycle under random crashes: records sent again, workers that die between any two steps.

Two workers consume two partitions of claims and responses, the deferred topic, and review decisions; at times both hold
the same records, as after a rebalance that one of them missed. A worker takes a step of state, publishes, commits; each
may be its last, and may come long after another worker has done all of it. Redis takes whole batches, state in memory
the same requests one by one: their answers must agree.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

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
from groundwire.state.redis import RedisState
from tests.state.claims import THRESHOLDS, A, B, Claims, P, People, V, W, origin, stored, subject
from tests.state.conftest import start, state_at

BASE = "the ingest service retries every failed upload five times and then stops"
TEXTS = (
    BASE,
    f"{BASE} with",  # 12 of 13 words
    BASE.replace("five", "six"),
    BASE.replace("retries", "never retries"),
    BASE.replace("ingest service", "service ingest"),
    "backups are written to a second region",
)
USERS = ("ada", "bob")
DEFERRED, REVIEWS = "deferred", "review-decisions"
INPUTS = ("claims-0", "claims-1")
PARTITIONS = (*INPUTS, DEFERRED, REVIEWS)
REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}


@dataclass
class InFlight:
    """A batch of a worker: its records up to an offset, and how far it has come."""

    partition: str
    end: int
    asks: list
    answers: list
    published: bool = False


class Lifecycle:
    """Producers, two workers, reviewers, and two states."""

    def __init__(self, redis: RedisState, rng: random.Random) -> None:
        self.redis, self.memory, self.rng = redis, MemoryState(), rng
        self.claims = Claims()
        self.people = People(self.claims)
        self.sent: list[StepRequest] = []
        self.logs: dict[str, list] = {partition: [] for partition in PARTITIONS}
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.workers: list[InFlight | None] = [None, None]
        self.decided: dict[tuple[Subject, int], Outcome] = {}
        self.published: set[tuple[Subject, int]] = set()
        self.orphans: set[tuple[Subject, int]] = set()  # superseded before they were published
        self.conflicts: set[RecordOrigin] = set()
        self.asks: dict[Subject, StepRequest] = {}
        self.queries: dict[tuple[Subject, int], DedupQuery | None] = {}  # the text a revision is found by
        self.rejected: set[tuple[Subject, int]] = set()
        sizes = rng.choice([0, 50, 500, 10**6])
        self.limits = QueueLimits(rng.randint(0, 2), rng.randint(1, 3), rng.randint(1, 3), sizes)
        self.few = rng.random() < 0.5  # much happens to two claims, instead of little to many

    async def walk(self, steps: int) -> None:
        producers = [self.send, self.send, self.send_response, self.send_again]
        workers = [
            self.step,
            self.step,
            self.step_again,
            self.publish,
            self.commit,
            self.kill,
            self.ask_and_die,
        ]
        for _ in range(steps):
            await self.rng.choice([*producers, *workers, self.decide, self.decide, self.decide_again])()
            await self.check_counters()
        self.workers = [None, None]
        while behind := self.behind():
            await self.finish(behind[0])
        await self.check_that_every_record_ended()
        await self.check_that_a_rebuild_finds_the_same()

    async def put(self, partition: str, *, ask: StepRequest) -> None:
        self.sent.append(ask)
        self.logs[partition].append(ask)
        if self.rng.random() < 0.5:
            await self.finish(partition)

    async def send(self) -> None:
        pick, names = self.rng.choice, "ab" if self.few else "abcdef"
        user, text, tier, parents = USERS[0], BASE, 2, []
        if not self.few:
            user, text, tier = pick(USERS), pick((*TEXTS, None)), pick((1, 1, 2, 2, 2, 3))
            kind = pick([Kind.CLAIM, Kind.CLAIM, Kind.RESPONSE])
            parent = subject(pick("abcdef" if kind is Kind.CLAIM else "rsa"), user=user, kind=kind)
            parents = [parent] * pick((0, 1))
        flags = {name: pick((True, False)) for name in ("wait", "capped", "material")}
        facts = {"parents": parents, "fingerprint": f"{text} {tier} {parents}", "user": user}
        await self.put(pick(INPUTS), ask=self.claims.ask(pick(names), text, tier, **facts, **flags))

    async def send_response(self) -> None:
        pick = self.rng.choice  # one has the name of a claim; on `deferred` after an outage
        facts = {"user": pick(USERS), "queued": pick((True, False))}
        ask = self.claims.respond(pick("rsa"), pick((1, 2, 2, 3)), **facts)
        await self.put(pick((*INPUTS, DEFERRED)), ask=ask)

    async def send_again(self) -> None:
        if self.sent:
            ask = self.rng.choice(self.sent)
            self.claims.offset += 1
            time = ask.origin.timestamp if self.rng.random() < 0.5 else None
            changes = {"origin": origin(self.claims.offset, timestamp=time)}
            changes["payload"] = b'{"at":%d}' % self.claims.offset
            again = replace(ask, wait=self.rng.random() < 0.5 and ask.ordered, **changes)
            await self.put(self.rng.choice(INPUTS), ask=again)

    async def step(self) -> None:
        if self.behind() and self.idle():
            worker = self.rng.choice(self.idle())
            await self.take(worker, self.rng.choice(self.behind()), self.rng.randint(1, 4))
            if self.rng.random() < 0.5:
                self.publish_batch(worker)
                self.commit_batch(worker)

    async def step_again(self) -> None:
        for batch in self.workers:
            if batch and not batch.published:
                batch.answers = await self.ask(batch.partition, batch.asks)

    async def publish(self) -> None:
        if waiting := [n for n, batch in enumerate(self.workers) if batch and not batch.published]:
            self.publish_batch(self.rng.choice(waiting))

    async def commit(self) -> None:
        if waiting := [n for n, batch in enumerate(self.workers) if batch and batch.published]:
            self.commit_batch(self.rng.choice(waiting))

    async def kill(self) -> None:
        self.workers[self.rng.choice((0, 1))] = None

    async def ask_and_die(self) -> None:
        """A stalled worker asks for records that others have long committed, and publishes nothing."""
        if behind := [partition for partition, end in self.committed.items() if end]:
            partition = self.rng.choice(behind)
            end, before = self.rng.randint(1, self.committed[partition]), dict(self.decided)
            await self.ask(partition, self.logs[partition][max(0, end - self.rng.randint(1, 4)) : end])
            if partition != DEFERRED:
                assert self.decided == before
            self.orphans |= self.decided.keys() - before.keys()

    async def decide(self) -> None:
        """A person decides on a subject at its revision, or at one that is not current."""
        current, pick = self.current(), self.rng.choice
        if not current:
            return
        aim = pick((P, P, P, A, None))
        who = pick([who for who, outcome in current.items() if outcome.state is aim] or list(current))
        action = pick((*ReviewAction, ReviewAction.APPROVE, ReviewAction.EDIT))
        action = ReviewAction.RETRACT if aim is A else action
        ask, text = self.asks[who], pick((*TEXTS, "a text of its own"))
        text = text if action is ReviewAction.EDIT and ask.dedup is not None else None
        flags = [{}] * 7 + [{"expired": True}, {"dedup_failed": True}, {"refused": "unauthorized"}]
        revision = current[who].revision + pick((0, 0, 0, 0, 1, -1))
        act = self.people.act(action, ask, revision=revision, text=text, **pick(flags))
        self.logs[REVIEWS].append(replace(act, decisive=digest(action, text or "")))
        if self.rng.random() < 0.7:
            await self.finish(REVIEWS)

    async def decide_again(self) -> None:
        """The same action id once more: redelivered, or used for something else."""
        if not self.logs[REVIEWS]:
            return
        act, who = self.rng.choice(self.logs[REVIEWS]), self.rng.choice(list(self.asks))
        self.claims.offset += 1
        redelivered = {"payload": b'{"at":%d}' % self.claims.offset}
        changes = [redelivered, redelivered, {"subject": who, "parents": self.asks[who].parents}]
        changes += [{"action": self.rng.choice(list(ReviewAction))}, {"decisive": b"another text"}]
        changes.append({"expected_revision": act.expected_revision + 1})
        where = origin(self.claims.offset, topic=act.origin.topic)
        self.logs[REVIEWS].append(replace(act, origin=where, **self.rng.choice(changes)))
        if self.rng.random() < 0.5:
            await self.finish(REVIEWS)

    async def check_counters(self) -> None:
        """They are those of the subjects, and within the limits."""
        subjects = self.subjects()
        found = [await state.statuses(subjects) for state in (self.redis, self.memory)]
        assert found[0] == found[1]
        current = {who: status for who, status in zip(subjects, found[0], strict=True) if status}
        pending = [who for who, status in current.items() if status.state is P]
        waiting = sum(status.state is W for status in current.values())
        for state in (self.redis, self.memory):
            assert (await state.queue_depth(), await state.waiting_count()) == (len(pending), waiting)
        size = sum(len(self.decided[who, current[who].revision].record) for who in pending)
        places, sizes = await self.redis.tenants_use()
        assert (places.get(b"acme", 0), sizes.get(b"acme", 0)) == (len(pending), size)
        users = Counter(who.user_id for who in pending)
        assert len(pending) <= min(self.limits.per_tenant, self.limits.total)
        assert all(count <= self.limits.per_user for count in users.values())
        assert size <= self.limits.tenant_bytes
        for who, status in current.items():
            revisions = {revision for other, revision in self.decided if other == who}
            assert revisions == set(range(1, status.revision + 1))

    async def check_that_every_record_ended(self) -> None:
        """Each ends as a dead letter or as its subject's current Decision, which is published; nothing waits."""
        current = self.current()
        assert all(ask.origin in self.conflicts or ask.subject in current for ask in self.sent)
        assert await self.redis.waiting_count() == 0
        found = await self.redis.statuses(list(current))
        assert found == [SubjectStatus(outcome.state, outcome.revision) for outcome in current.values()]
        assert {(who, outcome.revision) for who, outcome in current.items()} <= self.published
        assert self.decided.keys() <= self.published | self.orphans
        payloads = [outcome.payload for outcome in current.values()]
        for state in (self.redis, self.memory):
            assert await state.payloads(list(current)) == payloads

    async def check_that_a_rebuild_finds_the_same(self) -> None:
        """Index, places and parents, from all revisions in an order of their own."""
        known = []
        for who, revision in sorted(self.decided, key=lambda key: (key[0].digest, -key[1])):
            outcome, leader = self.decided[who, revision], None
            if outcome.state is SubjectState.JOINED:
                pending = [match for match in outcome.matches if match.match_class is MatchClass.PENDING]
                leader = subject(pending[0].subject_id, user=who.user_id)
            ask = replace(self.asks[who], dedup=self.queries[who, revision])
            facts = {"rejected": (who, revision) in self.rejected, "joined_to": leader}
            known.append(stored(ask, outcome, parents=[parent for _, parent in ask.parents], **facts))
        async with self.redis.rebuilding() as rebuilding:
            await rebuilding.clear()
            await rebuilding.load(known[::2] + known[1::2])
            await rebuilding.start_epoch("rebuilt")
        await self.redis.adopt_epoch()
        current = self.current()
        asks = [self.asks[who] for who in current]
        assert await self.redis.step(asks, self.limits) == list(current.values())
        texts = [(n, text, user) for n, text in enumerate(TEXTS) for user in USERS]
        probes = [self.claims.ask(f"probe {n}", text, 3, user=user) for n, text, user in texts]
        approved = [(who, outcome.revision) for who, outcome in current.items() if outcome.state is A]
        acts = [self.people.act("retract", self.asks[who], revision=number) for who, number in approved]
        ours, theirs = [
            [await state.step(probes, self.limits, deferred=True), await state.review(acts)]
            for state in (self.redis, self.memory)
        ]
        assert ours == theirs, "the same is found, and the same claims rest on each"

    def subjects(self) -> list[Subject]:
        return sorted({ask.subject for ask in self.sent})

    def behind(self) -> list[str]:
        return [partition for partition, log in self.logs.items() if self.committed[partition] < len(log)]

    def idle(self) -> list[int]:
        return [worker for worker, batch in enumerate(self.workers) if batch is None]

    async def take(self, worker: int, partition: str, most: int) -> None:
        begin = self.committed[partition]
        asks = self.logs[partition][begin : begin + most]
        self.workers[worker] = InFlight(partition, begin + len(asks), asks, await self.ask(partition, asks))

    def publish_batch(self, worker: int) -> None:
        batch = self.workers[worker]
        for ask, answer in zip(batch.asks, batch.answers, strict=True):
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
        batch.published = True

    def commit_batch(self, worker: int) -> None:
        """Commit, even where another worker is further: nothing may rest on Kafka refusing that."""
        batch = self.workers[worker]
        self.committed[batch.partition] = max(self.committed[batch.partition], batch.end)
        self.workers[worker] = None

    async def finish(self, partition: str) -> None:
        """Let a worker that is idle process what there is."""
        while self.idle() and partition in self.behind():
            worker = self.idle()[0]
            await self.take(worker, partition, 3)
            self.publish_batch(worker)
            self.commit_batch(worker)

    async def ask(self, partition: str, asks: list) -> list:
        if partition == REVIEWS:
            return await self.review(asks)
        return await self.decide_both(asks, deferred=partition == DEFERRED)

    async def review(self, asks: list[ReviewRequest]) -> list[ReviewAnswer]:
        answers = await self.redis.review(asks)
        for ask, answer in zip(asks, answers, strict=True):
            before = self.current().get(ask.subject)
            duplicates = await self.has_approved_duplicate(ask.subject, ask.dedup)
            assert await self.memory.review([ask]) == [answer]
            if isinstance(answer, Reviewed):
                if answer.fresh:
                    self.check_reviewed(ask, answer.outcome, before, duplicates)
                assert answer.outcome == self.decided[ask.subject, answer.revision]
        assert await self.redis.review(asks) == answers
        return answers

    def check_reviewed(self, ask: ReviewRequest, outcome: Outcome, before: Outcome, duplicates: bool) -> None:  # noqa: FBT001
        who, revision, edited = ask.subject, outcome.revision, ask.action is ReviewAction.EDIT
        assert revision == before.revision + 1
        approving = ask.action in {ReviewAction.APPROVE, ReviewAction.EDIT}
        blocked = not approving or ask.expired or (duplicates and not ask.dedup_failed)
        found = outcome.state, outcome.tier, outcome.origin, outcome.payload, outcome.record, outcome.place
        state, tier = (B, 3) if blocked else (A, 1)
        assert found == (state, tier, ask.origin, ask.payload, b"", Place.NOT_NEEDED)
        assert outcome.first_origin == (before.first_origin or before.origin)
        query = ask.dedup if edited else self.queries[who, before.revision]
        query = None if edited and ask.dedup_failed else query
        if ask.action in REJECTING and query:
            self.rejected.add((who, revision))
        self.queries[who, revision] = query if not blocked or ask.action in REJECTING else None
        self.decided[who, revision] = outcome
        if (who, before.revision) not in self.published and not before.origin.topic.endswith(REVIEWS):
            self.orphans.add((who, before.revision))  # acted on before it was published

    async def decide_both(self, asks: list[StepRequest], *, deferred: bool) -> list[StepAnswer]:
        answers = await self.redis.step(asks, self.limits, deferred=deferred)
        single = [await self.memory.step([ask], self.limits, deferred=deferred) for ask in asks]
        assert answers == [answer for (answer,) in single]
        current: dict[Subject, Outcome] = {}  # an older outcome may be repeated after the current one
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Outcome):
                if answer.fresh:
                    await self.check_fresh(ask, answer)
                known = current.get(ask.subject, answer)
                current[ask.subject] = max(answer, known, key=lambda each: each.revision)
        again = await self.redis.step(asks, self.limits, deferred=deferred)
        for ask, first, answer in zip(asks, answers, again, strict=True):
            own = isinstance(first, Outcome) and first.origin == ask.origin
            expected = first if own else current.get(ask.subject)
            if isinstance(expected, Outcome) and isinstance(answer, Outcome):
                assert answer == replace(expected, fresh=False)
        return answers

    async def check_fresh(self, ask: StepRequest, outcome: Outcome) -> None:
        who, revision = ask.subject, outcome.revision
        self.asks[who] = ask
        assert revision == 1 + max((number for other, number in self.decided if other == who), default=0)
        self.decided[who, revision] = replace(outcome, fresh=False)
        self.queries[who, revision] = ask.dedup if outcome.state in {A, P} else None
        if outcome.state is A:
            assert (ask.base_tier, ask.capped) == (1, False)
            assert all(parent.state == "approved" for parent in outcome.parents)
            assert not any(match.match_class is MatchClass.REJECTED for match in outcome.matches)
        if who.kind is Kind.RESPONSE:
            assert (outcome.state is V) == (ask.base_tier == 2 and not ask.queued)
            assert outcome.place is Place.NOT_NEEDED or ask.queued
            assert outcome.state is not SubjectState.JOINED
        if outcome.dedup_status == "ok" and await self.has_approved_duplicate(who, ask.dedup):
            assert outcome.state is B

    def current(self) -> dict[Subject, Outcome]:
        revisions = sorted(self.decided, key=lambda key: key[1])
        return {who: self.decided[who, revision] for who, revision in revisions}

    async def has_approved_duplicate(self, who: Subject, query: DedupQuery | None) -> bool:
        """Whether an approved claim says the same, whether it can be found or not."""
        for other, outcome in self.current().items():
            theirs = self.queries.get((other, outcome.revision))
            if not query or outcome.state is not A or theirs is None or theirs.scope != query.scope:
                continue
            match = compare(query.signature, theirs.signature, THRESHOLDS)
            (status,) = await self.memory.statuses([other])
            if other.subject_id == who.subject_id or not match or (status and status.state is W):
                continue
            near = is_near(match.inter, match.union, THRESHOLDS.duplicate)
            if near and (match.difference == "none" or not query.rules.material_difference):
                return True
        return False


@pytest.mark.parametrize(("walks", "steps"), [(3, 30), pytest.param(30, 80, marks=pytest.mark.slow)])
async def test_nothing_is_lost_doubled_or_approved_twice_whatever_crashes(redis_server, prefix, walks, steps):
    for seed in range(walks):
        redis = await start(state_at(redis_server.url, f"{prefix}{seed}."))
        await Lifecycle(redis, random.Random(f"{walks} {seed}")).walk(steps)
        await redis.close()
