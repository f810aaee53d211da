"""The feed, the actions and `groundwire review` against a broker; the audit is written by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from groundwire.cli.review import review
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable, UsageError
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.topics import record_key
from groundwire.review.actions import Actions, ActionTarget, Signer, review_decision
from groundwire.review.board import Board
from groundwire.review.feed import Feed, Pace, RedisStatuses, fill
from groundwire.review.model import Query
from groundwire.review.originals import record_reader
from groundwire.state.model import SubjectState, SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.state.claims import SCHEME, Claims, People, decide, review_one
from tests.state.conftest import start
from tests.stream.harness import PATIENCE, Deployment, until
from tests.unit.review.world import ADMIN, audit, decision, record, reviewed

pytestmark = [pytest.mark.stream, pytest.mark.slow]

QUICK = Pace(poll=0.05, check=0.1, retry=0.1, answer=5)
PENDING, BLOCKED = SubjectStatus(SubjectState.PENDING, 1), SubjectStatus(SubjectState.BLOCKED, 2)
TARGET = ActionTarget("acme", "ann", Kind.CLAIM, "c1", 1)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "desk.toml"
    new_key(path, "desk", tenants=["acme"], roles=["reviewer"])
    path.write_text(path.read_text() + '\n[reviewers]\nacme = ["admin"]\n')
    return path


def fresh(*args, **changes):
    """A record of a Decision of just now: the feed's window ends now."""
    return record(decision(*args, **changes, decided_at=datetime.now(UTC).isoformat()))


def event(sent, *, applied=True, code="human_approved", revision=2):
    """A record of what the reviews agent answers to an action."""
    detail = {"action_id": sent.action_id, "outcome": code, "revision": revision}
    return audit(sent.subject_id, sent.action, applied=applied, detail=detail)


async def publish(topics, *records):
    sent = [
        await topics.send(one.value, topic=one.topic, key=one.key, headers=one.headers) for one in records
    ]
    await asyncio.gather(*sent)


@asynccontextmanager
async def feeding(topics, state, board) -> AsyncIterator[Feed]:
    feed = Feed(board, state, brokers=topics.broker.bootstrap, prefix=topics.prefix, pace=QUICK)
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "the feed runs until it is cancelled"


def names(board: Board) -> list[str]:
    return sorted(row.subject_id for row in board.pending(ADMIN, Query()).rows)


def shown(board: Board, *expected: str):
    return until(lambda: names(board) == list(expected), lambda: f"shown: {names(board)}")


def acting(topics, keys_file, **options) -> Actions:
    return Actions(topics.broker.bootstrap, topics.prefix, Signer(Keys.load(keys_file), "desk"), **options)


async def actions_on(topics) -> list:
    return [decode_review_decision(seen.value) for seen in await topics.stored("review-decisions")]


@asynccontextmanager
async def agent(topics, answer) -> AsyncIterator[None]:
    """Answer every ReviewDecision on the audit topic, as the reviews agent would."""
    answered: set[str] = set()

    async def run() -> None:
        while not over.is_set():
            for sent in await actions_on(topics):
                if sent.action_id not in answered:
                    answered.add(sent.action_id)
                    await publish(topics, answer(sent))

    over = asyncio.Event()
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        over.set()
        await task


async def run(topics, keys_file, *arguments, data=None, reviewer="admin"):
    """Run `groundwire review` where Redis is out of reach."""
    options = ["--reviewer", reviewer, "--key", "desk", "--keys-file", keys_file]
    options += ["--brokers", topics.broker.bootstrap, "--prefix", topics.prefix]
    env = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    given = [*map(str, [*arguments, *options])]
    return await asyncio.to_thread(CliRunner().invoke, review, given, input=data, env=env)


async def test_an_action_is_signed_and_keyed_by_its_user_and_only_for_tenants_of_its_key(topics, keys_file):
    sent = review_decision(TARGET, "reject", "admin", reason="outdated")
    async with acting(topics, keys_file) as actions:
        await actions.send(sent)
        with pytest.raises(UsageError, match="globex"):
            await actions.send(
                review_decision(ActionTarget("globex", "ann", Kind.CLAIM, "c1", 1), "approve", "ann")
            )
    (found,) = await topics.stored("review-decisions")
    assert found.key == record_key("acme", "ann")
    assert decode_review_decision(found.value) == sent
    signed = {"tenant": "acme", "at": datetime.now(UTC), "role": "reviewer"}
    assert Keys.load(keys_file).check(found.header("gw-attestation"), found.value, **signed).valid
    with pytest.raises(UsageError, match=r"nowhere\.audit"):
        async with Actions(topics.broker.bootstrap, "nowhere.", Signer(Keys.load(keys_file), "desk")):
            pass


async def test_outcomes_reach_whoever_sent_the_action_in_any_order(topics, keys_file):
    first, second, third = (review_decision(TARGET, "approve", "ann") for _ in range(3))
    async with acting(topics, keys_file) as actions:
        for each in (first, second, third):
            await actions.send(each)
        elsewhere = AuditEvent.model_validate_json(event(third).value)
        elsewhere = elsewhere.model_copy(update={"tenant_id": "globex"})
        other = type(event(third))("audit", 0, 0, 0, b"globex", elsewhere.model_dump_json().encode())
        refused = event(second, applied=False, code="stale")
        await publish(topics, other, refused, event(first), event(second))
        done = await actions.outcome(first, PATIENCE)
        late = await actions.outcome(second, PATIENCE)
        told = (done.applied, done.code, done.revision, done.verdict)
        assert told == (True, "human_approved", 2, "approved")
        assert (late.applied, late.code) == (False, "stale"), "the first outcome holds"
        assert await actions.outcome(third, 0.2) is None, "another tenant's action may have the same id"


async def test_the_feed_follows_its_topics_believes_state_and_says_since_when_it_has_none(topics):
    class State:
        """Answers with the statuses that the test sets; keys are subject ids."""

        held: ClassVar = {"a": PENDING, "d": BLOCKED}
        error: Exception | None = None
        asked = 0

        async def statuses(self, subjects):
            self.asked += 1
            if self.error is not None:
                raise self.error
            return [self.held.get(subject.subject_id) for subject in subjects]

    await publish(topics, fresh("a"), fresh("b"), record(reviewed("b")), fresh("d"))
    board, state = Board(), State()
    state.error = StateUnavailable("away")
    async with feeding(topics, state, board) as feed:
        await until(
            lambda: feed.stale_since is not None and names(board) == ["a", "d"],
            lambda: f"the topics are believed: {names(board)}",
        )
        since, asked = feed.stale_since, state.asked
        await until(lambda: state.asked > asked + 1, "state is asked again")
        assert feed.stale_since == since, "the time of the first failure, not of the last"
        assert not feed.caught_up
        state.error = None
        await until(lambda: feed.caught_up and feed.stale_since is None, "state answers")
        await shown(board, "a")
        state.held["c"] = PENDING
        await publish(topics, fresh("c"))
        await shown(board, "a", "c")
        state.held.clear()
        await shown(board)
        assert (feed.caught_up, feed.stale_since) == (True, None)
        board.forget(datetime.now(UTC) + timedelta(days=1))
        state.error = StateLost("flushed")
        await until(lambda: feed.stale_since is not None, "state is lost")
        state.held["a"], state.error = PENDING, None
        await shown(board, "a")


async def test_a_feed_waits_for_topics_and_a_board_is_filled_once(topics):
    late = Deployment(topics.broker, topics.redis, topics.folder)
    board = Board()
    async with feeding(late, None, board) as feed:
        await until(lambda: feed.stale_since is not None, "the feed misses its topics")
        async with late:
            await publish(late, fresh("a"))
            await shown(board, "a")
    await publish(topics, *[fresh(f"c{number}") for number in range(1_200)], record(reviewed("c0")))
    board = Board()
    await fill(board, topics.broker.bootstrap, topics.prefix, timedelta(days=7), PATIENCE)
    assert board.pending(ADMIN, Query()).total == 1_199
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        await fill(Board(), "127.0.0.1:1", "x.", timedelta(days=7), 0.5)


async def test_the_queue_is_shown_through_an_outage_of_redis_and_of_the_broker(topics):
    state = await start(RedisState(connect(topics.redis.url), topics.prefix, scheme=SCHEME))
    claims = Claims()
    asks = {name: claims.ask(name, None, 2, user="ann") for name in ("a", "b", "d")}
    await decide(state, *asks.values())
    await publish(topics, fresh("a"), fresh("b"))
    board, redis, broker = Board(), topics.redis, topics.broker
    live = RedisStatuses(RedisState(connect(redis.url), topics.prefix, scheme=SCHEME, require_aof=False))
    async with feeding(topics, live, board) as feed:
        await until(lambda: feed.caught_up, "the feed catches up")
        await shown(board, "a", "b")
        await asyncio.to_thread(redis.kill)
        try:
            await until(lambda: feed.stale_since is not None, "the feed misses Redis")
            await publish(topics, fresh("c"))
            await shown(board, "a", "b", "c")  # the topics are believed meanwhile
        finally:
            await asyncio.to_thread(redis.start)
        await review_one(state, People(claims).act("reject", asks["a"]))  # its decision is not published
        await until(lambda: feed.stale_since is None, "Redis is back")
        await shown(board, "b")
        await asyncio.to_thread(broker.stop)
        try:
            await until(lambda: feed.stale_since is not None, "the feed misses the broker")
            assert names(board) == ["b"]
        finally:
            await asyncio.to_thread(broker.start)
        await publish(topics, fresh("d"))
        await until(lambda: feed.stale_since is None, "the broker is back")
        await shown(board, "b", "d")
    await live.close()
    await state.close()


async def test_an_action_that_was_not_acknowledged_is_sent_again_and_its_outcome_is_read(topics, keys_file):
    sent = review_decision(TARGET, "approve", "admin")
    async with acting(topics, keys_file, seconds=2.0) as actions:
        await asyncio.to_thread(topics.broker.stop)
        try:
            with pytest.raises(BrokerUnavailable):
                await actions.send(sent)
            assert await actions.outcome(sent, 0.1) is None
        finally:
            await asyncio.to_thread(topics.broker.start)
        async with asyncio.timeout(PATIENCE):
            while True:  # until the client has found the broker again
                with contextlib.suppress(BrokerUnavailable):
                    await actions.send(sent)
                    break
        await publish(topics, event(sent))
        outcome = await actions.outcome(sent, PATIENCE)
    told = (outcome.applied, outcome.code, outcome.action_id)
    assert told == (True, "human_approved", sent.action_id)


async def test_a_record_is_read_back_by_its_place(topics):
    await publish(topics, fresh("a"), fresh("b"))
    read = record_reader(topics.broker.bootstrap, 10)
    where = f"{topics.prefix}review"
    stored = await topics.stored("review")
    assert [await read(where, seen.partition, seen.offset) for seen in stored] == [
        seen.value for seen in stored
    ]
    assert await read(where, stored[0].partition, len(stored)) is None
    assert await read(where, topics.partitions, 0) is None
    assert await read(f"{topics.prefix}nothing", 0, 0) is None
    with pytest.raises(BrokerUnavailable):
        await record_reader("127.0.0.1:1", 0.5)(where, 0, 0)


async def test_the_queue_is_listed_and_an_item_shown_to_whom_it_belongs(topics, keys_file):
    await publish(topics, fresh("a", text="Mind \x1b[31mthis"), fresh("b", user="bob"))
    listed = await run(topics, keys_file, "list")
    assert listed.exit_code == 0, listed.output
    assert "2 of 2 waiting" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert "state cannot be asked" in listed.stderr
    assert "GROUNDWIRE_REDIS_URL" in listed.stderr
    for more, reviewer in ((["--user", "bob"], "admin"), ([], "bob")):
        lines = await run(topics, keys_file, "list", "--format", "json", *more, reviewer=reviewer)
        assert [json.loads(line)["subject_id"] for line in lines.stdout.splitlines()] == ["b"]
    item = await run(topics, keys_file, "show", "a", "--user", "ann")
    assert item.exit_code == 0, item.output
    assert "waits for a person" in item.stdout
    name, unknown = decision("a").decision_id, "x" * 36
    hidden = await run(topics, keys_file, "show", name, reviewer="bob")
    missing = await run(topics, keys_file, "show", unknown, reviewer="bob")
    assert hidden.exit_code == missing.exit_code == 2
    assert hidden.stderr.replace(name, unknown) == missing.stderr, "another user's item looks missing"


async def test_an_action_waits_for_its_outcome_and_without_an_agent_no_longer_than_asked(topics, keys_file):
    await publish(topics, fresh("a"))
    silent = await run(topics, keys_file, "approve", "a", "--user", "ann", "--wait", "0.2")
    assert (silent.exit_code, "groundwire worker reviews" in silent.stderr) == (2, True)
    sent = await run(topics, keys_file, "approve", "a", "--user", "ann", "--wait", "0")
    assert (sent.exit_code, sent.stdout.split()[0]) == (0, "sent")

    def answer(sent):
        stale = sent.action == "reject"
        return event(sent, applied=not stale, code="stale" if stale else "human_approved")

    async with agent(topics, answer):
        for arguments, applied, code, status in (
            (["approve"], True, "human_approved", 0),
            (["reject", "--reason", "incorrect"], False, "stale", 1),
            (["edit", "--content", "-"], True, "human_approved", 0),
        ):
            action, *more = arguments
            given = (action, "a", "--user", "ann", *more, "--format", "json")
            done = await run(topics, keys_file, *given, data="Edited.\n")
            assert done.exit_code == status, done.output
            told = json.loads(done.stdout)
            assert (told["applied"], told["code"], bool(told["sentence"])) == (applied, code, True)
            (sent,) = [one for one in await actions_on(topics) if one.action_id == told["action_id"]]
            assert (sent.action, sent.expected_revision, sent.reviewer) == (action, 1, "admin")
            assert sent.content == ("Edited." if action == "edit" else None)
        await publish(topics, record(reviewed("a")))
        for arguments, revision in (((decision("a").decision_id,), 1), (("a", "--user", "ann"), 2)):
            known = [one.action_id for one in await actions_on(topics)]
            await run(topics, keys_file, "retract", *arguments)
            (sent,) = [one for one in await actions_on(topics) if one.action_id not in known]
            assert sent.expected_revision == revision, "that which was named, even of a superseded decision"


@pytest.mark.smoke
async def test_several_items_are_decided_at_once_and_one_refusal_sets_the_exit_status(topics, keys_file):
    await publish(topics, fresh("a"), fresh("b"))

    def answer(sent):
        refused = sent.subject_id == "b"
        return event(sent, applied=not refused, code="not_pending" if refused else "human_approved")

    async with agent(topics, answer):
        done = await run(topics, keys_file, "approve", *(decision(name).decision_id for name in "ab"))
    assert done.exit_code == 1, done.output
    first, second, third = done.stdout.splitlines()
    assert (first.split()[0], second.split()[0]) == ("applied", "refused")
    assert third.split() == ["next", "groundwire", "review", "show", "b", "--tenant", "acme", "--user", "ann"]


async def test_replace_retracts_an_approved_claim_of_the_same_user_once_its_successor_is_approved(
    topics, keys_file
):
    waiting = [fresh("new"), fresh("other"), fresh("old", verdict="approved")]
    await publish(topics, *waiting, fresh("ben", verdict="approved", user="ben"))
    code = "human_approved"

    def answer(sent):
        said = "retracted" if sent.action == "retract" else code
        return event(sent, applied=said != "stale", code=said)

    async with agent(topics, answer):
        for memory in (decision("other").decision_id, decision("ben", user="ben").decision_id):
            replace = ("replace", decision("new").decision_id, memory, "--reason", "outdated")
            done = await run(topics, keys_file, *replace)
            assert (done.exit_code, "no approved claim" in done.stderr) == (2, True)
        assert await actions_on(topics) == []
        known: set[str] = set()
        for code, actions, status in (  # noqa: B007 - the agent answers with it
            ("stale", {("approve", "new")}, 1),
            ("duplicate", {("approve", "new")}, 2),
            ("human_approved", {("approve", "new"), ("retract", "old")}, 0),
        ):
            replace = ("replace", "new", "old", "--user", "ann", "--reason", "outdated", "--timeout", "5")
            done = await run(topics, keys_file, *replace)
            assert done.exit_code == status, done.output
            sent = [one for one in await actions_on(topics) if one.action_id not in known]
            known |= {one.action_id for one in sent}
            assert {(one.action, one.subject_id) for one in sent} == actions
