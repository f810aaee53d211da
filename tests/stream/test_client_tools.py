"""`groundwire produce` and `groundwire tail` against a broker."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from click.testing import CliRunner

from groundwire.cli.produce import produce
from groundwire.cli.tail import tail
from groundwire.errors import RecordError
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.messages.headers import dead_letter_headers
from tests.services.brokers import Broker

pytestmark = [pytest.mark.stream, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3


@pytest.fixture
def prefix(broker: Broker) -> str:
    """A deployment of its own on the shared broker."""
    name = f"client-{uuid.uuid4().hex[:8]}."
    topics = ("claims", "llm-responses", "approved", "dead-letter")
    broker.create_topics({f"{name}{topic}": PARTITIONS for topic in topics})
    return name


def claim(number, user="u1", **fields):
    return json.dumps(
        {"claim_id": f"c{number}", "user_id": user, "content": "Redis is fast", **fields}
    ).encode()


def run(command, broker, prefix, *arguments, data=None):
    return CliRunner().invoke(
        command, [*map(str, arguments), "--brokers", broker.bootstrap, "--prefix", prefix], input=data
    )


def stored(broker, topic):
    """Every record of a topic: (partition, key, value, headers), in order within a partition."""

    async def read():
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(partitions)
            found = []
            while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(one.partition, one.key, one.value, dict(one.headers)) for one in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


def publish(broker, topic, *records):
    """Send (partition, key, value, headers, timestamp in ms) to a topic."""

    async def send():
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
        await producer.start()
        try:
            for partition, key, value, headers, timestamp in records:
                await producer.send_and_wait(
                    topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp
                )
        finally:
            await producer.stop()

    asyncio.run(send())


def process(broker, prefix, *arguments, **settings):
    command = f"from groundwire.cli.{arguments[0]} import {arguments[0]} as command; command()"
    return subprocess.Popen(
        [sys.executable, "-c", command, *arguments[1:], "--brokers", broker.bootstrap, "--prefix", prefix],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"},
        **settings,
    )


# produce


def test_values_go_out_byte_for_byte_in_order_under_their_users_key(broker, prefix):
    lines = [claim(n, user=f"u{n % 5}").replace(b'": ', b'" :  ') for n in range(2_000)]
    result = run(produce, broker, prefix, "-", data=b"\n".join(lines))
    assert result.exit_code == 0, result.output
    assert result.stdout == "produced 2000\n"
    assert result.stderr == "", "no progress where nobody looks"
    records = stored(broker, f"{prefix}claims")
    assert sorted(value for _, _, value, _ in records) == sorted(lines)
    for user in range(5):
        own = [(record[0], record[2]) for record in records if record[1] == f"default:u{user}".encode()]
        assert [value for _, value in own] == lines[user::5]
        assert len({partition for partition, _ in own}) == 1


def test_responses_go_to_their_topic_and_blank_lines_nowhere(broker, prefix, tmp_path):
    path = tmp_path / "in.jsonl"
    response = b'{"response_id": "r", "user_id": "u", "answer": null}'
    path.write_bytes(b"\n" + claim(1) + b"\n \t\r\n" + response + b"\n\n")
    result = run(produce, broker, prefix, path)
    assert (result.exit_code, result.stdout) == (0, "produced 2\n"), result.output
    assert [record[2] for record in stored(broker, f"{prefix}claims")] == [claim(1)]
    assert [record[2] for record in stored(broker, f"{prefix}llm-responses")] == [response]


def test_bad_lines_are_refused_by_number_and_the_others_go_on(broker, prefix):
    bad = [
        b"{",
        claim(2, contents="x"),
        claim(3, schema_version="9"),
        b'{"\\u001b[31m": 1}',
        b"x" * 1_100_000,
    ]
    result = run(produce, broker, prefix, "-", data=b"\n".join([claim(1), *bad, claim(4)]))
    assert result.exit_code == 1
    assert result.stdout == "produced 2, refused 5\n"
    said = result.stderr.splitlines()
    assert said[0].startswith("line 2: invalid_json: ")
    assert said[1].startswith("line 3: invalid_record: contents: ")
    assert said[2].startswith("line 4: unsupported_version: schema_version: ")
    assert said[3].startswith("line 5: invalid_record: ")
    assert said[4].startswith("line 6: too_large: ")
    assert "\x1b" not in result.stderr
    assert len(stored(broker, f"{prefix}claims")) == 2


def test_without_validation_the_gates_bad_luck_is_sent_as_it_is(broker, prefix):
    bad = [b"\xff\x00", claim(2, contents="x"), b"x" * 950_000, b"{} \r"]
    result = run(produce, broker, prefix, "-", "--no-validate", data=b"\n".join(bad))
    assert (result.exit_code, result.stdout) == (0, "produced 4\n"), result.output
    records = stored(broker, f"{prefix}claims")
    assert sorted(value for _, _, value, _ in records) == sorted(bad)
    assert {key for _, key, value, _ in records if value == bad[1]} == {b"default:u1"}


def test_records_carry_the_given_headers_and_a_signature_of_their_bytes(broker, prefix, tmp_path):
    keys_file = tmp_path / "keys.toml"
    new_key(keys_file, "docs", tenants=["default"], sources=["adr"])
    given = ["--attest", "docs", "--keys-file", keys_file, "--header", "traceparent=00-a=b"]
    result = run(produce, broker, prefix, "-", *given, data=claim(1) + b"\n" + claim(2))
    assert result.exit_code == 0, result.output
    keys = Keys.load(keys_file)
    for _, _, value, headers in stored(broker, f"{prefix}claims"):
        assert headers == {"traceparent": b"00-a=b", "gw-attestation": keys.sign("docs", value)}
    unknown = run(produce, broker, prefix, "-", "--attest", "dosc", "--keys-file", keys_file, data=claim(3))
    assert unknown.exit_code == 2
    assert len(stored(broker, f"{prefix}claims")) == 2, "nothing is sent unsigned"


def test_a_missing_topic_is_named(broker):
    result = run(produce, broker, f"none-{uuid.uuid4().hex}.", "-", "--timeout", "1", data=claim(1))
    assert result.exit_code == 2
    assert ".claims" in result.stderr
    assert "topics declare" in result.stderr


def test_a_pipe_is_sent_while_it_is_still_open(broker, prefix):
    with process(broker, prefix, "produce", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sending:
        sending.stdin.write(claim(1) + b"\n")
        sending.stdin.flush()
        deadline = time.monotonic() + 20
        while not stored(broker, f"{prefix}claims"):
            assert time.monotonic() < deadline, "the record stays in the pipe"
        sending.send_signal(signal.SIGINT)
        output, _ = sending.communicate(timeout=240)
        assert output == b"produced 1\n", "an interrupted run says how far it came"
        assert sending.returncode == 130


def test_a_broker_that_goes_away_is_an_error_in_bounded_time(broker, prefix):
    with process(
        broker, prefix, "produce", "-", "--timeout", "2", stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as sending:
        sending.stdin.write(claim(1) + b"\n")
        sending.stdin.flush()
        while not stored(broker, f"{prefix}claims"):
            pass
        broker.stop()
        try:
            _, errors = sending.communicate(claim(2) + b"\n", timeout=240)
        finally:
            broker.start()
        assert sending.returncode == 2
        assert b"GROUNDWIRE_BROKERS" in errors
        assert b"Traceback" not in errors


# tail


def test_until_the_end_every_record_comes_as_it_is(broker, prefix):
    values = [f'{{"subject_id": "c{n}",  "verdict": "approved"}}'.encode() for n in range(300)]
    publish(broker, f"{prefix}approved", *((n % 3, b"k", value, [], n + 1) for n, value in enumerate(values)))
    result = run(tail, broker, prefix, "approved", "--until-end", "--format", "json")
    assert result.exit_code == 0, result.output
    lines = result.stdout_bytes.splitlines()
    assert sorted(lines) == sorted(values)
    assert [line for line in lines if line in values[::3]] == values[::3], "a partition keeps its order"


def test_a_part_of_a_topic_is_chosen_by_partition_offset_time_and_number(broker, prefix):
    start = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    topic = f"{prefix}approved"
    publish(broker, topic, *((n % 3, b"k", str(n).encode(), [], start + n * 1000) for n in range(30)))

    def numbers(*arguments):
        result = run(tail, broker, prefix, "approved", "--until-end", "--format", "json", *arguments)
        assert result.exit_code == 0, result.output
        return sorted(map(int, result.stdout.split()))

    assert numbers("--partition", "1") == list(range(1, 30, 3))
    assert numbers("--partition", "1", "--from", "8") == [25, 28]
    assert numbers("--from", "9") == [27, 28, 29]
    assert numbers("--from", "2026-01-01T01:00:20.5+01:00") == list(range(21, 30))
    assert numbers("--from", "2027-01-01T00:00:00Z") == []
    assert numbers("--from", "latest") == []
    assert len(numbers("--limit", "7")) == 7
    wrong = run(tail, broker, prefix, "approved", "--partition", "3")
    assert (wrong.exit_code, "no partition 3" in wrong.stderr) == (2, True)
    missing = run(tail, broker, prefix, "audit")
    assert (missing.exit_code, f"no topic {prefix}audit" in missing.stderr) == (2, True)


def test_dead_letters_say_where_they_failed(broker, prefix):
    headers = dead_letter_headers(RecordError("invalid_json", "not JSON", None), "t.claims", 1, 7, [])
    publish(broker, f"{prefix}dead-letter", (0, b"\xff", b"{", headers, 1))
    result = run(tail, broker, prefix, "dead-letter", "--until-end", "--format", "json")
    letter = json.loads(result.stdout)
    where = (letter["error"], letter["attempts"], letter["topic"], letter["partition"], letter["offset"])
    assert where == ("invalid_json", 1, "t.claims", 1, 7)
    assert (letter["key_base64"], letter["value"]) == ("/w==", "{")


def test_a_followed_topic_shows_what_comes_and_ends_with_0_at_ctrl_c(broker, prefix):
    with process(
        broker, prefix, "tail", "approved", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as following:
        shown = False
        for _ in range(100):  # it starts at the end, and nobody tells when it is there
            publish(broker, f"{prefix}approved", (0, b"k", b'{"new": 1}', [], 1))
            shown, _, _ = select.select([following.stdout], [], [], 0.2)
            if shown:
                break
        assert shown, "nothing comes"
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=240)
        assert (following.returncode, errors) == (0, b"")


@pytest.mark.parametrize("layout", ["table", "json"])
def test_hostile_text_reaches_a_terminal_as_text(broker, prefix, layout):
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]"
    value = {"verdict": "blocked", "subject_id": hostile, "user_id": hostile, "evidence": {"claim": hostile}}
    publish(broker, f"{prefix}approved", (0, b"k", json.dumps(value, ensure_ascii=False).encode(), [], 1))
    parent, child = pty.openpty()
    with process(
        broker, prefix, "tail", "approved", "--until-end", "--format", layout, stdout=child, stderr=child
    ) as printing:
        os.close(child)
        printed = b""
        while True:
            try:
                data = os.read(parent, 65_536)
            except OSError:  # Linux reports a terminal without a writer so
                break
            if not data:
                break
            printed += data
        assert printing.wait(20) == 0, printed
    os.close(parent)
    text = printed.decode()
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert not any(char in text for char in "\x07\x9b\u202e")
    if layout == "table":
        assert "\x1b[31m" in text, "a terminal gets colours"
    else:
        assert json.loads(text) == value


def test_a_table_in_a_pipe_has_no_colours(broker, prefix):
    publish(broker, f"{prefix}approved", (0, b"k", b'{"verdict": "approved", "reason": "[red]ok"}', [], 1))
    result = run(tail, broker, prefix, "approved", "--until-end", "--format", "table")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first.split()[:2] == ["time", "verdict"]
    assert second.endswith("[red]ok")
    assert "\x1b" not in result.stdout
