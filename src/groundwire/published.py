"""Looking a published decision up: state keeps no text of what is approved."""

from __future__ import annotations

from contextlib import aclosing
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from groundwire.client.tail import Span, follow
from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.topics import TopicName
from groundwire.settings import Settings

_PATIENCE: Final = 30.0


class Published:
    """Finds decisions on the output topics of a deployment."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __call__(self, verdict: Verdict, decision_id: str, since: datetime | None) -> Decision | None:
        """Return the decision with this id from a verdict's topic; None where it is not on it.

        Args:
            verdict: names the topic.
            decision_id: of the decision.
            since: it was published at this time or later; None: at any time.

        Raises:
            StateUnavailable: the topic cannot be read now.
        """
        topic = self._settings.topic_prefix + TopicName.of(verdict)
        span = Span("earliest" if since is None else since, until_end=True)
        needle = decision_id.encode()
        try:
            async with aclosing(follow(self._settings.brokers, topic, span, _PATIENCE)) as records:
                async for record in records:
                    decision = _decision(record.value) if needle in (record.value or b"") else None
                    if decision is not None and decision.decision_id == decision_id:
                        return decision
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"a published decision cannot be looked up: {exc}") from exc
        return None


def _decision(value: bytes | None) -> Decision | None:
    try:
        return Decision.model_validate_json(value or b"")
    except ValidationError:
        return None
