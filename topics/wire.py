"""Input topics as Faust reads them: raw, and a batch of records as one event."""

from __future__ import annotations

from typing import Any

import faust
from faust.types import AppT, TopicT


class RawSchema(faust.Schema[Any, Any]):
    """Hands keys and values on as they are: decoding belongs to the gate, so that a bad record is a dead letter."""

    def loads_key(self, app: AppT, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002 - Faust's signature
        """Return the key untouched."""
        return message.key

    def loads_value(self, app: AppT, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002
        """Return the value, a list of records, untouched."""
        return message.value


def raw_topic(app: faust.App, name: str) -> TopicT:
    """Declare a topic to read batches of raw records from; it must exist already."""
    return app.topic(name, schema=RawSchema(), allow_empty=True, internal=False)
