"""Behind an erasure ids and revisions begin anew: a tombstone tells what stands on its two sides apart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.outputs import outputs
from groundwire.messages.decisions import Decision
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.replay.review_closures import is_erased_action
from groundwire.replay.store import RecordStore
from groundwire.replay.verify import VerifyStatus, verify_topics
from tests.unit.gate.office import TEXT, Office
from tests.unit.replay.test_tampered import Shelf, twice
from tests.unit.replay.town import town

AN_HOUR = timedelta(hours=1)


async def decided(tmp_path):
    place = town(tmp_path)
    await place.policies.put(place.policy)
    await place.send(place.claim("c", "The API returns JSON", source="user"))
    return place, next(iter(place.published.values()))


class Erased(Shelf):
    """A shelf whose user was erased up to a time."""

    def __init__(self, place, spoil, erasure: Erasure) -> None:
        super().__init__(place, spoil)
        self.erasure = erasure

    async def read(self, job, *_, **__):
        job.note_erasure(self.erasure)
        await super().read(job)


@pytest.mark.parametrize(
    ("after", "contradicted"), [(-AN_HOUR, True), (timedelta(0), False), (AN_HOUR, True)]
)
async def test_two_decisions_under_one_id_contradict_each_other_but_across_an_erasure(
    tmp_path, after, contradicted
):
    place, decision = await decided(tmp_path)
    erasure = Erasure(decision.tenant_id, decision.user_id, decision.decided_at + after)
    found = verify_topics(Erased(place, twice, erasure), "groundwire.", "earliest", place.policies, tmp_path)
    statuses = {placed.finding.status async for placed in found}
    assert (VerifyStatus.CONTRADICTED in statuses) is contradicted


async def test_the_erasure_of_another_user_tells_nothing_apart(tmp_path):
    place, decision = await decided(tmp_path)
    erasure = Erasure(decision.tenant_id, "nobody", decision.decided_at)
    found = verify_topics(Erased(place, twice, erasure), "groundwire.", "earliest", place.policies, tmp_path)
    assert VerifyStatus.CONTRADICTED in {placed.finding.status async for placed in found}


async def test_a_revision_is_looked_for_on_its_own_side_of_an_erasure(tmp_path):
    """What people decide rests on the revisions before, whose numbers come again."""
    _, first = await decided(tmp_path)
    store = RecordStore(tmp_path / "revisions")
    store.note_erasure(Erasure(first.tenant_id, first.user_id, first.decided_at))
    shas = {}
    for side, at in (("before", first.decided_at), ("after", first.decided_at + AN_HOUR)):
        origin = first.origin.model_copy(update={"sha256": side[0] * 64})
        decision: Decision = first.model_copy(update={"revision": 2, "decided_at": at, "origin": origin})
        store.note_decision(decision.to_bytes())
        shas[decision.decided_at] = decision
    for decision in shas.values():
        assert store.revision(decision, 2).sha256 == decision.origin.sha256


async def test_an_action_closes_nothing_behind_the_erasure_of_its_user(office_action):
    event, decided_at, user = office_action
    for until, erased in ((decided_at, True), (decided_at - AN_HOUR, False)):
        erasures = Erasures()
        erasures._until[user] = until
        assert is_erased_action(event, erasures) is erased
    assert not is_erased_action(event, Erasures())


@pytest.fixture
async def office_action():
    """An audit event of a claim's rejection, the time of that, and the claim's user."""
    office = Office()
    (before,) = await office.decide(office.claim("a", TEXT))
    result = await office.act("reject", before, reason="incorrect")
    event = next(output.value for output in outputs([result]) if b'"review_action"' in (output.value or b""))
    decision = result.decision
    return event, decision.decided_at, (decision.tenant_id, decision.user_id)
