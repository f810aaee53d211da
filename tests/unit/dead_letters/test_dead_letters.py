"""Runs over a dead-letter topic in memory; `groundwire dead-letters`: what it selects and prints, how it ends."""

import json
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime
from unittest.mock import patch

import click
import pytest
from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.outputs import Output, outputs, reductions, unpublishable
from groundwire.cli import dead_letters as command
from groundwire.cli.dead_letters import NameParam, letter_json
from groundwire.cli.main import main
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError
from groundwire.gate.types import DeadLetter
from groundwire.kafka.reader import RecordPlace
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord, deferred_headers, deferred_record, header
from groundwire.messages.topics import TopicName
from groundwire.review.dead_letters import Letter, Log, Selection, redrive_letters
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, CrashError, FakeLog

REDRIVE, REDRIVEN = ("redrive", ""), ("redriven", "")
AGAIN = ("skipped", "already_redriven")


@pytest.fixture(autouse=True)
def slept():
    """No run waits; how long each would."""
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    with patch.object(command.asyncio, "sleep", sleep):
        yield waited


async def run(log, selection=None, *, actor="ann", **rules):
    rules = {"most": 3, "rate": 50, "limit": None, **rules}
    return [letter async for letter in redrive_letters(log, selection or Selection(), actor, **rules)]


async def plan(log, **rules):
    return await run(log, actor=None, **rules)


def outcomes(letters):
    return [(letter.outcome, letter.why) for letter in letters]


def log_of(*bodies):
    log = FakeLog()
    for body in bodies:
        log.bury(body)
    return log


async def test_a_record_goes_back_to_its_place_and_time_as_it_was_with_its_failure_count_and_then_the_audit_says_so():
    log = FakeLog()
    headers = [("traceparent", b"00-a"), ("gw-attestation", b"k:ff"), ("twice", b"1"), ("twice", b"\xff")]
    log.bury(b'{"claim_id": "\xff', key=b"\x00\xfe", headers=headers)
    (letter,) = await run(log)
    (sent,) = log.topics[CLAIMS]
    assert (sent.value, sent.key) == (b'{"claim_id": "\xff', b"\x00\xfe")
    assert list(sent.headers) == [*headers, ("gw-attempts", b"1")]
    assert log.sent == [(CLAIMS, 2, 5000), (AUDIT, -1, -1)]
    assert letter.outcome == "redriven"
    assert letter.redriven.items() >= {"topic": CLAIMS, "partition": 0, "offset": 0}.items()
    log, secret = FakeLog(), "my salary is 1234"
    buried = log.bury(secret.encode(), code="invalid_record", headers=[("note", secret.encode())])
    await run(log)
    (record,) = log.topics[AUDIT]
    event = AuditEvent.model_validate_json(record.value)
    assert (event.type, event.actor) == ("dead_letter", "ann")
    assert event.detail == {
        "action": "redriven",
        "letter": event.event_id,
        "partition": 0,
        "offset": buried.offset,
        "code": "invalid_record",
        "attempts": 1,
        "origin": {"topic": CLAIMS, "partition": 2, "offset": 7},
        "stands": {"topic": CLAIMS, "partition": 0, "offset": 0},
    }
    assert header(record.headers, "ce_id") == event.event_id
    assert record.key == b"", "it is no tenant's"
    assert secret not in repr((record.value, record.headers))


async def test_only_what_the_gate_failed_on_goes_back_to_an_input_topic_and_a_dry_run_says_so_and_writes_nothing():
    topic, first = ("__connect.errors.topic", b"t.claims"), ("gw-attempts", b"1")
    omitted = ("gw-value-omitted", b"ab 12")
    wrong = []
    for case, refusal in (
        *((name, "not_an_input_topic") for name in ("t.approved", "t.deferred", "t.audit", "t.dead-letter")),
        *((name, "not_an_input_topic") for name in ("other.claims", "claims", "", "t.claims ")),
        *((name, "") for name in ("t.claims", "t.llm-responses", "t.review-decisions")),
        ([], "not_a_dead_letter"),
        ([topic, first], "not_a_dead_letter"),
        ([topic, first, ("gw-error", b"made_up")], "not_a_dead_letter"),
        ([topic, ("gw-attempts", b"-1"), ("gw-error", b"invalid_json")], "not_a_dead_letter"),
        ([topic, first, ("gw-error", b"invalid_json")], "not_a_dead_letter"),
        (omitted, "value_omitted"),
        (b"x" * 1_048_100, "too_large"),
    ):
        log = FakeLog()
        if isinstance(case, list):
            log.put(DEAD, b"k", b"v", case)
        else:
            headers = [case] * isinstance(case, tuple)
            body = [case] * isinstance(case, bytes)
            log.bury(*body, topic=case if isinstance(case, str) else CLAIMS, headers=headers)
        (planned,) = await plan(log)
        assert (planned.why, set(log.topics) - {DEAD, AUDIT}, log.topics[AUDIT]) == (refusal, set(), [])
        ((_, why),) = outcomes(await run(log))
        sent = set(log.topics) - {DEAD, AUDIT}
        if why != refusal or sent != (set() if refusal else {case}):
            wrong.append((case[:40], why, sent))
    assert wrong == []


async def test_a_record_that_fails_again_is_sent_until_it_has_failed_often_enough_and_never_twice_in_a_run():
    for most in (1, 4):
        log = log_of(b"{")
        for _ in range(most + 3):
            await run(log, most=most)
            log.gate_refuses()
        assert len(log.topics[CLAIMS]) == most - 1
        attempts = [header(record.headers, "gw-attempts") for record in log.topics[DEAD]]
        assert attempts == [str(number) for number in range(1, most + 1)]
        *before, last = outcomes(await run(log, most=most))
        assert last == ("refused", "too_many_attempts")
        assert set(before) <= {AGAIN}


async def test_of_two_letters_of_one_failure_one_is_sent_whichever_run_finds_the_other():
    log = FakeLog()
    log.bury(offset=7)
    log.bury(offset=7)
    assert outcomes(await plan(log)) == [REDRIVE, AGAIN]
    assert Counter(outcomes(await run(log))) == {REDRIVEN: 1, AGAIN: 1}
    log.bury(offset=7)
    log.bury(offset=7, headers=[("gw-attempts", b"1")])
    log.bury(offset=8)
    log.bury(offset=7, timestamp=6000)  # the topic was declared anew
    assert Counter(outcomes(await run(log))) == {AGAIN: 3, REDRIVEN: 3}
    for value in (b"{", b'{"redriven"', None, b'{"type": "dead_letter", "detail": {"action": "redriven"}}'):
        log = log_of(b"body")
        log.put(AUDIT, b"", value)
        assert outcomes(await plan(log)) == [REDRIVE], value


@settings(max_examples=30)
@given(st.data())
async def test_however_often_a_run_crashes_each_record_is_sent_at_least_once_and_not_again_once_that_is_noted(
    data,
):
    """Crashes come between any two records that reach a topic, and between the last and its acknowledgement."""
    log = FakeLog()
    bodies = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=7))
    for body in bodies:
        log.bury(body, headers=[("gw-attempts", b"1")] if data.draw(st.booleans()) else [])
    expected = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[DEAD])
    rate, runs = data.draw(st.sampled_from([1, 2, 100])), 1
    for crash in data.draw(st.lists(st.integers(0, 12), max_size=6)):
        log.crash_after = crash
        runs += 1
        try:
            await run(log, rate=rate)
        except CrashError:
            continue
    log.crash_after = None
    await run(log, rate=rate)
    sent = Counter((r.value, header(r.headers, "gw-attempts")) for r in log.topics[CLAIMS])
    assert sent >= expected
    assert sent.keys() == expected.keys()
    assert sent.total() <= runs * len(bodies)
    noted = [AuditEvent.model_validate_json(record.value).event_id for record in log.topics[AUDIT]]
    assert sorted(set(noted)) == sorted({letter.id for letter in await plan(log)})
    assert set(outcomes(await plan(log))) == {AGAIN}


async def test_a_run_keeps_to_its_selection_and_rate_and_its_limit_counts_what_is_sent(slept):
    log = log_of(*(str(number).encode() for number in range(30)))
    await run(log, rate=8, limit=20)
    assert (len(log.topics[CLAIMS]), slept) == (20, [0.125] * 19)
    slept.clear()
    await run(log, rate=0.5, limit=3)
    assert slept == [2.0, 2.0]
    assert Counter(outcomes(await plan(log, limit=5))) == {AGAIN: 23, REDRIVE: 5}
    log = FakeLog()
    assert await run(log) == [], "an empty topic is no work"
    log.bury(topic="t.approved")
    log.bury(b"crash")
    log.bury(b"json", code="invalid_json")
    await run(log, Selection(codes={"invalid_json"}))
    assert [record.value for record in log.topics[CLAIMS]] == [b"json"]
    letters = await run(log, limit=1)
    assert [letter.outcome for letter in letters] == ["refused", "redriven"]


async def test_a_record_that_its_topic_refuses_holds_up_no_other_and_an_old_one_goes_with_the_time_of_sending():
    sent = []

    class Sender:
        async def partitions_for(self, _topic):
            return {0, 1}

        async def send_and_wait(self, topic, value, _key, **place):
            sent.append((value, place.get("timestamp_ms")))
            if place.get("timestamp_ms") == 1:
                raise InvalidTimestampError
            if value == b"large":
                raise MessageSizeTooLargeError
            return RecordPlace(topic, 0, len(sent))

    log = Log("b", PREFIX, 5.0, Sender())
    for at, value, place in ((1, b"old", RecordPlace(CLAIMS, 0, 2)), (5000, b"large", None)):
        assert await log.send(InboundRecord(CLAIMS, 0, 0, at, b"k", value)) == place
    assert sent == [(b"old", 1), (b"old", None), (b"large", 5000)]

    log = log_of(b"large", b"good")
    send = log.send

    async def refusing(record):
        return None if record.value == b"large" else await send(record)

    log.send = refusing
    assert outcomes(await run(log)) == [("refused", "too_large"), REDRIVEN]
    assert len(log.topics[AUDIT]) == 1


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]\r\nnew line"
SECRET = "my salary is 1234"
AWAY = {"at": "2026-01-02T00:00:00Z", "actor": HOSTILE, "topic": "t.claims", "partition": 1, "offset": 5}


@pytest.fixture
def log(monkeypatch):
    fake = FakeLog()
    monkeypatch.setattr(command, "Log", lambda *_: fake)
    monkeypatch.setattr(command, "producer", lambda *_, **__: nullcontext())
    fake.bury(SECRET.encode())
    fake.bury(b"{", code="invalid_json", headers=[("gw-attempts", b"2")])
    fake.bury(b"elsewhere", topic="t.approved", code="invalid_record")
    return fake


def call(*arguments):
    return CliRunner().invoke(main, ["dead-letters", *arguments, "--prefix", PREFIX])


def buried(value=b'{"tenant_id": "acme", "user_id": "ann"}', **options):
    return Letter(FakeLog().bury(value, **options))


def test_a_redriven_record_that_fails_again_counts_one_more_and_keeps_its_signature_but_no_header_that_fills_it():
    error, wrong = RecordError(ErrorCode.INVALID_JSON, "why"), []
    large = [("traceparent", b"0" * 1_000_000)]
    for way in ("at once", "unpublishable", "from deferred"):
        for before in (0, 1, 41):
            letter = buried(headers=[("gw-attempts", str(before).encode())] if before else [])
            again = letter.again
            record = InboundRecord("t.claims", 0, 12, again.timestamp, again.key, again.value, again.headers)
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
            again = Letter(record).failure
            if (again.attempts, again.offset, again.timestamp, failed.timestamp) != (
                before + 2,
                12,
                5000,
                5000,
            ):
                wrong.append((way, before, again, failed.timestamp))
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


def size_of(letter):
    return sum(len(data or b"") for data in (letter.key, letter.value, *dict(letter.headers).values()))


def test_a_letter_keeps_as_much_of_its_record_as_its_topic_takes_and_says_what_was_left_out():
    for value, headers, key, kept in (
        (b"v", [], b"k", (b"v", b"k", [])),
        (b"v" * 500, [("h", b"1")], b"k", (None, b"k", [("h", b"1")])),
        (b"v", [("h", b"1" * 500)], b"k", (b"v", b"k", [])),
        (b"v" * 500, [("h", b"1" * 500)], b"k", (None, b"k", [])),
        (b"v", [], b"k" * 500, (None, None, [])),
        (None, [], b"k" * 500, (None, None, [])),
    ):
        record = InboundRecord("t.claims", 3, 12, 5000, key, value, headers)
        letter, _audit = outputs([DeadLetter(record, RecordError(ErrorCode.TOO_LARGE, "why"))])
        found = next(one for one in reductions(letter) if size_of(one) <= 400)
        read = Letter(InboundRecord("t.dead-letter", 0, 0, 5000, found.key, found.value, found.headers))
        assert (found.value, found.key, read.headers) == kept
        omitted = f"{record.sha256} {len(value)}" if value is not None and found.value is None else None
        assert read.omitted == letter_json(read).get("value_omitted") == omitted
        assert (read.failure.code, read.failure.topic, read.failure.partition) == ("too_large", "t.claims", 3)


def test_a_letter_is_selected_if_every_condition_holds():
    cases = (
        (Selection(), True),
        *((Selection(codes=codes), "worker_crash" in codes) for codes in ({"worker_crash", "x"}, {"x"})),
        *((Selection(topic=topic), topic == "t.claims") for topic in ("t.claims", "claims")),
        *((Selection(tenant=tenant), tenant == "acme") for tenant in ("acme", "acm")),
        *((Selection(key=key), key == b"acme:ann") for key in (b"acme:ann", b"acme:an")),
        *((Selection(names={name}), name == "0@0") for name in ("0@0", "0@1")),
        *((Selection(end=offset), offset > 0) for offset in (0, 1)),
        (Selection(start=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), False),  # behind a later one
        (Selection(start=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)), True),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), True),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)), False),
        (Selection(codes={"worker_crash"}, tenant="globex"), False),
    )
    assert [(one, selected) for one, selected in cases if one.has(buried()) is not selected] == []
    for key, value in (
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann"}'),
        (None, b'{"tenant_id": "acme", "user_id": "ann"}'),
        *((b"\xff:ann", b"{}"), (b"acme", b"{}")),
    ):  # whose tenant is not certain
        letter = buried(value, key=key)
        assert [Selection(tenant=name).has(letter) for name in ("acme", "globex")] == [False, False]
        assert letter_json(letter)["tenant_id"] is None


def test_the_value_is_shown_on_request_only_and_headers_as_the_record_had_them(log):
    headers = [("traceparent", b"00-a"), ("raw", b"\xff\n"), ("gw-attempts", b"1")]
    log.bury(SECRET.encode(), headers=headers)
    for layout in ((), ("--format", "json")):
        assert SECRET not in call("show", "0@3", *layout).stdout
        assert SECRET in call("show", "0@3", *layout, "--value").stdout
    shown = json.loads(call("show", "0@3", "--format", "json").stdout)
    assert shown["headers"] == [
        {"name": "traceparent", "value": "00-a"},
        {"name": "raw", "value_base64": "/wo="},
    ]
    assert ["attempts", "2"] in [line.split() for line in call("show", "0@3").stdout.splitlines()]
    log.put(DEAD, None, None)
    assert (
        json.loads(call("show", "0@4", "--value", "--format", "json").stdout).items()
        >= {"error": "unknown", "attempts": None, "value": None, "headers": []}.items()
    )


def test_a_letter_is_a_line_of_a_table_in_which_nothing_acts_on_a_terminal_or_of_json_without_its_value(log):
    for text in (HOSTILE, "\ud800"):
        data = text.encode("utf-8", "surrogatepass")
        log.bury(data, key=data, headers=[("name" + HOSTILE, data)])
    for place in ("0@3", "0@4"):
        lines = call("show", place, "--value").stdout.splitlines()
        assert [line for line in lines if not line.isprintable()] == []
    call("redrive", "0@0", "--actor", HOSTILE, "--yes")
    heading, first, second, *rest = call("list").stdout.splitlines()
    assert heading.split()[:4] == ["letter", "error", "attempts", "state"]
    assert first.split()[:5] == ["0@0", "worker_crash", "1", "redriven", "t.claims[0]@0"]
    assert second.split()[:5] == ["0@1", "invalid_json", "3", "open", "t.claims[2]@8"]
    assert [line for line in rest if not line.isprintable()] == []
    line, *_ = call("list", "--format", "json").stdout.splitlines()
    place = {"topic": "t.claims", "partition": 0, "offset": 0}
    redriven = json.loads(line)["redriven"]
    assert json.loads(line) == {
        "letter": "0@0",
        "at": "2026-01-01T00:00:01Z",
        "error": "worker_crash",
        "message": "why",
        "attempts": 1,
        "topic": "t.claims",
        "partition": 2,
        "offset": 7,
        "key": "acme:ann",
        "tenant_id": "acme",
        "user_id": "ann",
        "size": len(SECRET),
        "state": "redriven",
        "redriven": {"at": redriven["at"], "actor": HOSTILE, **place},
    }


def test_wrong_options_are_refused_by_name():
    for text in ("", "1", "@", "1@", "@1", "a@1", "1@2@3", "-1@2", "1@1" + "0" * 18, "²@1"):
        with pytest.raises(click.BadParameter, match="2@17"):
            NameParam().convert(text, None, None)
    assert NameParam().convert("02@17", None, None) == "2@17"
    limits = (["--rate", "0"], ["--max-attempts", "0"], ["--limit", "0"], ["--code", "x"])
    for arguments in (
        *(["list", "--to", text] for text in ("earliest", "latest", "yesterday", "2026-01-01")),
        *(["redrive", *one] for one in limits),
    ):
        result = call(*arguments)
        assert (arguments, result.exit_code, arguments[1] in result.stderr) == (arguments, 2, True)


def test_list_and_show_select_letters_and_leave_out_what_was_sent_back(log):
    result = call("list")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 4)
    assert SECRET not in result.stdout
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
        "1 redrive, 1 refused (too_many_attempts), 1 refused (not_an_input_topic); --yes sends them"
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
    assert again.stdout.splitlines()[-1] == "2 skipped (already_redriven)"
    assert again.exit_code == 0, "a repeated run finds its work done"


def test_a_missing_letter_is_named_and_a_run_that_is_broken_off_says_how_far_it_came(log):
    for place in ("0@99", "1@0"):
        shown = call("show", place)
        assert (shown.exit_code, shown.stdout, place in shown.stderr) == (1, "", True)
    result = call("redrive", "0@0", "0@7", "--yes")
    assert (result.exit_code, "0@7" in result.stderr, "0@0" in result.stderr) == (1, True, False)
    assert len(log.topics[CLAIMS]) == 1
    limited = call("redrive", "0@1", "0@7", "--max-attempts", "9", "--limit", "1", "--yes")
    assert (limited.exit_code, limited.stderr) == (0, ""), "it was not looked for"
    for name in "ab":
        log.bury(name.encode())
    log.crash_after, log.crash = 2, KeyboardInterrupt()  # behind the note of the first
    result = call("redrive", "--code", "worker_crash", "--rate", "1", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (130, "1 skipped (already_redriven)")
    log.crash = BrokerUnavailable("x")
    assert call("redrive", "--code", "worker_crash", "--yes").exit_code == 2
