"""Runs over a dead-letter topic in memory; `groundwire dead-letters`: what it selects and prints, how it ends."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import click
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnsupportedCodecError
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.outputs import Output, outputs, unpublishable
from groundwire.cli import dead_letters as command
from groundwire.cli.dead_letters import LetterPrinter, PlaceParam, content_json, content_lines, letter_json
from groundwire.cli.main import main
from groundwire.dead_letters.letters import (
    KafkaLog,
    LetterPlace,
    Redriven,
    RedriveRecord,
    Selection,
    read_letter,
)
from groundwire.dead_letters.redrive import Redrive, RedriveOutcome, RedriveRefusal, Rules
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, UsageError
from groundwire.gate.types import DeadLetter
from groundwire.kafka import reader
from groundwire.kafka.reader import RecordPlace
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord, deferred_headers, deferred_record, header
from groundwire.messages.topics import TopicName
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, CrashError, FakeLog
from tests.unit.kafka.fake_consumer import FakeConsumer, serving

REDRIVE = (RedriveOutcome.REDRIVE, None)
REDRIVEN = (RedriveOutcome.REDRIVEN, None)
AGAIN = (RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)


def redriving(log, selection=None, *, slept=None, **rules):
    async def sleep(seconds):
        if slept is not None:
            slept.append(seconds)

    times = {"now": lambda: from_milliseconds(log.clock), "sleep": sleep}
    return Redrive(log, selection or Selection(), Rules(PREFIX, "ann", **rules), **times)


async def run(log, *selection, **options):
    return [step async for step in redriving(log, *selection, **options).run()]


async def plan(log, **options):
    return [step async for step in redriving(log, **options).plan()]


def outcomes(steps):
    return [(step.outcome, step.why) for step in steps]


def log_of(*bodies):
    log = FakeLog()
    for body in bodies:
        log.bury(body)
    return log


async def test_a_record_goes_back_as_it_was_with_its_failure_count_and_the_audit_says_who_sent_it_where():
    log = FakeLog()
    headers = [("traceparent", b"00-a"), ("gw-attestation", b"k:ff"), ("twice", b"1"), ("twice", b"\xff")]
    log.bury(b'{"claim_id": "\xff', key=b"\x00\xfe", headers=headers)
    (step,) = await run(log)
    (sent,) = log.topics[CLAIMS]
    assert (sent.value, sent.key) == (b'{"claim_id": "\xff', b"\x00\xfe")
    assert list(sent.headers) == [*headers, ("gw-attempts", b"1")]
    assert (step.outcome, step.redriven.place) == (RedriveOutcome.REDRIVEN, (CLAIMS, 0, 0))
    log, secret = FakeLog(), "my salary is 1234"
    letter = log.bury(secret.encode(), code="invalid_record", headers=[("note", secret.encode())])
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


async def test_only_what_the_gate_failed_on_goes_back_to_an_input_topic_and_a_dry_run_says_so_and_writes_nothing():
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
        (planned,) = await plan(log)
        assert (planned.why, set(log.topics) - {DEAD, AUDIT}, log.topics[AUDIT]) == (refusal, set(), [])
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
        assert [step.outcome for step in await plan(log, rate=rate)] == ["redrive", "skipped"]
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


async def test_a_run_keeps_to_its_selection_rate_and_batch_size_and_its_limit_counts_what_is_sent():
    log, slept = log_of(*(str(number).encode() for number in range(30))), []
    await run(log, rate=8, limit=20, slept=slept)
    assert (len(log.topics[CLAIMS]), slept) == (20, [1.0, 1.0])
    slow = []
    await run(log, rate=0.5, limit=3, slept=slow)
    assert slow == [2.0, 2.0]
    assert Counter(outcomes(await plan(log, limit=5))) == {AGAIN: 23, REDRIVE: 5}
    log = FakeLog()
    assert await run(log) == [], "an empty topic is no work"
    log.bury(topic="t.approved")
    log.bury(b"crash")
    log.bury(b"json", code="invalid_json")
    await run(log, Selection(codes={"invalid_json"}))
    assert [record.value for record in log.topics[CLAIMS]] == [b"json"]
    steps = await run(log, limit=1)
    assert [step.outcome for step in steps] == [RedriveOutcome.REFUSED, RedriveOutcome.REDRIVEN]
    large, waited = log_of(*[b"x" * 800_000] * 12), []
    await run(large, rate=100, slept=waited)
    assert waited == [0.05, 0.05], "five records are four megabytes, and the rate still holds"


async def test_nothing_is_sent_once_the_dead_letter_topic_cannot_be_followed(monkeypatch):
    sent = []
    record = RedriveRecord("t.claims", b"k", b"v", [])

    class Sender:
        async def send(self, *record, **_headers):
            sent.append(record)
            done = asyncio.get_running_loop().create_future()
            done.set_result(type("Metadata", (), {"partition": 0, "offset": len(sent) - 1}))
            return done

    client = FakeConsumer(partition=TopicPartition("t.dead-letter", 0))
    monkeypatch.setattr(reader, "consumer", serving(client))
    log = KafkaLog("nowhere:1", "t.", 60.0, Sender())
    with pytest.raises(UsageError, match="zstd"):  # noqa: PT012 - what ended the watch is not kept silent
        async with log.failing(from_milliseconds(0)):
            assert await log.publish([record]) == [(0, 0)]
            client.fails_with = UnsupportedCodecError("zstd")
            await asyncio.sleep(0.1)
            with pytest.raises(BrokerUnavailable, match="followed"):
                await log.publish([record])
    assert await log.publish([record]) == [(0, 1)], "nothing is followed, and so nothing ended"


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]\r\nnew line"
SECRET = "my salary is 1234"
AWAY = Redriven(datetime(2026, 1, 2, tzinfo=UTC), HOSTILE, RecordPlace("t.claims", 1, 5))


@pytest.fixture
def log(monkeypatch):
    fake = FakeLog()

    @asynccontextmanager
    async def kafka_log(*_where, **_how):
        yield fake

    monkeypatch.setattr(command, "kafka_log", kafka_log)
    fake.bury(SECRET.encode())
    fake.bury(b"{", code="invalid_json", headers=[("gw-attempts", b"2")])
    fake.bury(b"elsewhere", topic="t.approved", code="invalid_record")
    return fake


def call(*arguments):
    return CliRunner().invoke(main, ["dead-letters", *arguments, "--prefix", PREFIX])


def buried(value=b'{"tenant_id": "acme", "user_id": "ann"}', **options):
    return read_letter(FakeLog().bury(value, **options))


def test_a_redriven_record_that_fails_again_counts_one_more_and_keeps_its_signature_but_no_header_that_fills_it():
    error, wrong = RecordError(ErrorCode.INVALID_JSON, "why"), []
    large = [("traceparent", b"0" * 1_000_000)]
    for way in ("at once", "unpublishable", "from deferred"):
        for before in (0, 1, 41):
            letter = buried(headers=[("gw-attempts", str(before).encode())] if before else [])
            record = InboundRecord("t.claims", 0, 12, 1, letter.record.key, letter.record.value, letter.again)
            if way == "unpublishable":
                output = Output(TopicName.APPROVED, record.key, b"{}", large, record)
                failed = unpublishable(output, "MessageSizeTooLargeError")
            else:
                if way == "from deferred":
                    headers = tuple(deferred_headers(record))
                    waiting = InboundRecord("t.deferred", 0, 3, 2, record.key, record.value, headers)
                    record = deferred_record(waiting)
                failed, _audit = outputs([DeadLetter(record, error)])
            record = InboundRecord("t.dead-letter", 0, 0, 3, failed.key, failed.value, failed.headers)
            again = read_letter(record)
            if (again.attempts, again.failed.offset) != (before + 2, 12):
                wrong.append((way, before, again.attempts))
    assert wrong == []
    for headers, kept in (
        ([("gw-attestation", b"console:abc"), ("x", b"1")], {"gw-attestation": b"console:abc"}),
        ([("gw-attempts", b"9" * 1_000_000)], {"gw-attempts": b"1"}),
        ([("gw-attempts", None)], {"gw-attempts": b"1"}),
        ([("gw-attestation", None)], {"gw-attempts": b"1"}),
    ):
        record = InboundRecord("t.claims", 0, 0, 1, b"k", b"v", headers)
        output = Output(TopicName.APPROVED, b"k", b"{}", large, record)
        found = dict(unpublishable(output, "MessageSizeTooLargeError").headers)
        assert found.items() >= kept.items()
        assert "x" not in found
        assert None not in found.values()


def test_a_letter_is_selected_if_every_condition_holds():
    cases = (
        (Selection(), True),
        *((Selection(codes=codes), "worker_crash" in codes) for codes in ({"worker_crash", "x"}, {"x"})),
        *((Selection(topic=topic), topic == "t.claims") for topic in ("t.claims", "claims")),
        *((Selection(tenant=tenant), tenant == "acme") for tenant in ("acme", "acm")),
        *((Selection(key=key), key == b"acme:ann") for key in (b"acme:ann", b"acme:an")),
        *((Selection(partition=number), number == 0) for number in (0, 1)),
        *((Selection(places={LetterPlace(0, number)}), number == 0) for number in (0, 1)),
        *((Selection(end=offset), offset > 0) for offset in (0, 1)),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), True),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)), False),
        (Selection(codes={"worker_crash"}, tenant="globex"), False),
    )
    assert [(one, selected) for one, selected in cases if (buried() in one) is not selected] == []
    for key, value in (
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann"}'),
        (None, b'{"tenant_id": "acme", "user_id": "ann"}'),
        *((b"\xff:ann", b"{}"), (b"acme", b"{}")),
    ):  # whose tenant is not certain
        letter = buried(value, key=key)
        assert [letter in Selection(tenant=name) for name in ("acme", "globex")] == [False, False]
        assert letter_json(letter, None)["tenant_id"] is None
    # only the offsets of named letters are read
    one = Selection(places={LetterPlace(2, 17)}).narrowed()
    assert (one.start, one.end, one.partition) == (17, 18, 2)
    two = Selection(places={LetterPlace(2, 17), LetterPlace(0, 3)}).narrowed()
    assert (two.start, two.end, two.partition) == (3, 18, None)
    for other in (Selection(start=5, places={LetterPlace(2, 17)}), Selection()):
        assert other.narrowed() == other


def test_the_value_is_shown_on_request_only_and_headers_as_the_record_had_them():
    headers = [("traceparent", b"00-a"), ("raw", b"\xff\n"), ("gw-attempts", b"1")]
    letter = buried(SECRET.encode(), headers=headers)
    lines = content_lines(letter, None, value=False)
    assert SECRET not in "".join(lines)
    assert content_lines(letter, None, value=True)[-1] == SECRET
    assert SECRET not in json.dumps({**letter_json(letter, None), **content_json(letter, value=False)})
    assert content_json(letter, value=True)["value"] == SECRET
    assert content_json(letter, value=False)["headers"] == [
        {"name": "traceparent", "value": "00-a"},
        {"name": "raw", "value_base64": "/wo="},
    ]
    parts = [line.split() for line in lines]
    assert ["header", "raw", r"\xff\n"] in parts
    assert ["attempts", "2"] in parts
    empty = read_letter(InboundRecord("t.dead-letter", 0, 0, -1, None, None, ()))
    assert (empty.attempts, letter_json(empty, None)["error"]) == (None, "unknown")
    assert content_lines(empty, None, value=True)
    assert content_json(empty, value=True) == {"headers": [], "value": None}


def test_a_letter_is_a_line_of_a_table_in_which_nothing_acts_on_a_terminal_or_of_json_without_its_value(
    capsys,
):
    for text in (HOSTILE, "\ud800"):
        data = text.encode("utf-8", "surrogatepass")
        letter = buried(data, key=data, headers=[("name" + HOSTILE, data)])
        assert [line for line in content_lines(letter, AWAY, value=True) if not line.isprintable()] == []
    printer = LetterPrinter("table")
    printer.letter(buried(key=HOSTILE.encode()), None)
    printer.letter(buried(), AWAY)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["letter", "error", "attempts", "state"]
    assert first.split()[:5] == ["0@0", "worker_crash", "1", "open", "t.claims[2]@7"]
    assert second.split()[:5] == ["0@0", "worker_crash", "1", "redriven", "t.claims[1]@5"]
    assert "\x1b" not in first
    LetterPrinter("json").letter(buried(SECRET.encode(), key=b"\xff"), AWAY)
    (line,) = capsys.readouterr().out.splitlines()
    at = {"at": "2026-01-02T00:00:00Z", "actor": HOSTILE, "topic": "t.claims", "partition": 1, "offset": 5}
    assert json.loads(line) == {
        "letter": "0@0",
        "at": "2026-01-01T00:00:01Z",
        "error": "worker_crash",
        "message": "why",
        "attempts": 1,
        "topic": "t.claims",
        "partition": 2,
        "offset": 7,
        "key_base64": "/w==",
        "tenant_id": None,
        "user_id": None,
        "size": len(SECRET),
        "state": "redriven",
        "redriven": at,
    }


def test_wrong_options_are_refused_by_name():
    for text in ("", "1", "@", "1@", "@1", "a@1", "1@2@3", "-1@2", "1@1" + "0" * 18, "²@1"):
        with pytest.raises(click.BadParameter, match="2@17"):
            PlaceParam().convert(text, None, None)
    assert str(PlaceParam().convert("2@17", None, None)) == "2@17"
    limits = (["--rate", "0"], ["--max-attempts", "0"], ["--limit", "0"], ["--code", "x"])
    for arguments in (
        *(["list", "--to", text] for text in ("earliest", "latest", "yesterday", "2026-01-01")),
        *(["redrive", *one] for one in limits),
    ):
        result = call(*arguments)
        assert (arguments, result.exit_code, arguments[1] in result.stderr) == (arguments, 2, True)


def test_list_and_show_select_letters_and_leave_out_values_and_what_was_sent_back(log):
    result = call("list")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 4)
    assert SECRET not in result.stdout + call("show", "0@0").stdout
    shown = json.loads(call("show", "0@0", "--value", "--format", "json").stdout)
    assert (shown["value"], shown["letter"], shown["state"]) == (SECRET, "0@0", "open")
    assert len(call("list", "--topic", "claims", "--format", "json").stdout.splitlines()) == 2
    call("redrive", "--code", "worker_crash", "--yes")
    assert "redriven t.claims[0]@0" in call("list").stdout
    left = call("list", "--open", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["error"] for line in left] == ["invalid_json", "invalid_record"]


def test_letters_are_sent_once_with_yes_and_not_without_and_the_summary_counts_them(log):
    result = call("redrive")
    assert CLAIMS not in log.topics
    assert not log.topics[AUDIT]
    assert result.stdout.splitlines()[-1] == (
        "1 would be redriven, 2 refused (not_an_input_topic 1, too_many_attempts 1); --yes does it"
    )
    assert result.exit_code == 1, "some are refused"
    assert call("redrive", "--code", "worker_crash").exit_code == 0
    nothing = call("redrive", "--tenant", "globex", "--yes")
    assert (nothing.exit_code, nothing.stdout) == (0, "no letter selected\n")
    options = ["redrive", "0@0", "0@1", "--max-attempts", "9", "--actor", "ann", "--yes"]
    first = call(*options, "--format", "json")
    assert (first.exit_code, first.stderr) == (0, "2 redriven\n")
    assert [json.loads(line)["outcome"] for line in first.stdout.splitlines()] == ["redriven"] * 2
    assert [record.value for record in log.topics[CLAIMS]] == [SECRET.encode(), b"{"]
    again = call(*options)
    assert again.stdout.splitlines()[-1] == "2 skipped (already_redriven 2)"
    assert again.exit_code == 0, "a repeated run finds its work done"
    assert json.loads(log.topics[AUDIT][0].value)["actor"] == "ann"


def test_a_missing_letter_is_named(log):
    for place in ("0@99", "1@0"):
        shown = call("show", place)
        assert (shown.exit_code, shown.stdout, place in shown.stderr) == (1, "", True)
    result = call("redrive", "0@0", "0@7", "--yes")
    assert (result.exit_code, "0@7" in result.stderr, "0@0" in result.stderr) == (1, True, False)
    assert len(log.topics[CLAIMS]) == 1
    limited = call("redrive", "0@1", "0@7", "--max-attempts", "9", "--limit", "1", "--yes")
    assert (limited.exit_code, limited.stderr) == (0, ""), "it was not looked for"


def test_an_interrupted_run_reports_its_progress_and_one_whose_records_fail_again_stops_with_status_1(
    log, monkeypatch
):
    log.crash_after, log.crash = 4, KeyboardInterrupt()  # at the audit event of the second letter
    result = call("redrive", "--max-attempts", "9", "--rate", "1.9", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (130, "1 redriven")
    log.crash_after, log.crash = 0, BrokerUnavailable("x")
    assert call("redrive", "--max-attempts", "9", "--yes").exit_code == 2
    log.crash_after = None
    log.topics[CLAIMS].clear()
    for number in range(5):
        log.bury(str(number).encode())
    publish = log.publish

    async def refused(records):
        places = await publish(records)
        log.gate_refuses()
        return places

    monkeypatch.setattr(log, "publish", refused)
    result = call("redrive", "--code", "worker_crash", "--rate", "1", "--stop-after", "1", "--yes")
    assert (result.exit_code, "1 records failed again" in result.stderr) == (1, True)
    assert len(log.topics[CLAIMS]) == 1
