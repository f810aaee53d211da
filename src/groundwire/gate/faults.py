"""Exceptions in the gate's own code: logged by class and place, never by message, which may hold a record's text."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Any, Final

import structlog

log = structlog.get_logger()

_FRAMES: Final = 6


def report_fault(event: str, error: Exception, **fields: Any) -> None:  # noqa: ANN401 - whatever a log line holds
    """Log that something broke, and where: the innermost frames, without their variables."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " < ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    log.error(event, error=type(error).__name__, where=where, **fields)
