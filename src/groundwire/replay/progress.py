"""How far the replays have come whose job files lie in a folder, for whoever looks on."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

MOST_JOBS: Final = 20
"""Of a folder, those that got on last."""
_MOST_FILES: Final = 1_000
_MAGIC: Final = b"SQLite format 3\x00"
_PATIENCE: Final = 0.5
"""Seconds that a file may be locked by the replay that writes it."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a replay has come.

    Attributes:
        name: of the replay.
        start: as `--from` says it.
        end: as `--to` says it.
        policy: whether another policy decides than the recorded ones.
        records: how many are replayed; None while they are still being read from the topics.
        total: of how many; None while that is not known.
        changes: decisions that came out otherwise so far.
        moved_at: when the file last changed.
    """

    name: str
    start: str
    end: str
    policy: bool
    records: int | None
    total: int | None
    changes: int
    moved_at: datetime


def jobs_in(folder: Path) -> list[JobProgress]:
    """Return the replays of a folder, those that got on last first; files that are no jobs are left out.

    Nothing of what was replayed is read, and nothing is written.

    Raises:
        OSError: the folder cannot be read.
    """
    found = sorted(_files(folder), key=lambda pair: pair[1], reverse=True)
    jobs = (_progress(path, moved) for path, moved in found[:MOST_JOBS])
    return [job for job in jobs if job is not None]


def _files(folder: Path) -> Iterator[tuple[Path, float]]:
    for path, _ in zip(folder.iterdir(), range(_MOST_FILES), strict=False):
        with contextlib.suppress(OSError):
            if path.is_file() and _is_database(path):
                log = path.with_name(f"{path.name}-wal")  # what is new stands there first
                yield path, max(one.stat().st_mtime for one in (path, log) if one.exists())


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _progress(path: Path, moved: float) -> JobProgress | None:
    query = "SELECT name, value FROM facts_of_job WHERE name IN ('order', 'progress')"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)
        ) as database:
            facts: dict[str, Any] = {name: json.loads(value) for name, value in database.execute(query)}
        order, progress = facts["order"], facts.get("progress", {})
        summary = progress.get("summary", {})
        return JobProgress(
            name=str(order["name"]),
            start=str(order["start"]),
            end=str(order["end"]),
            policy=order["policy"] is not None,
            records=int(summary["records"]) if summary else None,
            total=int(progress["total"]) if "total" in progress else None,
            changes=int(summary.get("changes", 0)),
            moved_at=datetime.fromtimestamp(moved, UTC),
        )
    except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # another program's, or one that was only just begun
