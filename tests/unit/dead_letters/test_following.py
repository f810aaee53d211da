"""What follows the dead-letter topic while records are sent."""

from __future__ import annotations

import asyncio

import pytest

from groundwire.dead_letters import letters
from groundwire.dead_letters.letters import KafkaLog, RedriveRecord
from groundwire.errors import BrokerUnavailable
from groundwire.messages.base import from_milliseconds

RECORD = RedriveRecord("t.claims", b"k", b"v", [])


class Sender:
    """Acknowledges whatever is sent."""

    def __init__(self):
        self.sent = []

    async def send(self, topic, value, key, headers):
        self.sent.append((topic, value, key, headers))
        done = asyncio.get_running_loop().create_future()
        done.set_result(type("Metadata", (), {"partition": 0, "offset": len(self.sent) - 1}))
        return done


@pytest.mark.parametrize("ends", [True, False])
async def test_nothing_is_sent_once_nothing_tells_any_more_how_many_records_fail_again(ends, monkeypatch):
    sender, begun, go_on = Sender(), asyncio.Event(), asyncio.Event()

    async def follow(*_where):
        begun.set()
        await go_on.wait()
        if ends:
            raise BrokerUnavailable("gone")
        yield  # pragma: no cover

    monkeypatch.setattr(letters, "follow", follow)
    log = KafkaLog("nowhere:1", "t.", 1.0, sender)
    async with log.failing(from_milliseconds(0)):
        await begun.wait()
        assert await log.publish([RECORD]) == [(0, 0)]
        if ends:
            go_on.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with pytest.raises(BrokerUnavailable, match="followed"):
                await log.publish([RECORD])
    assert len(sender.sent) == 1
    assert await log.publish([RECORD]) == [(0, 1)], "nothing is watched, and so nothing ended"
