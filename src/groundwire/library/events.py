"""Where events of the checks go: one sink, best effort.

A sink that breaks never changes a verdict (S3-10): what it raises is swallowed and counted.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from groundwire import metrics
from groundwire.logs import write_event
from groundwire.messages.events import Event


class Sink(Protocol):
    """Takes events; Stageflow's event sinks fit as they are."""

    def try_emit(self, event: str, payload: dict[str, Any], /) -> object:
        """Take one event; whatever is raised is swallowed by the caller."""
        ...


class StandardSink:
    """Logs events at their level; see `groundwire.logs.write_event`."""

    def try_emit(self, event: str, payload: dict[str, Any], /, *, level: str = "warning") -> None:
        """Log one event."""
        write_event(level, event, **payload)


_sinks: Final[list[Sink]] = [StandardSink()]
"""The process's own, one."""


def use_sink(sink: Sink) -> None:
    """Send this process's events to `sink`; at first they go to the log.

    Args:
        sink: has a method `try_emit(event, payload)`.

    Raises:
        TypeError: it has none.
    """
    if not callable(getattr(sink, "try_emit", None)):
        raise TypeError("a sink needs a method try_emit(event, payload)")
    _sinks[0] = sink


def emit(event: Event, sink: Sink | None = None) -> None:
    """Send an event to a sink, by default the process's own; never raises."""
    metrics.EVENTS.labels(event.name).inc()
    target = sink or _sinks[0]
    try:
        if isinstance(target, StandardSink):
            target.try_emit(event.name, dict(event.payload), level=event.level)
        else:
            target.try_emit(event.name, dict(event.payload))
    except Exception:  # noqa: BLE001 - best effort: whatever a sink raises stays there
        metrics.EVENTS_LOST.labels(event.name).inc()
