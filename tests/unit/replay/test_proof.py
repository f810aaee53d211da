"""A rebuild of state derives each decision whose record is kept, and leaves out those that do not follow (X-08)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from structlog.testing import capture_logs

from groundwire.messages.decisions import Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.replay.rebuild import Prover, read_places
from groundwire.replay.store import OffsetRange, RecordPlace
from groundwire.replay.verify import VerifyStatus
from tests.unit.gate.world import TOPIC, claim_bytes
from tests.unit.replay.town import EVIL, INPUTS, REVIEWS, Town, one_claim, otherwise, town, with_text


class Log:
    """Reads a town's records, one a batch, and notes which offsets were sought."""

    def __init__(self, place: Town) -> None:
        self.place, self.sought = place, []

    def seek(self, begin, ends):
        self.begin, self.ends = begin, ends
        self.sought.append({each.topic: (begin[each], ends[each]) for each in begin})

    async def rest(self):
        for record in self.place.log:
            for partition, first in self.begin.items():
                if record.topic == partition.topic and first <= record.offset < self.ends[partition]:
                    yield [record]


async def kept(place: Town, values: Sequence[bytes], *, start: int = 0) -> tuple[list[bytes], Counter]:
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
