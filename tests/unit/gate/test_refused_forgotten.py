"""What a gate refused is gone with its batch: a stream of broken records takes no memory."""

from __future__ import annotations

import gc

import pytest

from groundwire.gate.results import DeadLetter
from tests.unit.gate.world import RESPONSES, World

REFUSED = {
    "by a validator of the house": b'{"response_id": "forgotten", "user_id": "u", "answer": "Yes.", "context": null}',
    "by pydantic": b'{"response_id": "forgotten", "user_id": "u", "answer": 1}',
    "before validation": b'{"response_id": "forgotten',
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
async def test_nothing_keeps_a_refused_record_once_its_batch_is_settled(value):
    world = World()
    for _ in range(3):
        results = await world.results(world.record(value, topic=RESPONSES))
        assert isinstance(results[0], DeadLetter)
    del results
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is DeadLetter and one.record.value == value]
