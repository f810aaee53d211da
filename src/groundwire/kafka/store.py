"""A database of what was read from topics; the reviewers' board, replays and the evidence of seals are views of one."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self

from groundwire.errors import UsageError

MEMORY: Final = ":memory:"
SCRATCH: Final = ""
"""A temporary file without a name, which is gone once the store is closed or the process has ended."""

_LOCKED: Final = 30.0
"""Seconds to wait while another process writes to the file, as two do during a rolling restart."""


class Store:
    """An SQLite database in autocommit mode; several threads may write to it, one at a time.

    Args:
        path: a new file is readable for its owner alone.
        durable: the file survives a crash, and a failed transaction leaves nothing; else close the store after one.

    Raises:
        UsageError: there is no such file, it is no database, or the disk is full.
    """

    def __init__(self, path: Path | str = MEMORY, *, durable: bool = False) -> None:
        self._name = str(path)
        self._lock = threading.RLock()
        journal, synchronous = ("WAL", "NORMAL") if durable else ("OFF", "OFF")
        with self._naming_file():
            if self._name not in {MEMORY, SCRATCH}:
                with suppress(OSError):  # which SQLite reports
                    Path(path).touch(mode=0o600)  # it holds what people said
            self._database = sqlite3.connect(
                self._name, timeout=_LOCKED, isolation_level=None, check_same_thread=False
            )
        self.script(
            f"PRAGMA cache_size = -65536; PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def script(self, statements: str) -> None:
        """Run several statements, such as those that create the tables of a view."""
        with self._naming_file():
            self._database.executescript(statements)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block, or nothing. Raises: UsageError: the disk is full, or another process keeps the file."""
        # IMMEDIATE: one that reads before it writes would fail at once, and not wait, where another process writes
        with self._lock, self._naming_file(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield

    def rows(self, query: str, *values: object, **named: object) -> sqlite3.Cursor:
        """Run a statement. Raises: as `transaction`."""
        try:  # as `_naming_file`, which takes longer
            return self._database.execute(query, named or values)
        except sqlite3.Error as exc:
            raise self._named(exc) from exc

    def row(self, query: str, *values: object) -> Any:  # noqa: ANN401 - a row, or None
        return self.rows(query, *values).fetchone()

    def put(self, table: str, *values: object, **columns: object) -> int:
        """Insert a row, all of it or by columns, unless its key exists; return how many rows were inserted."""
        return self.rows(_insert(table, tuple(columns), len(values)), *values, *columns.values()).rowcount

    def put_first(
        self, table: str, key: Mapping[str, object], row: Mapping[str, object], order: Sequence[str]
    ) -> bool:
        """Insert a row; of several with one key keep the first by the columns of `order`, however they come.

        Returns: whether the table has changed.
        """
        statement = _insert_first(table, tuple(key), tuple(row), tuple(order))
        return self.rows(statement, *key.values(), *row.values()).rowcount > 0

    def replace(self, table: str, *values: object) -> None:
        self.rows(f"REPLACE INTO {table} VALUES ({_marks(len(values))})", *values)  # noqa: S608 - our tables

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise self._named(exc) from exc

    def _named(self, error: sqlite3.Error) -> UsageError:
        return UsageError(f"{self._name or 'a temporary file'}: {error}")


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


@lru_cache
def _insert(table: str, columns: tuple[str, ...], values: int) -> str:
    into = f"{table} ({_quoted(columns)})" if columns else table
    return f"INSERT OR IGNORE INTO {into} VALUES ({_marks(values + len(columns))})"  # noqa: S608 - our tables


@lru_cache
def _insert_first(table: str, key: tuple[str, ...], row: tuple[str, ...], order: tuple[str, ...]) -> str:
    names = *key, *row
    columns = ", ".join(f'"{name}" = excluded."{name}"' for name in row)
    new, old = (", ".join(f'{of}."{name}"' for name in order) for of in ("excluded", table))
    return (
        f"INSERT INTO {table} ({_quoted(names)}) VALUES ({_marks(len(names))})"  # noqa: S608 - our tables
        f" ON CONFLICT ({_quoted(key)}) DO UPDATE SET {columns} WHERE ({new}) < ({old})"
    )
