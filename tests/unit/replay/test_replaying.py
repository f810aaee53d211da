"""Replays derive the same decisions from recorded facts, and rebuilds leave out those that do not follow (X-08).

`groundwire verify` and `groundwire replay` as commands: what they print and refuse, and their exit status.
"""

import asyncio
import json
import random
import re
import sys
from collections import Counter
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from groundwire.cli.main import main
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.kafka import reader
from groundwire.kafka.reader import OffsetRange, RecordPlace, TopicReader
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.policy import Policy
from groundwire.replay import reading, report
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.rebuild import Progress, Prover, stored_outcome
from groundwire.replay.report import (
    FileWriter,
    Replayed,
    ReplayStatus,
    Summary,
    as_json,
    as_table,
    policy_changes,
    replay_topic,
    write_page,
)
from groundwire.replay.run import Simulation, Task
from groundwire.replay.store import Job, RecordStore
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


def unnamed(output):
    found = [Decision.model_validate_json(line) for line in lines(output)]
    assert {one.replay for one in found} <= {"again"}
    return {one.decision_id: one.model_copy(update={"replay": None}).to_bytes() for one in found}


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
    assert unnamed(folder / "out") == {name: one.to_bytes() for name, one in place.decisions.items()}


@pytest.mark.slow
@settings(max_examples=4)
@given(seed=SEEDS, data=st.data())
async def test_a_replay_that_is_interrupted_at_any_record_and_goes_on_gives_the_same_result(
    seed, data, tmp_path_factory
):
    def result(job, summary, output):
        write_page(folder / "page.html", job, summary, [])
        reports = list(as_json(job, "again", summary)), list(as_table(job, summary))
        return lines(output), reports, (folder / "page.html").read_text()

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
    reports = []
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        with pytest.raises(InterruptedError):
            await replayed(job, tmp_path / "out", task(place.policy), stop_at=6)
    with Job(tmp_path / "job", ORDER) as job:
        report = {"report": lambda *how: reports.append(how)}
        await replayed(job, tmp_path / "out", task(place.policy), **report)
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
    assert summary.reasons == Counter(
        tuple(f"{one.verdict} {one.reason_code}" for one in pair) for pair in pairs
    )
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
    limits = "dedup_threshold", "conflict_threshold", "rejected_threshold"
    for change, unreplayable in (
        *(({name: 0.5}, {name: 2}) for name in limits),
        ({"dedup_scope": "user"}, {"dedup_scope": 2}),
        ({"verify_claim_relevance": True}, {"verify_claim_relevance": 1}),
        ({"dedup_threshold": 0.99, "conflict_threshold": 0.99}, {}),
        ({"trusted_sources": []}, {}),
    ):
        other = Policy(**{**place.policy.model_dump(), **change})
        with Job(tmp_path / str(change), ORDER) as job:
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
    offsets = {record.origin.offset for record in after}
    expected = {one.decision_id: one for one in brute.published.values() if one.origin.offset in offsets}
    assert unnamed(folder / "out") == {name: one.to_bytes() for name, one in expected.items()}


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

    async def fetch(job, broker, places, rate=None):
        monkeypatch.setattr(reader, "consumer", serving(broker))
        monkeypatch.setattr(job, "missing_places", lambda: [p for p in places if not job.has_record(p)])
        replay = ReplayReader("b:1", "groundwire.", Rate(rate), lambda *how: reports.append(how))
        await replay.read(job, [], [], everything=True)

    places = [RecordPlace(TOPIC, 0, offset) for offset in (1, 4, 5, 6, 9, 10)]
    places += [RecordPlace(TOPIC, 1, 5), RecordPlace("elsewhere", 0, 5)]
    with Job(tmp_path / "retention", ORDER) as job:
        await fetch(job, FakeConsumer(4, 10, partition=partition, gaps=(5, 9)), places)
        assert [place.offset for place in places if job.has_record(place)] == [4, 6]
    for rate, read in ((None, 403), (1e6, 3)):  # what is read between two places does not go by the rate
        broker = FakeConsumer(0, 9_000, partition=partition, page=500)
        with RecordStore() as store:
            await fetch(store, broker, [RecordPlace(TOPIC, 0, offset) for offset in (0, 401, 5_000)], rate)
        assert broker.read == read
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


class Log(TopicReader):
    """Reads a town's records, one a batch."""

    def __init__(self, place):
        self.place = place

    def seek(self, begin, ends):
        self.begin, self.ends = begin, ends

    async def rest(self, _most):
        for record in self.place.log:
            for partition, first in self.begin.items():
                if record.topic == partition.topic and first <= record.offset < self.ends[partition]:
                    yield [record]


def refusal(name):
    whose = {"tenant_id": "acme", "actor": "ann", "subject_id": None, "decision_id": None, "detail": {}}
    event = AuditEvent(event_id=name, type="refused_action", at=from_milliseconds(0), **whose)
    return event.model_dump_json().encode()


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
        prover.note_event(refusal(name))
    names = [decision.decision_id async for decision in prover.keep(published())]
    return names, prover.counts


async def test_all_that_a_gate_published_is_kept_in_any_order_and_what_does_not_follow_left_out(tmp_path):
    place, true = await one_claim(tmp_path / "a")
    forged = with_text(true, EVIL, decision_id="no-id")
    nowhere = otherwise(true, origin={"sha256": "0" * 64})
    with capture_logs() as logs:
        taken, counts = await kept(place, [forged, true.to_bytes(), nowhere])
    assert taken == [true.decision_id]
    assert counts == {VerifyStatus.EQUAL: 1, VerifyStatus.DIFFERS: 2}
    named = [(line["event"], line["decision_id"], line["fields"]) for line in logs]
    assert named[0] == ("rebuild.left_out", "no-id", ["$.decision_id", "$.evidence.claim"])
    assert named[1] == ("rebuild.left_out", true.decision_id, ["$.origin"])
    place, approved = await one_claim(tmp_path / "b", "approve", source="ai_synthesis")
    place.ends = [event_id("refused_action", approved.facts.review["action_id"])]
    assert await kept(place, [approved.to_bytes()]) == ([], {VerifyStatus.CONTRADICTED: 1})
    place = town(tmp_path, 1)
    await place.live(15)
    place.ends.clear()
    order = Verdict.BLOCKED, Verdict.APPROVED, Verdict.REVIEW
    published = sorted(place.published.values(), key=lambda one: order.index(one.verdict))
    by_verdict = [decision for decision in published if decision.revision]
    taken, counts = await kept(place, [decision.to_bytes() for decision in by_verdict])
    assert taken == [decision.decision_id for decision in by_verdict]
    assert counts == {VerifyStatus.EQUAL: len(by_verdict)}
    assert len(by_verdict) > 50


async def test_neither_retention_nor_an_upgrade_nor_a_recreated_or_copied_topic_costs_a_decision(tmp_path):
    place, true = await one_claim(tmp_path / "a")
    (first,) = place.log
    place.log = [InboundRecord(first.topic, 0, first.offset, first.timestamp + 10**9, b"k", b"{}")]
    assert await kept(place, [true.to_bytes()]) == ([true.decision_id], {VerifyStatus.MISSING: 1})
    place.log.clear()
    values = [true.to_bytes(), otherwise(true, engine="0.0.9")]
    removed = await kept(place, values, start=true.origin.offset + 1)
    assert removed == ([true.decision_id] * 2, {VerifyStatus.EXPIRED: 2})

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


async def test_a_rebuild_shows_how_far_it_is_every_ten_seconds():
    now = [0.0]
    progress = Progress(5_000, clock=lambda: now[0])

    async def values():
        for _ in range(3_000):
            yield b""

    read = progress.counted(values())
    with capture_logs() as lines:
        for seconds in range(21):
            now[0] = float(seconds)
            for _ in range(100):
                await anext(read)
            progress.tell()
    assert [(line["decisions"], line["left"], line["a_second"], line["seconds_left"]) for line in lines] == [
        (1_100, 3_900, 110, 35),
        (2_100, 2_900, 105, 28),
    ]
    assert REGISTRY.get_sample_value("groundwire_rebuild_done") == 2_100
    assert REGISTRY.get_sample_value("groundwire_rebuild_left") == 2_900
    await read.aclose()


@pytest.fixture
def place(tmp_path):
    place = town(tmp_path)
    place.policy = Policy(version="of the test")

    async def send():
        await place.policies.put(place.policy)
        await place.send(*(place.claim(f"c{n}", f"Service {n} keeps {n} <b>sessions</b>") for n in range(3)))

    asyncio.run(send())
    place.write(tmp_path)
    return place


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def verify(folder, *more):
    files = "--decisions", folder / "decisions.jsonl", "--records", folder / "records.jsonl"
    return run("verify", *files, "--policies", folder / "policies", *more)


def test_verify_ends_with_0_1_or_3_and_names_decision_line_and_field(place, tmp_path):
    counts = "3 equal, 0 differs, 0 contradicted, 0 expired, 0 other engine, 0 missing\n"
    assert verify(tmp_path) == (0, "", counts)
    name = next(iter(place.decisions))
    policy = next((tmp_path / "policies").iterdir())
    decisions, records = tmp_path / "decisions.jsonl", tmp_path / "records.jsonl"
    to_approved = '"approved":false', '"approved":true'
    for path, old, new, status, said in (
        (decisions, *to_approved, 1, [name, "differs", "$.approved"]),
        (records, "Service 1", "Service 9", 3, ["missing", "record"]),
        (decisions, '"engine":"', '"engine":"9.', 3, ["other_engine", "9."]),
        (policy, "of the test", "of another", 3, ["missing", "policy"]),
        (policy, "", None, 3, ["missing", "policy"]),
    ):
        before = path.read_text()
        assert old in before
        path.unlink() if new is None else path.write_text(before.replace(old, new, 1))
        found, out, err = verify(tmp_path)
        path.write_text(before)
        assert (found, [part for part in said if part not in out]) == (status, []), said
        if path == policy:  # once, however many decisions it made
            assert re.fullmatch(r"missing  policy [0-9a-f]{64}: 3 decisions; --policies .*\n", out)
        else:
            assert out.startswith("line ")
        assert (", 0 differs" in err) is (status == 3)
    decisions.write_text(decisions.read_text().replace(*to_approved, 1))
    expected = {"where": "line 1", "decision_id": name, "status": "differs", "fields": ["$.approved"]}
    assert json.loads(verify(tmp_path, "--format", "json")[1]) == expected | {"detail": None}


def test_verify_accepts_windows_line_ends_and_a_replays_name_and_reports_a_line_that_is_no_decision(
    place, tmp_path
):
    for name in ("decisions", "records"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\n")
    assert verify(tmp_path)[0] == 0
    path = tmp_path / "decisions.jsonl"
    path.write_text(path.read_text().replace('"replay":null', '"replay":"july"'))
    assert verify(tmp_path, "--replay", "july")[0] == 0
    status, out, _ = verify(tmp_path)
    assert (status, "$.replay" in out) == (1, True)
    with path.open("a") as file:
        file.write('{"decision_id": "x"}\n')
    status, out, _ = verify(tmp_path, "--replay", "july")
    assert (status, out.startswith("line 5  ?  differs  $.revision")) == (1, True)


def test_wrong_usage_is_2_and_says_what_to_do_and_a_replay_writes_to_no_live_topic(
    place, tmp_path, monkeypatch
):
    monkeypatch.setenv("GROUNDWIRE_BROKERS", "127.0.0.1:1")
    output, records = ("--output", tmp_path / "o"), tmp_path / "records.jsonl"
    policies = ("--policies", tmp_path / "policies")
    topics = ("approved", "groundwire.approved", "replay.", "replay.a b", "replay.approved", "xreplay.a")
    wrong = []
    for arguments, named in (
        (("verify",), ""),
        (("verify", "--from-topics", "--records", records), ""),
        (("verify", "--decisions", records, "--records", tmp_path / "nowhere", *policies), "nowhere"),
        *((("replay", "--output-topic", name), "--output-topic") for name in topics),
        (("replay", "--from", "yesterday"), "--from"),
        (("replay", *output, "--output-topic", "replay.a"), ""),
        (("replay", *output, "--job", tmp_path / "o"), ""),
        (("replay", "--topic", "approved"), "--topic"),
        *(
            ((*command, "--rate", rate), "--rate")
            for rate in ("nan", "inf", "-inf", "0", "-1")
            for command in (["verify", "--from-topics"], ["replay"], ["dead-letters", "redrive"])
        ),
    ):
        status, _, err = run(*arguments)
        wrong += [(arguments, status, err)] * (status != 2 or named not in err)
    assert wrong == []
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, _, err = run("replay", "--from", "earliest", "--html", tmp_path / "page.html")
    assert (status, "groundwire[console]" in err) == (2, True), "refused before anything is read"
    for name in ("replay.july", "groundwire.replay.july"):
        assert replay_topic(name, "groundwire.") == "groundwire.replay.july"
    for name in ("replay.july", "replay.claims.july"):
        assert replay_topic(name, "") == name
    for name in ("review-decisions", "eu.approved", "a.b.claims", "eu-claims", "euaudit"):
        with pytest.raises(UsageError, match="live topic"):
            replay_topic(f"replay.{name}", "")


async def test_neither_another_replays_job_nor_a_shorter_output_is_continued(tmp_path):
    Job(tmp_path / "job", ORDER).close()
    Job(tmp_path / "job", ORDER).close()
    for change in ({"name": "other"}, {"engine": "0.0.9"}, {"facts_from": "7"}):
        with pytest.raises(UsageError, match="another replay"):
            Job(tmp_path / "job", replace(ORDER, **change))
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UsageError, match=r"--job: .*text: file is not a database"):
        Job(tmp_path / "text", ORDER)
    (tmp_path / "out").write_bytes(b"short")
    writer = FileWriter(tmp_path / "out")
    with pytest.raises(UsageError, match="shorter"):
        await writer.resume(100)
    writer.close()


async def test_a_rate_is_kept_in_the_mean_and_without_one_nothing_waits():
    now, waited = [0.0], []

    async def sleep(seconds):
        waited.append(seconds)
        now[0] += seconds

    rate = Rate(100, clock=lambda: now[0], sleep=sleep)
    for _ in range(3):
        await rate.after(50)
    now[0] += 10
    await rate.after(50)
    free = Rate(None, clock=lambda: now[0], sleep=sleep)
    await free.after(10_000)
    assert waited == [0.5, 0.5, 0.5, 0.0, 0.0]


async def test_the_page_begins_with_range_policies_and_totals_escapes_text_and_stays_below_2_mb(
    place, tmp_path, monkeypatch
):
    """The rest goes to a second file; page and file name each change once, other verdicts first.

    The table shows no text of claims.
    """
    monkeypatch.setattr(report, "MAX_BYTES", 60_000)
    strict = Policy(version="strict", dedup_threshold=0.8)
    before = next(iter(place.published.values()))
    order = replace(ORDER, name="<name>", topics=["groundwire.claims"], start="7", end="latest")
    with Job(tmp_path / "job", order) as job:
        summary = Summary()
        for number in range(40):
            other = {"verdict": Verdict.BLOCKED} if number == 39 else {}
            after = before.model_copy(update={"subject_id": f"subject-{number}", **other})
            summary.add(Replayed(ReplayStatus.DIFFERS, before, after, ("$.subject_id",)))
            values = before.to_bytes(), after.to_bytes()
            job.add_change(summary.changes, *values, ["$.subject_id"], verdict=bool(other))
        summary.add(Replayed(ReplayStatus.MISSING, before, None, ("$.subject_id",)))
        evil = before.to_bytes().replace(b'"subject_id":"c0"', b'"subject_id":"<script>"')
        job.add_change(summary.changes, evil, None, ["$.subject_id"], verdict=True)
        monkeypatch.setattr("groundwire.replay.report.MAX_ROWS", 7)
        table = list(as_table(job, summary))
        changes = await policy_changes(summary, place.policies, strict)
        write_page(tmp_path / "page.html", job, summary, changes)
    page = (tmp_path / "page.html").read_text()
    rest = [json.loads(line) for line in (tmp_path / "page.rest.jsonl").read_text().splitlines()]
    assert len(page.encode()) <= 60_000
    parts = ("groundwire.claims from 7 to latest", "dedup_threshold", "<details>")
    assert [page.index(part) for part in parts] == sorted(page.index(part) for part in parts)
    assert page.index("<td>review</td><td>blocked</td>") < page.index("<td>review</td><td>review</td>")
    assert [text for text in ("<script>", "<name>", "<b>sessions") if text in page] == []
    assert [text for text in ("&lt;script&gt;", "&lt;b&gt;sessions&lt;/b&gt;") if text not in page] == []
    assert "sessions" not in "".join(table)
    assert "review ungrounded -> nothing" in "".join(table)
    shown = [number for number in range(40) if f">subject-{number}<" in page]
    assert 39 in shown
    assert len(shown) + len(rest) == 40
    assert {each["after"]["subject_id"] for each in rest}.isdisjoint(f"subject-{n}" for n in shown)
    assert f"{len(rest)} more stand in <code>page.rest.jsonl</code>" in page
    assert sum(" subject-" in line for line in table) == 6, "the seventh has no decision after"
    assert table[-1] == "and 34 more: --format json lists them all"
