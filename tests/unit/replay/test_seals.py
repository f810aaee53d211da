"""Seals cover the records on topics: histories with crashes verify, and nothing can be changed without a key."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import get_args
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.outputs import of_seal, of_worker, worker_event
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.kafka.reader import RecordPlace, TopicReader
from groundwire.kafka.store import SCRATCH, Store
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, sha256_hex, to_milliseconds
from groundwire.messages.decisions import AuditEvent, AuditType
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.messages.headers import InboundRecord, event_headers, header
from groundwire.messages.identity import event_id, retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.seals import (
    MAX_AT_ONCE,
    Seal,
    SealedOutput,
    SealHead,
    root_of,
    seal_of,
    signed_bytes,
)
from groundwire.messages.topics import TopicName
from groundwire.replay import sealed_topics, seals
from groundwire.replay.sealed_topics import read_heads, read_seals
from groundwire.replay.seals import SealEvidence
from tests.unit.review.world import decision

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLAIMS = "t.claims"


def keys_in(folder):
    """Return seal keys, valid and expired, and their private halves and that of a reviewer."""
    path = folder / "keys.toml"
    if not path.exists():
        for name, until in (("gate", None), ("old", NOW - timedelta(hours=1))):
            new_key(path, name, tenants=[], roles=["seal"], asymmetric=True, not_after=until)
        new_key(path, "ann", tenants=["default"], roles=["reviewer"], asymmetric=True)
    return SealKeys(path), dict(Keys.load(path))


def seal_after(last, signing, offset, outputs=(), *, audit=0, **fields):
    """Return the next seal of a chain, and its record at an offset of a partition of `audit`."""
    first = last.end if last else 0
    rest = {"before": last.sha256 if last else None, "count": len(outputs), "root": root_of(outputs)}
    rest |= {"first": first, "end": first + 1, "key": "gate", "partition": 0, "topic": CLAIMS, "at": NOW}
    head = SealHead(**rest | fields)
    output = of_seal(Seal(head, signing.sign(head.to_bytes()), tuple(outputs)))
    return head, InboundRecord("t.audit", audit, offset, 0, output.key, output.value, tuple(output.headers))


def faults_of(evidence):
    """Return what is wrong, whether or not heads are kept elsewhere."""
    return [fault for fault in evidence.faults() if fault.kind != "unanchored"]


class Chain:
    """Empty seals of one partition, under a valid or an expired key."""

    def __init__(self, folder):
        keys, self._keys = keys_in(folder)
        self.evidence = SealEvidence(Store(), "t.", keys, now=NOW)
        self.last, self._offsets = None, [0, 0]

    def seal(self, key="gate", at=NOW, *, audit=0, topic=CLAIMS):
        fields = {"audit": audit, "at": at, "key": key, "topic": topic}
        self.last, record = seal_after(self.last, self._keys[key], self._offsets[audit], **fields)
        self._offsets[audit] += 1
        return record

    def commit(self):
        committed = OffsetAndMetadata(self.last.end, self.last.sha256)
        self.evidence.committed = {TopicPartition(CLAIMS, 0): committed}

    def faults(self, *records):
        for record in records:
            self.evidence.note_published(record)
        return [(fault.kind, fault.detail) for fault in faults_of(self.evidence)]


@dataclass
class History:
    """What workers have published and sealed; `chains` are the seals that others follow."""

    key: object
    approved: list = field(default_factory=list)
    audit: list = field(default_factory=list)
    heads: dict = field(default_factory=dict)
    chains: dict = field(default_factory=dict)

    def publish(self, partition, offset, value=None, name=""):
        value = value if value is not None else f"{partition} {offset}".encode()
        name = name or str(uuid5(NAMESPACE_OID, sha256_hex(value)))
        headers = (("ce_id", name.encode()),)
        record = InboundRecord("t.approved", 0, len(self.approved), 0, b"k", value, headers)
        self.approved.append(record)
        return SealedOutput(offset, "approved", 0, name, record.sha256)

    def seal(self, partition, end, outputs, *, committed, gap=0):
        last, at = self.heads.get(partition), NOW + timedelta(seconds=len(self.audit))
        fields = {"at": at, "end": end, "first": (last.end if last else 0) + gap, "partition": partition}
        head, record = seal_after(last, self.key, len(self.audit), outputs, **fields)
        if committed:
            self.heads[partition] = head
            self.chains.setdefault(partition, []).append(len(self.audit))
        self.audit.append(record)


class Desk:
    def __init__(self, folder):
        self.keys, keys = keys_in(folder)
        self.key = keys["gate"]

    def history(self, seed):
        """Return a history in which some workers crash between seal and commit, and others repeat their work."""
        rng, history = Random(str(seed)), History(self.key)
        partitions = range(rng.randint(1, 3))
        for partition in (*partitions, *rng.choices(partitions, k=20)):
            for committed in (*[False] * rng.choice((0, 0, 1, 2)), True):
                first = history.heads[partition].end if partition in history.heads else 0
                end = first + rng.randint(1, 4)
                outputs = [history.publish(partition, offset) for offset in range(first, end)]
                history.seal(partition, end, outputs, committed=committed)
        return history

    def sealed(self, *values):
        history = History(self.key)
        for offset, value in enumerate(values):
            output = history.publish(0, offset, value, json.loads(value)["decision_id"])
            history.seal(0, offset + 1, [output], committed=True)
        return history

    def evidence(self, history, audit=None, approved=None, *, cut=False, now=NOW, heads=None):
        """Return what topics hold; `heads`: on the topic `heads`, None: the last one of each partition."""
        evidence = SealEvidence(Store(), "t.", self.keys, now=now)
        for value in [head_of(history, each) for each in history.chains] if heads is None else heads:
            evidence.note_head(value, "t.heads/0@0")
        given = (history.approved, approved), (history.audit, audit)
        for record in (one for all_of, some in given for one in (all_of if some is None else some)):
            evidence.note_published(record)
        evidence.audit_is_cut = cut
        evidence.committed = {
            TopicPartition(CLAIMS, partition): OffsetAndMetadata(head.end, head.sha256)
            for partition, head in history.heads.items()
        }
        evidence.leave_out_forks()
        return evidence

    def faults(self, *arguments, **options):
        return list(self.evidence(*arguments, **options).faults())

    def kinds(self, *arguments, **options):
        return {fault.kind for fault in self.faults(*arguments, **options)}


def head_of(history, partition):
    """Return the last head of a partition, as `heads` holds it."""
    seal = seal_of(history.audit[history.chains[partition][-1]].value)
    return seal.signed.model_dump_json().encode()


def decided(revision, offset=0, text="It holds.", at=NOW):
    origin = {"topic": CLAIMS, "partition": 0, "offset": offset, "timestamp": format_time(NOW)}
    origin |= {"sha256": "0" * 64}
    fields = {"text": text, "origin": origin, "decided_at": format_time(at)}
    return decision("c1", revision, "approved", **fields).to_bytes()


def retraction(key=b"acme:ann"):
    ids = {"kind": "claim", "subject_id": "c1", "tenant_id": "acme", "user_id": "ann"}
    ids |= {"decision_id": f"{UUID(int=1)}", "supersedes": f"{UUID(int=0)}"}
    value = Retraction(**ids, reason="erased", actor="dpo", at=NOW, affected=[])
    headers = event_headers("retraction", retraction_id(value.decision_id), format_time(NOW), "c1", ())
    return InboundRecord("t.retractions", 0, 1, 0, key, value.model_dump_json().encode(), headers)


def event_record(kind, name=None, detail=None, of=None):
    fields = {"at": NOW, "tenant_id": "acme", "actor": "dpo", "subject_id": None, "decision_id": of}
    event = AuditEvent(event_id=name or str(UUID(int=7)), type=kind, detail=detail or {}, **fields)
    headers = tuple(event_headers("audit", event.event_id, format_time(NOW), "", ()))
    return InboundRecord("t.audit", 0, 5, 0, b"acme", event.model_dump_json().encode(), headers)


def tombstone(erasure):
    key, headers = f"acme:{erasure.user_id}".encode(), tuple(erasure.headers)
    return InboundRecord("t.retractions", 0, 0, 0, key, None, headers)


SEEDS = pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 8), marks=pytest.mark.slow)])
HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


THREE = decided(1, 0), decided(2, 1), decided(3, 2)


def forged_record(desk, _):
    evidence = desk.evidence(desk.sealed(decided(1, 0)))
    return {evidence.explain(RecordPlace("t.approved", 0, 9), decided(1, 0, text="Other."))[0]}


def moved_record(desk, _):
    history, record = History(desk.key), retraction()
    output = SealedOutput(0, "retractions", 0, header(record.headers, "ce_id"), record.sha256)
    history.seal(0, 1, [output], committed=True)
    assert desk.kinds(history, None, [record]) == set()
    moved = {"partition": 1}, {"key": b"globex:ann"}, {"headers": (*record.headers, ("ce_type", b"another"))}
    found = [desk.kinds(history, None, [record, replace(record, offset=9, **where)]) for where in moved]
    return set.intersection(*found)


def forged_event(desk, _):
    history = desk.sealed(*THREE)
    return desk.kinds(history, None, [*history.approved, event_record("enqueue")])


def removed_record(desk, _):
    return desk.kinds(desk.sealed(*THREE), None, [])


def removed_seal(desk, _):
    history = desk.sealed(*THREE)
    return desk.kinds(history, [history.audit[0], history.audit[2]])


def foreign_seal(_, folder):
    return {kind for kind, _ in Chain(folder).faults(Chain(folder).seal("ann"))}


def back_dated_seal(_, folder):
    chain = Chain(folder)
    return {kind for kind, _ in chain.faults(chain.seal(), chain.seal("old", NOW - 2 * HOUR))}


def cut_end(desk, _):
    history = desk.sealed(*THREE)
    return desk.kinds(history, history.audit[:-1], history.approved[:-1])


def cut_partition(desk, _):
    return desk.kinds(History(desk.key), heads=[head_of(desk.sealed(*THREE), 0)])


def cut_heads(desk, _):
    return desk.kinds(desk.sealed(*THREE), heads=[])


ATTACKS = (
    forged_record,
    moved_record,
    forged_event,
    removed_record,
    removed_seal,
    foreign_seal,
    back_dated_seal,
    cut_end,
    cut_partition,
    cut_heads,
)
"""An attack of each row of the table in `groundwire.replay.seals`, in its order."""
ROWS = [line.split(" | ") for line in seals.__doc__.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize(
    ("row", "attack"), [*zip(ROWS, ATTACKS, strict=True)], ids=[row[0][2:] for row in ROWS]
)
def test_each_attack_of_the_table_is_named_as_it_says(desk, tmp_path, row, attack):
    assert attack(desk, tmp_path) in [{status.strip("`")} for status in row[1].split("; ")]


@SEEDS
def test_the_seals_of_workers_that_crash_verify_and_no_seal_or_record_can_be_removed_changed_or_moved(
    desk, seeds
):
    for seed in seeds:
        history, rng = desk.history(seed), Random(seed)
        evidence = desk.evidence(history)
        assert list(evidence.faults()) == [], seed
        every = [seal_of(each.value).signed.model_dump_json().encode() for each in history.audit]
        assert desk.faults(history, heads=every) == [], "a crash left heads that were never committed"
        last = [history.chains[partition][-1] for partition in sorted(history.heads)]
        assert [each.offset for each in evidence.heads()] == last
        for place in (place for chain in history.chains.values() for place in chain):
            left = history.audit[:place] + history.audit[place + 1 :]
            assert "broken_chain" in desk.kinds(history, left), (seed, place)
        for chain in (chain for chain in history.chains.values() if len(chain) > 1):
            one, other = sorted(rng.sample(chain, 2))
            audit = list(history.audit)
            audit[one], audit[other] = replace(audit[other], offset=one), replace(audit[one], offset=other)
            details = [fault.detail for fault in desk.faults(history, audit)]
            assert any("comes after it" in detail for detail in details), (seed, one, other)
        gone = Random(seed).choice(history.approved)
        left = [record for record in history.approved if record.value != gone.value]
        for records in (left, [*left, replace(gone, value=b"changed")]):
            (fault,) = desk.faults(history, None, records)
            assert (fault.kind, gone.sha256 in fault.detail) == ("removed", True)
        later = NOW + timedelta(days=10_000)
        assert desk.faults(history, None, left, now=later) != [], "approved is kept for ever"


def test_no_field_of_a_seal_can_be_changed_and_a_gap_between_two_is_named(desk):
    history = desk.history("fields")
    place = history.chains[0][1]
    fields = {"at": "2026-01-01T00:00:00Z", "before": None, "root": "0" * 64, "topic": "t.deferred"}
    fields |= {"key": "7", "version": "7", "count": 7_000, "end": 7_000, "first": 7_000, "partition": 7_000}
    for name, value in fields.items():
        forged = json.loads(history.audit[place].value or b"")
        forged["detail"]["seal"][name] = value
        other = replace(history.audit[place], value=json.dumps(forged).encode())
        kinds = desk.kinds(history, [*history.audit[:place], other, *history.audit[place + 1 :]])
        assert {"bad_seal", "broken_chain"} <= kinds, name
    history.seal(0, history.heads[0].end + 9, [], committed=True, gap=2)
    (fault,) = desk.faults(history)
    assert (fault.kind, "it begins at offset" in fault.detail) == ("broken_chain", True)


@SEEDS
def test_retention_of_audit_breaks_no_chain_wherever_it_cuts_and_excuses_no_later_gap(desk, seeds):
    for seed in seeds:
        history = desk.history(seed)
        last = min(chain[-1] for chain in history.chains.values())
        for cut in range(1, last + 1) if seeds[0] else (1, last // 2, last):
            assert desk.faults(history, history.audit[cut:], cut=True) == [], (seed, cut)
            assert desk.kinds(history, history.audit[cut:]) <= {"broken_chain"}
        chain = max(history.chains.values(), key=len)
        left = [record for at, record in enumerate(history.audit) if at > chain[0] and at != chain[2]]
        assert "broken_chain" in desk.kinds(history, left, cut=True)
    for age, is_lost in ((1, False), (300, False), (340, True), (365, True)):  # a deletion is no retention
        evidence = desk.evidence(history, now=NOW + timedelta(days=age))
        assert (evidence.has_lost_seals(7), evidence.has_lost_seals(0)) == (is_lost, False), age


def test_a_cut_that_left_nothing_to_compare_is_named_by_a_head_and_without_one_that_is_said(desk):
    history = next(history for history in map(desk.history, range(9)) if len(history.chains) > 1)
    partition = next(iter(history.chains))
    rest = replace(
        history,
        approved=[each for each in history.approved if not each.value.startswith(b"%d " % partition)],
        audit=[each for each in history.audit if seal_of(each.value).head.partition != partition],
        heads={each: head for each, head in history.heads.items() if each != partition},
        chains={},
    )
    assert desk.kinds(rest, heads=[]) == {"unanchored"}, "no head is kept, and no fault is left to see"
    heads = [head_of(history, each) for each in history.chains]
    assert desk.kinds(history, heads=heads) == set()
    (fault,) = desk.faults(rest, heads=heads)
    assert (fault.kind, fault.where) == ("broken_chain", f"{CLAIMS}/{partition}")
    # retention has taken the seal of an input partition that is idle
    later = NOW + timedelta(days=366)
    assert "broken_chain" not in desk.kinds(rest, heads=heads, cut=True, now=later)
    assert "broken_chain" in desk.kinds(rest, heads=heads, now=later), "nothing says that it was retention"
    # the head of another partition does not stand for this one's
    others = [head for at, head in zip(history.chains, heads, strict=True) if at != partition]
    assert [(fault.kind, fault.where) for fault in desk.faults(history, heads=others)] == [
        ("unanchored", f"{CLAIMS}/{partition}")
    ]


def test_an_offset_set_back_to_what_a_crash_left_hides_no_seal_whose_head_is_kept(desk):
    history = History(desk.key)
    for committed in (True, False, True, True, True):
        first = history.heads[0].end if history.heads else 0
        history.seal(0, first + 1, [history.publish(0, first)], committed=committed)
    head, left = head_of(history, 0), seal_of(history.audit[1].value).head
    assert desk.faults(history, heads=[head]) == []
    history.heads = {0: left}
    (fault,) = desk.faults(history, approved=history.approved[:3], heads=[head])
    assert (fault.kind, "head is kept elsewhere" in fault.detail) == ("broken_chain", True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_bytes_stand_on_heads_and_audit_only_what_a_gate_signed_counts(desk, data):
    history = desk.sealed(decided(1, 0))
    seal = history.audit[0]
    values = []
    for true in (seal.value, head_of(history, 0)):
        first = data.draw(st.integers(0, len(true)))
        end = data.draw(st.integers(first, min(first + 40, len(true))))
        other = data.draw(st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"null", b"0", true[:first]]))
        values.append(true[:first] + other + true[end:])
    mutated, head = values
    evidence = desk.evidence(history, [replace(seal, value=mutated, offset=7)], heads=[head])
    gone = [fault.detail for fault in evidence.faults() if "is kept elsewhere" in fault.detail]
    assert all(history.heads[0].sha256 in detail for detail in gone)
    assert evidence.sealed_hashes() <= {bytes.fromhex(history.approved[0].sha256)}


def test_a_head_that_no_gate_has_signed_is_named_by_its_line_and_the_other_lines_count(desk, tmp_path):
    history = desk.history("heads")
    true = json.loads(head_of(history, 0))
    for value in (b"7", b"[" * 100_000, b"\xff", json.dumps(true | {"signature": "0" * 128}).encode()):
        assert "bad_seal" in desk.kinds(history, heads=[value]), value[:20]
    forged = json.dumps(true | {"seal": true["seal"] | {"end": 7_000}}).encode()
    assert "bad_seal" in desk.kinds(history, heads=[forged])
    path = tmp_path / "heads.jsonl"
    with pytest.raises(UsageError, match="--heads"):
        read_heads(path)
    path.write_text(f"{json.dumps(true)}\n\n{json.dumps(true)[:90]}\n{{}}\n")
    lines = read_heads(path)
    assert list(lines) == [f"{path}:{number}" for number in (1, 3, 4)]
    evidence = desk.evidence(History(desk.key), heads=[])
    for place, line in lines.items():
        evidence.note_head(line, place)
    named = [(fault.kind, fault.where) for fault in evidence.faults()]
    assert named == [("bad_seal", f"{path}:3"), ("bad_seal", f"{path}:4"), ("broken_chain", f"{CLAIMS}/0")]


def test_a_decision_is_superseded_by_a_sealed_one_of_a_later_revision_unless_an_erasure_separates_them(desk):
    first, second = decided(1, 0), decided(2, 1)
    assert desk.evidence(desk.sealed(second)).is_superseded(first)
    assert not desk.evidence(desk.sealed(first)).is_superseded(second)
    assert not desk.evidence(desk.sealed(first)).is_superseded(first)
    evidence = desk.evidence(desk.sealed(decided(2)))
    later = decided(1, at=NOW + timedelta(minutes=2))
    assert evidence.is_superseded(later)
    evidence.note_published(tombstone(Erasure("acme", "ann", NOW + timedelta(minutes=1))))
    assert not evidence.is_superseded(later)


def test_a_decision_is_unsealed_once_a_seal_or_commit_has_passed_it_unless_retention_explains_it(desk):
    evidence = desk.evidence(desk.sealed(decided(1, 0)))
    place, unsealed = RecordPlace("t.approved", 0, 9), ("unsealed", "no seal covers it")
    assert evidence.explain(place, decided(1, 0)) is None
    assert evidence.explain(place, decided(2, 4)) == ("not_sealed_yet", "")
    assert evidence.explain(place, decided(2, 0)) == unsealed
    evidence.note_waiting(InboundRecord(CLAIMS, 0, 0, 0, None, b""))
    assert evidence.explain(place, decided(2, 0)) == ("not_sealed_yet", ""), "it waits on deferred"
    evidence.committed = {TopicPartition(CLAIMS, 0): OffsetAndMetadata(5, "")}
    assert evidence.explain(place, decided(2, 4)) == unsealed
    evidence = desk.evidence(desk.sealed(decided(1, 0)), cut=True)
    for offset in (0, 7):
        status, why = evidence.explain(RecordPlace("t.approved", 0, offset), decided(1, 0, text="Other."))
        assert (status, "differ" in why) == ("unsealed", True), "other bytes under a sealed id"
    # retention excuses what comes before the first seal that is kept, on its own partition
    history = desk.sealed(decided(1, 0), decided(2, 1), decided(3, 2))
    unsealed, first = history.approved[0].value or b"", RecordPlace("t.approved", 0, 0)
    evidence = desk.evidence(history, history.audit[1:], cut=True)
    assert evidence.explain(first, unsealed) == ("expired", "its seal: retention has taken it")
    for place in (RecordPlace("t.approved", 0, 1), RecordPlace("t.approved", 1, 0)):
        assert evidence.explain(place, unsealed)[0] == "unsealed"
    assert desk.evidence(history, history.audit[1:]).explain(first, unsealed)[0] == "unsealed"
    # a seal off the committed chain covers only what a crash repeated
    first, forged = decided(1, 0), decided(2, 0)
    history = desk.sealed(first)
    name = history.approved[0].headers[0][1].decode()
    start, history.heads = history.heads, {}
    for value, identity in ((first, name), (forged, "")):
        history.seal(0, 1, [history.publish(0, 0, value, identity)], committed=False)
    history.heads = start
    history.seal(0, 2, [], committed=True)
    evidence = desk.evidence(history)
    assert evidence.explain(RecordPlace("t.approved", 0, 0), first) is None
    assert evidence.explain(RecordPlace("t.approved", 0, 1), forged) == ("unsealed", "no seal covers it")


def test_a_seal_of_the_first_day_of_the_calendar_ends_no_verification(tmp_path):
    chain = Chain(tmp_path)
    start = datetime(1, 1, 1, tzinfo=UTC)
    assert chain.faults(chain.seal("old", start), chain.seal("old", start)) == []


def test_clock_skew_key_rotation_copies_and_crashes_break_no_chain(tmp_path):
    for steps in (
        [("gate", minutes) for minutes in (0, 60, 0, -60, 0)],
        [("old", -120), ("old", -120), ("gate", 0)],
        [("gate", -56), ("old", -61)],  # a key and its successor alternate within five minutes
    ):
        chain = Chain(tmp_path)
        seals = [chain.seal(key, NOW + timedelta(minutes=at)) for key, at in steps]
        assert chain.faults(*seals) == [], steps
    assert chain.faults(replace(seals[0], offset=2)) == [], "a copy after later ones"
    chain, seals = Chain(tmp_path), []
    for seconds in range(3):  # a crash repeats the start with all seals of one commit
        chain.last = None
        seals += [chain.seal("gate", NOW + timedelta(seconds=seconds)) for _ in range(MAX_AT_ONCE)]
    assert chain.faults(*seals, chain.seal()) == []


def test_a_seal_that_is_of_another_role_back_dated_or_of_another_deployment_or_start_is_named(tmp_path):
    chain = Chain(tmp_path)
    ((kind, detail),) = chain.faults(chain.seal(), chain.seal("old", NOW - 2 * HOUR))
    assert (kind, "back-dated" in detail) == ("bad_seal", True)
    ((kind, detail),) = Chain(tmp_path).faults(Chain(tmp_path).seal("ann"))
    assert (kind, "its key may not seal" in detail) == ("bad_seal", True)
    _, (kind, detail) = chain.faults(chain.seal(topic="t.staging.claims"))
    assert (kind, "another deployment" in detail) == ("bad_seal", True)
    chain = Chain(tmp_path)
    seals = [chain.seal() for _ in range(MAX_AT_ONCE + 1)]
    chain.last = None
    assert chain.faults(*seals, chain.seal(topic="t.deferred")) == [], "another partition's chain"
    chain.last = None
    ((kind, detail),) = chain.faults(chain.seal("gate", NOW + timedelta(seconds=1)))
    assert (kind, "second start" in detail) == ("bad_seal", True)
    for key, starts in (("gate", False), ("gate", True), ("old", False), ("old", True)):
        chain = Chain(tmp_path)
        last = chain.seal()
        chain.last = None if starts else chain.last
        forged = chain.seal(key, NOW - 2 * HOUR, audit=1)
        faults = chain.faults(forged, replace(last, partition=1, offset=5), last)
        assert [(kind, "elsewhere" in detail) for kind, detail in faults] == [("bad_seal", True)] * 2
        assert chain.evidence.reached(CLAIMS, 0) == 1


def test_seals_that_the_group_has_not_committed_count_only_while_their_key_is_valid(tmp_path):
    """Nothing was sealed since the key expired, so that no time shows it."""
    for starts in (False, True):
        chain = Chain(tmp_path)
        seals = [chain.seal("old", NOW - 2 * HOUR) for _ in range(3)]
        chain.commit()
        chain.last = None if starts else chain.last
        forged = [chain.seal("old", NOW - 2 * HOUR) for _ in range(5)]
        assert chain.faults(*seals, *forged) == []
        assert chain.evidence.reached(CLAIMS, 0) == (5 if starts else 8)
        chain.evidence.leave_out_forks()
        assert chain.evidence.reached(CLAIMS, 0) == 3
    chain = Chain(tmp_path)
    seals = [chain.seal()]
    chain.commit()
    assert chain.faults(*seals, chain.seal()) == []
    chain.evidence.leave_out_forks()
    assert chain.evidence.reached(CLAIMS, 0) == 2


def test_a_seal_of_an_expired_key_counts_only_where_something_else_shows_that_it_is_older(tmp_path):
    for witness in (None, "committed", "head", "successor"):
        chain = Chain(tmp_path)
        seals = [chain.seal("old", NOW - 2 * HOUR), chain.seal("old", NOW - 2 * HOUR)]
        chain.commit() if witness == "committed" else None
        seals += [chain.seal("gate")] if witness == "successor" else []
        if witness == "head":
            chain.evidence.note_head(
                seal_of(seals[-1].value).signed.model_dump_json().encode(), "t.heads/0@0"
            )
        assert chain.faults(*seals) == []
        chain.evidence.leave_out_forks()
        named = [
            (kind, "no committed offset, kept head or later seal" in detail)
            for kind, detail in chain.faults()
        ]
        assert named == ([] if witness else [("bad_seal", True)] * 2), witness
        assert chain.evidence.reached(CLAIMS, 0) == (chain.last.end if witness else 0), witness


def test_what_consumers_act_on_beside_the_value_is_sealed_or_follows_from_the_value(desk):
    history = History(desk.key)
    retracted, audited = retraction(), event_record("enqueue")
    for offset, record in enumerate((retracted, audited)):
        topic = record.topic.removeprefix("t.")
        output = SealedOutput(offset, topic, record.partition, header(record.headers, "ce_id"), record.sha256)
        history.seal(0, offset + 1, [output], committed=True)
    plain = history.publish(0, 3)
    history.seal(0, 4, [plain], committed=True)
    approved = history.approved.pop()
    assert desk.faults(history, None, [retracted, audited, approved]) == []

    def named(forged):
        faults = desk.faults(history, None, [retracted, audited, approved, forged])
        return [(fault.kind, fault.detail.split(":")[0]) for fault in faults]

    for record in (retracted, audited, approved):
        moved = replace(record, partition=1, offset=70)
        place = f"its seal names {record.topic.removeprefix('t.')}/0"
        assert named(moved) == [("unsealed", place)], record.topic
    for record in (retracted, audited):
        for header_name in ("ce_id", "ce_type"):
            second = (*record.headers, (header_name, b"another"))
            other = tuple((n, b"another" if n == header_name else v) for n, v in record.headers)
            for headers in (second, other):
                assert ("unsealed", header_name) in named(replace(record, headers=headers, offset=70))
        assert ("unsealed", "key") in named(replace(record, key=b"globex:ann", offset=70))
    assert named(replace(audited, value=None, offset=70)) == [("unsealed", "it cannot be read")]


def test_an_event_of_any_type_is_named_unless_a_seal_or_its_workers_own_signature_covers_it(desk, tmp_path):
    of_workers = {"policy_loaded", "records_lost", "state_lost", "state_rebuilt"}
    for kind in sorted({*get_args(AuditType)} - {"seal"}):
        history = History(desk.key)
        event = event_record(kind)
        assert desk.kinds(history, None, [event]) - {"unanchored"} == {"unsealed"}, kind
        place = "audit", 0, header(event.headers, "ce_id"), event.sha256
        history.seal(0, 1, [SealedOutput(0, *place)], committed=True)
        assert desk.kinds(history, None, [event]) == ({"unsealed"} if kind in of_workers else set()), kind

    event = event_record("policy_loaded")
    escaped = replace(event, value=event.value.replace(b'"policy_', b'"policy\\u005f'))
    assert AuditEvent.try_parse(escaped.value).type == "policy_loaded"
    assert "unsealed" in desk.kinds(desk.sealed(), None, [escaped])

    # a worker that was killed before it sealed; meanwhile a person has decided
    first = json.loads(decided(1, 0))
    name = first["decision_id"]
    left = InboundRecord("t.review", 0, 0, 0, b"k", decided(1, 0), (("ce_id", name.encode()),))
    wrong = []
    for why, kind, cause, published, excused in (
        ("with its decision", "enqueue", first["origin"], [left], True),
        ("with its decision", "evidence_failure", first["origin"], [left], True),
        ("of another type", "review_action", first["origin"], [left], False),
        ("of another record", "enqueue", {**first["origin"], "offset": 9}, [left], False),
        ("without its decision", "enqueue", first["origin"], [], False),
    ):
        history = desk.sealed(decided(2, 1))
        event = event_record(kind, event_id(kind, cause), of=name)
        named = "unsealed" in desk.kinds(history, None, [*history.approved, *published, event])
        wrong += [(why, kind)] * (named is excused)
    for origin in (b"{\xff}", b"{x}", b'{"a":NaN}', b'{"a":' + b"[" * 100_000 + b"}"):
        forged = replace(left, value=b'{"origin":%s}' % origin)
        event = event_record("enqueue", "8", of=name)
        wrong += [origin[:9]] * ("unsealed" not in desk.kinds(desk.sealed(), None, [forged, event]))
    history = desk.sealed(decided(1, 0))
    event = event_record("enqueue", event_id("enqueue", first["origin"]), of=name)
    wrong += ["its decision is sealed"] * (
        "unsealed" not in desk.kinds(history, None, [*history.approved, event])
    )

    def signed(at=NOW, key="gate", **changes):
        event = worker_event("policy_loaded", {"sha256": "s"}, at)
        signature = keys_in(tmp_path)[1][key].sign(signed_bytes(event)).hex()
        detail = {**event.detail, "signed": {"key": key, "signature": signature}}
        output = of_worker(event.model_copy(update={"detail": detail, **changes}))
        return InboundRecord("t.audit", 0, 9, 0, output.key, output.value, tuple(output.headers))

    for why, record, named in (
        ("its worker's", signed(), False),
        ("of a key that held", signed(NOW - 2 * HOUR, "old"), False),
        ("of an expired key", signed(NOW, "old"), True),
        ("with another subject", signed(subject_id="c1"), True),
        ("with another detail", signed(detail={"signed": {"key": "gate", "signature": "0" * 128}}), True),
        ("without a signature", signed(detail={"sha256": "s"}), True),
        ("on another partition", replace(signed(), partition=1), True),
    ):  # fmt: skip
        wrong += [why] * (bool(Chain(tmp_path).faults(record)) is not named)
    chain = Chain(tmp_path)
    wrong += ["back-dated"] * (not chain.faults(chain.seal(), signed(NOW - 2 * HOUR, "old")))
    assert wrong == []


def test_a_retraction_under_its_key_is_excused_by_records_of_its_own_topic_that_are_under_way(desk, tmp_path):
    wrong = []
    for why, behind, age, named in (
        ("of the topic that it comes of", TopicName.REVIEW_DECISIONS, timedelta(), False),
        ("of another topic", TopicName.CLAIMS, timedelta(), True),
        ("before what is under way", TopicName.REVIEW_DECISIONS, HOUR, True),
        ("dated into the future", TopicName.REVIEW_DECISIONS, -400 * DAY, True),
    ):
        chain = Chain(tmp_path)
        chain.evidence.under_way = {behind: NOW - timedelta(minutes=1)}
        forged = replace(retraction(), timestamp=to_milliseconds(NOW - age))
        wrong += [why] * (bool(chain.faults(forged)) is not named)
    assert wrong == []
    evidence = desk.evidence(desk.sealed())
    evidence.note_published(retraction())
    before = len(list(evidence.faults()))
    for number, key in enumerate((b"acme:bob", b"globex:ann", None), 1):
        evidence.note_published(replace(retraction(), key=key, offset=1 + number))
        assert len(list(evidence.faults())) == before + number


def test_a_tombstone_excuses_what_it_erases_of_its_own_user_up_to_its_time_alone(tmp_path):
    early, own = NOW - HOUR, Erasure("acme", "ann", NOW)
    dated = tuple(
        (name, format_time(early).encode() if name == "ce_time" else value)
        for name, value in retraction().headers
    )

    told = {"action": "erase", "tombstone": own.id}

    def erased(kind):
        return event_record(kind, event_id(kind, own.id), told)

    wrong = []
    for why, erasure, record, named in (
        ("a retraction of its user", own, retraction(), False),
        ("of another user", Erasure("acme", "nobody", NOW), retraction(b"acme:nobody"), True),
        ("an early header", Erasure("acme", "ann", early), replace(retraction(), headers=dated), True),
        ("its own event", own, erased("retraction"), False),
        ("an event of another user's", Erasure("acme", "bob", NOW), erased("retraction"), True),
        ("another event", own, erased("refused_action"), True),
        ("of another type", own, event_record("review_action", event_id("retraction", own.id), told), True),
        ("a dead letter's event", own, event_record("dead_letter", "1", {"code": "invalid_json"}), True),
        (
            "a redrive's event",
            own,
            event_record("dead_letter", "1", {"letter": "x", "action": "redrive"}),
            False,
        ),
    ):
        wrong += [why] * (bool(Chain(tmp_path).faults(tombstone(erasure), record)) is not named)
    assert wrong == []
    erasures = Erasures()  # whether a record is erased follows from its value alone
    assert not erasures.cover_value(decided(1))
    erasures.note(tombstone(Erasure("acme", "ann", NOW)))
    assert erasures.cover_value(decided(1))
    assert erasures.cover_value(retraction(b"nobody").value or b"")
    assert not erasures.cover_value(decided(1, at=NOW + timedelta(seconds=1)))
    plain = json.loads(decided(1))
    for value in (b"", b"[" * 100_000, b"7", b"{}", json.dumps(plain | {"decided_at": 7}).encode()):
        assert not erasures.cover_value(value)


async def test_before_the_first_seal_a_retraction_is_excused_by_what_its_group_has_not_committed(
    tmp_path, monkeypatch
):
    class Broker(TopicReader):
        """A reader of topics with one partition, which holds the last records before `end`."""

        def __init__(self, held):
            self._held = held

        async def ends(self, *topics):
            return {TopicPartition(topic, 0): end if topic in self._held else 0 for topic in topics}

        async def offsets(self, _start, ends):
            return {each: last - len(self._held.get(each.topic, ())) for each, last in ends.items()}

        async def begin(self, starts, **_continued):
            self.seek(dict.fromkeys(await self.ends(*starts), 0), {})

        def seek(self, begin, _ends):
            self.positions = dict(begin)

        async def rest(self, _most):
            for each, first in self.positions.items():
                yield [record for record in self._held.get(each.topic, ()) if record.offset >= first]

    now, end, partition = datetime.now(UTC), 5, TopicPartition("t.review-decisions", 0)
    keys, _ = keys_in(tmp_path)
    wrong = []
    for why, committed, kept, age, named in (
        ("all is committed", 5, [YEAR] * 5, 300 * DAY, True),
        ("all is committed, and it is of now", 5, [YEAR] * 5, timedelta(), True),
        ("before what is not committed", 3, [YEAR, YEAR, YEAR, HOUR, HOUR], DAY, True),
        ("of what is not committed", 3, [YEAR, YEAR, YEAR, HOUR, HOUR], timedelta(), False),
        ("before all that is kept", None, [DAY, HOUR], 300 * DAY, True),
        ("of what is kept", None, [DAY, HOUR], HOUR, False),
        ("retention has removed what is not committed", 2, [DAY, HOUR], HOUR, False),
        ("nothing is kept", 3, [], HOUR, True),
        ("the input is dated into the future", None, [-YEAR], timedelta(), False),
        ("the input is dated before all times", None, [10_000 * YEAR], timedelta(), False),
    ):
        dated = [to_milliseconds(now) - each // timedelta(milliseconds=1) for each in kept]
        numbered = enumerate(dated, end - len(dated))
        inputs = [InboundRecord(partition.topic, 0, n, time, None, b"") for n, time in numbered]
        forged = replace(retraction(), timestamp=to_milliseconds(now - age))
        broker = Broker({partition.topic: inputs, "t.retractions": [forged]})

        @asynccontextmanager
        async def reader(*_arguments, broker=broker):
            yield broker

        async def committed_of(_brokers, group, *_, committed=committed):
            is_known = group.endswith("reviews") and committed is not None
            return {partition: OffsetAndMetadata(committed, "")} if is_known else {}

        monkeypatch.setattr(sealed_topics, "open_reader", reader)
        monkeypatch.setattr(sealed_topics, "committed_of", committed_of)
        evidence = await read_seals(Settings(topic_prefix="t."), keys, Store())
        wrong += [why] * ([fault.kind for fault in faults_of(evidence)] != ["unsealed"] * named)
    assert wrong == []


def test_a_disk_that_is_full_while_seals_are_read_is_named(tmp_path):
    keys, _ = keys_in(tmp_path)
    with Store(SCRATCH) as store:
        SealEvidence(store, "t.", keys, now=NOW)
        store.rows("PRAGMA max_page_count = 40")
        with pytest.raises(UsageError, match=r"a temporary file: .*disk is full"):
            assert all(store.put("sealed", str(n), bytes(32), "approved", 0, n) for n in range(10_000))
