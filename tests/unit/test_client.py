"""What the client tools make of lines and records, without a broker."""

import asyncio
import base64
import io
import json
import os
from datetime import UTC, datetime

import click
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from groundwire.cli.options import StartParam
from groundwire.cli.output import FileProgress, columns, cut, escape_json
from groundwire.cli.produce import produce
from groundwire.cli.tail import as_json, heading, row, tail
from groundwire.errors import RecordError
from groundwire.kafka.produce import MAX_LINE_BYTES, address, address_anyhow, windows
from groundwire.messages.headers import InboundRecord, dead_letter_headers
from groundwire.messages.topics import TopicName
from groundwire.text.normalise import escape_controls
from tests.unit.checks.tables import differing, failing

HOSTILE = "\x1b[31mred\x07\x9b2J\r\n\u202eback\u2028[bold]x[/bold]:smile:"
CLAIM = {"claim_id": "c1", "user_id": "u1", "content": "x"}


def dumps(value):
    return json.dumps(value, ensure_ascii=False).encode()


def record(value, *, key=b"acme:u1", headers=(), topic="groundwire.approved"):
    return InboundRecord(topic, 3, 42, 1_767_225_600_123, key, value, headers)


async def collect(stream):
    return [line async for window in windows(stream) for line in window]


@given(st.text(), st.text(st.characters(categories=["L", "N", "P", "Zs"])))
@example(HOSTILE, "漢字")
@example("\x7f\x9b\U000e0001\u202e", "")
def test_visible_text_holds_nothing_that_acts_on_a_terminal_and_json_made_visible_means_the_same(text, plain):
    assert escape_controls(plain) == escape_json(plain) == plain
    shown = escape_controls(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2028" for c in shown)
    safe = escape_json(json.dumps({text: text}, ensure_ascii=False))
    assert escape_controls(safe) == safe
    assert json.loads(safe) == {text: text}


@given(st.text(), st.integers(2, 40))
@example("漢字" * 30, 7)
def test_cut_text_keeps_its_width_and_says_when_something_is_missing(text, width):
    short = cut(text, width)
    assert cell_len(short) <= width
    assert short == escape_controls(text) or short.endswith("…") or len(text) > 4 * width
    assert columns([["漢字", "b"], ["a", "\x1b"]]) == ["漢字  b", "a     \\x1b"]


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_come_back_byte_for_byte_with_their_numbers(lines, ended):
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert asyncio.run(collect(io.BytesIO(data))) == list(enumerate(expected, 1))


async def test_an_overlong_line_is_left_out_and_the_next_one_is_whole():
    longest = b"x" * MAX_LINE_BYTES
    for data in (longest + b"y\n", longest * 3 + b"\n"):
        lines = await collect(io.BytesIO(b"a\n" + data + b"b\n" + longest + b"\n"))
        assert lines == [(1, b"a"), (2, None), (3, b"b"), (4, longest)]
    assert await collect(io.BytesIO(longest * 2)) == [(1, None)]


async def test_a_pipe_gives_its_lines_as_they_come(monkeypatch):
    reading, writing = os.pipe()
    read, begun, loop = os.read, asyncio.Event(), asyncio.get_running_loop()

    def noted(*given):
        loop.call_soon_threadsafe(begun.set)
        return read(*given)

    with os.fdopen(reading, "rb") as stream:
        found = windows(stream)
        os.write(writing, b"one\ntw")
        assert await anext(found) == [(1, b"one")]
        monkeypatch.setattr(os, "read", noted)
        waiting = asyncio.ensure_future(anext(found))
        await begun.wait()
        assert not waiting.done(), "the loop is free while the pipe is empty"
        os.write(writing, b"o\n")
        assert await waiting == [(2, b"two")]
        os.close(writing)
        assert [window async for window in found] == []


def test_a_record_goes_to_its_topic_under_its_users_key_and_one_that_the_gate_could_not_read_is_refused():
    def where(value, topic=None):
        try:
            return address(value if isinstance(value, bytes) else dumps(value), topic)
        except RecordError as error:
            return str(error.code)

    response = {"response_id": "r", "user_id": "u1", "answer": "a"}
    review = {"action_id": "a", "user_id": "u1", "subject_id": "c1", "expected_revision": 1}
    review |= {"action": "approve", "reviewer": "u1"}
    assert differing(
        where,
        [
            (CLAIM, ("claims", b"default:u1")),
            ({**CLAIM, "tenant_id": "acme", "user_id": "ü"}, ("claims", "acme:ü".encode())),
            (response, ("llm-responses", b"default:u1")),
            (review, TopicName.REVIEW_DECISIONS, ("review-decisions", b"default:u1")),
            (b"{", "invalid_json"),
            (b"[]", "invalid_record"),
            ({**CLAIM, "contents": "x"}, "invalid_record"),
            ({**CLAIM, "schema_version": "2.0"}, "unsupported_version"),
            ({"response_id": "r", "user_id": "u"}, "invalid_record"),
        ],
    ) == []  # fmt: skip


@given(st.binary())
@example(b'{"user_id": "\\ud800"}')
@example(b"[" * 100_000)
@example(b'{"user_id": 5}')
def test_unchecked_bytes_of_any_kind_have_an_address_and_their_key_as_far_as_it_shows(value):
    assert address_anyhow(value, None) == ("claims", None)
    assert address_anyhow(value, TopicName.LLM_RESPONSES) == ("llm-responses", None)
    assert address_anyhow(b'{"user_id": "u", "nonsense": 1}', None) == ("claims", b"default:u")
    assert address_anyhow(b'{"response_id": 1, "user_id": "u"}', None) == ("llm-responses", b"default:u")


# what tail prints


def decision(**fields):
    base = {"verdict": "review", "reason_code": "ungrounded", "reason": "Needs review", "subject_id": "c1"}
    owner = {"tenant_id": "acme", "user_id": "u1", "evidence": {"claim": "Redis is fast"}}
    return dumps({**base, **owner, **fields})


def test_a_decision_is_a_row_with_its_claim_or_that_it_is_of_a_response():
    line, topic = row(record(decision()), TopicName.REVIEW), TopicName.REVIEW
    told = "2026-01-01T00:00:00.123Z review ungrounded acme:u1 c1 Redis is fast"
    assert (" ".join(line.plain.split()), line.style) == (told, "yellow")
    assert " ".join(heading(topic).plain.split()) == "time verdict reason tenant:user id claim"
    shown = row(record(decision(kind="response", evidence=None)), topic).plain
    assert shown.endswith("(response) Needs review")


@given(text=st.text(st.characters(codec="utf-8")), data=st.binary())
@example(text=HOSTILE, data=HOSTILE.encode())
def test_no_record_puts_more_than_plain_text_on_a_line(text, data):
    said = {"gw-error": data, "gw-attempts": data, "__connect.errors.exception.message": text.encode()}
    fields = dict.fromkeys(("verdict", "reason_code", "tenant_id", "subject_id"), text)
    for topic in TopicName:
        for value in (data, text.encode(), None, b"7", decision(**fields, evidence={"claim": text})):
            one = record(value, key=data, headers=said.items())
            line, printed = row(one, topic), as_json(one, topic)
            assert escape_controls(line.plain) == line.plain
            assert not line.spans, "no markup is read"
            assert "\n" not in printed
            json.loads(printed)


def test_json_is_the_record_as_it_came_in_one_line_and_what_is_none_stands_in_an_object():
    value = '{"b": 1.50, "a":"ü\x9b"}'
    assert as_json(record(value.encode()), TopicName.APPROVED) == value
    assert as_json(record(b'{\n "a": "\xc3\xbc"}\n'), TopicName.CLAIMS) == '{"a":"ü"}'
    printed = json.loads(as_json(record(b"\xff", key=None), TopicName.CLAIMS))
    assert printed["error"] == "invalid_json"
    assert (printed["partition"], printed["offset"], printed["key"]) == (3, 42, None)
    assert base64.b64decode(printed["value_base64"]) == b"\xff"


def test_a_dead_letter_says_what_failed_where_and_with_which_content():
    error = RecordError("invalid_record", "user_id: field required", "user_id")
    headers = dead_letter_headers(error, "groundwire.claims", 5, 77, [("gw-attempts", b"1")])
    letter = record(b'{"a": 1}', headers=headers)
    told = {"error": "invalid_record", "message": "user_id: field required", "attempts": 2}
    told |= {"topic": "groundwire.claims", "partition": 5, "offset": 77, "at": "2026-01-01T00:00:00.123Z"}
    told |= {"key": "acme:u1", "value": '{"a": 1}'}
    assert json.loads(as_json(letter, TopicName.DEAD_LETTER)) == told
    plain = row(letter, TopicName.DEAD_LETTER).plain
    assert "groundwire.claims[5]@77" in plain
    assert "user_id: field required" in plain


def test_a_terminal_alone_sees_how_many_records_are_done(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # whatever terminal the tests have
    out = io.StringIO()
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"x" * 10)
    with path.open("rb") as file, FileProgress(Console(file=out, force_terminal=True), "sent", file) as bar:
        file.read(5)
        bar.show(3)
    assert "sent 3" in out.getvalue()
    out = io.StringIO()
    with FileProgress(Console(file=out), "sent", io.BytesIO(b"x")) as bar:
        bar.show(1)
    assert not out.getvalue()


def test_from_takes_an_end_an_offset_or_a_time_and_nothing_else():
    def start(text):
        try:
            return StartParam("earliest", "latest").convert(text, None, None)
        except click.BadParameter:
            return None

    time = ("2026-01-01T01:00:00+01:00", datetime(2026, 1, 1, tzinfo=UTC))
    good = [("earliest", "earliest"), ("latest", "latest"), ("0", 0), ("12", 12), time]
    bad = ["", "-1", "1.5", "٣", "2026-01-01", "2026-01-01T01:00:00", "9" * 30]
    assert differing(start, [*good, *((text, None) for text in bad)]) == []


def test_wrong_use_exits_with_2_and_names_what_is_wrong():
    def check(command, arguments, said):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert "Traceback" not in result.output

    cases = [
        (produce, ["-", "--brokers", "127.0.0.1:1", "--timeout", "0.5"], "GROUNDWIRE_BROKERS"),
        (tail, ["approved", "--brokers", "127.0.0.1:1", "--timeout", "0.5"], "GROUNDWIRE_BROKERS"),
        (tail, ["approved", "--brokers", "127.0.0.1:x"], "GROUNDWIRE_BROKERS"),
        (produce, ["-", "--brokers", ""], "GROUNDWIRE_BROKERS"),
        (produce, ["/does/not/exist"], "No such file"),
        (produce, ["-", "--attest", "k"], "GROUNDWIRE_KEYS_FILE"),
        (produce, ["-", "--header", "novalue"], "NAME=VALUE"),
        (produce, ["-", "--topic", "approved"], "approved"),
        (tail, ["nonsense"], "nonsense"),
        (tail, ["approved", "--from", "yesterday"], "yesterday"),
        (tail, ["approved", "--limit", "0"], "limit"),
    ]
    assert failing(check, cases) == []
