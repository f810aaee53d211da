"""Places in the review queue over the partitions of a cluster."""

import pytest

from groundwire.errors import StateUnavailable
from groundwire.state.model import QueueLimits
from groundwire.state.queue_use import QueueUse


class Away:
    """Primaries that answer from the second count on."""

    answers = False

    async def call(self, *_command):
        if not self.answers:
            raise StateUnavailable("away")
        return {b"t:acme": b"7", b"total": b"9"}


async def test_nothing_is_granted_before_the_places_of_any_other_partition_are_known():
    server = Away()
    use = QueueUse(server, ["{0}", "{1}"])
    with pytest.raises(StateUnavailable):
        await use.elsewhere(0, ["t:acme", "total"], QueueLimits(per_tenant=20), 5)
    server.answers = True
    remote, share = await use.elsewhere(0, ["t:acme", "total"], QueueLimits(per_tenant=20), 5)
    assert (remote, share) == ({"t:acme": 7, "total": 9}, 3)
