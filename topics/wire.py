"""Input topics as Faust reads them: raw, a batch of records as one event."""

from __future__ import annotations

from typing import Any

import faust
from faust.types import AppT, TopicT


class RawSchema(faust.Schema[Any, Any]):
    """Passes keys and values through: the gate decodes them, so that a bad record is a dead letter."""

    def loads_key(self, app: AppT, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002 - Faust's signature
        return message.key

    def loads_value(self, app: AppT, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002
        return message.value


def raw_topic(app: faust.App, name: str) -> TopicT:
    """Return an existing topic to read raw batches from."""
    return app.topic(name, schema=RawSchema(), allow_empty=True, internal=False)
