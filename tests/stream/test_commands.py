"""The commands `produce`, `tail` and `review`, the feed, the actions and the reader beneath them, against a broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from aiokafka import TopicPartition
from click.testing import CliRunner

from groundwire.cli.produce import produce
from groundwire.cli.review import review
from groundwire.cli.tail import tail
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable, UsageError
from groundwire.kafka import connection
from groundwire.kafka.reader import open_reader
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
from tests.stream.harness import PATIENCE, ROOT, Deployment, good, until
from tests.unit.review.world import ADMIN, audit, decision, record, reviewed

pytestmark = [pytest.mark.stream, pytest.mark.slow]


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
    pace = Pace(poll=0.05, check=0.1, retry=0.1, answer=5)
    feed = Feed(board, state, brokers=topics.broker.bootstrap, prefix=topics.prefix, pace=pace)
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


async def test_an_action_is_signed_and_keyed_sent_again_unless_acknowledged_and_its_outcome_is_read_in_any_order(
    topics, keys_file
):
    def acting(prefix, **options) -> Actions:
        return Actions(topics.broker.bootstrap, prefix, Signer(Keys.load(keys_file), "desk"), **options)

    target = ActionTarget("acme", "ann", Kind.CLAIM, "c1", 1)
    sent = review_decision(target, "reject", "admin", reason="outdated")
    first, second, third = (review_decision(target, "approve", "ann") for _ in range(3))
    async with acting(topics.prefix) as actions:
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

        for each in (first, second, third):
            await actions.send(each)
        elsewhere = AuditEvent.model_validate_json(event(third).value)
        elsewhere = elsewhere.model_copy(update={"tenant_id": "globex"})
        other = type(event(third))("audit", 0, 0, 0, b"globex", elsewhere.model_dump_json().encode())
        refused = event(second, applied=False, code="stale")
        await publish(topics, other, refused, event(first), event(second))
        done = await actions.outcome(first, PATIENCE)
        late = await actions.outcome(second, PATIENCE)
        reported = (done.applied, done.code, done.revision, done.verdict)
        assert reported == (True, "human_approved", 2, "approved")
        assert (late.applied, late.code) == (False, "stale"), "the first outcome holds"
        assert await actions.outcome(third, 0.2) is None, "another tenant's action may have the same id"
    with pytest.raises(UsageError, match=r"nowhere\.audit"):
        async with acting("nowhere."):
            pass

    again = review_decision(target, "approve", "admin")
    async with acting(topics.prefix, seconds=2.0) as actions:
        await asyncio.to_thread(topics.broker.stop)
        try:
            with pytest.raises(BrokerUnavailable):
                await actions.send(again)
            assert await actions.outcome(again, 0.1) is None
        finally:
            await asyncio.to_thread(topics.broker.start)
        async with asyncio.timeout(PATIENCE):
            while True:  # until the client has found the broker again
                with contextlib.suppress(BrokerUnavailable):
                    await actions.send(again)
                    break
        await publish(topics, event(again))
        outcome = await actions.outcome(again, PATIENCE)
    assert (outcome.applied, outcome.action_id) == (True, again.action_id)


async def test_the_feed_waits_for_its_topics_believes_state_and_says_since_when_it_has_none(topics):
    pending, blocked = SubjectStatus(SubjectState.PENDING, 1), SubjectStatus(SubjectState.BLOCKED, 2)

    class State:
        """Answers with the statuses that the test sets; keys are subject ids."""

        held: ClassVar = {"a": pending, "d": blocked}
        error: Exception | None = StateUnavailable("away")
        asked = 0

        async def statuses(self, subjects):
            self.asked += 1
            if self.error is not None:
                raise self.error
            return [self.held.get(subject.subject_id) for subject in subjects]

    late = Deployment(topics.broker, topics.redis, topics.folder)
    board, state = Board(), State()
    async with feeding(late, state, board) as feed:
        await until(lambda: feed.stale_since is not None, "the feed misses its topics")
        async with late:
            await publish(late, fresh("a"), fresh("b"), record(reviewed("b")), fresh("d"))
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
            state.held["c"] = pending
            await publish(late, fresh("c"))
            await shown(board, "a", "c")
            state.held.clear()
            await shown(board)
            assert (feed.caught_up, feed.stale_since) == (True, None)
            board.forget(datetime.now(UTC) + timedelta(days=1))
            state.error = StateLost("flushed")
            await until(lambda: feed.stale_since is not None, "state is lost")
            state.held["a"], state.error = pending, None
            await shown(board, "a")


async def test_a_board_is_filled_once_and_a_record_is_read_back_by_its_place(topics, tmp_path, monkeypatch):
    await publish(topics, *[fresh(f"c{number}") for number in range(1_200)], record(reviewed("c0")))
    path, days = tmp_path / "board.sqlite", timedelta(days=7)
    with Board(path) as board:
        await fill(board, topics.broker.bootstrap, topics.prefix, days, PATIENCE)
        assert board.pending(ADMIN, Query()).total == 1_199
    await publish(topics, fresh("late"))
    with Board(path) as board:
        add, added = board.add, []
        monkeypatch.setattr(board, "add", lambda found, prefix: (added.extend(found), add(found, prefix)))
        await fill(board, topics.broker.bootstrap, topics.prefix, days, PATIENCE)
        assert board.pending(ADMIN, Query()).total == 1_200
        assert len(added) == 1, "a kept board is read on"
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        await fill(Board(), "127.0.0.1:1", "x.", days, 0.5)

    read = record_reader(topics.broker.bootstrap, 10)
    where, stored = f"{topics.prefix}review", await topics.stored("review")
    for seen in (stored[0], stored[-1]):
        assert await read(where, seen.partition, seen.offset) == seen.value
    nowhere = ((where, 0, len(stored)), (where, topics.partitions, 0), (f"{topics.prefix}nothing", 0, 0))
    assert [await read(*place) for place in nowhere] == [None] * 3
    with pytest.raises(BrokerUnavailable):
        await record_reader("127.0.0.1:1", 0.5)(where, 0, 0)


async def test_the_queue_is_shown_through_an_outage_of_redis_and_of_the_broker(topics):
    state = await start(RedisState(connect(topics.redis.url), topics.prefix, scheme=SCHEME, partitions=1))
    claims = Claims()
    asks = {name: claims.ask(name, None, 2, user="ann") for name in ("a", "b", "d")}
    await decide(state, *asks.values())
    await publish(topics, fresh("a"), fresh("b"))
    board, redis, broker = Board(), topics.redis, topics.broker
    live = RedisStatuses(
        RedisState(connect(redis.url), topics.prefix, scheme=SCHEME, partitions=1, require_aof=False)
    )
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


@pytest.mark.smoke
async def test_review_commands_show_the_queue_to_whom_it_belongs_and_wait_for_the_outcome_of_an_action(
    topics, keys_file
):
    async def run(*arguments, data=None, reviewer="admin"):
        """Run `groundwire review` where Redis is out of reach."""
        options = ["--reviewer", reviewer, "--key", "desk", "--keys-file", keys_file]
        options += ["--brokers", topics.broker.bootstrap, "--prefix", topics.prefix]
        env = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
        given = [*map(str, [*arguments, *options])]
        return await asyncio.to_thread(CliRunner().invoke, review, given, input=data, env=env)

    @asynccontextmanager
    async def agent(answer) -> AsyncIterator[None]:
        """Answer every new ReviewDecision on the audit topic, as the reviews agent would."""

        async def answering() -> None:
            while not over.is_set():
                for sent in await actions():
                    if sent.action_id not in answered:
                        answered.add(sent.action_id)
                        await publish(topics, answer(sent))

        over = asyncio.Event()
        task = asyncio.create_task(answering())
        try:
            yield
        finally:
            over.set()
            await task

    async def actions() -> list:
        return [decode_review_decision(seen.value) for seen in await topics.stored("review-decisions")]

    async def newly_sent() -> list:
        found = [one for one in await actions() if one.action_id not in known]
        known.update(one.action_id for one in found)
        return found

    known: set[str] = set()
    answered: set[str] = set()
    await publish(topics, fresh("a", text="Mind \x1b[31mthis"), fresh("b", user="bob"))
    listed = await run("list")
    assert listed.exit_code == 0, listed.output
    assert "2 of 2 waiting" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert "state cannot be asked" in listed.stderr
    assert "GROUNDWIRE_REDIS_URL" in listed.stderr
    for more, reviewer in ((["--user", "bob"], "admin"), ([], "bob")):
        lines = await run("list", "--format", "json", *more, reviewer=reviewer)
        assert [json.loads(line)["subject_id"] for line in lines.stdout.splitlines()] == ["b"]
    item = await run("show", "a", "--user", "ann")
    assert item.exit_code == 0, item.output
    assert "waiting for a review" in item.stdout
    name, unknown = decision("a").decision_id, "x" * 36
    hidden = await run("show", name, reviewer="bob")
    missing = await run("show", unknown, reviewer="bob")
    assert hidden.exit_code == missing.exit_code == 2
    assert hidden.stderr.replace(name, unknown) == missing.stderr, "another user's item looks missing"

    silent = await run("approve", "a", "--user", "ann", "--wait", "0.2")
    assert (silent.exit_code, "groundwire worker reviews" in silent.stderr) == (2, True)
    unanswered = await run("approve", "a", "--user", "ann", "--wait", "0")
    assert (unanswered.exit_code, unanswered.stdout.split()[0]) == (0, "sent")
    await newly_sent()

    code = "human_approved"

    def answer(sent):
        if sent.subject_id == "b":
            return event(sent, applied=False, code="not_pending")
        reported = {"reject": "stale", "retract": "retracted"}.get(sent.action, code)
        return event(sent, applied=reported != "stale", code=reported)

    async with agent(answer):
        for arguments, applied, expected, status in (
            (["approve"], True, "human_approved", 0),
            (["reject", "--reason", "incorrect"], False, "stale", 1),
            (["edit", "--content", "-"], True, "human_approved", 0),
        ):
            action, *more = arguments
            given = (action, "a", "--user", "ann", *more, "--format", "json")
            done = await run(*given, data="Edited.\n")
            assert done.exit_code == status, done.output
            printed = json.loads(done.stdout)
            assert (printed["applied"], printed["code"], bool(printed["sentence"])) == (
                applied,
                expected,
                True,
            )
            (sent,) = await newly_sent()
            assert sent.action_id == printed["action_id"]
            assert (sent.action, sent.expected_revision, sent.reviewer) == (action, 1, "admin")
            assert sent.content == ("Edited." if action == "edit" else None)

        # several items at once: one refusal sets the exit status
        of_bob = decision("b", user="bob").decision_id
        done = await run("approve", name, of_bob)
        assert done.exit_code == 1, done.output
        first, second, third = done.stdout.splitlines()
        assert (first.split()[0], second.split()[0]) == ("applied", "refused")
        following = "next groundwire review show b --tenant acme --user bob"
        assert third.split() == following.split()
        await newly_sent()

        await publish(topics, record(reviewed("a", decided_at=datetime.now(UTC).isoformat())))
        for target, revision in (((name,), 1), (("a", "--user", "ann"), 2)):
            await run("retract", *target)
            (sent,) = await newly_sent()
            assert sent.expected_revision == revision, "that which was named, even of a superseded decision"

        # `replace` retracts an approved claim of the same user once its successor is approved
        waiting = [fresh("new"), fresh("other"), fresh("old", verdict="approved")]
        await publish(topics, *waiting, fresh("ben", verdict="approved", user="ben"))
        for memory in (decision("other").decision_id, decision("ben", user="ben").decision_id):
            done = await run("replace", decision("new").decision_id, memory, "--reason", "outdated")
            assert (done.exit_code, "no approved claim" in done.stderr) == (2, True)
        assert await newly_sent() == []
        for code, expected, status in (  # noqa: B007 - the agent answers with it
            ("stale", {("approve", "new")}, 1),
            ("duplicate", {("approve", "new")}, 2),
            ("human_approved", {("approve", "new"), ("retract", "old")}, 0),
        ):
            replace = ("replace", "new", "old", "--user", "ann", "--reason", "outdated", "--timeout", "5")
            done = await run(*replace)
            assert done.exit_code == status, done.output
            assert {(one.action, one.subject_id) for one in await newly_sent()} == expected


def claim(number, user="u1", **fields):
    one = {"claim_id": f"c{number}", "user_id": user, "content": "Redis is fast", **fields}
    return json.dumps(one).encode()


async def run(command, topics, *arguments, data=None):
    where = ["--brokers", topics.broker.bootstrap, "--prefix", topics.prefix]
    given = [*map(str, arguments), *where]
    return await asyncio.to_thread(CliRunner().invoke, command, given, input=data)


def process(topics, *arguments, **settings):
    command = f"from groundwire.cli.{arguments[0]} import {arguments[0]} as command; command()"
    where = ["--brokers", topics.broker.bootstrap, "--prefix", topics.prefix]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"}
    return subprocess.Popen(
        [sys.executable, "-c", command, *arguments[1:], *where], env=environment, **settings
    )


async def test_values_are_produced_byte_for_byte_in_order_under_their_user_s_key(topics, tmp_path):
    lines = [claim(n, user=f"u{n % 5}").replace(b'": ', b'" :  ') for n in range(2_000)]
    result = await run(produce, topics, "-", data=b"\n".join(lines))
    assert (result.exit_code, result.stdout) == (0, "produced 2000\n"), result.output
    assert result.stderr == "", "progress is for terminals"
    records = await topics.stored("claims")
    assert sorted(seen.value for seen in records) == sorted(lines)
    for user in range(5):
        own = [seen for seen in records if seen.key == f"default:u{user}".encode()]
        assert [seen.value for seen in own] == lines[user::5]
        assert len({seen.partition for seen in own}) == 1
    path = tmp_path / "in.jsonl"
    response = b'{"response_id": "r", "user_id": "u", "answer": null}'
    path.write_bytes(b"\n" + claim(-1) + b"\n \t\r\n" + response + b"\n\n")
    result = await run(produce, topics, path)
    assert (result.exit_code, result.stdout) == (0, "produced 2\n"), "blank lines are skipped"
    assert claim(-1) in [seen.value for seen in await topics.stored("claims")]
    assert [seen.value for seen in await topics.stored("llm-responses")] == [response]


async def test_bad_lines_are_refused_by_number_and_without_validation_sent_as_they_are(topics):
    bad = [
        b"{",
        claim(2, contents="x"),
        claim(3, schema_version="9"),
        b'{"\\u001b[31m": 1}',
        b"x" * 1_100_000,
    ]
    result = await run(produce, topics, "-", data=b"\n".join([claim(1), *bad, claim(4)]))
    assert (result.exit_code, result.stdout) == (1, "produced 2, refused 5\n")
    codes = ("invalid_json: ", "invalid_record: contents: ", "unsupported_version: schema_version: ")
    for number, (line, code) in enumerate(
        zip(result.stderr.splitlines(), (*codes, "invalid_record: ", "too_large: "), strict=True), 2
    ):
        assert line.startswith(f"line {number}: {code}")
    assert "\x1b" not in result.stderr
    assert len(await topics.stored("claims")) == 2
    result = await run(
        produce, topics, data=b'{\n "claim_id": "1"\n}'
    )  # standard input, and no lines of records
    assert result.stderr.splitlines()[1].startswith("hint: one JSON object a line")
    assert result.stderr.count("hint") == 1
    bad = [b"\xff\x00", claim(2, contents="x"), b"x" * 950_000, b"{} \r"]
    result = await run(produce, topics, "-", "--no-validate", data=b"\n".join(bad))
    assert (result.exit_code, result.stdout) == (0, "produced 4\n"), result.output
    sent = {seen.value: seen.key for seen in await topics.stored("claims")}
    assert sent.keys() >= set(bad)
    assert sent[bad[1]] == b"default:u1"


async def test_records_carry_the_given_headers_and_a_signature_of_their_bytes(topics, tmp_path):
    keys_file = tmp_path / "keys.toml"
    new_key(keys_file, "docs", tenants=["default"], sources=["adr"])
    given = ["--attest", "docs", "--keys-file", keys_file, "--header", "traceparent=00-a=b"]
    result = await run(produce, topics, "-", *given, data=claim(1) + b"\n" + claim(2))
    assert result.exit_code == 0, result.output
    keys = Keys.load(keys_file)
    for seen in await topics.stored("claims"):
        signature = keys.sign("docs", seen.value)
        assert dict(seen.headers) == {"traceparent": b"00-a=b", "gw-attestation": signature}
    given[1] = "dosc"
    assert (await run(produce, topics, "-", *given, data=claim(3))).exit_code == 2
    assert len(await topics.stored("claims")) == 2, "nothing is sent unsigned"
    missing = Deployment(topics.broker, topics.redis, tmp_path)
    result = await run(produce, missing, "-", "--timeout", "1", data=claim(1))
    assert result.exit_code == 2
    assert ".claims" in result.stderr
    assert "topics declare" in result.stderr


async def test_a_pipe_is_sent_and_a_topic_followed_until_ctrl_c_and_a_lost_broker_is_an_error_in_bounded_time(
    topics,
):
    async def sent(sending, number):
        sending.stdin.write(claim(number) + b"\n")
        sending.stdin.flush()
        async with asyncio.timeout(PATIENCE):
            while claim(number) not in [seen.value for seen in topics.seen["claims"]]:
                assert sending.poll() is None
                await asyncio.sleep(0.05)

    with process(topics, "produce", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sending:
        await sent(sending, 1)
        sending.send_signal(signal.SIGINT)
        output, _ = await asyncio.to_thread(sending.communicate)
        assert output == b"produced 1\n", "an interrupted run says how far it came"
        assert sending.returncode == 130
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process(topics, "produce", "-", "--timeout", "2", **pipes) as sending:
        await sent(sending, 2)
        await asyncio.to_thread(topics.broker.stop)
        try:
            _, errors = await asyncio.to_thread(sending.communicate, claim(3) + b"\n")
        finally:
            await asyncio.to_thread(topics.broker.start)
        await topics.produce([claim(4)])
        await until(lambda: claim(4) in [seen.value for seen in topics.seen["claims"]], "the broker is back")
        assert sending.returncode == 2
        assert b"GROUNDWIRE_BROKERS" in errors
        assert b"Traceback" not in errors

    log = topics.folder / "tail.log"
    with (
        log.open("wb") as out,
        process(topics, "tail", "approved", stdout=out, stderr=subprocess.PIPE) as following,
    ):
        async with asyncio.timeout(PATIENCE):
            while not log.stat().st_size:  # it starts at the end, and nothing says when it is there
                await (await topics.send(b'{"new": 1}', topic="approved", key=b"k"))
        following.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(following.communicate)
        assert (following.returncode, errors) == (0, b"")


async def test_tail_prints_records_as_they_are_and_chooses_by_partition_offset_time_and_number(topics):
    async def tailed(*arguments):
        result = await run(tail, topics, *arguments, "--until-end", "--format", "json")
        assert result.exit_code == 0, result.output
        return result.stdout_bytes.splitlines()

    values = [f'{{"subject_id": "c{n}",  "verdict": "approved"}}'.encode() for n in range(300)]
    for number, value in enumerate(values):
        await topics.send(value, topic="approved", key=b"k", partition=number % 3)
    await topics.producer.flush()
    lines = await tailed("approved")
    assert sorted(lines) == sorted(values)
    assert [line for line in lines if line in values[::3]] == values[::3], "a partition keeps its order"

    start = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    for n in range(30):
        at = {"partition": n % 3, "timestamp_ms": start + n * 1000}
        await topics.send(b"%d" % n, topic="blocked", key=b"k", **at)
    await topics.producer.flush()
    for arguments, expected in (
        (("--partition", "1"), range(1, 30, 3)),
        (("--partition", "1", "--from", "8"), (25, 28)),
        (("--from", "9"), (27, 28, 29)),
        (("--from", "2026-01-01T01:00:20.5+01:00"), range(21, 30)),
        (("--from", "2027-01-01T00:00:00Z"), ()),
        (("--from", "latest"), ()),
    ):
        assert sorted(map(int, await tailed("blocked", *arguments))) == list(expected), arguments
    assert len(await tailed("blocked", "--limit", "7")) == 7
    wrong = await run(tail, topics, "blocked", "--partition", "4")
    assert (wrong.exit_code, "no partition 4" in wrong.stderr) == (2, True)
    missing = await run(tail, Deployment(topics.broker, topics.redis, topics.folder), "audit")
    assert (missing.exit_code, ".audit" in missing.stderr) == (2, True)


async def test_hostile_text_reaches_a_terminal_as_text_and_a_pipe_gets_no_colours(topics):
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]"
    value = {"verdict": "blocked", "subject_id": hostile, "user_id": hostile, "evidence": {"claim": hostile}}
    sent = json.dumps(value, ensure_ascii=False).encode()
    await (await topics.send(sent, topic="approved", key=b"k"))

    def printed(layout: str) -> str:
        parent, child = pty.openpty()
        arguments = ("tail", "approved", "--until-end", "--format", layout)
        with process(topics, *arguments, stdout=child, stderr=child) as printing:
            os.close(child)
            data = b""
            while True:
                try:
                    data += (part := os.read(parent, 65_536))
                except OSError:  # Linux reports a terminal without a writer so
                    break
                if not part:
                    break
            assert printing.wait() == 0, data
        os.close(parent)
        return data.decode()

    for layout in ("table", "json"):
        text = await asyncio.to_thread(printed, layout)
        assert not re.search("\x1b]|\x1b\\[2J|[\x07\x9b\u202e]", text)
        if layout == "table":
            assert "\x1b[31m" in text, "a terminal gets colours"
        else:
            assert json.loads(text) == value
    record = b'{"verdict": "approved", "reason": "[red]ok"}'
    await (await topics.send(record, topic="review", key=b"k"))
    result = await run(tail, topics, "review", "--until-end", "--format", "table")
    first, second = result.stdout.splitlines()
    assert first.split()[:2] == ["time", "verdict"]
    assert second.endswith("[red]ok")
    assert "\x1b" not in result.stdout


async def test_lag_counts_what_is_not_committed_of_each_role(topics):
    async def lags() -> dict[tuple[str, int | None], int]:
        out, _ = await topics.succeeds("lag", "--format", "json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert {row["topic"] for row in rows} == {
            topics.prefix + name for name in ("claims", "llm-responses", "deferred", "review-decisions")
        }
        found: dict[tuple[str, int | None], int] = {}
        for row in rows:
            place = row["role"], row["committed"]
            found[place] = found.get(place, 0) + row["lag"]
        return {place: count for place, count in found.items() if count}

    await topics.produce([good(number) for number in range(5)])
    assert await lags() == {("claims", None): 5}
    worker = await topics.start_worker("claims").ready()
    await topics.settled(5)
    await worker.stop()
    assert await lags() == {}


async def test_a_reader_that_turns_to_another_partition_and_closes_at_once_waits_for_nothing(
    topics, monkeypatch
):
    monkeypatch.setattr(connection, "_STOP_SECONDS", None)  # so that no deadline ends it
    place, other = (TopicPartition(f"{topics.prefix}claims", number) for number in range(2))
    async with asyncio.timeout(PATIENCE):
        for turns in range(5):
            async with open_reader(topics.broker.bootstrap, PATIENCE) as reader:
                reader.seek({place: 0}, {place: 0})
                await reader.batch(20)  # which leaves a fetch under way
                reader.seek({other: 0}, {other: 0})
                for _ in range(turns):  # until the fetch is given up, which takes a few
                    await asyncio.sleep(0)
