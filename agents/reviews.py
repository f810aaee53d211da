"""The agent of `review-decisions`: carries out what people decide, and expires what nobody reviewed."""

from __future__ import annotations

from typing import Any

import faust

from agents.lanes import Lanes
from agents.pipeline import Role
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.settings import Settings
from topics.wire import raw_topic


def role(settings: Settings, policy: Policy) -> Role:  # noqa: ARG001 - as the other agents
    """Say how people's decisions are carried out: state is waited for."""
    return Role(TopicName.REVIEW_DECISIONS, deferred=False, grace=None)


def declare(app: faust.App, settings: Settings, lanes: Lanes) -> None:
    """Declare the agent on its input topic."""
    topic = raw_topic(app, settings.topic_prefix + TopicName.REVIEW_DECISIONS)

    @app.agent(topic, name=TopicName.REVIEW_DECISIONS)
    async def reviews(batches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in batches.noack().events():
            lanes.submit(event)
