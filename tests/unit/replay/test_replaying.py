"""Replays derive the same decisions from recorded facts, and rebuilds leave out those that do not follow (X-08)."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from groundwire.errors import BrokerUnavailable
from groundwire.kafka import reader
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.policy import Policy
from groundwire.replay import reading
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.rebuild import Prover, read_places, stored_outcome
from groundwire.replay.report import as_json, as_table, write_page
from groundwire.replay.run import Simulation, Task
from groundwire.replay.store import Job, OffsetRange, RecordPlace
from groundwire.replay.verify import VerifyStatus
from groundwire.state.memory import MemoryState
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.unit.gate.world import TOPIC, claim_bytes
from tests.unit.kafka.fake_consumer import FakeConsumer, serving
from tests.unit.replay.town import (
    EVIL,
    INPUTS,
    ORDER,
    POLICIES,
    REVIEWS,
    lines,
    one_claim,
    otherwise,
    replayed,
    town,
    with_text,
)

SEEDS = st.integers(0, 2**32)


def task(*policies, policy=None, simulate=None):
    return Task("again", KnownPolicies(policies or POLICIES, PolicyStore(None, None)), policy, simulate)


@settings(max_examples=3)
@given(seed=SEEDS)
async def test_under_the_policies_that_decided_every_byte_is_the_same_but_for_the_name_of_the_replay(
    seed, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("town")
    place = town(folder, seed)
    await place.live(8)
    with Job(folder / "job", ORDER) as job:
        place.store_in(job)
        summary = await replayed(job, folder / "out", task())
    assert set(summary.statuses) <= {"equal", "repeat", "dead_letter", "refused"}
    assert summary.records == len(place.log)
    found = [Decision.model_validate_json(line) for line in lines(folder / "out")]
    assert {one.replay for one in found} == {"again"}
    plain = {one.decision_id: one.model_copy(update={"replay": None}).to_bytes() for one in found}
    assert plain == {name: one.to_bytes() for name, one in place.decisions.items()}


@pytest.mark.slow
@settings(max_examples=4)
@given(seed=SEEDS, data=st.data())
async def test_a_replay_that_is_interrupted_at_any_record_and_goes_on_gives_the_same_result(
    seed, data, tmp_path_factory
):
    def result(job, summary, output):
        page = output.with_suffix(".html")
        write_page(page, job, summary, [])
        table = list(as_table(job, summary))
        return lines(output), list(as_json(job, "again", summary)), table, page.read_text()

    folder = tmp_path_factory.mktemp("town")
    place = town(folder, seed)
    await place.live(6)
    how = task(policy=data.draw(st.sampled_from([None, *POLICIES]), label="policy"))
    with Job(folder / "whole", ORDER) as job:
        place.store_in(job)
        expected = result(job, await replayed(job, folder / "out", how), folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.replay.run.PAGE", data.draw(st.integers(1, 5), label="page"))
        with Job(folder / "parts", ORDER) as job:
            place.store_in(job)
        stops = data.draw(st.lists(st.integers(1, len(place.log)), max_size=5), label="stops")
        for stop in [*stops, -1]:
            with Job(folder / "parts", ORDER) as job:
                try:
                    summary = await replayed(job, folder / "parts-out", how, stop_at=stop)
                except InterruptedError:
                    continue
                actual = result(job, summary, folder / "parts-out")
    assert actual == expected


async def test_a_replay_continues_where_it_stopped_and_replaces_the_rest_of_its_output(tmp_path, monkeypatch):
    monkeypatch.setattr("groundwire.replay.run.PAGE", 2)
    place = town(tmp_path)
    await place.send(*(place.claim(f"c{n}", f"Service {n} keeps {n} sessions") for n in range(10)))
    (tmp_path / "out").write_bytes(b"older\n" * 10_000)
    reports: list[tuple[str, int, int]] = []
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        with pytest.raises(InterruptedError):
            await replayed(job, tmp_path / "out", task(place.policy), stop_at=6)
    with Job(tmp_path / "job", ORDER) as job:
        report = lambda *how: reports.append(how)  # noqa: E731
        await replayed(job, tmp_path / "out", task(place.policy), report=report)
    assert reports == [("replayed", done, 10) for done in (6, 8, 10)]
    names = [json.loads(line)["subject_id"] for line in lines(tmp_path / "out")]
    assert names == [f"c{n}" for n in range(10)]


async def test_a_raised_threshold_gives_the_verdicts_that_the_gate_itself_gives_under_it(tmp_path):
    place, brute = town(tmp_path), town(tmp_path / "brute")
    brute.policy = strict = Policy(version="strict", dedup_threshold=0.95, dedup_word_difference=False)
    place.policy = lax = Policy(version="lax", dedup_threshold=0.6, dedup_word_difference=False)
    draw = random.Random(5)
    words = [f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(60)]
    values = []
    for user in range(60):
        changes = draw.randrange(12)
        near = [*words[changes:], *(f"other{chr(97 + n)}" for n in range(changes))]
        for name, text, source in (("first", words, "user"), ("second", near, "ai_synthesis")):
            values.append(claim_bytes(name, " ".join(text), user_id=f"u{user}", source=source))
    for each in (place, brute):
        await each.send(*(each.record(value) for value in values))
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        summary = await replayed(job, tmp_path / "out", task(lax, strict, policy=strict))
        report = json.loads("".join(as_json(job, "again", summary)))
    pairs = [(one, brute.decisions[name]) for name, one in place.decisions.items()]
    expected = Counter(
        (f"{old.verdict} {old.reason_code}", f"{new.verdict} {new.reason_code}") for old, new in pairs
    )
    assert summary.reasons == expected
    moved = {old.decision_id: new.reason_code for old, new in pairs if old.reason_code != new.reason_code}
    assert len(moved) > 10
    changes = {one["before"]["decision_id"]: one["after"]["reason_code"] for one in report["changed"]}
    assert changes == moved


async def test_what_the_facts_cannot_decide_under_another_policy_is_counted_by_its_key(tmp_path):
    """Speculation is blocked whatever its near-duplicates, and so can be decided."""
    place = town(tmp_path)
    cited = place.claim("cited", "Per ADR-003, the archive is kept for ten years", source="ai_synthesis")
    own = place.claim("own", "The hall opens at nine", source="user")
    await place.send(cited, own, place.claim("guess", "Maybe the hall opens at ten", source="user"))
    wrong = []
    for number, (change, unreplayable) in enumerate(
        (
            ({"dedup_threshold": 0.5}, {"dedup_threshold": 2}),
            ({"conflict_threshold": 0.5}, {"conflict_threshold": 2}),
            ({"rejected_threshold": 0.5}, {"rejected_threshold": 2}),
            ({"dedup_scope": "user"}, {"dedup_scope": 2}),
            ({"verify_claim_relevance": True}, {"verify_claim_relevance": 1}),
            ({"dedup_threshold": 0.99, "conflict_threshold": 0.99}, {}),
            ({"trusted_sources": []}, {}),
        )
    ):
        other = Policy(**{**place.policy.model_dump(), **change})
        with Job(tmp_path / f"job{number}", ORDER) as job:
            place.store_in(job)
            summary = await replayed(job, tmp_path / "out", task(place.policy, other, policy=other))
            table = "\n".join(as_table(job, summary))
        counted = dict(summary.unreplayable), summary.statuses["cannot_tell"]
        named = "unreplayable from the facts" in table
        if (counted, named) != ((unreplayable, sum(unreplayable.values())), bool(unreplayable)):
            wrong.append((change, counted, table))
    assert wrong == []


@settings(max_examples=3)
@given(seed=SEEDS, chosen=st.sampled_from(POLICIES), start=st.integers(0, 30))
async def test_a_simulation_decides_as_a_gate_that_had_the_policy_from_that_point_on(
    seed, chosen, start, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("town")
    place, brute = town(folder, seed), town(folder / "brute", seed)
    chosen = Policy(**{**chosen.model_dump(), "limits": {}, "verify_claim_relevance": False})
    draw = random.Random(seed)
    records = [
        place.claim_of_chance(number) if draw.random() < 0.8 else place.response_of_chance(number)
        for number in range(40)
    ]
    place.policy = Policy(version="before")
    before, after = records[:start], records[start:]
    for batch in (before, after):
        await place.send(*batch)
    brute.policy = place.policy
    await brute.send(*before)
    brute.policy, brute.state = chosen, MemoryState()  # rebuilt, as the dedup scheme may differ
    stored = (stored_outcome(decision.to_bytes(), chosen) for decision in brute.published.values())
    await brute.state.reassert([each for each in stored if each])
    await brute.send(*after)
    with Job(folder / "job", replace(ORDER, simulate=True)) as job:
        ranges = place.store_in(job, start + 1)
        how = task(place.policy, chosen, policy=chosen)
        simulation = Simulation(job, how.policies, chosen)
        await simulation.load(job.decisions_before(ranges), chosen)
        await replayed(job, folder / "out", replace(how, simulate=simulation))
    simulated = [Decision.model_validate_json(line) for line in lines(folder / "out")]
    offsets = {record.origin.offset for record in after}
    expected = [one for one in brute.published.values() if one.origin.offset in offsets]
    assert {one.decision_id: one.model_copy(update={"replay": None}).to_bytes() for one in simulated} == {
        one.decision_id: one.to_bytes() for one in expected
    }


async def test_a_simulation_knows_the_earlier_decisions_that_people_retract(tmp_path):
    place = town(tmp_path)
    place.policy = POLICIES[0]
    (approved,) = await place.send(place.claim("c", "The API returns JSON, see ADR-003", source="user"))
    assert approved.decision.approved
    start = place.offset
    await place.act(place.action("retract", approved.decision, reason="gone"))
    with Job(tmp_path / "job", replace(ORDER, simulate=True)) as job:
        ranges = place.store_in(job, start + 1)
        simulation = Simulation(job, task().policies, None)
        await simulation.load(job.decisions_before(ranges), place.policy)
        summary = await replayed(job, tmp_path / "out", task(simulate=simulation))
    assert summary.reasons == {("blocked retracted", "blocked retracted"): 1}


async def test_records_without_facts_and_refused_actions_are_counted_and_never_decided(tmp_path):
    place = town(tmp_path / "a")
    await place.send(place.claim("known", "The API returns JSON", source="user"))
    place.claim("unknown", "The API returns XML", source="user")
    for simulate in (False, True):
        with Job(tmp_path / f"job{simulate}", replace(ORDER, simulate=simulate)) as job:
            place.store_in(job)
            how = task(place.policy, policy=place.policy)
            how = replace(how, simulate=Simulation(job, how.policies, None) if simulate else None)
            summary = await replayed(job, tmp_path / "out", how)
        assert summary.statuses == {"equal": 1, "facts_missing": 1}
        assert [json.loads(line)["subject_id"] for line in lines(tmp_path / "out")] == ["known"]
    place, first = await one_claim(tmp_path / "b", source="ai_synthesis")
    signed = place.action("approve", first)
    await place.act(place.record(signed.value, topic=REVIEWS))
    await place.act(signed)
    assert place.latest("c").approved
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        summary = await replayed(job, tmp_path / "out", task(place.policy))
    assert summary.statuses == {"equal": 2, "refused": 1}


async def test_single_records_are_fetched_unless_retention_has_removed_them_but_an_outage_is_reported(
    tmp_path, monkeypatch
):
    partition, reports = TopicPartition(TOPIC, 0), []

    async def fetch(job, broker, places):
        monkeypatch.setattr(reader, "consumer", serving(broker))
        monkeypatch.setattr(job, "missing_places", lambda: [p for p in places if not job.has_record(p)])
        replay = ReplayReader("b:1", "groundwire.", Rate(None), lambda *how: reports.append(how))
        await replay.read(job, [], [], everything=True)

    places = [RecordPlace(TOPIC, 0, offset) for offset in (1, 4, 5, 6, 9, 10)]
    places += [RecordPlace(TOPIC, 1, 5), RecordPlace("elsewhere", 0, 5)]
    with Job(tmp_path / "retention", ORDER) as job:
        await fetch(job, FakeConsumer(4, 10, partition=partition, gaps=(5, 9)), places)
        assert [place.offset for place in places if job.has_record(place)] == [4, 6]
    monkeypatch.setattr(reading, "_PAGE", 2)
    places = [RecordPlace(TOPIC, 0, offset) for offset in range(5)]
    reports.clear()
    with Job(tmp_path / "outage", ORDER) as job:
        with pytest.raises(BrokerUnavailable):
            await fetch(job, FakeConsumer(0, 5, partition=partition, fails_at=3), places)
        assert reports == [("fetched", 2, 5)]
    with Job(tmp_path / "outage", ORDER) as job:
        assert [job.has_record(place) for place in places] == [True, True, False, False, False]
        await fetch(job, FakeConsumer(0, 5, partition=partition), places)
        assert all(map(job.has_record, places))


# Rebuilds --------------------------------------------------------------------------------------------------


class Log:
    """Reads a town's records, one a batch, and notes which offsets were sought."""

    def __init__(self, place):
        self.place, self.sought = place, []

    def seek(self, begin, ends):
        self.begin, self.ends = begin, ends
        self.sought.append({each.topic: (begin[each], ends[each]) for each in begin})

    async def rest(self):
        for record in self.place.log:
            for partition, first in self.begin.items():
                if record.topic == partition.topic and first <= record.offset < self.ends[partition]:
                    yield [record]


async def kept(place, values, *, start=0):
    """Pass decisions through a prover; `start` is where retention has left the input topics."""

    async def published():
        for value in values:
            yield value

    await place.policies.put(place.policy)
    prover = Prover(Log(place), [OffsetRange(topic, 0, start, 1_000_000) for topic in INPUTS], place.policies)
    for value in values:
        prover.note_decision(value)
    for name in place.ends:
        prover.note_event(f'{{"type":"refused_action","event_id":"{name}"}}'.encode())
    return [value async for value in prover.keep(published())], prover.counts


async def test_all_that_a_gate_published_is_kept_in_whatever_order(tmp_path):
    place = town(tmp_path, 1)
    await place.live(15)
    place.ends.clear()
    by_verdict = [
        decision.to_bytes()
        for verdict in (Verdict.BLOCKED, Verdict.APPROVED, Verdict.REVIEW)
        for decision in place.published.values()
        if decision.verdict == verdict and decision.revision
    ]
    assert await kept(place, by_verdict) == (by_verdict, {VerifyStatus.EQUAL: len(by_verdict)})
    assert len(by_verdict) > 50


async def test_what_does_not_follow_is_left_out_counted_and_named(tmp_path):
    place, true = await one_claim(tmp_path / "a")
    forged = with_text(true, EVIL, decision_id="no-id")
    nowhere = otherwise(true, origin={"sha256": "0" * 64})
    with capture_logs() as logs:
        taken, counts = await kept(place, [forged, true.to_bytes(), nowhere])
    assert taken == [true.to_bytes()]
    assert counts == {VerifyStatus.EQUAL: 1, VerifyStatus.DIFFERS: 2}
    named = [(line["event"], line["decision_id"], line["fields"]) for line in logs]
    assert named[0] == ("rebuild.left_out", "no-id", ["$.decision_id", "$.evidence.claim"])
    assert named[1] == ("rebuild.left_out", true.decision_id, ["$.origin"])
    place, approved = await one_claim(tmp_path / "b", "approve", source="ai_synthesis")
    place.ends = [event_id("refused_action", approved.facts.review["action_id"])]
    assert await kept(place, [approved.to_bytes()]) == ([], {VerifyStatus.CONTRADICTED: 1})


async def test_neither_retention_nor_an_upgrade_nor_a_recreated_or_copied_topic_costs_a_decision(tmp_path):
    place, true = await one_claim(tmp_path / "a")
    (first,) = place.log
    place.log = [InboundRecord(first.topic, 0, first.offset, first.timestamp + 10**9, b"k", b"{}")]
    assert await kept(place, [true.to_bytes()]) == ([true.to_bytes()], {VerifyStatus.MISSING: 1})
    place.log.clear()
    values = [true.to_bytes(), otherwise(true, engine="0.0.9")]
    removed = await kept(place, values, start=true.origin.offset + 1)
    assert removed == (values, {VerifyStatus.EXPIRED: 2})

    place = town(tmp_path / "b")
    texts = ("Search listens on port 9200", "The ledger keeps nine shards", "Backups run at two")
    for number, text in enumerate(texts):
        claim = claim_bytes(f"c{number}", text, source="user", user_id=f"u{number}")
        await place.send(place.record(claim))
    values = [place.latest(f"c{number}").to_bytes() for number in (1, 2)]
    place.log = [replace(record, offset=number) for number, record in enumerate(place.log[1:], start=1)]
    taken, counts = await kept(place, values)
    assert len(taken) == 2
    assert counts[VerifyStatus.DIFFERS] == counts[VerifyStatus.CONTRADICTED] == 0


async def test_records_that_are_close_are_read_in_one_go_and_others_sought(tmp_path):
    place = town(tmp_path)
    offsets = [1, 3, 400, 5_000]
    place.log = [InboundRecord(TOPIC, 0, offset, 0, None, b"{}") for offset in offsets]
    log, inside = Log(place), [OffsetRange(TOPIC, 0, 2, 10_000), OffsetRange(REVIEWS, 0, 0, 10)]
    places = [RecordPlace(TOPIC, 0, offset) for offset in offsets]
    found = [record.offset async for record in read_places(log, inside, places)]
    assert found == [3, 400, 5_000]
    assert log.sought == [{TOPIC: (3, 401)}, {TOPIC: (5_000, 5_001)}]
