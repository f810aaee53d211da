-- One row a subject: its highest revision, as lists show it.
CREATE TABLE IF NOT EXISTS items (
    id INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    current INTEGER,                     -- decisions.id
    revision INTEGER NOT NULL DEFAULT -1,
    decision_id TEXT,
    topic TEXT,
    reason_code TEXT,
    source TEXT,
    memory_type TEXT,
    risk INTEGER,
    since_ms INTEGER,
    excerpt TEXT,
    placed INTEGER NOT NULL DEFAULT 0,   -- whether the current revision has a place in the queue
    dropped INTEGER NOT NULL DEFAULT -1, -- the revision that state does not hold as pending
    pending INTEGER NOT NULL DEFAULT 0,  -- placed, and not dropped
    UNIQUE (tenant_id, user_id, kind, subject_id)
);
CREATE INDEX IF NOT EXISTS items_by_risk ON items (risk, since_ms, decision_id) WHERE pending = 1;
CREATE INDEX IF NOT EXISTS items_by_age ON items (since_ms, decision_id) WHERE pending = 1;
CREATE INDEX IF NOT EXISTS items_by_owner ON items (tenant_id, user_id) WHERE pending = 1;
CREATE INDEX IF NOT EXISTS items_placed ON items (id) WHERE placed = 1;
CREATE INDEX IF NOT EXISTS items_by_user ON items (user_id) WHERE pending = 1;
CREATE INDEX IF NOT EXISTS items_by_topic ON items (topic, since_ms, decision_id);
CREATE INDEX IF NOT EXISTS items_by_source ON items (tenant_id, source, topic, reason_code, user_id);

-- Every revision, compressed as published.
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY,
    item INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    decision_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    reason_code TEXT NOT NULL,
    source TEXT,
    memory_type TEXT,
    decided_ms INTEGER NOT NULL,
    excerpt TEXT NOT NULL,
    placed INTEGER NOT NULL,
    action TEXT,
    reviewer TEXT,
    review_reason TEXT,
    value BLOB NOT NULL,
    UNIQUE (item, revision, decision_id)
);
CREATE INDEX IF NOT EXISTS decisions_by_id ON decisions (decision_id);
CREATE INDEX IF NOT EXISTS decisions_of_people ON decisions (decided_ms) WHERE action IS NOT NULL;

-- Texts by items.id; those of items that are not pending apart, so that a search of the queue does not skip them.
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE IF NOT EXISTS texts_of_others USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2');

-- What each approved claim rests on: a row for each name in its `derived_from`.
CREATE TABLE IF NOT EXISTS rests (
    tenant_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,                  -- of what it rests on
    claim TEXT NOT NULL,                 -- which claim
    PRIMARY KEY (tenant_id, user_id, name, claim)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rests_by_claim ON rests (tenant_id, user_id, claim);

-- What rested on an item when it was retracted, as its Retraction tells: claims that the board may not hold.
CREATE TABLE IF NOT EXISTS retractions (
    tenant_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,                  -- of what was retracted
    at_ms INTEGER NOT NULL,
    claims TEXT NOT NULL,                -- JSON, a list of claim ids
    more INTEGER NOT NULL,               -- claims beside those that are named
    PRIMARY KEY (tenant_id, user_id, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS retractions_by_time ON retractions (at_ms);

CREATE TABLE IF NOT EXISTS actions (
    tenant_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    action_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    applied INTEGER NOT NULL,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL,
    decision_id TEXT,                    -- that the action made, or that a comment is about
    PRIMARY KEY (tenant_id, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS actions_by_id ON actions (tenant_id, action_id);
CREATE INDEX IF NOT EXISTS actions_by_subject ON actions (tenant_id, user_id, kind, subject_id);

-- What people wrote to their actions; shown where the gate took the action.
CREATE TABLE IF NOT EXISTS notes (
    tenant_id TEXT NOT NULL,
    action_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (tenant_id, action_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS notes_by_time ON notes (at_ms);

CREATE TABLE IF NOT EXISTS dead_letters (
    id INTEGER PRIMARY KEY,
    at_partition INTEGER NOT NULL,
    at_offset INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER,
    "offset" INTEGER,
    tenant_id TEXT,
    user_id TEXT,
    excerpt TEXT NOT NULL,
    UNIQUE (at_partition, at_offset)
);
CREATE INDEX IF NOT EXISTS dead_letters_by_time ON dead_letters (at_ms, at_partition, at_offset);

-- How far each partition was read, and from when on what can be forgotten is held.
CREATE TABLE IF NOT EXISTS read_to (
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (since_ms INTEGER NOT NULL);

-- Up to when users were erased.
CREATE TABLE IF NOT EXISTS erased (
    tenant_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id, until_ms)
) WITHOUT ROWID;
