"""Each decision is counted once, under the action that brought it, however often its batch is settled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from agents.tally import Tally
from groundwire.gate.results import Acted, Decided, Result
from groundwire.messages.inbound import InboundRecord
from tests.unit.gate.test_review_gate import TEXT, Office


@pytest.fixture
def office() -> Office:
    return Office()


def counters() -> Counter[tuple[str, ...]]:
    names = {"groundwire_decisions_total": ("reason_code",), "groundwire_repeats_total": ()}
    names["groundwire_review_actions_total"] = ("action", "outcome")
    return Counter(
        {
            (sample.name, *(sample.labels[label] for label in names[sample.name])): int(sample.value)
            for metric in REGISTRY.collect()
            for sample in metric.samples
            if sample.name in names
        }
    )


def counted(results: list[Result], fresh: set[str]) -> dict[tuple[str, ...], int]:
    before = counters()
    Tally("reviews").count(results, fresh)
    return {name[1:] or name: count for name, count in (counters() - before).items()}


def fresh_of(results: list[Any]) -> set[str]:
    return {result.decision.decision_id for result in results if result.fresh}


async def settled(office: Office, *records: InboundRecord, times: int = 1) -> tuple[list[Result], set[str]]:
    """Settle a batch so many times before it is published, as a worker does whose broker is away."""
    gate = office.reviews
    fresh: set[str] = set()
    for _ in range(times):
        results = await gate.settle(await gate.prepare(records))
        fresh |= fresh_of(results)
    return results, fresh


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_approval_and_its_retraction_in_one_batch_are_counted_as_what_they_are(office, times):
    (pending,) = await office.decide(office.claim("a", TEXT))
    actions = office.action("approve", pending), office.action("retract", pending, expected_revision=2)
    assert counted(*await settled(office, *actions, times=times)) == {
        ("approve", "human_approved"): 1,
        ("retract", "retracted"): 1,
        ("human_approved",): 1,
        ("retracted",): 1,
    }


async def test_an_action_twice_in_a_batch_is_one_decision_and_a_repeat(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    action = office.action("approve", pending)
    assert counted(*await settled(office, action, action)) == {
        ("approve", "human_approved"): 1,
        ("human_approved",): 1,
        ("groundwire_repeats_total",): 1,
    }


async def test_an_action_of_which_only_a_later_revision_is_known_is_a_repeat(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    approved, retracted = (
        await office.act("approve", pending),
        await office.act("retract", pending, expected_revision=2),
    )
    assert isinstance(approved, Acted)
    later = replace(approved, decision=retracted.decision)
    assert counted([later, retracted], fresh_of([retracted])) == {
        ("retract", "retracted"): 1,
        ("retracted",): 1,
        ("groundwire_repeats_total",): 1,
    }


async def test_a_claim_twice_in_a_batch_is_one_decision_and_a_repeat(office):
    claim = office.claim("a", TEXT)
    results = await office.results(claim, claim)
    assert all(isinstance(result, Decided) for result in results)
    assert counted(results, fresh_of(results)) == {("ungrounded",): 1, ("groundwire_repeats_total",): 1}
