"""A replay's job: what was read, how far it has come and what it found, in one file on disk.

Everything that a replay needs is read from the topics first; what follows asks nobody. So it goes on where it was
interrupted, holds no more than a page of records in memory, and gives the same result each time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from groundwire.errors import UsageError
from groundwire.replay.spool import Spool
from groundwire.version import __version__

_CACHE_KIB: Final = 65_536
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts_of_job (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS simulated (id TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, before BLOB, after BLOB, fields TEXT);
"""


@dataclass(frozen=True, slots=True)
class Order:
    """What a replay is to do; a job that goes on has the same.

    Attributes:
        name: stands in `replay` of every decision that it gives.
        topics: input topics with their prefix.
        start: as `--from` says it.
        end: as `--to` says it.
        policy: canonical JSON of the policy that decides; None: each decision's own.
        simulate: whether duplicates, parents and places are found anew.
        output: file or topic that decisions go to; None: nowhere.
        facts_from: as `--facts-from` says it.
        engine: which derives; another one may decide otherwise, so that it does not go on.
    """

    name: str
    topics: Sequence[str]
    start: str
    end: str
    policy: str | None
    simulate: bool
    output: str | None
    facts_from: str = "earliest"
    engine: str = __version__


class Job:
    """A job file.

    Args:
        path: the file; one that exists is gone on with.
        order: what is to be done.

    Raises:
        UsageError: the file is not a job's, or is that of another one.
    """

    def __init__(self, path: Path, order: Order) -> None:
        try:
            path.touch(mode=0o600)  # it holds what people said
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
            self.spool = Spool(self._database)
        except (sqlite3.Error, OSError) as exc:
            raise UsageError(f"--job: {path} is no job file: {exc}") from None
        plain = json.dumps(asdict(order))
        known = self.known("order")
        if known is None:
            self.note(order=plain)
        elif json.loads(known) != json.loads(plain):
            self.close()
            raise UsageError(f"--job: {path} is the file of another replay; take another name, or remove it")

    def __enter__(self) -> Self:
        """Use it until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the file; what was not committed is done again."""
        self._database.close()

    def known(self, name: str) -> str | None:
        """Return what was noted under a name, or None."""
        row = self._database.execute("SELECT value FROM facts_of_job WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def note(self, **values: str) -> None:
        """Keep values under their names."""
        self._database.executemany("REPLACE INTO facts_of_job VALUES (?, ?)", values.items())

    def begin(self) -> None:
        """Begin a transaction: what follows is kept as a whole, or not at all."""
        self._database.execute("BEGIN")

    def commit(self) -> None:
        """Keep what was done since `begin`."""
        self._database.execute("COMMIT")

    def add_change(
        self, number: int, before: bytes | None, after: bytes | None, fields: Sequence[str]
    ) -> None:
        """Keep a decision that came out otherwise."""
        row = number, before, after, json.dumps(list(fields))
        self._database.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?)", row)

    def changes(self) -> Iterator[tuple[bytes | None, bytes | None, list[str]]]:
        """Yield what came out otherwise: the recorded decision, the derived one, and the fields that differ."""
        query = "SELECT before, after, fields FROM changes ORDER BY number"
        for before, after, fields in self._database.execute(query):
            yield before, after, json.loads(fields)

    def forget_results(self) -> None:
        """Forget what was found, to begin again."""
        self._database.execute("DELETE FROM changes")

    def forget_simulated(self) -> None:
        """Forget the decisions of a simulation, which begins anew each time."""
        self._database.execute("DELETE FROM simulated")

    def add_simulated(self, name: str, value: bytes) -> None:
        """Keep a decision of a simulation: people's actions rest on what was published."""
        self._database.execute("INSERT OR REPLACE INTO simulated VALUES (?, ?)", (name, value))

    def simulated(self, name: str) -> bytes | None:
        """Return a decision of the simulation."""
        row = self._database.execute("SELECT value FROM simulated WHERE id = ?", (name,)).fetchone()
        return row[0] if row else None
