"""Faust's tables, of which no worker has any: a start does not wait for them."""

from __future__ import annotations

from typing import Final

from faust.tables.manager import TableManager

_LOOK_AGAIN: Final = 0.01


class NoTables(TableManager):
    """Lets the consumer subscribe as soon as all agents read their topics.

    Faust's own sleeps a second, and trusts that agents do by then: one that comes later is subscribed after 45.
    """

    async def on_start(self) -> None:
        """Wait until the topics of all agents are known to those who subscribe."""
        while not self.should_stop and not self._agents_read():
            await self.sleep(_LOOK_AGAIN)  # ends when the worker does
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()

    def _agents_read(self) -> bool:
        read = {name for topic in self.app.topics for name in topic.topics}
        return all(read.issuperset(agent.get_topic_names()) for agent in self.app.agents.values())
