"""The agent of `llm-responses`: checks each response against what it was given, and sends on what it claims."""

from __future__ import annotations

from typing import Any

import faust

from agents.lanes import Lanes
from agents.pipeline import Role
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.settings import Settings
from topics.wire import raw_topic


def role(settings: Settings, policy: Policy) -> Role:
    """Say how responses are decided."""
    grace = settings.state_grace if policy.state_outage == "defer" else None
    return Role(TopicName.LLM_RESPONSES, deferred=False, grace=grace)


def declare(app: faust.App, settings: Settings, lanes: Lanes) -> None:
    """Declare the agent on its input topic."""

    @app.agent(raw_topic(app, settings.topic_prefix + TopicName.LLM_RESPONSES), name=TopicName.LLM_RESPONSES)
    async def responses(batches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in batches.noack().events():
            lanes.submit(event)
