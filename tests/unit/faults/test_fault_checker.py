"""The checker of the fault suite finds what it is there to find, and nothing where all is well."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.outputs import outputs
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.state.model import SubjectState, SubjectStatus
from tests.faults.checker import RULES, check, compare_state, everything_is_sealed
from tests.faults.history import REVIEWS, History, Violation, name, place_of
from tests.faults.rules_approval import pending
from tests.stream.harness import Seen
from tests.unit.faults.unfaulted import LIMITS, PREFIX, Run, a_run

pytestmark = pytest.mark.slow  # decides and checks a whole run for every fault


def broken(history: History) -> dict[str, list[Violation]]:
    return {promise: violations for promise, violations in check(history).items() if violations}


@settings(max_examples=8)
@given(st.integers(0, 10_000))
def test_a_run_in_which_nothing_breaks_passes(seed: int):
    run, standings = a_run(seed, 60)
    history = run.history()
    assert broken(history) == {}
    assert list(compare_state(history, standings)) == []


def test_a_run_with_something_of_everything_passes_and_every_fault_in_it_is_found_by_its_rule():
    run, standings = a_run()
    history = run.history()
    assert broken(history) == {}
    assert list(compare_state(history, standings)) == []
    assert {"approved", "review", "blocked", "dead-letter", "audit", "retractions"} <= set(history.records)
    reasons = {seen.json["reason_code"] for seen in history.decisions}
    wanted = {"human_approved", "human_rejected", "retracted", "duplicate", "review_queue_full", "grounded"}
    assert wanted | {"trusted_source", "verified_citation", "personal_speculation"} <= reasons
    assert {"enqueue", "review_action", "refused_action", "retraction", "dead_letter"} <= set(history.audit)
    assert any(seen.json["derived_from"] for seen in history.of("approved"))
    assert any(seen.json["kind"] == "response" for seen in history.of("approved"))
    assert list(pending(history))
    assert len(RULES) == len(check(history)) == 13

    def holding(topic: str, records: Iterable[Seen]) -> History:
        """The history with other records on a topic."""
        return replace(history, records={**history.records, topic: list(records)})

    def without(topic: str, *gone: Seen) -> History:
        return holding(topic, [seen for seen in history.of(topic) if seen not in gone])

    def appended(seen: Seen, **fields: Any) -> History:
        """The history with a record at the end of its topic."""
        log = history.of(fields.get("topic", seen.topic))
        return holding(fields.get("topic", seen.topic), [*log, replace(seen, offset=len(log), **fields)])

    def changed(seen: Seen, change: Callable[[dict[str, Any]], None]) -> bytes:
        fields = json.loads(seen.value or b"")
        change(fields)
        return json.dumps(fields).encode()

    def rewritten(seen: Seen, change: Callable[[dict[str, Any]], None]) -> History:
        """The history with other bytes in a record's place."""
        other = replace(seen, value=changed(seen, change))
        return holding(seen.topic, [other if each is seen else each for each in history.of(seen.topic)])

    def approved(reason: str = "trusted_source") -> Seen:
        return next(seen for seen in history.of("approved") if seen.json["reason_code"] == reason)

    one = approved()
    seals = [seen for seen in history.of("audit") if seen.json["type"] == "seal"]

    def faulty() -> Iterator[tuple[str, History, str]]:
        """Yield a fault, a history that has it, and the rule that finds it."""
        human = approved("human_approved")
        yield "a dead letter is missing", without("dead-letter", history.of("dead-letter")[0]), "loss"
        first = next(seen for seen in history.of("claims") if place_of(seen) == history.sent[0].place)
        yield "the broker lost an acknowledged input", without("claims", first), "broker_lost"
        for kind in ("state_lost", "state_rebuilt", "policy_loaded", "enqueue"):
            log = list(history.of("audit"))
            for at in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"):
                event = {"type": kind, "decision_id": None, "at": at, "detail": {"epoch": "x"}}
                value = json.dumps(event).encode()
                log.append(replace(log[0], offset=len(log), headers=(("ce_id", b"e"),), value=value))
            yield f"two {kind} events of one id differ", holding("audit", log), "bytes"
        yield "a second decision is on another topic", appended(one, topic="blocked"), "bytes"
        yield (
            "an id is not its subject's",
            rewritten(one, lambda d: d.update(decision_id="0" * 36)),
            "identity",
        )
        topic, partition, offset = history.origin(one.json)
        place = {"topic": PREFIX + topic, "partition": str(partition), "offset": str(offset)}
        headers = [("gw-error", b"worker_crash")]
        headers += [(f"__connect.errors.{part}", value.encode()) for part, value in place.items()]
        letter = appended(history.of("dead-letter")[0], headers=tuple(headers))
        yield "a record is a dead letter and decided", letter, "two_ends"
        changes: dict[str, Callable[[dict[str, Any]], None]] = {
            "without not_duplicate": lambda d: d["checks_passed"].remove("not_duplicate"),
            "without no_speculation": lambda d: d["checks_passed"].remove("no_speculation"),
            "without its ground": lambda d: d["checks_passed"].remove("trusted_source: " + d["source"]),
            "with a failed check": lambda d: d["checks_failed"].append("dedup_check_failed"),
            "with failed dedup": lambda d: d["facts"]["dedup"].update(status="failed"),
            "with an unknown parent": lambda d: d["derived_from"].append("never-heard-of"),
            "as ungrounded": lambda d: d.update(reason_code="ungrounded"),
            "in tier 2": lambda d: d.update(tier="tier_2"),
            "as provisional": lambda d: d.update(revision=0),
        }
        for name_, change in changes.items():
            yield f"approved {name_}", rewritten(one, change), "unchecked"
        yield "the cited page is gone", replace(history, page_exists=lambda _url: False), "unchecked"
        other_text = rewritten(human, lambda d: d["evidence"].update(claim="Something else"))
        yield "a person approved another text", other_text, "unchecked"
        source = next(each for each in history.of(REVIEWS) if place_of(each) == history.origin(human.json))
        unsigned = [replace(each, headers=()) if each is source else each for each in history.of(REVIEWS)]
        yield "the action was not signed", holding(REVIEWS, unsigned), "unchecked"
        forged = frozenset({source.json["action_id"]})
        yield "the action was forged", replace(history, forged=forged), "unchecked"
        yield "the action is missing", without(REVIEWS, source), "unchecked"
        keys: dict[Any, list[Seen]] = {}
        for seen in history.of("approved"):
            if history.origin(seen.json)[0] == "claims":
                keys.setdefault(seen.key, []).append(seen)
        early, late = next(pair for pair in keys.values() if len(pair) > 1)[:2]
        swapped = {early: replace(late, offset=early.offset), late: replace(early, offset=late.offset)}
        log = [swapped.get(seen, seen) for seen in history.of("approved")]
        yield "approvals of a key are out of order", holding("approved", log), "order"
        claims = (seen for seen in history.of("approved") if seen.json["kind"] == "claim")
        other = next(seen for seen in claims if seen.subject != one.subject)

        def copied(decision: dict[str, Any]) -> None:
            decision["evidence"]["claim"] = one.json["evidence"]["claim"].upper()
            decision.update({name: one.json[name] for name in ("tenant_id", "user_id", "memory_type")})

        yield "two approvals say the same", rewritten(other, copied), "two_memories"
        yield "a retraction is missing", without("retractions", history.of("retractions")[0]), "audit"
        yield "a sealed record is gone", without("approved", one), "removed"
        event = next(seen for seen in history.of("audit") if seen.json["type"] == "review_action")
        name_ = b"00000000-0000-5000-8000-000000000000"
        yield "no seal names an event", appended(event, headers=(("ce_id", name_),)), "unsealed"
        yield "a seal has other bytes", rewritten(one, lambda d: d.update(engine="9.9.9")), "unsealed"
        alone = next(seal for seal in seals if len(seal.json["detail"]["outputs"]) == 1)
        yield "no seal names a decision", without("audit", alone), "unsealed"
        seal, following, *_ = [one for one in seals if one.json["detail"]["seal"]["topic"].endswith("claims")]
        yield "a seal is missing", without("audit", seal), "broken_chain"
        emptied = rewritten(following, lambda event: event["detail"]["outputs"].clear())
        yield "a seal was changed", emptied, "bad_seal"
        anew = rewritten(following, lambda d: d["detail"]["seal"].update(before=None, first=10**9))
        yield "a chain begins anew", anew, "broken_chain"

    wrong = []
    for fault, faulty_history, rule in faulty():
        found = {violation.rule for violations in broken(faulty_history).values() for violation in violations}
        if rule not in found:
            wrong.append((fault, found))
    assert wrong == []
    assert broken(appended(one)) == {}, "a repeat with the same bytes is allowed"

    # what is found names the record, the fields or the limit
    (topic, partition, offset) = history.origin(one.json)
    lost = broken(without("approved", one))["every input is decided or a dead letter"]
    assert ("loss", f"{topic}/{partition}@{offset}") in {(v.rule, v.record) for v in lost}
    other = changed(one, lambda decision: decision.update(decided_at="2026-01-31T12:00:01Z"))
    (violation,) = broken(appended(one, value=other))["an id's bytes never change"]
    assert violation.detail.endswith("decided_at")
    limits = "review limits are never exceeded"
    nobody_acts = replace(history, acted_at=dict.fromkeys(history.acted_at, history.ended))
    details = [violation.detail for violation in broken(nobody_acts)[limits]]
    assert any(f"{LIMITS.total + 1} places are taken of {LIMITS.total} (total)" in each for each in details)
    fewer = broken(replace(history, limits=replace(LIMITS, user=1)))[limits]
    assert fewer
    assert all("2 places are taken of 1" in violation.detail for violation in fewer)
    for kind in ("enqueue", "review_action", "refused_action", "retraction", "dead_letter"):
        gone = next(seen for seen in history.of("audit") if seen.json["type"] == kind)
        assert {v.rule for v in broken(without("audit", gone))["audit is complete"]} == {"audit"}, kind

    # state that has forgotten or adds an approval
    subject = Subject(*(one.json[part] for part in ("tenant_id", "user_id", "kind", "subject_id")))
    revision = max(next(found for each, found in history.subjects.items() if each == subject))
    for status in (
        None,
        SubjectStatus(SubjectState.BLOCKED, revision),
        SubjectStatus(SubjectState.APPROVED, revision + 1),
    ):
        of_state = list(compare_state(history, {**standings, subject: status}))
        assert [violation.rule for violation in of_state] == ["state"]

    # a worker that was killed decided it; the next one read the record again, after a person had acted on it
    by_revision = next(each for each in history.subjects.values() if {1, 2} <= set(each))
    first, second = (
        next(seal for seal in seals if by_revision[number].json["decision_id"] in str(seal.json["detail"]))
        for number in (1, 2)
    )
    unsealed = list(everything_is_sealed(without("audit", first)))
    assert not [each for each in unsealed if each.record.startswith("review/")], unsealed
    both = list(everything_is_sealed(without("audit", first, second)))
    assert {name(by_revision[1]), name(by_revision[2])} <= {each.record for each in both}


def test_each_revision_reaches_its_topic_however_often_workers_die_even_one_retracted_in_the_same_batch():
    @dataclass
    class Mortal(Run):
        """A run whose workers die: what they committed to state remains, and some of their outputs reach the topics."""

        deaths: random.Random = field(default_factory=random.Random)

        async def gate_decides(self, record: InboundRecord) -> None:
            while self.deaths.random() < 0.3:
                self._some_of(outputs(await self.results(record)))
            await super().gate_decides(record)

        async def people_decide(self, *records: InboundRecord) -> None:
            """Settle a batch as often as workers die over it, and once more."""
            while True:
                gate = self.reviews
                said = outputs(await gate.apply_step(await gate.prepare(records)))
                if self.deaths.random() < 0.5:
                    await self.publish_and_seal(records, said)
                    return
                self._some_of(said)

        def _some_of(self, said: list[Any]) -> None:
            """Publish what a dying worker got through: the first records of each topic, in their order."""
            left = {output.topic: self.deaths.randrange(3) for output in said}
            for output in said:
                if left[output.topic]:
                    left[output.topic] -= 1
                    self.put([output])
                else:
                    left[output.topic] = 0

    async def mortal_run(seed: int) -> dict[str, Any]:
        rng = random.Random(seed)
        run = Mortal(deaths=random.Random(seed))
        for number in range(12):
            claim = {"claim_id": f"c{number}", "tenant_id": "acme", "user_id": f"u{number}"}
            claim |= {"content": f"Service {number} keeps its word", "source": "ai_synthesis"}
            key = f"acme:u{number}".encode()
            await run.gate_decides(run.append("claims", key, json.dumps(claim).encode()))
        for decision in [seen.json for seen in run.records["review"]]:
            first = run.action(rng.choice(("approve", "edit", "approve", "reject")), decision)
            await run.people_decide(first, run.action("retract", decision, expected_revision=2))
        history = run.history()
        found = check(history) | {"state": list(compare_state(history, await run.statuses()))}
        return {promise: broken for promise, broken in found.items() if broken}

    assert [asyncio.run(mortal_run(seed)) for seed in range(4)] == [{}] * 4
