"""The producer of workers, while a partition has no leader."""

from __future__ import annotations

import time

import pytest
from aiokafka import TopicPartition
from aiokafka.producer import message_accumulator

from agents.batches import PatientProducer


async def test_what_was_sent_is_kept_however_long_its_partition_has_no_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = PatientProducer(bootstrap_servers="127.0.0.1:1", enable_idempotence=True, request_timeout_ms=1)
    accumulator = producer._message_accumulator
    sent = await accumulator.add_message(TopicPartition("approved", 0), b"t:u", b"{}", timeout=1)
    in_a_year = time.monotonic() + 365 * 86_400
    monkeypatch.setattr(message_accumulator.time, "monotonic", lambda: in_a_year)
    nodes, leaderless = accumulator.drain_by_nodes(ignore_nodes=[])
    assert (nodes, leaderless) == ({}, True)
    assert not sent.done()
    producer._closed = True  # was never started, and would flush
