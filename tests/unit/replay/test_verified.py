"""What the gate published can be derived again from records, policies and facts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.policies import PolicyStore
from groundwire.replay.files import FileRecords, decision_lines
from groundwire.replay.verify import Status, Verifier
from tests.unit.replay.town import town

SEEDS = st.integers(0, 2**32)


@settings(max_examples=12)
@given(seed=SEEDS)
async def test_whatever_the_gate_publishes_follows_from_records_policies_and_facts(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    place = town(folder, seed)
    await place.live(8)
    decisions, records, policies = place.write(folder)
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        for number, value in decision_lines(decisions):
            finding = await verifier.verify(value)
            assert finding.status is Status.EQUAL, (number, finding, value)
