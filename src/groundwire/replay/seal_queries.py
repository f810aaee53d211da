"""SQL of the evidence of seals: its tables, and the queries that follow chains."""

from typing import Final

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS published (
  id TEXT, sha BLOB, topic TEXT, part INTEGER, at INTEGER, time INTEGER, causes TEXT, more TEXT,
  PRIMARY KEY (id, sha, topic, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS superseded (id TEXT, later TEXT, sha BLOB, PRIMARY KEY (id, later, sha)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS published_by_place ON published (topic, part, at);
CREATE TABLE IF NOT EXISTS sealed (
  id TEXT, sha BLOB, topic TEXT, part INTEGER, seal INTEGER, PRIMARY KEY (id, sha, topic, part, seal)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seals (
  number INTEGER PRIMARY KEY, hash TEXT UNIQUE, before TEXT, topic TEXT, part INTEGER, first INTEGER, end INTEGER,
  time INTEGER, key TEXT, audit_at INTEGER, depth INTEGER
);
CREATE INDEX IF NOT EXISTS seals_by_end ON seals (topic, part, end);
CREATE INDEX IF NOT EXISTS seals_by_number ON seals (topic, part);
CREATE INDEX IF NOT EXISTS seals_by_before ON seals (before);
CREATE TABLE IF NOT EXISTS forks (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS dropped (
  hash TEXT PRIMARY KEY, topic TEXT, part INTEGER, end INTEGER, time INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (hash TEXT PRIMARY KEY, topic TEXT, part INTEGER, time INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting (topic TEXT, part INTEGER, at INTEGER, PRIMARY KEY (topic, part, at)) WITHOUT ROWID;
"""

LATER: Final = """
WITH RECURSIVE later (id, sha) AS (
  SELECT later, sha FROM superseded WHERE id = ?
  UNION
  SELECT superseded.later, superseded.sha FROM superseded JOIN later ON superseded.id = later.id
)
SELECT 1 FROM later JOIN sealed USING (id, sha) LIMIT 1
"""
"""Whether a later revision than a decision is sealed."""

FORKS: Final = """
INSERT INTO forks
WITH RECURSIVE chain (number, hash, before) AS (
  SELECT number, hash, before FROM seals WHERE hash = :head AND topic = :topic AND part = :part
  UNION ALL
  SELECT seals.number, seals.hash, seals.before FROM seals JOIN chain ON seals.hash = chain.before
), fork (number, hash) AS (
  SELECT number, hash FROM seals
  WHERE topic = :topic AND part = :part AND number NOT IN (SELECT number FROM chain) AND (
    before IN (SELECT hash FROM chain) AND before <> :head
    OR before IS NULL AND (
      number > (SELECT min(number) FROM chain) OR EXISTS (SELECT 1 FROM chain WHERE before IS NULL)
    )
  )
  UNION ALL
  SELECT seals.number, seals.hash FROM seals JOIN fork ON seals.before = fork.hash
)
SELECT number FROM fork
"""
"""Seals off the chain of a committed head; later ones may be under way."""

UNWITNESSED: Final = """
WITH RECURSIVE held (hash, before) AS (
  SELECT hash, before FROM seals
  WHERE hash IN (SELECT value FROM json_each(:committed)) OR hash IN (SELECT hash FROM heads)
  OR key NOT IN (SELECT value FROM json_each(:ended))
  UNION
  SELECT seals.hash, seals.before FROM seals JOIN held ON seals.hash = held.before
)
SELECT number, topic, part, hash, audit_at FROM seals WHERE hash NOT IN (SELECT hash FROM held)
"""
"""Seals of expired keys that no commit, head or seal of a valid key follows: a thief can date one as it likes."""
