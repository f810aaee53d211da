"""The feed, the actions and `groundwire review` against a broker; the audit is written by the tests."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from click.testing import CliRunner

from groundwire.cli.review import review
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable, UsageError
from groundwire.kafka.reader import open_reader
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.topics import record_key
from groundwire.review.actions import Actions, ActionTarget, Signer, review_decision
from groundwire.review.board import Board
from groundwire.review.feed import Feed, Pace, fill
from groundwire.review.model import Query
from groundwire.review.originals import record_reader
from groundwire.state.model import SubjectState, SubjectStatus
from tests.services.brokers import Broker
from tests.unit.review.world import ADMIN, audit, decision, record, reviewed

pytestmark = [pytest.mark.stream, pytest.mark.slow]

TOPICS = ("review", "approved", "blocked", "retractions", "audit", "dead-letter", "review-decisions")
PARTITIONS = 2
QUICK = Pace(poll=0.05, check=0.1, retry=0.1, answer=5)
SECONDS = 120.0


@pytest.fixture
def prefix(broker: Broker) -> str:
    """A deployment of its own on the shared broker."""
    name = f"desk-{uuid.uuid4().hex[:8]}."
    broker.create_topics({f"{name}{topic}": PARTITIONS for topic in TOPICS})
    return name


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    new_key(path, "desk", tenants=["acme"], roles=["reviewer"])
    path.write_text(path.read_text() + '\n[reviewers]\nacme = ["admin"]\n')
    return path


def fresh(*args, **changes):
    """A Decision of just now: the feed's window is that of the clock."""
    return decision(*args, **changes, decided_at=datetime.now(UTC).isoformat())


async def publish(broker, prefix, *records):
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    await producer.start()
    try:
        for each in records:
            await producer.send_and_wait(
                f"{prefix}{each.topic}", each.value, each.key, headers=list(each.headers)
            )
    finally:
        await producer.stop()


@asynccontextmanager
async def reading(broker, topic) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        yield consumer
    finally:
        await consumer.stop()


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition is the product's, which has no event
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[Feed]:
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "only who started it ends it"


class StubState:
    """Answers as it is told; keys are subject ids."""

    def __init__(self, **standings: SubjectStatus) -> None:
        self.held = standings
        self.error: Exception | None = None
        self.asked = 0

    async def statuses(self, subjects):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [self.held.get(subject.subject_id) for subject in subjects]


def names(board: Board) -> list[str]:
    return sorted(row.subject_id for row in board.pending(ADMIN, Query()).rows)


def event(review_decision, *, applied=True, code="human_approved", revision=2):
    return audit(
        review_decision.subject_id,
        review_decision.action,
        applied=applied,
        detail={"action_id": review_decision.action_id, "outcome": code, "revision": revision},
    )


class Agent:
    """Answers every ReviewDecision in the audit, as the reviews agent would."""

    def __init__(self, broker, prefix, answer) -> None:
        self._broker, self._prefix, self._answer = broker, prefix, answer
        self.seen = []

    async def run(self) -> None:
        async with reading(self._broker, f"{self._prefix}review-decisions") as consumer:
            async for each in consumer:
                self.seen.append(each)
                answer = self._answer(decode_review_decision(each.value))
                if answer is not None:
                    await publish(self._broker, self._prefix, answer)


@asynccontextmanager
async def agent(broker, prefix, answer) -> AsyncIterator[Agent]:
    made = Agent(broker, prefix, answer)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        while not task.done():  # aiokafka swallows a cancellation that meets the end of what it waits for
            task.cancel()
            await asyncio.wait([task], timeout=1)


# actions


async def test_an_action_is_signed_and_stands_under_its_users_key(broker, prefix, keys_file):
    keys = Keys.load(keys_file)
    sent = review_decision(
        ActionTarget("acme", "ann", Kind.CLAIM, "c1", 1), "reject", "admin", reason="outdated"
    )
    async with Actions(broker.bootstrap, prefix, Signer(keys, "desk")) as actions:
        await actions.send(sent)
    async with reading(broker, f"{prefix}review-decisions") as consumer, asyncio.timeout(SECONDS):
        found = await consumer.getone()
    assert found.key == record_key("acme", "ann")
    assert decode_review_decision(found.value) == sent
    attestation = dict(found.headers)["gw-attestation"].decode()
    assert keys.check(attestation, found.value, tenant="acme", at=datetime.now(UTC), role="reviewer").valid


async def test_outcomes_are_told_to_whom_they_belong_in_any_order(broker, prefix, keys_file):
    target = ActionTarget("acme", "ann", Kind.CLAIM, "c1", 1)
    first, second, third = (review_decision(target, "approve", "ann") for _ in range(3))
    async with Actions(broker.bootstrap, prefix, Signer(Keys.load(keys_file), "desk")) as actions:
        for each in (first, second, third):
            await actions.send(each)
        elsewhere = AuditEvent.model_validate_json(event(third).value).model_copy(
            update={"tenant_id": "globex"}
        )
        other = audit("c1")
        other = type(other)(other.topic, 0, 0, 0, b"globex", elsewhere.model_dump_json().encode())
        refused = event(second, applied=False, code="stale")
        await publish(broker, prefix, other, refused, event(first), event(second))
        done = await actions.outcome(first, SECONDS)
        late = await actions.outcome(second, SECONDS)
        assert (done.applied, done.code, done.revision, done.verdict) == (
            True,
            "human_approved",
            2,
            "approved",
        )
        assert (late.applied, late.code) == (False, "stale"), "the first outcome stands"
        assert await actions.outcome(third, 0.2) is None, (
            "another tenant's action of the same id is not this one"
        )


async def test_a_key_that_may_not_sign_for_the_tenant_sends_nothing(broker, prefix, keys_file):
    async with Actions(broker.bootstrap, prefix, Signer(Keys.load(keys_file), "desk")) as actions:
        with pytest.raises(UsageError, match="globex"):
            await actions.send(
                review_decision(ActionTarget("globex", "ann", Kind.CLAIM, "c1", 1), "approve", "ann")
            )


async def test_actions_need_their_topics(broker, keys_file):
    with pytest.raises(UsageError, match=r"nowhere\.audit"):
        async with Actions(broker.bootstrap, "nowhere.", Signer(Keys.load(keys_file), "desk")):
            pass


# feed


async def test_the_feed_reads_what_is_there_and_follows_what_comes(broker, prefix):
    await publish(broker, prefix, record(fresh("a")), record(fresh("b")), record(reviewed("b")))
    board, state = Board(), StubState(a=SubjectStatus(SubjectState.PENDING, 1))
    feed = Feed(board, state, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)
    assert not feed.caught_up
    async with running(feed):
        await until(lambda: feed.caught_up)
        assert names(board) == ["a"]
        state.held["c"] = SubjectStatus(SubjectState.PENDING, 1)
        await publish(broker, prefix, record(fresh("c")))
        await until(lambda: names(board) == ["a", "c"])
        assert (feed.caught_up, feed.stale_since) == (True, None)


async def test_state_has_the_last_word_on_what_is_pending(broker, prefix):
    await publish(broker, prefix, record(fresh("a")), record(fresh("b")))
    board, state = (
        Board(),
        StubState(a=SubjectStatus(SubjectState.PENDING, 1), b=SubjectStatus(SubjectState.BLOCKED, 2)),
    )
    async with running(Feed(board, state, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)) as feed:
        await until(lambda: feed.caught_up)
        assert names(board) == ["a"]
        del state.held["a"]
        await until(lambda: names(board) == [])


async def test_state_that_is_away_is_told_and_waited_out(broker, prefix):
    await publish(broker, prefix, record(fresh("a")))
    board, state = Board(), StubState(a=SubjectStatus(SubjectState.PENDING, 1))
    state.error = StateUnavailable("away")
    async with running(Feed(board, state, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)) as feed:
        await until(lambda: feed.stale_since is not None and names(board) == ["a"])
        since = feed.stale_since
        asked = state.asked
        await until(lambda: state.asked > asked + 1)
        assert feed.stale_since == since, "it says since when, not when it last tried"
        assert not feed.caught_up
        state.error = None
        await until(lambda: feed.caught_up and feed.stale_since is None)


async def test_what_was_dropped_and_forgotten_comes_back_once_lost_state_is_rebuilt(broker, prefix):
    await publish(broker, prefix, record(fresh("a")))
    board, state = Board(), StubState()
    async with running(Feed(board, state, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)) as feed:
        await until(lambda: feed.caught_up and names(board) == [])
        board.forget(datetime.now(UTC) + timedelta(days=1))
        state.error = StateLost("flushed")
        await until(lambda: feed.stale_since is not None)
        state.held["a"], state.error = SubjectStatus(SubjectState.PENDING, 1), None
        await until(lambda: names(board) == ["a"])


async def test_topics_that_do_not_exist_yet_are_waited_for(broker):
    prefix = f"late-{uuid.uuid4().hex[:8]}."
    board = Board()
    async with running(Feed(board, None, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)) as feed:
        await until(lambda: feed.stale_since is not None)
        await asyncio.to_thread(broker.create_topics, {f"{prefix}{topic}": PARTITIONS for topic in TOPICS})
        await publish(broker, prefix, record(fresh("a")))
        await until(lambda: feed.caught_up and names(board) == ["a"])


async def test_a_board_is_filled_once_from_what_is_there(broker, prefix):
    await publish(broker, prefix, *(record(fresh(f"c{n}")) for n in range(1_200)), record(reviewed("c0")))
    board = Board()
    await fill(board, broker.bootstrap, prefix, timedelta(days=7), SECONDS)
    assert board.pending(ADMIN, Query()).total == 1_199


async def test_a_broker_that_is_not_there_is_told():
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        await fill(Board(), "127.0.0.1:1", "x.", timedelta(days=7), 0.5)


# commands


def run(broker, prefix, keys_file, *arguments, data=None, reviewer="admin"):
    options = [
        "--reviewer",
        reviewer,
        "--key",
        "desk",
        "--keys-file",
        keys_file,
        "--brokers",
        broker.bootstrap,
    ]
    env = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    return CliRunner().invoke(
        review, [*map(str, [*arguments, *options, "--prefix", prefix])], input=data, env=env
    )


async def test_a_record_is_read_back_from_its_place_and_what_is_not_there_is_none(broker, prefix):
    await publish(broker, prefix, record(fresh("a")), record(fresh("b")))
    partitions = [await read_all(broker, f"{prefix}review", number) for number in range(PARTITIONS)]
    (number, values) = next((n, found) for n, found in enumerate(partitions) if found)
    read = record_reader(broker.bootstrap, 10)
    for offset, value in enumerate(values):
        assert await read(f"{prefix}review", number, offset) == value
    assert await read(f"{prefix}review", number, len(values)) is None
    assert await read(f"{prefix}review", PARTITIONS, 0) is None
    assert await read(f"{prefix}nothing", 0, 0) is None
    with pytest.raises(BrokerUnavailable):
        await record_reader("127.0.0.1:1", 0.5)(f"{prefix}review", 0, 0)


async def read_all(broker, topic, number) -> list[bytes | None]:
    async with open_reader(broker.bootstrap, 10) as reader:
        await reader.begin({topic: "earliest"}, partition=number)
        return [one.value async for batch in reader.rest() for one in batch]


async def test_the_queue_is_listed_and_an_item_shown(broker, prefix, keys_file):
    await publish(
        broker, prefix, record(fresh("a", text="Mind \x1b[31mthis")), record(fresh("b", user="bob"))
    )
    listed = await asyncio.to_thread(run, broker, prefix, keys_file, "list")
    assert listed.exit_code == 0, listed.output
    assert "2 of 2 waiting" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert "state cannot be asked" in listed.stderr
    assert "GROUNDWIRE_REDIS_URL" in listed.stderr
    lines = await asyncio.to_thread(
        run, broker, prefix, keys_file, "list", "--format", "json", "--user", "bob"
    )
    assert [json.loads(line)["subject_id"] for line in lines.stdout.splitlines()] == ["b"]
    own = await asyncio.to_thread(run, broker, prefix, keys_file, "list", "--format", "json", reviewer="bob")
    assert [json.loads(line)["subject_id"] for line in own.stdout.splitlines()] == ["b"]
    shown = await asyncio.to_thread(run, broker, prefix, keys_file, "show", "a", "--user", "ann")
    assert shown.exit_code == 0, shown.output
    assert "waits for a person" in shown.stdout
    hidden = await asyncio.to_thread(
        run, broker, prefix, keys_file, "show", decision("a").decision_id, reviewer="bob"
    )
    missing = await asyncio.to_thread(run, broker, prefix, keys_file, "show", "x" * 36, reviewer="bob")
    assert hidden.exit_code == missing.exit_code == 2
    swapped = hidden.stderr.replace(decision("a").decision_id, "x" * 36)
    assert swapped == missing.stderr, "somebody else's item is as one that is not there"


@pytest.mark.parametrize(
    ("arguments", "applied", "code", "status"),
    [
        (["approve", "a", "--user", "ann"], True, "human_approved", 0),
        (["reject", "a", "--user", "ann", "--reason", "incorrect"], False, "stale", 1),
        (["edit", "a", "--user", "ann", "--content", "-"], True, "human_approved", 0),
    ],
)
async def test_an_action_waits_for_its_outcome(broker, prefix, keys_file, arguments, applied, code, status):
    await publish(broker, prefix, record(fresh("a")))
    async with agent(broker, prefix, lambda sent: event(sent, applied=applied, code=code)) as desk:
        done = await asyncio.to_thread(
            run, broker, prefix, keys_file, *arguments, "--format", "json", data="Edited.\n"
        )
    assert done.exit_code == status, done.output
    told = json.loads(done.stdout)
    assert (told["applied"], told["code"]) == (applied, code)
    assert told["sentence"]
    (sent,) = [decode_review_decision(each.value) for each in desk.seen]
    assert (sent.action, sent.expected_revision, sent.reviewer) == (arguments[0], 1, "admin")
    assert sent.content == ("Edited." if arguments[0] == "edit" else None)
    assert sent.action_id == told["action_id"]


@pytest.mark.smoke
async def test_several_items_are_decided_at_once_and_one_refusal_is_told_by_the_exit_status(
    broker, prefix, keys_file
):
    await publish(broker, prefix, record(fresh("a")), record(fresh("b")))

    def answer(sent):
        refused = sent.subject_id == "b"
        return event(sent, applied=not refused, code="not_pending" if refused else "human_approved")

    async with agent(broker, prefix, answer):
        ids = [decision(name).decision_id for name in "ab"]
        done = await asyncio.to_thread(run, broker, prefix, keys_file, "approve", *ids)
    assert done.exit_code == 1, done.output
    first, second, third = done.stdout.splitlines()
    assert first.startswith("applied")
    assert second.startswith("refused")
    assert third.split() == ["next", "groundwire", "review", "show", "b", "--tenant", "acme", "--user", "ann"]


async def test_an_action_that_nobody_answers_ends_in_time_and_one_without_waiting_at_once(
    broker, prefix, keys_file
):
    await publish(broker, prefix, record(fresh("a")))
    silent = await asyncio.to_thread(
        run, broker, prefix, keys_file, "approve", "a", "--user", "ann", "--wait", "0.2"
    )
    assert silent.exit_code == 2
    assert "groundwire worker reviews" in silent.stderr
    sent = await asyncio.to_thread(
        run, broker, prefix, keys_file, "approve", "a", "--user", "ann", "--wait", "0"
    )
    assert (sent.exit_code, sent.stdout.split()[0]) == (0, "sent")


async def test_a_superseded_decision_is_decided_at_the_revision_that_was_named(broker, prefix, keys_file):
    await publish(broker, prefix, record(fresh("a")), record(reviewed("a")))
    async with agent(broker, prefix, lambda sent: event(sent, applied=False, code="stale")) as desk:
        await asyncio.to_thread(run, broker, prefix, keys_file, "approve", decision("a").decision_id)
        await asyncio.to_thread(run, broker, prefix, keys_file, "retract", "a", "--user", "ann")
    revisions = [decode_review_decision(each.value).expected_revision for each in desk.seen]
    assert revisions == [1, 2]


@pytest.mark.parametrize(
    ("code", "actions", "status"),
    [("human_approved", ["approve", "retract"], 0), ("duplicate", ["approve"], 2), ("stale", ["approve"], 1)],
)
async def test_a_memory_is_retracted_only_once_the_claim_in_its_place_is_approved(
    broker, prefix, keys_file, code, actions, status
):
    await publish(broker, prefix, record(fresh("new")), record(fresh("old", verdict="approved")))

    def answer(sent):
        said = "retracted" if sent.action == "retract" else code
        return event(sent, applied=said != "stale", code=said)

    async with agent(broker, prefix, answer) as desk:
        replace = ("replace", "new", "old", "--user", "ann", "--reason", "outdated", "--timeout", "5")
        done = await asyncio.to_thread(run, broker, prefix, keys_file, *replace)
    assert done.exit_code == status, done.output
    sent = [decode_review_decision(each.value) for each in desk.seen]
    assert [(one.action, one.subject_id) for one in sent] == list(zip(actions, ["new", "old"], strict=False))


async def test_nothing_is_sent_to_replace_what_is_not_an_approved_claim_of_the_same_user(
    broker, prefix, keys_file
):
    waiting = [record(fresh(name)) for name in ("new", "other")]
    await publish(broker, prefix, *waiting, record(fresh("ben", verdict="approved", user="ben")))
    async with agent(broker, prefix, lambda sent: event(sent, applied=True, code="human_approved")) as desk:
        for memory in (decision("other").decision_id, decision("ben", user="ben").decision_id):
            replace = ("replace", decision("new").decision_id, memory, "--reason", "outdated")
            done = await asyncio.to_thread(run, broker, prefix, keys_file, *replace)
            assert (done.exit_code, "no approved claim" in done.stderr) == (2, True)
    assert desk.seen == []
