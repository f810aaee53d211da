"""What seals prove of records on topics: histories of workers that crash verify, and nothing of them can be changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from groundwire.errors import UsageError
from groundwire.messages.headers import InboundRecord
from groundwire.messages.seals import MAX_AT_ONCE
from groundwire.replay.seals import SealFault, read_heads
from groundwire.replay.store import RecordPlace
from tests.unit.replay.sealing import CLAIMS, NOW, Chain, Desk, changed, decided

SEEDS = pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 8), marks=pytest.mark.slow)])
HOUR = timedelta(hours=1)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def kinds(faults: Iterable[SealFault]) -> set[str]:
    return {fault.kind for fault in faults}


# Histories ---------------------------------------------------------------------------------------------------


@SEEDS
def test_what_workers_that_crash_have_sealed_verifies(desk: Desk, seeds: range):
    for seed in seeds:
        history = desk.history(seed)
        evidence = desk.evidence(history)
        assert list(evidence.faults()) == [], seed
        assert [each.partition for each in evidence.heads()] == sorted(history.heads)
        head = {"topic": CLAIMS, "partition": 0, "seal": history.heads[0].sha256}
        assert list(evidence.missing_heads([head])) == []


@SEEDS
def test_no_seal_of_a_chain_can_be_taken_out_not_even_the_last_and_no_two_can_change_places(
    desk: Desk, seeds: range
):
    for seed in seeds:
        history, rng = desk.history(seed), Random(seed)
        for place in (place for chain in history.chains.values() for place in chain):
            left = history.audit[:place] + history.audit[place + 1 :]
            assert "broken_chain" in kinds(desk.faults(history, left)), (seed, place)
        for chain in (chain for chain in history.chains.values() if len(chain) > 1):
            one, other = sorted(rng.sample(chain, 2))
            audit = list(history.audit)
            audit[one], audit[other] = replace(audit[other], offset=one), replace(audit[one], offset=other)
            details = [fault.detail for fault in desk.faults(history, audit)]
            assert any("comes after it" in detail for detail in details), (seed, one, other)


def test_no_field_of_a_seal_can_be_changed(desk: Desk):
    history = desk.history("fields")
    place = history.chains[0][1]
    fields = {"at": "2026-01-01T00:00:00Z", "before": None, "root": "0" * 64, "topic": "t.deferred"}
    fields |= {"key": "7", "version": "7", "count": 7_000, "end": 7_000, "first": 7_000, "partition": 7_000}
    for name, value in fields.items():
        other = changed(history.audit[place], **{name: value})
        faults = desk.faults(history, [*history.audit[:place], other, *history.audit[place + 1 :]])
        assert {"bad_seal", "broken_chain"} <= kinds(faults), name


def test_a_seal_that_begins_elsewhere_than_the_one_before_it_ends_is_named(desk: Desk):
    history = desk.history("gap")
    history.seal(0, history.heads[0].end + 9, [], committed=True, gap=2)
    (fault,) = desk.faults(history)
    assert (fault.kind, "it begins at offset" in fault.detail) == ("broken_chain", True)


@SEEDS
def test_a_record_that_is_gone_or_changed_is_named_until_its_retention_has_passed(desk: Desk, seeds: range):
    for seed in seeds:
        history, rng = desk.history(seed), Random(seed)
        gone = rng.choice(history.approved)
        left = [record for record in history.approved if record.value != gone.value]
        for records in (left, [*left, replace(gone, value=b"changed")]):
            (fault,) = desk.faults(history, None, records)
            assert (fault.kind, gone.sha256 in fault.detail) == ("removed", True)
        later = NOW + timedelta(days=10_000)
        assert desk.faults(history, None, left, now=later) != [], "approved is kept for ever"


@SEEDS
def test_retention_of_audit_breaks_no_chain_wherever_it_cuts_and_excuses_no_gap_behind_that(
    desk: Desk, seeds: range
):
    for seed in seeds:
        history = desk.history(seed)
        last = min(chain[-1] for chain in history.chains.values())
        for cut in range(1, last + 1) if seeds[0] else (1, last // 2, last):
            assert desk.faults(history, history.audit[cut:], cut=True) == [], (seed, cut)
            assert kinds(desk.faults(history, history.audit[cut:])) <= {"broken_chain"}
        chain = max(history.chains.values(), key=len)
        left = [record for at, record in enumerate(history.audit) if at > chain[0] and at != chain[2]]
        assert "broken_chain" in kinds(desk.faults(history, left, cut=True))


def test_a_beginning_of_audit_that_is_deleted_before_its_retention_is_no_excuse(desk: Desk):
    history = desk.history("deleted")
    for age, is_lost in ((1, False), (300, False), (340, True), (365, True)):
        evidence = desk.evidence(history, now=NOW + timedelta(days=age))
        assert (evidence.has_lost_seals(7), evidence.has_lost_seals(0)) == (is_lost, False), age


def test_a_head_that_was_anchored_and_is_gone_is_named_and_what_is_no_head_refused(
    desk: Desk, tmp_path: Path
):
    history = desk.history("anchored")
    head, place = history.heads[0], history.chains[0][-1]
    anchored = [{"topic": CLAIMS, "partition": 0, "seal": head.sha256}]
    evidence = desk.evidence(history, history.audit[:place])
    (fault,) = evidence.missing_heads(anchored)
    assert (fault.kind, fault.where) == ("broken_chain", f"{CLAIMS}/0")
    for seal in ({"seal": head.sha256}, anchored[0] | {"seal": "\ud800"}, anchored[0] | {"seal": 7}):
        with pytest.raises(UsageError, match="--heads"):
            list(evidence.missing_heads([seal]))
    (tmp_path / "heads.jsonl").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="--heads"):
        read_heads(tmp_path / "heads.jsonl")


# Single decisions --------------------------------------------------------------------------------------------


def test_a_decision_is_superseded_by_a_sealed_one_of_a_later_revision_alone(desk: Desk):
    first, second = decided(1, 0), decided(2, 1)
    assert desk.evidence(desk.sealed(second)).is_superseded(first)
    assert not desk.evidence(desk.sealed(first)).is_superseded(second)
    assert not desk.evidence(desk.sealed(first)).is_superseded(first)


def test_what_no_seal_has_reached_is_under_way_and_what_one_or_the_group_has_passed_is_not(desk: Desk):
    evidence = desk.evidence(desk.sealed(decided(1, 0)))
    place, unsealed = RecordPlace("t.approved", 0, 9), ("unsealed", "no seal covers it")
    assert evidence.explain(place, decided(1, 0)) is None
    assert evidence.explain(place, decided(2, 4)) == ("not_sealed_yet", "")
    assert evidence.explain(place, decided(2, 0)) == unsealed
    evidence.note_waiting(InboundRecord(CLAIMS, 0, 0, 0, None, b""))
    assert evidence.explain(place, decided(2, 0)) == ("not_sealed_yet", ""), "it waits on deferred"
    evidence.committed = {TopicPartition(CLAIMS, 0): OffsetAndMetadata(5, "")}
    assert evidence.explain(place, decided(2, 4)) == unsealed


def test_other_bytes_under_a_sealed_id_are_unsealed_wherever_they_stand(desk: Desk):
    evidence = desk.evidence(desk.sealed(decided(1, 0)), cut=True)
    for offset in (0, 7):
        status, why = evidence.explain(RecordPlace("t.approved", 0, offset), decided(1, 0, text="Other."))
        assert (status, "differ" in why) == ("unsealed", True)


def test_retention_excuses_a_decision_before_the_first_sealed_one_of_its_partition_alone(desk: Desk):
    history = desk.sealed(decided(1, 0), decided(2, 1), decided(3, 2))
    unsealed, first = history.approved[0].value or b"", RecordPlace("t.approved", 0, 0)
    evidence = desk.evidence(history, history.audit[1:], cut=True)
    assert evidence.explain(first, unsealed) == ("expired", "its seal: retention has taken it")
    for place in (RecordPlace("t.approved", 0, 1), RecordPlace("t.approved", 1, 0)):
        assert evidence.explain(place, unsealed)[0] == "unsealed"
    assert desk.evidence(history, history.audit[1:]).explain(first, unsealed)[0] == "unsealed"


def test_what_only_a_seal_beside_the_groups_chain_covers_is_unsealed_and_what_a_crash_repeated_is_not(
    desk: Desk,
):
    first, forged = decided(1, 0), decided(2, 0)
    history = desk.sealed(first)
    name = history.approved[0].headers[0][1].decode()
    start, history.heads = history.heads, {}
    for value, identity in ((first, name), (forged, None)):
        history.seal(0, 1, [history.publish(0, 0, value, identity)], committed=False)
    history.heads = start
    history.seal(0, 2, [], committed=True)
    evidence = desk.evidence(history)
    assert evidence.explain(RecordPlace("t.approved", 0, 0), first) is None
    assert evidence.explain(RecordPlace("t.approved", 0, 1), forged) == ("unsealed", "no seal covers it")


# Chains whose workers' clocks, keys and partitions differ ----------------------------------------------------


def test_clocks_that_differ_successors_and_copies_break_no_chain(tmp_path: Path):
    for steps in (
        [("gate", minutes) for minutes in (0, 60, 0, -60, 0)],
        [("old", -120), ("old", -120), ("gate", 0)],
        [("gate", -56), ("old", -61)],  # a key and its successor change places within five minutes
    ):
        chain = Chain(tmp_path)
        seals = [chain.seal(key, NOW + timedelta(minutes=at)) for key, at in steps]
        assert chain.faults(*seals) == [], steps
    first = seals[0]
    assert chain.faults(replace(first, offset=2)) == [], "a copy behind later ones"


def test_a_seal_that_a_key_dates_back_or_of_another_deployment_is_named(chain: Chain):
    later, forged = chain.seal("gate"), chain.seal("old", NOW - 2 * HOUR)
    ((kind, detail),) = chain.faults(later, forged)
    assert (kind, "back-dated" in detail) == ("bad_seal", True)
    _, (kind, detail) = chain.faults(chain.seal("gate", topic="t.staging.claims"))
    assert (kind, "another deployment" in detail) == ("bad_seal", True)


@pytest.mark.parametrize("key", ["gate", "old"])
@pytest.mark.parametrize("starts", [False, True])
def test_a_seal_on_another_partition_of_audit_is_named_and_counts_for_nothing(
    chain: Chain, key: str, *, starts: bool
):
    last = chain.seal("gate")
    if starts:
        chain.begin_anew()
    forged = chain.seal(key, NOW - 2 * HOUR, audit=1)
    copy = replace(last, partition=1, offset=5)
    faults = chain.faults(forged, copy, last)
    assert [(kind, "elsewhere" in detail) for kind, detail in faults] == [("bad_seal", True)] * 2
    assert chain.evidence.reached(CLAIMS, 0) == 1


def test_a_second_start_of_a_chain_that_is_longer_than_a_crash_repeats_is_named(chain: Chain):
    seals = [chain.seal("gate") for _ in range(MAX_AT_ONCE + 1)]
    chain.begin_anew()
    assert chain.faults(*seals, chain.seal("gate", topic="t.deferred")) == [], "another partition's chain"
    chain.begin_anew()
    ((kind, detail),) = chain.faults(chain.seal("gate", NOW + timedelta(seconds=1)))
    assert (kind, "second start" in detail) == ("bad_seal", True)


def test_a_start_that_a_crash_repeats_with_all_that_came_of_one_commit_verifies(chain: Chain):
    seals = []
    for seconds in range(3):
        chain.begin_anew()
        seals += [chain.seal("gate", NOW + timedelta(seconds=seconds)) for _ in range(MAX_AT_ONCE)]
    assert chain.faults(*seals, chain.seal("gate")) == []


@pytest.mark.parametrize("starts", [False, True])
def test_what_an_ended_key_seals_beside_or_behind_what_the_group_committed_counts_for_nothing(
    chain: Chain, *, starts: bool
):
    """Nothing was sealed since the key ended, so that no time tells."""
    seals = [chain.seal("old", NOW - 2 * HOUR) for _ in range(3)]
    chain.commit()
    if starts:
        chain.begin_anew()
    forged = [chain.seal("old", NOW - 2 * HOUR) for _ in range(5)]
    assert chain.faults(*seals, *forged) == []
    assert chain.evidence.reached(CLAIMS, 0) == (5 if starts else 8)
    chain.evidence.leave_out_forks()
    assert chain.evidence.reached(CLAIMS, 0) == 3


def test_seals_behind_what_the_group_committed_count_while_their_key_holds(chain: Chain):
    seals = [chain.seal("gate")]
    chain.commit()
    assert chain.faults(*seals, chain.seal("gate")) == []
    chain.evidence.leave_out_forks()
    assert chain.evidence.reached(CLAIMS, 0) == 2
