"""`groundwire produce`, `groundwire tail` and the reader beneath them against a broker."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest
from aiokafka import TopicPartition
from click.testing import CliRunner

from groundwire.cli.produce import produce
from groundwire.cli.tail import tail
from groundwire.kafka import connection
from groundwire.kafka.reader import open_reader
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from tests.stream.harness import PATIENCE, ROOT, Deployment, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


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


async def test_a_pipe_is_sent_while_it_is_open_and_a_lost_broker_is_an_error_in_bounded_time(topics):
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


async def test_a_followed_topic_shows_new_records_and_ends_with_0_at_ctrl_c(topics):
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


@pytest.mark.smoke
async def test_a_reader_that_goes_on_behind_the_end_misses_nothing_of_a_batch_that_crosses_it(topics):
    place = TopicPartition(f"{topics.prefix}claims", 0)
    await topics.produce([b"%d" % n for n in range(9)], partition=0)
    async with open_reader(topics.broker.bootstrap, PATIENCE) as reader:
        reader.seek({place: 0}, {place: 4})
        assert [one.offset async for page in reader.rest() for one in page] == [0, 1, 2, 3]
        await topics.produce([b"9"], partition=0)
        behind: list[int] = []
        async with asyncio.timeout(PATIENCE):
            while len(behind) < 6:
                behind += [record.offset for record in await reader.batch()]
        assert behind == [4, 5, 6, 7, 8, 9]


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
