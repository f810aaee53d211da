"""The agent of `deferred`: claims whose citations ask the network, one user's in order, and those of an outage."""

from __future__ import annotations

from typing import Any

import faust

from agents.lanes import Lanes
from agents.pipeline import Role
from groundwire.messages.headers import deferred_record
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.settings import Settings
from topics.wire import raw_topic


def role(settings: Settings, policy: Policy) -> Role:  # noqa: ARG001 - as the other agents
    """Say how deferred claims are decided: state is waited for, the network may be asked."""
    return Role(TopicName.DEFERRED, deferred=True, grace=None, original=deferred_record)


def declare(app: faust.App, settings: Settings, lanes: Lanes) -> None:
    """Declare the agent on its input topic."""

    @app.agent(raw_topic(app, settings.topic_prefix + TopicName.DEFERRED), name=TopicName.DEFERRED)
    async def deferred(batches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in batches.noack().events():
            lanes.submit(event)
