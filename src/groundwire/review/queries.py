"""SQL of the board: text search and pages by cursor, joined from constants; all input is bound as parameters."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import Query, Row, Sort, risk_at, risk_of
from groundwire.review.permissions import ViewScope

SqlValue = str | int


def statement(*parts: str) -> str:
    return " ".join(parts)


@dataclass(slots=True)
class Where:
    """A conjunction; text reaches SQL as parameters only."""

    terms: list[str] = field(default_factory=list)
    values: list[SqlValue] = field(default_factory=list)

    def copy(self) -> Where:
        return Where(list(self.terms), list(self.values))

    def add(self, term: str, *values: SqlValue) -> Where:
        self.terms.append(term)
        self.values += [bindable(value) for value in values]
        return self

    def equals(self, column: str, value: str | None) -> Where:
        """Add an equality; None: no condition."""
        return self if value is None else self.add(f"{column} = ?", value)

    @property
    def sql(self) -> str:
        return "WHERE " + (" AND ".join(self.terms) or "1")


def bindable(value: SqlValue) -> SqlValue:
    """Return a value that SQLite accepts; lone surrogates match nothing."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


PENDING: Final = "texts"
OTHERS: Final = "texts_of_others"
_MAX_WORDS: Final = 20
_MAX_LETTERS: Final = 100
_TELLING: Final = 4
"""Letters of a word that texts are found by: shorter ones stand in most."""
_MAX_ANY: Final = 12
_WORD: Final = ("L", "N")
"""Categories of characters of which the tokenizer of FTS5 makes words."""
_ALONE: Final = (
    (0x2E80, 0x9FFF),
    (0xAC00, 0xD7AF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Scripts written without spaces: each character counts as a word."""


def put(connection: sqlite3.Connection, item: int, text: str, *, pending: bool) -> None:
    drop(connection, item)
    into = statement("INSERT INTO", PENDING if pending else OTHERS, "(rowid, text) VALUES (?, ?)")
    connection.execute(into, (item, searchable(text)))


def move(connection: sqlite3.Connection, item: int, *, pending: bool) -> None:
    to, of = (PENDING, OTHERS) if pending else (OTHERS, PENDING)
    copy = statement("INSERT INTO", to, "(rowid, text) SELECT rowid, text FROM", of, "WHERE rowid = ?")
    connection.execute(copy, (item,))
    connection.execute(statement("DELETE FROM", of, "WHERE rowid = ?"), (item,))


def drop(connection: sqlite3.Connection, item: int) -> None:
    for table in (PENDING, OTHERS):
        connection.execute(statement("DELETE FROM", table, "WHERE rowid = ?"), (item,))


def searchable(text: str) -> str:
    """Normalise a text for search: compatibility forms folded, controls and surrogates removed."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return folded.replace("\x00", " ")
    spaced = []
    for char in folded:
        if unicodedata.category(char) in {"Cc", "Cs", "Cn"}:
            spaced.append(" ")
        else:
            alone = any(first <= ord(char) <= last for first, last in _ALONE)
            spaced.append(f" {char} " if alone else char)
    return "".join(spaced)


def containing(where: Where, typed: str, table: str = PENDING) -> Where:
    """Add a typed search to a condition on items.

    Every word is a quoted string to FTS5, so that none is an operator. Blank text adds nothing; text without a letter
    or digit finds nothing.
    """
    if not typed.strip():
        return where
    found = [
        part
        for part in searchable(typed[: _MAX_WORDS * _MAX_LETTERS]).split()
        if any(unicodedata.category(char)[0] in _WORD for char in part)
    ]
    words = [word[:_MAX_LETTERS] for word in found[:_MAX_WORDS]]
    if not words:
        return where.add("0")
    matching = statement("items.id IN (SELECT rowid FROM", table, "WHERE", table, "MATCH ?)")
    return where.add(matching, " ".join(f'"{word.replace(chr(34), " ")}"*' for word in words))


def any_word(text: str) -> str | None:
    """Return an FTS5 query for any of a text's longest words; None where it has none."""
    found = dict.fromkeys(re.findall(r"\w+", searchable(text[: _MAX_WORDS * _MAX_LETTERS])))
    words = sorted((word for word in found if len(word) >= _TELLING), key=lambda word: -len(word))
    return " OR ".join(f'"{word[:_MAX_LETTERS]}"' for word in words[:_MAX_ANY]) or None


COLUMNS: Final = (
    "items.decision_id, items.revision, items.tenant_id, items.user_id, items.kind, items.subject_id,"
    " items.topic, items.reason_code, items.source, items.memory_type, items.since_ms, items.excerpt,"
    " items.risk"
)
WIDTH: Final = 13
"""How many columns `COLUMNS` are: the fields of a Row, in order."""
_INT64: Final = 2**63


def seen(scope: ViewScope, where: Where | None = None, table: str = "items") -> Where:
    where = where or Where()
    whole, own = sorted(scope.whole), sorted(scope.own)
    # + keeps SQLite from gathering a whole tenant by owner and sorting it, where an index has the order already
    column = f"+{table}.tenant_id" if whole else f"{table}.tenant_id"
    among = statement(column, "IN (SELECT value FROM json_each(?))")
    if not whole:
        return where.add(f"{table}.user_id = ?", scope.person).add(among, json.dumps(own))
    term = f"({among} OR ({table}.user_id = ? AND {among}))"
    return where.add(term, json.dumps(whole), scope.person, json.dumps(own))


def filtered(where: Where, query: Query, now: datetime) -> Where:
    if query.reason is not None:  # what a list shows of an item is its gravest reason
        risk = risk_of(query.reason).rank
        where.add("(items.reason_code = ? OR (items.risk = ? AND items.risk > 0))", query.reason, risk)
    where.equals("items.tenant_id", query.tenant)
    where.equals("items.user_id", query.user).equals("items.source", query.source)
    where.equals("items.memory_type", query.memory_type)
    where.equals("items.kind", None if query.kind is None else str(query.kind))
    milliseconds = to_milliseconds(now)
    if query.min_age is not None:
        where.add("items.since_ms <= ?", _clamped(milliseconds - query.min_age.total_seconds() * 1000))
    if query.max_age is not None:
        where.add("items.since_ms >= ?", _clamped(milliseconds - query.max_age.total_seconds() * 1000))
    return containing(where, query.text)


_ORDERS: Final[dict[Sort, tuple[tuple[str, ...], str]]] = {
    "risk": (("items.risk", "items.since_ms", "items.decision_id"), ">"),
    "oldest": (("items.since_ms", "items.decision_id"), ">"),
    "newest": (("items.since_ms", "items.decision_id"), "<"),
}


def ordered(where: Where, sort: Sort, cursor: str | None) -> str:
    """Add what comes after the cursor; return the ORDER BY clause. Raises: ValueError."""
    return beside(where, sort, None if cursor is None else read_cursor(cursor, len(_ORDERS[sort][0])))


def beside(where: Where, sort: Sort, key: Sequence[SqlValue] | None, *, before: bool = False) -> str:
    """Add what comes after a key, or before it; return the ORDER BY clause that leads away from it."""
    columns, beyond = _ORDERS[sort]
    if before:
        beyond = "<" if beyond == ">" else ">"
    if key is not None:
        where.add(f"({', '.join(columns)}) {beyond} ({', '.join('?' * len(columns))})", *key)
    direction = " DESC" if beyond == "<" else ""
    return "ORDER BY " + ", ".join(column + direction for column in columns)


def sort_key(sort: Sort) -> str:
    return ", ".join(_ORDERS[sort][0])


def cursor_after(row: Row, sort: Sort) -> str:
    """Return the cursor of a page that begins after a row."""
    key: dict[str, SqlValue] = {
        "items.risk": row.risk.rank,
        "items.since_ms": to_milliseconds(row.since),
        "items.decision_id": row.decision_id,
    }
    return make_cursor([key[column] for column in _ORDERS[sort][0]])


def make_cursor(key: Sequence[SqlValue]) -> str:
    """Return the sort key at which a page ended, as text for a URL; it holds no text of claims."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode()


def read_cursor(cursor: str, length: int) -> list[SqlValue]:
    """Parse a cursor: integers, and an id at the end. Raises: ValueError."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != length or not isinstance(key[-1], str):
        raise ValueError("cursor: is not one that a page ended with")
    if not all(type(part) is int and -_INT64 <= part < _INT64 for part in key[:-1]):
        raise ValueError("cursor: is not one that a page ended with")
    return key


def as_row(found: Sequence[Any]) -> Row:
    decision_id, revision, tenant, user, kind, subject, topic, reason, source, memory, since, text, risk = (
        found[:WIDTH]
    )
    named, at = (decision_id, revision, tenant, user, Kind(kind), subject), from_milliseconds(since)
    return Row(*named, Verdict(topic), reason, source, memory, at, text, risk_at(risk))


def _clamped(milliseconds: float) -> int:
    return int(max(-(2.0**62), min(2.0**62, milliseconds)))
