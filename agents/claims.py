"""The agent of `claims`: decides each claim, or puts it on `deferred` where the network has to be asked."""

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
    """Say how claims are decided."""
    grace = settings.state_grace if policy.state_outage == "defer" else None
    return Role(TopicName.CLAIMS, deferred=False, grace=grace)


def declare(app: faust.App, settings: Settings, lanes: Lanes) -> None:
    """Declare the agent on its input topic."""

    @app.agent(raw_topic(app, settings.topic_prefix + TopicName.CLAIMS), name=TopicName.CLAIMS)
    async def claims(batches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in batches.noack().events():
            lanes.submit(event)
