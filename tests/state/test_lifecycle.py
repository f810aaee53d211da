"""The life cycle under random crashes: producers and people that send again, workers that die between any two steps.

Two workers consume two input partitions, of claims and responses, the deferred topic, and what people decide; at
times both hold the same records, as after a rebalance that one of them missed. A worker takes a step of state,
perhaps once more, publishes, commits; each of these may be its last, and may come long after another worker has done
all of it. A commit counts even then: Kafka would refuse it, but nothing must rest on that. Redis takes whole
batches, the state in memory the same claims one by one: their answers must agree.
"""

import asyncio
import copy
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

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

from groundwire.checks.dedup.signature import compare
from groundwire.checks.dedup.similarity import is_near
from groundwire.messages.decisions import Kind, MatchClass, Place
from groundwire.messages.identity import Subject, digest
from groundwire.state.codec import short, user_digest
from groundwire.state.memory import MemoryState
from groundwire.state.model import (
    MAX_MATCHES,
    Conflict,
    DedupQuery,
    MatchRules,
    Outcome,
    QueueLimits,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    Reviewed,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectState,
    SubjectStatus,
    Waiting,
)
from tests.state.claims import THRESHOLDS, Claims, People, origin, subject
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
NAMES = ("a", "b", "c", "d", "e", "f")
RESPONSES = ("r", "s", "a")  # one that is called like a claim
USERS = ("ada", "bob")
DEFERRED = "deferred"
REVIEWS = "review-decisions"
RECORDS = ("claims-0", "claims-1", DEFERRED)
PARTITIONS = (*RECORDS, REVIEWS)
APPROVING = {ReviewAction.APPROVE, ReviewAction.EDIT}
REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}
WORKERS = (0, 1)


@dataclass
class InFlight:
    """What a worker has taken of a partition, up to which offset, and how far it has come."""

    partition: str
    end: int
    asks: list[StepRequest] | list[ReviewRequest]
    answers: list[StepAnswer] | list[ReviewAnswer]
    published: bool = False


class Lifecycle(RuleBasedStateMachine):
    """Producers, two workers, reviewers, and state twice."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryState()
        self.redis = state_at(url, f"test-{uuid.uuid4().hex}.")
        self.runner.run(start(self.redis))
        self.claims = Claims()
        self.people = People(self.claims)
        self.probes = 0
        self.sent: list[StepRequest] = []
        self.logs: dict[str, list[StepRequest]] = {partition: [] for partition in PARTITIONS}
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.workers: dict[int, InFlight | None] = dict.fromkeys(WORKERS)
        self.decided: dict[tuple[Subject, int], Outcome] = {}
        self.published: set[tuple[Subject, int]] = set()
        self.orphans: set[tuple[Subject, int]] = set()  # decided, and superseded before anybody was told
        self.conflicts: set[RecordOrigin] = set()
        self.asks: dict[Subject, StepRequest] = {}
        self.queries: dict[tuple[Subject, int], DedupQuery | None] = {}  # as which text a revision is found
        self.rejected: dict[tuple[Subject, int], DedupQuery] = {}
        self.actions: dict[tuple[str, Subject | None], tuple[ReviewRequest, RefusedAction | int]] = {}
        self.affected: dict[str, list[str]] = {}
        self.limits = QueueLimits()
        self.few = False

    def teardown(self) -> None:
        try:
            self.drain()
            self.check_that_every_record_ended()
            self.check_that_no_revision_is_skipped()
            self.check_that_a_rebuild_finds_the_same()
        finally:
            self.runner.run(self.redis.close())
            self.runner.close()

    @initialize(
        per_user=st.integers(0, 2),
        per_tenant=st.integers(1, 3),
        tenant_bytes=st.sampled_from([0, 50, 500, 10**6]),
        total=st.integers(1, 3),
        few=st.booleans(),
    )
    def begin(self, per_user: int, per_tenant: int, total: int, tenant_bytes: int, few: bool) -> None:  # noqa: FBT001 - drawn
        self.limits = QueueLimits(per_user, per_tenant, total, tenant_bytes)
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
        partition=st.sampled_from(RECORDS),  # on `deferred` after an outage
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
        batch.answers = self.ask(batch.partition, batch.asks)

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
        before = dict(self.decided)
        self.ask(partition, asks)
        if partition != DEFERRED:
            assert self.decided == before
        self.orphans |= self.decided.keys() - before.keys()

    # Reviewers

    @rule(
        name=st.sampled_from(NAMES),
        user=st.sampled_from(USERS),
        text=st.sampled_from((*TEXTS, None)),
        parent=st.sampled_from((None, *NAMES)),
        tier=st.sampled_from((1, 2, 2, 2)),
    )
    def send_and_settle(self, name, user, text, parent, tier) -> None:
        """Somebody's claim is decided, or waits, before anything else happens."""
        parents = () if parent is None else (subject(parent, user=user),)
        ask = self.claims.ask(
            name, text, tier, user=user, parents=parents, fingerprint=f"{text} {tier} {parent}"
        )
        self.sent.append(ask)
        self.logs[PARTITIONS[0]].append(ask)
        self.finish(PARTITIONS[0])

    @precondition(lambda self: self.asks)
    @rule(
        data=st.data(),
        aim=st.sampled_from((SubjectState.PENDING,) * 3 + (SubjectState.APPROVED, None)),
        action=st.sampled_from((*ReviewAction, ReviewAction.APPROVE, ReviewAction.EDIT)),
        aside=st.sampled_from((0, 0, 0, 0, 1, -1)),
        text=st.sampled_from(TEXTS),
        flags=st.sampled_from(("", "", "", "", "", "", "", "expired", "dedup_failed", "refused")),
        at_once=st.sampled_from((True, True, False)),
    )
    def decide(self, data, aim, action, aside, text, flags, at_once) -> None:
        """Somebody who looked at a subject decides on it, or on a revision that is no longer, or not yet, current."""
        current = self.current()
        aimed = [who for who, outcome in current.items() if outcome.state is aim] or list(current)
        who = data.draw(st.sampled_from(sorted(aimed)))
        if aim is SubjectState.APPROVED:
            action = ReviewAction.RETRACT
        ask, revision = self.asks[who], current[who].revision
        edited = action is ReviewAction.EDIT and ask.dedup is not None
        changes = {flags: "unauthorized" if flags == "refused" else True} if flags else {}
        act = self.people.act(
            action, ask, revision=revision + aside, text=text if edited else None, **changes
        )
        self.logs[REVIEWS].append(replace(act, decisive=digest(action, text if edited else "")))
        if at_once:
            self.finish(REVIEWS)

    @rule(data=st.data(), text=st.sampled_from((*TEXTS, None)))
    def edit_and_look_for_both_texts(self, data, text) -> None:
        """From then on the claim is found under the text that it was given, and under the other one no more."""
        texts = {who: self.queries[who, outcome.revision] for who, outcome in self.current().items()}
        compared = [who for who, query in texts.items() if query and self.pending(who)]
        if not compared or self.behind() or len(self.idle()) < len(WORKERS):
            return
        who = data.draw(st.sampled_from(sorted(compared)))
        before = self.current()[who]
        new = text or f"nobody has ever said this before {self.claims.offset}"
        act = self.people.act(ReviewAction.EDIT, self.asks[who], revision=before.revision, text=new)
        self.logs[REVIEWS].append(act)
        self.finish(REVIEWS)
        for query in (texts[who], act.dedup):
            self.look_for(query)
        state = self.current()[who].state
        assert state is SubjectState.BLOCKED or self.queries[who, before.revision + 1] is act.dedup

    @rule(data=st.data(), action=st.sampled_from(sorted(APPROVING)), dies=st.booleans())
    def approve_and_retract_at_once(self, data, action, dies) -> None:
        """Both revisions are published, also where the worker that brought them about died before it was."""
        pending = [who for who in sorted(self.current()) if self.pending(who)]
        if not pending or REVIEWS in self.behind() or not self.idle():
            return
        who, worker = data.draw(st.sampled_from(pending)), self.idle()[0]
        ask, revision = self.asks[who], self.current()[who].revision
        acts = [
            self.people.act(each, ask, revision=revision + more)
            for more, each in enumerate((action, ReviewAction.RETRACT))
        ]
        self.logs[REVIEWS] += acts
        self.take(worker, REVIEWS, 2)
        if dies:
            self.workers[worker] = None
        self.finish(REVIEWS)

    @precondition(lambda self: self.logs[REVIEWS])
    @rule(data=st.data(), how=st.sampled_from(("only_recorded", "forget")), same_record=st.booleans())
    def decide_without_leave(self, data, how, same_record) -> None:
        """An action that the gate refuses by itself is told what is recorded of it, and leaves nothing behind."""
        act = data.draw(st.sampled_from(self.logs[REVIEWS]))
        where = act.origin
        if not same_record:
            self.claims.offset += 1
            where = origin(self.claims.offset, topic=where.topic)
        act = replace(act, origin=where, refused="unattested", **{how: True})
        known = self.actions.get(self.key(act))
        if known and how == "only_recorded" and known[0].origin != where:
            known = None
        current = self.current()[act.subject]
        state = SubjectState.WAITING if self.waits(act.subject) else current.state
        expected = RefusedAction("unattested", SubjectStatus(state, current.revision))
        if known:
            expected = known[1] if self.same(known[0], act) else RefusedAction("action_id_reused", None)
        (answer,) = self.run(self.redis.review([act]))
        assert self.run(self.memory.review([act])) == [answer]
        if isinstance(answer, Reviewed):
            assert answer.outcome == self.decided[act.subject, answer.revision]
        assert (answer.revision if isinstance(answer, Reviewed) else answer) == expected

    @precondition(lambda self: self.logs[REVIEWS])
    @rule(
        data=st.data(),
        changed=st.sampled_from(("", "", "subject", "action", "expected_revision", "decisive")),
        at_once=st.booleans(),
    )
    def decide_again(self, data, changed, at_once) -> None:
        """The same action id once more: redelivered, or by a client that uses it for something else."""
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

    @rule(data=st.data())
    def send_what_was_decided_once_more(self, data) -> None:
        """A claim that is approved finds its duplicates blocked; what was rejected is remembered, by any name."""
        current = self.current()
        approved = {
            who: query
            for (who, revision), query in self.queries.items()
            if query and current[who].state is SubjectState.APPROVED and current[who].revision == revision
        }
        texts = [(MatchClass.APPROVED, approved[who]) for who in sorted(approved)]
        texts += [(MatchClass.REJECTED, self.rejected[who]) for who in sorted(self.rejected)]
        if not texts:
            return
        match_class, query = data.draw(st.sampled_from(texts))
        self.probes += 1
        ask = self.claims.ask(f"probe {self.probes}", TEXTS[0], 3)
        ask = replace(ask, dedup=replace(query, rules=MatchRules(THRESHOLDS)))
        (outcome,) = self.ask_both([ask], deferred=True)
        found = [match for match in outcome.matches if match.match_class is match_class]
        assert any(match.inter == match.union and match.difference == "none" for match in found)
        self.publish_one(ask, outcome)

    # What must hold at any time

    @invariant()
    def counters_are_the_entries(self) -> None:
        """Places and waiting claims are counted as they stand, in both."""
        entries = self.memory._entries
        pending = [who for who, entry in entries.items() if entry.state is SubjectState.PENDING]
        waiting = [who for who, entry in entries.items() if entry.state is SubjectState.WAITING]
        expected = Counter(f"u:{user_digest(who)}" for who in pending)
        expected.update(f"t:{who.tenant_id}" for who in pending)
        for who in pending:
            expected[f"b:{who.tenant_id}"] += len(entries[who].outcome.record)
        expected.update({"total": len(pending), "waiting": len(waiting)})
        found = self.run(self.redis.server.call("HGETALL", self.redis._prefix + "q"))
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
        self.check_that_no_revision_is_skipped()

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
        self.run(later.review(self.logs[REVIEWS][: self.committed[REVIEWS]]))
        assert later._entries == self.memory._entries

    @invariant()
    def no_two_approved_claims_are_plain_duplicates(self) -> None:
        approved = [
            who
            for who, entry in self.memory._entries.items()
            if entry.state is SubjectState.APPROVED and entry.outcome and entry.outcome.dedup_status == "ok"
        ]
        found: dict[Subject, set[Subject]] = {}
        for who in approved:
            query = self.queries[who, self.memory._entries[who].revision]
            found[who] = set() if query is None else set(self.approved_duplicates(who, query))
        for who, other in combinations(approved, 2):
            # whose rules see no difference may find a later claim whose own rules saw one
            assert other not in found[who] or who not in found[other]

    def check_that_no_revision_is_skipped(self) -> None:
        subjects = sorted(self.memory._entries)
        known = self.run(self.memory.statuses(subjects))
        assert self.run(self.redis.statuses(subjects)) == known
        for who, standing in zip(subjects, known, strict=True):
            revisions = {revision for other, revision in self.decided if other == who}
            assert revisions == set(range(1, standing.revision + 1))

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
        answers = self.ask(partition, asks)
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

    def finish(self, partition: str) -> None:
        """Let a worker that has nothing else to do settle what there is."""
        while self.idle() and partition in self.behind():
            worker = self.idle()[0]
            self.take(worker, partition, 3)
            self.send_out(worker)
            self.let_go(worker)

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def ask(self, partition: str, asks):
        if partition == REVIEWS:
            return self.review_both(asks)
        return self.ask_both(asks, deferred=partition == DEFERRED)

    def review_both(self, asks: list[ReviewRequest]) -> list[ReviewAnswer]:
        answers = self.run(self.redis.review(asks))
        for ask, answer in zip(asks, answers, strict=True):
            before = self.current().get(ask.subject)
            expected = self.expected(ask, before)
            duplicates = self.approved_duplicates(ask.subject, ask.dedup) if ask.dedup else []
            resting = self.resting_on(ask.subject)
            assert self.run(self.memory.review([ask])) == [answer]
            if not isinstance(answer, Reviewed):
                assert answer == expected
                continue
            assert answer.revision == expected
            if answer.revision == before.revision + 1:
                self.check_reviewed(ask, answer.outcome, before, duplicates)
                self.affected[ask.action_id] = resting
            assert answer.outcome == self.decided[ask.subject, answer.revision]
            assert answer.affected_total == len(answer.affected)
            retract = ask.action is ReviewAction.RETRACT
            assert list(answer.affected) == (self.affected[ask.action_id] if retract else [])
        assert self.run(self.redis.review(asks)) == answers
        return answers

    def expected(self, ask: ReviewRequest, before: Outcome | None) -> RefusedAction | int:
        """Say what becomes of an action, by the life cycle alone; the first outcome of an action id stands."""
        # nobody else can use up the ids with which the gate lets a subject's review expire
        key = self.key(ask)
        if key in self.actions:
            first, answer = self.actions[key]
            return answer if self.same(first, ask) else RefusedAction("action_id_reused", None)
        state, revision = before.state, before.revision
        if self.waits(ask.subject):
            state = SubjectState.WAITING
        retract = ask.action is ReviewAction.RETRACT
        codes = {
            ask.refused: True,
            "waiting": state is SubjectState.WAITING,
            "stale": revision != ask.expected_revision,
            "not_approved": retract and state is not SubjectState.APPROVED,
            "not_pending": not retract and state is not SubjectState.PENDING,
        }
        code = next((code for code, holds in codes.items() if holds and code), "")
        answer = RefusedAction(code, SubjectStatus(state, revision)) if code else revision + 1
        self.actions[key] = ask, answer
        return answer

    def key(self, ask: ReviewRequest) -> tuple[str, Subject | None]:
        return ask.action_id, ask.subject if ask.action is ReviewAction.EXPIRE else None

    def same(self, first: ReviewRequest, ask: ReviewRequest) -> bool:
        mine, theirs = ((act.subject, act.action, act.decisive) for act in (first, ask))
        return mine == theirs

    def look_for(self, query: DedupQuery) -> None:
        """See that the approved claims near to a text are found, all of them and no others."""
        self.probes += 1
        ask = self.claims.ask(f"probe {self.probes}", TEXTS[0], 3)
        ask = replace(ask, dedup=query)
        near = {other.subject_id for other in self.approved_matches(ask.subject, query)}
        (outcome,) = self.ask_both([ask], deferred=True)
        found = {m.subject_id for m in outcome.matches if m.match_class is MatchClass.APPROVED}
        assert found <= near
        assert found == near or len(outcome.matches) == MAX_MATCHES
        self.publish_one(ask, outcome)

    def check_reviewed(
        self, ask: ReviewRequest, outcome: Outcome, before: Outcome, duplicates: list[Subject]
    ) -> None:
        who, revision = ask.subject, outcome.revision
        assert (who, revision) not in self.decided
        blocked = ask.action not in APPROVING or ask.expired or (duplicates and not ask.dedup_failed)
        assert outcome.state is (SubjectState.BLOCKED if blocked else SubjectState.APPROVED)
        assert (outcome.tier, outcome.origin, outcome.payload) == (
            3 if blocked else 1,
            ask.origin,
            ask.payload,
        )
        assert (outcome.record, outcome.place) == (b"", Place.NOT_NEEDED)
        assert outcome.first_origin == (before.first_origin or before.origin)
        assert [parent.state for parent in outcome.parents] == [parent.state for parent in before.parents]
        edited = ask.action is ReviewAction.EDIT
        query = ask.dedup if edited else self.queries[who, before.revision]
        if edited and ask.dedup_failed:
            query = None
        if ask.action in REJECTING and query:
            self.rejected[who, revision] = query
        found = not blocked or ask.action in REJECTING
        self.queries[who, revision] = query if found else None
        self.decided[who, revision] = outcome
        shown = (who, before.revision) in self.published or before.origin.topic.endswith(REVIEWS)
        if not shown:  # somebody acted on what nobody could see yet: the record tells of what came of that
            self.orphans.add((who, before.revision))

    def resting_on(self, who: Subject) -> list[str]:
        current = self.current()
        rests = [
            child.subject_id
            for child, outcome in current.items()
            if outcome.state is SubjectState.APPROVED
            and child != who
            and who in [parent for _, parent in self.asks[child].parents]
        ]
        return sorted(rests, key=str.encode)

    def ask_both(self, asks: list[StepRequest], *, deferred: bool) -> list[StepAnswer]:
        answers = self.run(self.redis.step(asks, self.limits, deferred=deferred))
        single = [self.run(self.memory.step([ask], self.limits, deferred=deferred)) for ask in asks]
        assert answers == [answer for (answer,) in single]
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Outcome) and answer.fresh:
                self.check_fresh(ask, answer)
        current: dict[
            Subject, Outcome
        ] = {}  # behind the one that is current, an older one may be told once more
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Outcome):
                current[ask.subject] = max(
                    answer, current.get(ask.subject, answer), key=lambda each: each.revision
                )
        again = self.run(self.redis.step(asks, self.limits, deferred=deferred))
        for ask, first, answer in zip(asks, answers, again, strict=True):
            own = isinstance(first, Outcome) and first.origin == ask.origin
            expected = first if own else current.get(ask.subject)
            if isinstance(expected, Outcome) and isinstance(answer, Outcome):
                assert answer == replace(expected, fresh=False)
        return answers

    def check_fresh(self, ask: StepRequest, outcome: Outcome) -> None:
        self.asks[ask.subject] = ask
        assert outcome.revision == 1 + max(
            (revision for who, revision in self.decided if who == ask.subject), default=0
        )
        self.decided[ask.subject, outcome.revision] = replace(outcome, fresh=False)
        found = outcome.state in {SubjectState.APPROVED, SubjectState.PENDING}
        self.queries[ask.subject, outcome.revision] = ask.dedup if found else None
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
        if outcome.dedup_status == "ok" and self.approved_duplicates(ask.subject, ask.dedup):
            assert outcome.state is SubjectState.BLOCKED

    def publish_one(self, ask: StepRequest | ReviewRequest, answer: StepAnswer | ReviewAnswer) -> None:
        match answer:
            case Reviewed():
                assert self.decided[ask.subject, answer.revision] == answer.outcome
                self.published.add((ask.subject, answer.revision))
            case Outcome():
                assert self.decided[ask.subject, answer.revision] == replace(answer, fresh=False)
                self.published.add((ask.subject, answer.revision))
            case Waiting(publish=True):
                assert ask.subject.kind is Kind.CLAIM
                self.logs[DEFERRED].append(ask)
            case Conflict():
                self.conflicts.add(ask.origin)

    def pending(self, who: Subject) -> bool:
        return self.memory._entries[who].state is SubjectState.PENDING

    def waits(self, who: Subject) -> bool:
        return self.memory._entries[who].state is SubjectState.WAITING

    def current(self) -> dict[Subject, Outcome]:
        revisions = sorted(self.decided, key=lambda key: key[1])
        return {who: self.decided[who, revision] for who, revision in revisions}

    def approved_duplicates(self, who: Subject, query: DedupQuery) -> list[Subject]:
        """Name the approved claims that say the same, whether they can be found or not."""
        found = []
        for other in self.approved_matches(who, query):
            theirs = self.queries[other, self.memory._entries[other].revision]
            match = compare(query.signature, theirs.signature, THRESHOLDS)
            near = is_near(match.inter, match.union, THRESHOLDS.duplicate)
            if near and (match.difference == "none" or not query.rules.material_difference):
                found.append(other)
        return found

    def approved_matches(self, who: Subject, query: DedupQuery) -> list[Subject]:
        """Name the approved claims that say the same, or something else of the same thing."""
        found = []
        for other, entry in self.memory._entries.items():
            theirs = self.queries.get((other, entry.revision))
            if entry.state is not SubjectState.APPROVED or theirs is None or theirs.scope != query.scope:
                continue
            if other.subject_id == who.subject_id:
                continue
            if compare(query.signature, theirs.signature, THRESHOLDS):
                found.append(other)
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
        assert self.decided.keys() <= self.published | self.orphans

    def check_that_a_rebuild_finds_the_same(self) -> None:
        """Index, places and who rests on whom, from all revisions in an order of their own."""
        before = self.run(self.contents())
        known = [self.known(*key) for key in sorted(self.decided, key=lambda key: (key[0].digest, -key[1]))]
        self.run(self.rebuild(known[::2] + known[1::2]))
        assert self.run(self.contents()) == before
        current = self.current()
        asks = [self.asks[who] for who in current]
        assert self.run(self.redis.step(asks, self.limits)) == list(current.values())

    def known(self, who: Subject, revision: int) -> StoredOutcome:
        entry = self.memory._entries[who]
        return StoredOutcome(
            who,
            self.decided[who, revision],
            self.queries[who, revision],
            0,
            rejected=(who, revision) in self.rejected,
            joined_to=entry.joined_to if entry.revision == revision else None,
            parents=[parent for _, parent in self.asks[who].parents],
        )

    async def rebuild(self, known: list[StoredOutcome]) -> None:
        async with self.redis.rebuilding() as rebuild:
            await rebuild.clear()
            await rebuild.load(known)
            await rebuild.start_epoch("rebuilt")
        await self.redis.adopt_epoch()

    async def contents(self):
        """Return what is found in each scope, the approved claims that rest on others, and the counters."""
        call, prefix = self.redis.server.call, self.redis._prefix
        members = {
            key: sorted((await call("HGETALL", key)).items()) for key in await call("KEYS", f"{prefix}m:*")
        }
        found = {
            key: sorted(value for name, value in items if name != b"n") for key, items in members.items()
        }
        approved = [
            who for who, entry in self.memory._entries.items() if entry.state is SubjectState.APPROVED
        ]
        digests = {short(who.digest).encode() for who in approved}
        children = {
            key: {child for child in await call("SMEMBERS", key) if child[:22] in digests}
            for key in await call("KEYS", f"{prefix}d:*")
        }
        counters = await call("HGETALL", f"{prefix}q")
        return [{k: v for k, v in each.items() if v} for each in (found, children, counters)]


def test_nothing_is_lost_doubled_or_approved_twice_whatever_crashes(redis_server):
    run_state_machine_as_test(
        lambda: Lifecycle(redis_server.url),
        settings=settings(
            max_examples=45,
            stateful_step_count=60,
            deadline=None,
            report_multiple_bugs=False,  # a time limit that strikes while one is shrunk is no other
            suppress_health_check=list(HealthCheck),
        ),
    )
