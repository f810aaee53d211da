"""What a stage of a pipeline is given and hands on; Stageflow's contexts and sinks fit as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from groundwire.messages.events import Event
from groundwire.telemetry import Sink, emit

DEFAULT_TENANT: Final = "default"


class StageKind(StrEnum):
    """What a stage does in its pipeline."""

    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What a stage hands on: data, or the error that stops the pipeline."""

    status: Literal["ok", "fail"]
    data: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def ok(cls, **data: Any) -> StageOutput:  # noqa: ANN401 - a stage hands on what it likes
        """Return the output of a stage that went well."""
        return cls("ok", data)

    @classmethod
    def fail(cls, *, error: str, data: Mapping[str, Any]) -> StageOutput:
        """Return the output of a stage that stops the pipeline."""
        return cls("fail", dict(data), error)


def unavailable(code: str, error: Exception) -> StageOutput:
    """Return the failure of a guard that could not look: the class of what was raised, never its text."""
    return StageOutput.fail(error=code, data={"error": type(error).__name__})


def tenant_of(ctx: object) -> str:
    """Return the tenant that a context names, else the default one."""
    tenant = getattr(ctx, "tenant_id", None)
    return tenant if isinstance(tenant, str) else DEFAULT_TENANT


def sink_of(ctx: object) -> Sink | None:
    """Return the event sink of a context, if it has one."""
    sink: Sink | None = getattr(ctx, "event_sink", None)
    return sink


def emit_all(events: Iterable[Event], sink: Sink | None) -> None:
    """Send events, best effort: a sink that breaks changes no output (S3-10)."""
    for event in events:
        emit(event, sink)
