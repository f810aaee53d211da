"""Looking published decisions up: state keeps no text of what the gate approved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from groundwire.client.tail import Span, Start, follow
from groundwire.client.unasked import unasked
from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.gate.drafts import Wanted
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import header
from groundwire.messages.topics import TopicName
from groundwire.settings import Settings

_PATIENCE: Final = 30.0
_SKEW: Final = timedelta(minutes=5)
"""By how much clocks of workers may differ: one decides, and after its death another publishes."""


class Published:
    """Finds decisions on the output topics of a deployment."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __call__(self, wanted: Sequence[Wanted]) -> dict[str, Decision]:
        """Return by id those that stand on their topics: one scan a topic, and from its beginning where need be.

        Raises:
            StateUnavailable: a topic cannot be read now.
        """
        found: dict[str, Decision] = {}
        for verdict in {one.verdict for one in wanted}:
            those = [one for one in wanted if one.verdict == verdict]
            times = [one.since for one in those if one.since is not None]
            if times:
                found |= await self._scan(verdict, {one.decision_id for one in those}, min(times) - _SKEW)
            missing = {one.decision_id for one in those} - found.keys()
            if missing:
                found |= await self._scan(verdict, missing, "earliest")
        return found

    async def _scan(self, verdict: Verdict, ids: set[str], start: Start) -> dict[str, Decision]:
        topic = self._settings.topic_prefix + TopicName.of(verdict)
        found: dict[str, Decision] = {}
        try:
            span = Span(start, until_end=True)
            read = follow(self._settings.brokers, topic, span, _PATIENCE)
            with unasked("the topic cannot be read"):
                async with aclosing(read) as records:
                    async for record in records:
                        decision = _decision(record.value) if header(record.headers, "ce_id") in ids else None
                        if decision is not None and decision.decision_id in ids:
                            found[decision.decision_id] = decision
                            if found.keys() == ids:
                                break
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"a published decision cannot be looked up: {exc}") from exc
        return found


def _decision(value: bytes | None) -> Decision | None:
    try:
        return Decision.model_validate_json(value or b"")
    except ValidationError:
        return None
