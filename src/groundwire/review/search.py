"""Search in texts: words a person typed, turned into something that SQLite cannot misread."""

from __future__ import annotations

import sqlite3
import unicodedata
from typing import Final

from groundwire.review.sql import statement

PENDING: Final = "texts"
OTHERS: Final = "texts_of_others"
"""Of what waits for nobody: a search of the queue does not have to pass over it."""
_MAX_WORDS: Final = 20
_MAX_LETTERS: Final = 100
_WORD: Final = ("L", "N")
"""Categories of characters of which the tokenizer of FTS5 makes words."""
_ALONE: Final = (
    (0x2E80, 0x9FFF),
    (0xAC00, 0xD7AF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Scripts written without spaces: each character counts as a word."""


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Say whether this SQLite can search texts by an index."""
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(text)")
        connection.execute("DROP TABLE temp.probe")
    except sqlite3.OperationalError:
        return False
    return True


def create(connection: sqlite3.Connection, *, fts: bool) -> None:
    """Create the tables of texts: an index each, or where there is no FTS5 plain text."""
    for table in (PENDING, OTHERS):
        if fts:
            options = "USING fts5(text, tokenize='unicode61 remove_diacritics 2')"
            connection.execute(statement("CREATE VIRTUAL TABLE IF NOT EXISTS", table, options))
        else:
            columns = "(rowid INTEGER PRIMARY KEY, text TEXT NOT NULL)"
            connection.execute(statement("CREATE TABLE IF NOT EXISTS", table, columns))


def put(connection: sqlite3.Connection, item: int, text: str, *, pending: bool) -> None:
    """Let an item be found by a text, and by no other."""
    drop(connection, item)
    into = statement("INSERT INTO", PENDING if pending else OTHERS, "(rowid, text) VALUES (?, ?)")
    connection.execute(into, (item, searchable(text)))


def move(connection: sqlite3.Connection, item: int, *, pending: bool) -> None:
    """Let an item be found among what is pending, or among the others, by the text that it has."""
    to, of = (PENDING, OTHERS) if pending else (OTHERS, PENDING)
    copy = statement("INSERT INTO", to, "(rowid, text) SELECT rowid, text FROM", of, "WHERE rowid = ?")
    connection.execute(copy, (item,))
    connection.execute(statement("DELETE FROM", of, "WHERE rowid = ?"), (item,))


def drop(connection: sqlite3.Connection, item: int) -> None:
    """Let an item be found no more."""
    for table in (PENDING, OTHERS):
        connection.execute(statement("DELETE FROM", table, "WHERE rowid = ?"), (item,))


def searchable(text: str) -> str:
    """Return a text as it is stored for search: compatibility forms folded, controls and surrogates left out."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return folded.replace("\x00", " ")
    return "".join(_spaced(char) for char in folded)


def condition(typed: str, *, fts: bool, table: str = PENDING) -> tuple[str, list[str]] | None:
    """Return the SQL condition on `items.id` that finds what a person typed, with its parameters.

    Every word is a quoted string to FTS5, so that none of it is an operator. None for blank text; text without
    a letter or digit finds nothing.
    """
    if not typed.strip():
        return None
    found = [
        part
        for part in searchable(typed[: _MAX_WORDS * _MAX_LETTERS]).split()
        if any(unicodedata.category(char)[0] in _WORD for char in part)
    ]
    words = [word[:_MAX_LETTERS] for word in found[:_MAX_WORDS]]
    if not words:
        return "0", []
    if fts:
        quoted = [f'"{word.replace(chr(34), " ")}"*' for word in words]
        matching = statement("items.id IN (SELECT rowid FROM", table, "WHERE", table, "MATCH ?)")
        return matching, [" ".join(quoted)]
    each = " AND ".join(["instr(text, ?)"] * len(words))
    return statement("items.id IN (SELECT rowid FROM", table, "WHERE", each, ")"), words


def _spaced(char: str) -> str:
    category = unicodedata.category(char)
    if category in {"Cc", "Cs", "Cn"}:
        return " "
    code = ord(char)
    return f" {char} " if any(first <= code <= last for first, last in _ALONE) else char
