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

REDRIVE = (RedriveOutcome.REDRIVE, None)
REDRIVEN = (RedriveOutcome.REDRIVEN, None)
AGAIN = (RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)


def redriving(log, selection=None, *, slept=None, **rules):
    async def sleep(seconds):
        if slept is not None:
            slept.append(seconds)

    rules = Rules(PREFIX, "ann", **rules)
    return Redrive(
        log, selection or Selection(), rules, now=lambda: from_milliseconds(log.clock), sleep=sleep
    )


async def run(log, *selection, **options):
    return [step async for step in redriving(log, *selection, **options).run()]


async def plan(log):
    return [step async for step in redriving(log).plan()]


def outcomes(steps):
    return [(step.outcome, step.why) for step in steps]


def log_of(*bodies):
    log = FakeLog()
    for body in bodies:
        log.bury(body)
    return log


async def test_a_record_goes_back_with_its_bytes_key_headers_and_failure_count():
    log = FakeLog()
    headers = [("traceparent", b"00-a"), ("gw-attestation", b"k:ff"), ("twice", b"1"), ("twice", b"\xff")]
    log.bury(b'{"claim_id": "\xff', key=b"\x00\xfe", headers=headers)
    (step,) = await run(log)
    (sent,) = log.topics[CLAIMS]
    assert (sent.value, sent.key) == (b'{"claim_id": "\xff', b"\x00\xfe")
    assert list(sent.headers) == [*headers, ("gw-attempts", b"1")]
    assert (step.outcome, step.redriven.place) == (RedriveOutcome.REDRIVEN, (CLAIMS, 0, 0))


async def test_a_dry_run_reports_what_a_run_does_and_writes_nothing():
    log = log_of(*(str(number).encode() for number in range(5)))
    log.bury(topic="t.approved")
    planned = await plan(log)
    assert set(log.topics) == {DEAD, AUDIT}
    assert not log.topics[AUDIT]
    same = {RedriveOutcome.REDRIVE: RedriveOutcome.REDRIVEN}
    expected = {(same.get(one.outcome, one.outcome), one.why, one.letter.id) for one in planned}
    assert {(one.outcome, one.why, one.letter.id) for one in await run(log)} == expected


async def test_only_what_the_gate_failed_on_goes_back_and_only_to_an_input_topic():
    topic, first = ("__connect.errors.topic", b"t.claims"), ("gw-attempts", b"1")
    wrong = []
    for case, refusal in (
        *((name, "not_an_input_topic") for name in ("t.approved", "t.deferred", "t.audit", "t.dead-letter")),
        *((name, "not_an_input_topic") for name in ("other.claims", "claims", "", "t.claims ")),
        *((name, None) for name in ("t.claims", "t.llm-responses", "t.review-decisions")),
        ([], "not_a_dead_letter"),
        ([topic, first], "not_a_dead_letter"),
        ([topic, first, ("gw-error", b"made_up")], "not_a_dead_letter"),
        ([topic, ("gw-attempts", b"-1"), ("gw-error", b"invalid_json")], "not_a_dead_letter"),
        ([topic, first, ("gw-error", b"invalid_json")], "not_a_dead_letter"),
        (b"x" * 1_047_900, "too_large"),
    ):
        log = FakeLog()
        if isinstance(case, list):
            log.put(DEAD, b"k", b"v", case)
        else:
            log.bury(*[case] * isinstance(case, bytes), topic=case if isinstance(case, str) else CLAIMS)
        ((_, why),) = outcomes(await run(log))
        sent = set(log.topics) - {DEAD, AUDIT}
        if why != refusal or sent != (set() if refusal else {case}):
            wrong.append((case[:40], why, sent))
    assert wrong == []
    steps = await run(log_of(b"x" * 1_047_900, b"small"))
    assert outcomes(steps) == [(RedriveOutcome.REFUSED, RedriveRefusal.TOO_LARGE), REDRIVEN]


async def test_a_record_that_fails_again_is_sent_until_it_has_failed_often_enough():
    for most in (1, 4):
        log = log_of(b"{")
        for _ in range(most + 3):
            await run(log, max_attempts=most)
            log.gate_refuses()
        assert len(log.topics[CLAIMS]) == most - 1
        attempts = [header(record.headers, "gw-attempts") for record in log.topics[DEAD]]
        assert attempts == [str(number) for number in range(1, most + 1)]
        *before, last = outcomes(await run(log, max_attempts=most))
        assert last == (RedriveOutcome.REFUSED, RedriveRefusal.TOO_MANY_ATTEMPTS)
        assert set(before) <= {AGAIN}


async def test_of_two_letters_of_one_failure_one_is_sent_whichever_run_finds_the_other():
    for rate in (1, 50):
        log = FakeLog()
        log.bury(offset=7)
        log.bury(offset=7)
        assert [step.outcome async for step in redriving(log, rate=rate).plan()] == ["redrive", "skipped"]
        assert Counter(outcomes(await run(log, rate=rate))) == {REDRIVEN: 1, AGAIN: 1}
        log.bury(offset=7)
        log.bury(offset=7, headers=[("gw-attempts", b"1")])
        log.bury(offset=8)
        assert Counter(outcomes(await run(log, rate=rate))) == {AGAIN: 3, REDRIVEN: 2}
        assert len(log.topics[CLAIMS]) == 3
    for crash_after in (1, 2):
        log = FakeLog()
        log.bury(offset=7)
        log.bury(offset=7)
        log.crash_after = crash_after
        with pytest.raises(CrashError):
            await run(log)
        log.crash_after = None
        await run(log, Selection(places=frozenset({LetterPlace(0, 1)})))
        await run(log)
        assert len(log.topics[CLAIMS]) == 1


async def test_a_run_leaves_new_failures_to_the_next_one_and_stops_at_too_many_of_its_own():
    log = log_of(b"0", b"1", b"2")
    async for _ in redriving(log, rate=1).run():
        log.gate_refuses()
    assert len(log.topics[CLAIMS]) == 3
    log = log_of(*(str(number).encode() for number in range(60)))
    log.put(CLAIMS, b"acme:ann", b"{")
    log.gate_refuses()  # another producer's, which is not counted

    class Refusing(list):
        def append(self, _seconds):
            log.gate_refuses()

    stopping = redriving(log, rate=10, stop_after=20, slept=Refusing())
    assert (len([step async for step in stopping.run()]), stopping.stopped) == (20, True)
    rest = redriving(log)
    assert [step async for step in rest.run()]
    assert not rest.stopped


async def test_a_record_that_was_sent_is_skipped_with_when_by_whom_and_where_and_no_input_topic_is_read():
    log = log_of(b"{")
    (first,) = await run(log)
    (again,) = await run(log)
    assert ((again.outcome, again.why), again.redriven) == (AGAIN, first.redriven)
    assert (len(log.topics[CLAIMS]), set(log.read)) == (1, {AUDIT})
    log.topics[DEAD].clear()  # deleted and declared again: offsets restart
    log.bury(b"{", offset=12)
    assert outcomes(await plan(log)) == [REDRIVE], "a letter of the earlier topic is another letter"


@settings(max_examples=30)
@given(st.data())
async def test_however_often_a_run_crashes_each_record_is_sent_exactly_once(data):
    """Crashes come between any two records that reach a topic, and between the last and its acknowledgement."""
    log = FakeLog()
    bodies = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=7))
    for body in bodies:
        log.bury(body, headers=[("gw-attempts", b"1")] if data.draw(st.booleans()) else [])
    expected = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[DEAD])
    rate = data.draw(st.sampled_from([1, 2, 100]))
    for crash in data.draw(st.lists(st.integers(0, 12), max_size=6)):
        log.crash_after = crash
        try:
            await run(log, rate=rate)
        except CrashError:
            continue
    log.crash_after = None
    await run(log, rate=rate)
    sent = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[CLAIMS])
    assert sent == expected
    assert set(outcomes(await plan(log))) == {AGAIN}
    places = [json.loads(r.value)["detail"]["stands"] for r in log.topics[AUDIT]]
    noted = {place["offset"] for place in places if place}
    assert noted == set(range(len(bodies))), "the audit has the position of each record that was sent"


async def test_neither_a_producers_own_retry_nor_another_audit_event_counts_as_a_redrive():
    log = log_of(b"body")
    log.crash_after = 1  # the first audit event alone
    with pytest.raises(CrashError):
        await run(log)
    log.crash_after = None
    log.put(CLAIMS, b"acme:ann", b"body")  # sent again by its producer: without a failure count
    assert outcomes(await run(log)) == [REDRIVEN]
    for value in (b"{", b'{"redrive', None, b'{"type": "dead_letter", "detail": {"action": "redriven"}}'):
        log = log_of(b"body")
        log.put(AUDIT, b"", value)
        assert outcomes(await plan(log)) == [REDRIVE], value


async def test_the_audit_says_before_and_after_who_sent_what_where_and_never_any_text():
    log, secret = FakeLog(), "my salary is 1234"
    letter = log.bury(secret.encode(), code=ErrorCode.INVALID_RECORD, headers=[("note", secret.encode())])
    await run(log)
    events = [AuditEvent.model_validate_json(record.value) for record in log.topics[AUDIT]]
    assert [event.detail["action"] for event in events] == ["redrive", "redriven"]
    assert {(event.type, event.actor) for event in events} == {("dead_letter", "ann")}
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
        assert secret not in repr((record.value, record.headers))


async def test_a_run_keeps_to_its_rate_its_limit_and_the_size_of_a_batch():
    log, slept = log_of(*(str(number).encode() for number in range(30))), []
    await run(log, rate=8, limit=20, slept=slept)
    assert (len(log.topics[CLAIMS]), slept) == (20, [1.0, 1.0])
    slow = []
    await run(log, rate=0.5, limit=3, slept=slow)
    assert slow == [2.0, 2.0]
    steps = [step async for step in redriving(log, limit=5).plan()]
    assert Counter(outcomes(steps)) == {AGAIN: 23, REDRIVE: 5}
    large, waited = log_of(*[b"x" * 800_000] * 12), []
    await run(large, rate=100, slept=waited)
    assert waited == [0.05, 0.05], "five records are four megabytes, and the rate still holds"


async def test_only_selected_letters_are_sent_and_the_limit_counts_those_that_are_sent():
    log = FakeLog()
    assert await run(log) == [], "an empty topic is no work"
    log.bury(topic="t.approved")
    log.bury(b"crash")
    log.bury(b"json", code=ErrorCode.INVALID_JSON)
    await run(log, Selection(codes={"invalid_json"}))
    assert [record.value for record in log.topics[CLAIMS]] == [b"json"]
    log.bury(b"another crash")
    steps = await run(log, limit=1)
    assert [step.outcome for step in steps] == [RedriveOutcome.REFUSED, RedriveOutcome.REDRIVEN]


async def test_nothing_is_sent_once_the_dead_letter_topic_cannot_be_followed(monkeypatch):
    sent, begun, go_on, ended = [], asyncio.Event(), asyncio.Event(), asyncio.Event()
    record = RedriveRecord("t.claims", b"k", b"v", [])

    class Sender:
        async def send(self, *record, **_headers):
            sent.append(record)
            done = asyncio.get_running_loop().create_future()
            done.set_result(type("Metadata", (), {"partition": 0, "offset": len(sent) - 1}))
            return done

    async def follow(*_where):
        begun.set()
        await go_on.wait()
        ended.set()
        raise BrokerUnavailable("gone")
        yield  # pragma: no cover

    monkeypatch.setattr(letters, "follow", follow)
    log = KafkaLog("nowhere:1", "t.", 60.0, Sender())
    async with log.failing(from_milliseconds(0)):
        await begun.wait()
        assert await log.publish([record]) == [(0, 0)]
        go_on.set()
        await ended.wait()
        with pytest.raises(BrokerUnavailable, match="followed"):
            await log.publish([record])
    assert await log.publish([record]) == [(0, 1)], "nothing is followed, and so nothing ended"
