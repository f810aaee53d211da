"""Events of the checks: ids, counts, codes and hashes, sent to one sink, best effort.

A sink that breaks never changes a verdict (S3-10): what it raises is swallowed and counted.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import structlog

from groundwire import metrics

HASH_LENGTH: Final = 12
"""Hexadecimal characters of a text's hash in an event (S1-37)."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a check found: its name and what it carries, never text."""

    name: str
    payload: Mapping[str, Any]
    level: Literal["info", "warning"] = "warning"


class Sink(Protocol):
    """Takes events; Stageflow's event sinks fit as they are."""

    def try_emit(self, event: str, payload: dict[str, Any], /) -> object:
        """Take one event; whatever is raised is swallowed by the caller."""
        ...


class StandardSink:
    """Logs events through structlog, at their level."""

    def try_emit(self, event: str, payload: dict[str, Any], /, *, level: str = "warning") -> None:
        """Log one event."""
        getattr(log, level)(event, **payload)


class _Telemetry:
    """The process's sink and the key of its hashes."""

    def __init__(self) -> None:
        self.sink: Sink = StandardSink()
        self.hash_key = b""


_telemetry: Final = _Telemetry()


def configure_telemetry(*, sink: Sink | None = None, hash_key: bytes | None = None) -> None:
    """Choose where this process sends events, and the key of the hashes in them.

    Args:
        sink: None: as it was; at first, the log.
        hash_key: None: as it was; empty: plain SHA-256.
    """
    if sink is not None:
        _telemetry.sink = sink
    if hash_key is not None:
        _telemetry.hash_key = hash_key


def emit(event: Event, sink: Sink | None = None) -> None:
    """Send an event to a sink, by default the process's own; never raises."""
    metrics.EVENTS.labels(event.name).inc()
    target = sink or _telemetry.sink
    try:
        if isinstance(target, StandardSink):
            target.try_emit(event.name, dict(event.payload), level=event.level)
        else:
            target.try_emit(event.name, dict(event.payload))
    except Exception:  # noqa: BLE001 - best effort: whatever a sink raises stays there
        metrics.EVENTS_LOST.labels(event.name).inc()


def text_hash(text: str) -> str:
    """Return the first 12 hexadecimal characters of a text's SHA-256, keyed where a key is configured (S1-37)."""
    data = text.encode("utf-8", "surrogatepass")
    if _telemetry.hash_key:
        return hmac.new(_telemetry.hash_key, data, hashlib.sha256).hexdigest()[:HASH_LENGTH]
    return hashlib.sha256(data).hexdigest()[:HASH_LENGTH]
