"""Runs over a dead-letter topic in memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.dead_letters import letters
from groundwire.dead_letters.letters import KafkaLog, LetterPlace, RedriveRecord, Selection
from groundwire.dead_letters.redrive import Redrive, RedriveOutcome, RedriveRefusal, Rules
from groundwire.errors import BrokerUnavailable, ErrorCode
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import header
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, CrashError, FakeLog

SECRET = "my salary is 1234"


class Slept(list):
    async def __call__(self, seconds):
        self.append(seconds)


async def collect(steps):
    return [step async for step in steps]


def redriving(log, selection=None, *, sleep=None, **rules):
    return Redrive(
        log,
        selection or Selection(),
        Rules(PREFIX, "ann", **rules),
        now=lambda: from_milliseconds(log.clock),
        sleep=Slept() if sleep is None else sleep,
    )


def outcomes(steps):
    return [(step.outcome, step.why) for step in steps]


async def test_a_record_goes_back_with_its_bytes_key_and_headers_and_the_count_of_its_failures():
    log = FakeLog()
    headers = [("traceparent", b"00-a"), ("gw-attestation", b"k:ff"), ("twice", b"1"), ("twice", b"\xff")]
    log.bury(b'{"claim_id": "\xff', key=b"\x00\xfe", headers=headers)
    (step,) = await collect(redriving(log).run())
    (sent,) = log.topics[CLAIMS]
    assert (sent.value, sent.key) == (b'{"claim_id": "\xff', b"\x00\xfe")
    assert list(sent.headers) == [*headers, ("gw-attempts", b"1")]
    assert (step.outcome, step.redriven.place) == (RedriveOutcome.REDRIVEN, (CLAIMS, 0, 0))


async def test_a_dry_run_says_what_a_run_does_and_writes_nothing():
    log = FakeLog()
    for number in range(5):
        log.bury(str(number).encode())
    log.bury(topic="t.approved")
    planned = await collect(redriving(log).plan())
    assert set(log.topics) == {DEAD, AUDIT}
    assert not log.topics[AUDIT]
    done = await collect(redriving(log).run())
    same = {RedriveOutcome.REDRIVE: RedriveOutcome.REDRIVEN}
    expected = {(same.get(one.outcome, one.outcome), one.why, one.letter.id) for one in planned}
    assert {(one.outcome, one.why, one.letter.id) for one in done} == expected


async def test_a_record_goes_to_the_input_topic_that_it_came_from_and_to_no_other():
    for topic in (
        "t.approved",
        "t.deferred",
        "t.audit",
        "t.dead-letter",
        "other.claims",
        "claims",
        "",
        "t.claims ",
    ):
        log = FakeLog()
        log.bury(topic=topic)
        refused = [(RedriveOutcome.REFUSED, RedriveRefusal.NOT_AN_INPUT_TOPIC)]
        assert (topic, outcomes(await collect(redriving(log).run()))) == (topic, refused)
        assert set(log.topics) == {DEAD, AUDIT}
    for topic in ("t.claims", "t.llm-responses", "t.review-decisions"):
        log = FakeLog()
        log.bury(topic=topic)
        await collect(redriving(log).run())
        assert len(log.topics[topic]) == 1


async def test_a_letter_that_the_gate_did_not_write_is_not_sent():
    topic, first = ("__connect.errors.topic", b"t.claims"), ("gw-attempts", b"1")
    for headers in (
        [],
        [topic],
        [topic, first],
        [topic, first, ("gw-error", b"made_up")],
        [topic, ("gw-attempts", b"-1"), ("gw-error", b"invalid_json")],
        [topic, first, ("gw-error", b"invalid_json")],
    ):
        log = FakeLog()
        log.put(DEAD, b"k", b"v", headers)
        refused = [(RedriveOutcome.REFUSED, RedriveRefusal.NOT_A_DEAD_LETTER)]
        assert (headers, outcomes(await collect(redriving(log).run()))) == (headers, refused)
        assert CLAIMS not in log.topics


async def test_a_record_that_the_client_cannot_send_is_refused_and_the_others_go_on():
    log = FakeLog()
    log.bury(b"x" * 1_047_900)
    log.bury(b"small")
    steps = await collect(redriving(log).run())
    assert outcomes(steps) == [
        (RedriveOutcome.REFUSED, RedriveRefusal.TOO_LARGE),
        (RedriveOutcome.REDRIVEN, None),
    ]


@settings(max_examples=6)
@given(st.integers(1, 6))
async def test_a_record_that_fails_again_and_again_is_sent_until_it_has_failed_often_enough(most):
    log = FakeLog()
    log.bury()
    for _ in range(most + 3):
        await collect(redriving(log, max_attempts=most).run())
        log.gate_refuses()
    assert len(log.topics[CLAIMS]) == most - 1
    attempts = [header(record.headers, "gw-attempts") for record in log.topics[DEAD]]
    assert attempts == [str(number) for number in range(1, most + 1)]
    last = await collect(redriving(log, max_attempts=most).run())
    assert outcomes(last)[-1] == (RedriveOutcome.REFUSED, RedriveRefusal.TOO_MANY_ATTEMPTS)
    assert set(outcomes(last)[:-1]) <= {(RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)}


async def test_of_two_letters_of_one_failure_one_is_sent_whichever_run_finds_the_other():
    again = (RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)
    for rate in (1, 50):
        log = FakeLog()
        log.bury(offset=7)
        log.bury(offset=7)
        assert [step.outcome async for step in redriving(log, rate=rate).plan()] == ["redrive", "skipped"]
        first = await collect(redriving(log, rate=rate).run())
        assert Counter(outcomes(first)) == {(RedriveOutcome.REDRIVEN, None): 1, again: 1}
        log.bury(offset=7)
        log.bury(offset=7, headers=[("gw-attempts", b"1")])
        log.bury(offset=8)
        later = await collect(redriving(log, rate=rate).run())
        assert Counter(outcomes(later)) == {again: 3, (RedriveOutcome.REDRIVEN, None): 2}
        assert len(log.topics[CLAIMS]) == 3
    for crash_after in (1, 2):
        log = FakeLog()
        log.bury(offset=7)
        log.bury(offset=7)
        log.crash_after = crash_after
        with pytest.raises(CrashError):
            await collect(redriving(log).run())
        log.crash_after = None
        await collect(redriving(log, Selection(places=frozenset({LetterPlace(0, 1)}))).run())
        await collect(redriving(log).run())
        assert len(log.topics[CLAIMS]) == 1


async def test_what_fails_while_a_run_goes_on_is_left_to_the_next_one():
    log = FakeLog()
    for number in range(3):
        log.bury(str(number).encode())
    async for _ in redriving(log, rate=1).run():
        log.gate_refuses()
    assert len(log.topics[CLAIMS]) == 3


async def test_a_run_stops_once_too_many_of_its_records_have_failed_again():
    log = FakeLog()
    for number in range(60):
        log.bury(str(number).encode())

    async def refuse(_seconds):
        log.gate_refuses()

    log.put(CLAIMS, b"acme:ann", b"{")
    log.gate_refuses()  # somebody else's, which is not counted
    run = redriving(log, rate=10, stop_after=20, sleep=refuse)
    steps = await collect(run.run())
    assert (len(steps), run.stopped) == (20, True)
    rest = redriving(log)
    await collect(rest.run())
    assert not rest.stopped


async def test_what_was_sent_is_not_sent_again_and_says_when_by_whom_and_where():
    log = FakeLog()
    log.bury()
    (first,) = await collect(redriving(log).run())
    (again,) = await collect(redriving(log).run())
    assert (again.outcome, again.why) == (RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)
    assert again.redriven == first.redriven
    assert len(log.topics[CLAIMS]) == 1


@given(st.data())
async def test_however_often_a_run_is_killed_each_record_is_sent_exactly_once(data):
    """Kills come between any two records that reach a topic, and between the last and its acknowledgement."""
    log = FakeLog()
    bodies = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=7))
    for body in bodies:
        log.bury(body, headers=[("gw-attempts", b"1")] if data.draw(st.booleans()) else [])
    expected = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[DEAD])
    rate = data.draw(st.sampled_from([1, 2, 100]))
    for kill in data.draw(st.lists(st.integers(0, 12), max_size=6)):
        log.crash_after = kill
        try:
            await collect(redriving(log, rate=rate).run())
        except CrashError:
            continue
    log.crash_after = None
    await collect(redriving(log, rate=rate).run())
    sent = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[CLAIMS])
    assert sent == expected
    assert {one.outcome for one in await collect(redriving(log).plan())} == {RedriveOutcome.SKIPPED}
    places = [json.loads(r.value)["detail"]["stands"] for r in log.topics[AUDIT]]
    noted = {place["offset"] for place in places if place}
    assert noted == set(range(len(bodies))), "each record that was sent is noted where it stands"


async def test_records_of_other_producers_are_not_taken_for_redriven_ones():
    log = FakeLog()
    log.bury(b"body")
    log.crash_after = 1  # the note alone
    with pytest.raises(CrashError):
        await collect(redriving(log).run())
    log.crash_after = None
    log.put(CLAIMS, b"acme:ann", b"body")  # sent again by its producer: without a count of failures
    assert outcomes(await collect(redriving(log).run())) == [(RedriveOutcome.REDRIVEN, None)]


async def test_input_topics_are_read_only_where_a_run_ended_between_two_notes():
    log = FakeLog()
    log.bury()
    await collect(redriving(log).run())
    await collect(redriving(log).run())
    assert set(log.read) == {AUDIT}


async def test_the_audit_says_before_and_after_who_sent_what_where_and_never_any_text():
    log = FakeLog()
    letter = log.bury(SECRET.encode(), code=ErrorCode.INVALID_RECORD, headers=[("note", SECRET.encode())])
    await collect(redriving(log).run())
    events = [AuditEvent.model_validate_json(record.value) for record in log.topics[AUDIT]]
    assert [event.detail["action"] for event in events] == ["redrive", "redriven"]
    assert {event.type for event in events} == {"dead_letter"}
    assert {event.actor for event in events} == {"ann"}
    assert len({event.event_id for event in events}) == 2
    assert events[1].detail == {
        "action": "redriven",
        "letter": events[1].event_id,
        "partition": 0,
        "offset": letter.offset,
        "code": "invalid_record",
        "attempts": 1,
        "origin": {"topic": CLAIMS, "partition": 2, "offset": 7},
        "stands": {"topic": CLAIMS, "partition": 0, "offset": 0},
    }
    for record, event in zip(log.topics[AUDIT], events, strict=True):
        assert header(record.headers, "ce_id") == event.event_id
        assert record.key == b"", "it is no tenant's"
        assert SECRET not in repr((record.value, record.headers))


async def test_other_audit_records_are_not_taken_for_a_redriving():
    for value in (b"{", b'{"redrive', None, b'{"type": "dead_letter", "detail": {"action": "redriven"}}'):
        log = FakeLog()
        log.bury()
        log.put(AUDIT, b"", value)
        assert outcomes(await collect(redriving(log).plan())) == [(RedriveOutcome.REDRIVE, None)]


async def test_a_letter_of_an_earlier_topic_at_the_same_place_is_another_letter():
    log = FakeLog()
    log.bury(b"one")
    await collect(redriving(log).run())
    log.topics[DEAD].clear()  # deleted and declared again: offsets begin anew
    log.bury(b"one", offset=12)
    assert outcomes(await collect(redriving(log).plan())) == [(RedriveOutcome.REDRIVE, None)]


async def test_a_run_keeps_to_its_rate_and_stops_at_its_limit():
    log, sleep = FakeLog(), Slept()
    for number in range(30):
        log.bury(str(number).encode())
    await collect(redriving(log, rate=8, limit=20, sleep=sleep).run())
    assert len(log.topics[CLAIMS]) == 20
    assert sleep == [1.0, 1.0]
    slow = Slept()
    await collect(redriving(log, rate=0.5, limit=3, sleep=slow).run())
    assert slow == [2.0, 2.0]
    assert len(await collect(redriving(log, limit=5).plan())) == 23 + 5, (
        "the 23 that were sent, and five more"
    )


async def test_large_records_are_sent_few_at_a_time():
    log, sleep = FakeLog(), Slept()
    for _ in range(12):
        log.bury(b"x" * 800_000)
    await collect(redriving(log, rate=100, sleep=sleep).run())
    assert sleep == [0.05, 0.05], "five records of four megabytes, and the rate still holds"


async def test_only_selected_letters_are_sent_and_the_limit_counts_those_that_are_sent():
    log = FakeLog()
    assert await collect(redriving(log).run()) == [], "an empty topic is no work"
    log.bury(topic="t.approved")
    log.bury(b"crash")
    log.bury(b"json", code=ErrorCode.INVALID_JSON)
    await collect(redriving(log, Selection(codes={"invalid_json"})).run())
    assert [record.value for record in log.topics[CLAIMS]] == [b"json"]
    log.bury(b"another crash")
    steps = await collect(redriving(log, limit=1).run())
    assert [step.outcome for step in steps] == [RedriveOutcome.REFUSED, RedriveOutcome.REDRIVEN]


class Sender:
    """Acknowledges whatever is sent."""

    def __init__(self):
        self.sent = []

    async def send(self, topic, value, key, headers):
        self.sent.append((topic, value, key, headers))
        done = asyncio.get_running_loop().create_future()
        done.set_result(type("Metadata", (), {"partition": 0, "offset": len(self.sent) - 1}))
        return done


@pytest.mark.parametrize("ends", [True, False])
async def test_nothing_is_sent_once_the_dead_letter_topic_cannot_be_followed(ends, monkeypatch):
    sender, begun, go_on = Sender(), asyncio.Event(), asyncio.Event()
    record = RedriveRecord("t.claims", b"k", b"v", [])

    async def follow(*_where):
        begun.set()
        await go_on.wait()
        if ends:
            raise BrokerUnavailable("gone")
        yield  # pragma: no cover

    monkeypatch.setattr(letters, "follow", follow)
    log = KafkaLog("nowhere:1", "t.", 60.0, sender)
    async with log.failing(from_milliseconds(0)):
        await begun.wait()
        assert await log.publish([record]) == [(0, 0)]
        if ends:
            go_on.set()
            await asyncio.wait([log._watching])
            with pytest.raises(BrokerUnavailable, match="followed"):
                await log.publish([record])
    assert await log.publish([record]) == [(0, 1)], "nothing is followed, and so nothing ended"
