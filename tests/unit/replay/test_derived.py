"""What a person's decision rests on is found wherever it stands: later records, edits, the first record."""

from __future__ import annotations

import json

import pytest

from groundwire.gate import claims as gate_module
from groundwire.policy import Limits, Policy
from groundwire.replay.store import FileRecords, decision_lines
from groundwire.replay.verify import Verifier, VerifyFinding, VerifyStatus, differences
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import TOPIC, claim_bytes
from tests.unit.replay.town import Town, town

TEXT = "The ingest service retries every failed upload five times"


async def findings(place: Town, folder) -> list[VerifyFinding]:
    await place.policies.put(place.policy)
    decisions, records, policies = place.write(folder)
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        return [await verifier.verify(value) for _, value in decision_lines(decisions)]


async def refused_then_pending(place: Town) -> None:
    """Refuse a claim for want of a place, then let its later record wait for review."""
    place.policy = Policy(limits=Limits(review_per_user=1))
    await place.send(place.claim("other", "Something else entirely waits for review"))
    await place.send(place.record(claim_bytes("c", TEXT, metadata={"n": 1}), topic=TOPIC))
    await place.act(place.action("reject", latest(place, "other")))
    await place.send(place.record(claim_bytes("c", TEXT, metadata={"n": 2}), topic=TOPIC))
    assert latest(place, "c").revision == 2


def latest(place: Town, name: str):
    return next(d for d in place.current() if d.subject_id == name)


async def test_a_claim_that_was_refused_and_came_again_is_followed_through_edit_and_retraction(tmp_path):
    place = town(tmp_path)
    await refused_then_pending(place)
    await place.act(place.action("edit", latest(place, "c"), content="Uploads are retried five times"))
    await place.act(place.action("retract", latest(place, "c"), reason="wrong"))
    last = latest(place, "c")
    assert (last.revision, last.evidence.metadata) == (4, {"n": 2})
    assert last.evidence.capture_time > last.subject_origin.timestamp
    assert {finding.status for finding in await findings(place, tmp_path)} == {VerifyStatus.EQUAL}


async def test_without_the_record_of_an_edit_its_retraction_cannot_be_derived(tmp_path):
    place = town(tmp_path)
    await place.send(place.claim("c", TEXT))
    await place.act(place.action("edit", latest(place, "c"), content="Uploads are retried five times"))
    await place.act(place.action("retract", latest(place, "c")))
    place.log = [record for record in place.log if b'"edit"' not in record.value]
    first, edit, retraction = await findings(place, tmp_path)
    assert (first.status, edit.status, retraction.status) == (
        VerifyStatus.EQUAL,
        VerifyStatus.MISSING,
        VerifyStatus.MISSING,
    )
    assert "edit" in retraction.detail


async def test_a_text_that_no_reviewer_wrote_is_found_in_what_an_edit_approved(tmp_path):
    place = town(tmp_path)
    await place.send(place.claim("c", TEXT))
    await place.act(place.action("edit", latest(place, "c"), content="Uploads are retried five times"))
    await place.act(place.action("retract", latest(place, "c")))
    for name, decision in list(place.published.items()):
        if decision.revision > 1:
            forged = decision.to_bytes().replace(b"Uploads are retried five", b"Uploads are never tried ")
            place.published[name] = type(decision).model_validate_json(forged)
    _, *forged = await findings(place, tmp_path)
    assert [finding.paths for finding in forged] == [("$.evidence.claim",)] * 2


async def test_a_claim_that_broke_the_gate_is_derived_without_breaking_again(tmp_path, monkeypatch):
    place = town(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "read_claim", broken)
        await place.send(place.claim("c", TEXT, derived_from=["x"]))
    assert latest(place, "c").reason_code == "internal_error"
    await place.act(place.action("approve", latest(place, "c")))
    assert {finding.status for finding in await findings(place, tmp_path)} == {VerifyStatus.EQUAL}


@pytest.mark.parametrize("depth", [60])
async def test_metadata_as_deep_as_a_record_may_be_is_verified(tmp_path, depth):
    place = town(tmp_path)
    deep: object = 1
    for _ in range(depth):
        deep = [deep]
    await place.send(place.record(claim_bytes("c", TEXT, metadata={"d": deep}), topic=TOPIC))
    (finding,) = await findings(place, tmp_path)
    assert finding.status is VerifyStatus.EQUAL


@pytest.mark.parametrize(
    ("recorded", "derived", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, ["$.a"]),
        ({"a": True}, {"a": 1}, ["$.a"]),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, ["$.a[1]", "$.a[2]"]),
        ({"a b": {"c": None}}, {"a b": {}}, ['$["a b"].c']),
        ({"x": 1}, {"y": 1}, ["$.y", "$.x"]),
        ([], {}, ["$"]),
    ],
)
def test_two_json_values_differ_where_they_do(recorded, derived, paths):
    assert list(differences(recorded, derived)) == paths
    assert json.dumps(recorded)  # both are JSON
