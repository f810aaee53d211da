"""State as people's side of the gate asks it: read only, and over rebuilds."""

from __future__ import annotations

import os
from collections.abc import Sequence

from groundwire.errors import StateLost
from groundwire.gate.dedup import dedup_scheme
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.settings import Settings
from groundwire.state.model import Standing
from groundwire.state.redis import RedisState
from groundwire.state.server import connect


class LiveStandings:
    """Asks Redis where subjects stand; after state was lost, that which took its place.

    Args:
        state: its own, for this use.
    """

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._known = False

    @classmethod
    def of(cls, settings: Settings) -> LiveStandings:
        """Return the one of a deployment. Raises: UsageError, of the policy or the address."""
        policy = load_policy(settings.policy_file, os.environ)
        client = connect(settings.redis_url)
        scheme = dedup_scheme(policy)
        return cls(RedisState(client, settings.topic_prefix, scheme=scheme, require_aof=False))

    async def standings(self, subjects: Sequence[Subject]) -> list[Standing | None]:
        """Return where subjects stand.

        Raises:
            StateUnavailable: Redis does not answer.
            StateLost: what was known is gone; the next call asks what is there then.
            SchemeMismatch: the policy here is not the workers'.
        """
        if not self._known:
            if await self._state.open() is None:
                raise StateLost("state is lost, and not rebuilt yet")
            self._known = True
        try:
            return await self._state.standings(subjects)
        except StateLost:
            self._known = False
            raise

    async def close(self) -> None:
        """Let go of connections."""
        await self._state.close()
