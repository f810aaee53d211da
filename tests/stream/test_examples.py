"""The example programs, run as a user runs them (X-07)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import decision_headers, event_headers
from groundwire.messages.identity import Subject, decision_id, retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.topics import record_key
from tests.services.brokers import Broker
from tests.stream.test_client_tools import stored

pytestmark = [pytest.mark.stream, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Decision.model_validate_json(
    (ROOT / "tests/contract/samples/decision.good.approved-claim.json").read_text(encoding="utf-8")
)
TOPICS = ("claims", "approved", "review", "blocked", "retractions")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture
def prefix(broker: Broker) -> str:
    name = f"examples-{uuid.uuid4().hex[:8]}."
    broker.create_topics({f"{name}{topic}": 3 for topic in TOPICS})
    return name


def example(name, *arguments):
    return [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]


def run(*arguments):
    return subprocess.run(
        example(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )


def approval(subject_id="c1", revision=1, content="Redis is fast", **fields):
    subject = Subject("acme", "maria", Kind.CLAIM, subject_id)
    evidence = {**SAMPLE.model_dump()["evidence"], "claim": content}
    update = {"subject_id": subject_id, "user_id": "maria", "revision": revision, "evidence": evidence}
    decision = {**SAMPLE.model_dump(by_alias=True), **update, "decision_id": decision_id(subject, revision)}
    return Decision.model_validate({**decision, **fields})


def retraction(approved):
    subject = Subject("acme", "maria", Kind.CLAIM, approved.subject_id)
    retracting = decision_id(subject, approved.revision + 1)
    return Retraction(
        decision_id=retracting,
        supersedes=approved.decision_id,
        kind="claim",
        reason=None,
        subject_id=approved.subject_id,
        tenant_id="acme",
        user_id="maria",
        actor="lead",
        at=approved.decided_at,
        affected=[],
    )


def publish(broker, prefix, *records):
    async def send():
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            for record in records:
                key = record_key("acme", "maria")
                if isinstance(record, Decision):
                    topic, value, headers = "approved", record.to_bytes(), decision_headers(record, [])
                elif isinstance(record, Retraction):
                    headers = event_headers(
                        "retraction", retraction_id(record.decision_id), "2026-02-01T00:00:00Z", "c1", []
                    )
                    topic, value = "retractions", record.model_dump_json().encode()
                else:
                    topic, (value, headers) = "approved", record
                await producer.send_and_wait(f"{prefix}{topic}", value, key, headers=headers)
        finally:
            await producer.stop()

    asyncio.run(send())


def consume(broker, prefix, database):
    result = run(
        *(
            "approved_table",
            "--brokers",
            broker.bootstrap,
            "--prefix",
            prefix,
            "--group",
            f"{prefix}group",
        ),
        *("--database", database, "--exit-when-idle", "3"),
    )
    assert result.returncode == 0, result.stderr
    return result


def table(database):
    with sqlite3.connect(database) as connection:
        query = "SELECT subject_id, revision, content FROM memories ORDER BY subject_id"
        rows = connection.execute(query).fetchall()
    connection.close()
    return rows


def test_the_producer_sends_claims_that_the_gate_reads(broker, prefix):
    hostile = "'; DROP TABLE claims; -- \x1b[31m ü"
    given = [
        "--user",
        "maria",
        "--tenant",
        "acme",
        "--brokers",
        broker.bootstrap,
        "--topic",
        f"{prefix}claims",
    ]
    for _ in range(2):
        result = run("producer.py", "Redis is fast", hostile, *given)
        assert result.returncode == 0, result.stderr
    records = stored(broker, f"{prefix}claims")
    claims = [decode_claim(value) for _, _, value, _ in records]
    assert [claim.content for claim in claims] == ["Redis is fast", hostile] * 2
    assert {key for _, key, _, _ in records} == {b"acme:maria"}
    assert claims[0] == claims[2], "sent again, it is the same claim"
    assert len({claim.claim_id for claim in claims}) == 2
    assert len(result.stdout.splitlines()) == 2


def test_the_consumer_keeps_the_highest_revision_and_ignores_repeats(broker, prefix, tmp_path):
    first, second = approval(), approval(revision=2, content="Redis is very fast")
    other = approval("c2", content="'); DROP TABLE memories; --")
    twice = (
        approval("c9").to_bytes(),
        decision_headers(first, []),
    )  # another record under an id that was seen
    publish(broker, prefix, second, first, first, other, second, other, twice)
    consume(broker, prefix, tmp_path / "db")
    expected = [("c1", 2, "Redis is very fast"), ("c2", 1, "'); DROP TABLE memories; --")]
    assert table(tmp_path / "db") == expected
    publish(broker, prefix, first, approval("c3"))
    consume(broker, prefix, tmp_path / "db")
    assert table(tmp_path / "db") == [*expected, ("c3", 1, "Redis is fast")]


def test_the_consumer_goes_on_where_it_committed(broker, prefix, tmp_path):
    publish(broker, prefix, approval())
    consume(broker, prefix, tmp_path / "first")
    publish(broker, prefix, approval("c2"))
    consume(broker, prefix, tmp_path / "second")
    assert [row[0] for row in table(tmp_path / "second")] == ["c2"]


def test_the_consumer_drops_what_was_retracted_in_whichever_order_it_hears_of_it(broker, prefix, tmp_path):
    early, late, stays = approval("c1"), approval("c2"), approval("c3")
    publish(broker, prefix, retraction(early), late, stays)
    consume(broker, prefix, tmp_path / "db")
    assert [row[0] for row in table(tmp_path / "db")] == ["c2", "c3"]
    publish(broker, prefix, early, retraction(late))
    consume(broker, prefix, tmp_path / "db")
    assert [row[0] for row in table(tmp_path / "db")] == ["c3"]


def test_the_consumer_skips_what_is_no_decision_and_says_where(broker, prefix, tmp_path):
    headers = decision_headers(approval(), [])
    bad = [(b"{", headers), (b"[]", headers), (b"null", headers), (b"{}", headers), (b"{}", [])]
    wrong = [
        {"user_id": {}},
        {"revision": None},
        {"revision": 2**70},
        {"evidence": {"claim": []}},
        {"evidence": 1},
    ]
    valid = json.loads(approval().to_bytes())
    bad += [(json.dumps({**valid, **fields}).encode(), headers) for fields in wrong]
    tomorrow = json.loads(approval("c2").to_bytes()) | {"tomorrow": 1}
    new = (json.dumps(tomorrow).encode(), decision_headers(approval("c2"), []))
    publish(broker, prefix, *bad, new)
    result = consume(broker, prefix, tmp_path / "db")
    assert result.stderr.count("skipped") == len(bad)
    assert [row[0] for row in table(tmp_path / "db")] == ["c2"]


def test_the_consumer_ends_cleanly_at_sigterm(broker, prefix, tmp_path):
    publish(broker, prefix, approval())
    arguments = ["--brokers", broker.bootstrap, "--prefix", prefix, "--database", tmp_path / "db"]
    command = example("approved_table", *arguments, "--group", f"{prefix}group")
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        stored_rows = []
        while not stored_rows:
            assert time.monotonic() < deadline, "nothing is stored"
            time.sleep(0.1)
            with contextlib.suppress(sqlite3.OperationalError):  # the table is not there yet
                stored_rows = table(tmp_path / "db")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=240)
        assert (process.returncode, errors) == (0, b"")
