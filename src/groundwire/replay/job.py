"""A replay's job file: what was read, how far it has come, and what it found.

Everything that a replay needs is read from the topics first; after that it asks no service. So it can continue where
it was interrupted, holds no more than a page of records in memory, and gives the same result each time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from groundwire import __version__
from groundwire.errors import UsageError
from groundwire.replay.store import RecordStore, open_database

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts_of_job (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS simulated (id TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, before BLOB, after BLOB, fields TEXT, verdict INTEGER);
"""


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What a replay is to do; a replay that continues a job file has the same order.

    Attributes:
        name: stands in `replay` of every decision that it gives.
        topics: input topics with their prefix.
        start: as `--from` says it.
        end: as `--to` says it.
        policy: canonical JSON of the policy that decides; None: each decision's own.
        simulate: whether duplicates, parents and places are found anew.
        output: file or topic that decisions go to; None: nowhere.
        facts_from: as `--facts-from` says it.
        engine: which derives; another one may decide otherwise, and continues no job of this one.
        layout: of the job file's tables; a job file of another layout is not continued.
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
    layout: int = 4


class Job:
    """A job file.

    Args:
        path: the file; a replay whose file exists continues.
        order: what is to be done.

    Attributes:
        order: what is to be done.
        store: the records and decisions that were read.

    Raises:
        UsageError: the file is no job file, or that of another replay.
    """

    def __init__(self, path: Path, order: ReplayOrder) -> None:
        self.order = order
        try:
            path.touch(mode=0o600)  # it holds what people said
            pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            self._database = open_database(path, f"{pragmas} {_SCHEMA}")
            self.store = RecordStore(self._database)
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
        """Close the file; what was not committed is done again."""
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
        self,
        number: int,
        before: bytes | None,
        after: bytes | None,
        fields: Sequence[str],
        *,
        verdict: bool = False,
    ) -> None:
        """Keep a decision that came out otherwise; `verdict`: with another verdict."""
        row = number, before, after, json.dumps(list(fields)), verdict
        self._database.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?, ?)", row)

    def changes(self) -> Iterator[tuple[bytes | None, bytes | None, list[str]]]:
        """Yield what came out otherwise, other verdicts first: recorded decision, derived one, and fields."""
        query = "SELECT before, after, fields FROM changes ORDER BY verdict DESC, number"
        for before, after, fields in self._database.execute(query):
            yield before, after, json.loads(fields)

    def forget_results(self) -> None:
        """Forget the changes, to begin again."""
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
