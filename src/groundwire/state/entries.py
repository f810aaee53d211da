"""How asks, answers and loaded outcomes are written for the scripts, and read back.

The entry of a subject is text, so that `redis-cli GET` shows it: a header line, a line of facts, the
payload's line, and while the subject is pending the record; of a retracted one, whom it affected. Of the payload's
line, what stands before a tab is kept once for all entries that have it alike, and stands here by its name.

    A 1 1 <fingerprint> <origin> <first origin> <joined to> <scope>/<local id>
    on AP [["id",23,25,"none","A"]]
    0b0e2a7c1f3d<tab>{"t":...

Header: state, tier, revision, and `-` for what there is not; behind it the timestamp of the latest record that was
answered, where that is later than the origin's. Digests of 32 bytes stand as 43 characters of
base64, those of 16 bytes as 22; an origin is `topic,partition,offset,timestamp,sha256`. Facts: the status of
deduplication (o, f, d) and the queue's answer (n, f, u, t, a), then a letter for each parent or `-`, then the
matches; what is empty is left out. Ids of parents are not kept: a record with the same fingerprint names the
same ones.
"""

from __future__ import annotations

import json
import struct
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

from groundwire.checks.dedup_keys import KEY_BYTES
from groundwire.checks.difference import HEADER_BYTES, ID_BYTES
from groundwire.messages.decisions import DedupMatch, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject, digest
from groundwire.state.model import (
    Answer,
    Ask,
    Conflict,
    DedupQuery,
    GivenUp,
    Outcome,
    RecordOrigin,
    StoredOutcome,
    SubjectState,
    Waiting,
)

Argument = bytes | str | int

STATUSES: Final = {"o": "ok", "f": "failed", "d": "disabled"}
PLACES: Final = {
    "n": Place.NOT_NEEDED,
    "f": Place.FREE,
    "u": Place.USER_FULL,
    "t": Place.TENANT_FULL,
    "a": Place.TOTAL_FULL,
}
CLASSES: Final = {"A": MatchClass.APPROVED, "P": MatchClass.PENDING, "X": MatchClass.REJECTED}
PARENT_STATES: Final = {state.value: state.name.lower() for state in SubjectState} | {"U": "unknown"}

_STATUS_LETTERS: Final = {name: letter for letter, name in STATUSES.items()}
_PLACE_LETTERS: Final = {place: letter for letter, place in PLACES.items()}
_CLASS_LETTERS: Final = {match_class: letter for letter, match_class in CLASSES.items()}
_PARENT_LETTERS: Final = {name: letter for letter, name in PARENT_STATES.items()}
_FLAGS: Final = struct.Struct("<6BcI")
_INDEX_KEY: Final = 4
_LENGTH: Final = struct.Struct("<I")
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
NO_DEDUP: Final = DedupQuery(b"", (), (), b"", 0, material_difference=False)


def write_ask(ask: Ask) -> bytes:
    """Return what step.lua reads of a claim or response.

    Raises:
        ValueError: The ask would break the layout.
    """
    query = ask.dedup or NO_DEDUP
    status = b"f" if ask.dedup_failed else b"o" if ask.dedup else b"d"
    check_query(query, ask.payload)
    flags = _FLAGS.pack(
        ask.base_tier,
        ask.capped,
        ask.wait,
        ask.ordered,
        ask.queued,
        query.material_difference,
        status,
        query.threshold_parts,
    )
    return flags + pack(
        (
            *_subject_fields(ask.subject, ask.fingerprint, ask.origin),
            b"%d" % ask.origin.timestamp,
            b"%d" % ask.horizon,
            short_bytes(query.scope),
            index_keys(query.stored),
            index_keys(query.probed),
            query.signature,
            b"".join([short_bytes(parent.digest) for _, parent in ask.parents]),
            ask.payload,
            ask.record if ask.queued and ask.base_tier < 3 else b"",  # only what may be pending needs it
        )
    )


def read_answer(ask: Ask, answer: bytes) -> Answer:
    """Read what step.lua answers for a claim or response.

    Raises:
        ValueError: (and LookupError) where it is no such answer.
    """
    match answer[:1]:
        case b"!":
            return Conflict()
        case b"W":
            return Waiting(publish=True)
        case b"w":
            return Waiting(publish=False)
        case b"=" if not answer.split(b"\n", 3)[2]:
            return GivenUp()
        case b"+":
            return _read_fresh(ask, answer[1:])
        case b"=":
            parents = [parent for parent, _ in ask.parents]
            return read_entry(answer[1:], parents, ask.fingerprint)
    raise ValueError("not an answer of the step")


def read_entry(entry: bytes, parents: Sequence[str], fingerprint: str) -> Outcome:
    """Read the entry of a decided subject; `parents` are the ids that its record names.

    Raises:
        ValueError: (and LookupError) where it is no entry, or of a record that names other parents.
    """
    header, facts, payload, record = entry.split(b"\n", 3)
    letter, tier, revision, _, origin, first = header.decode().split(" ")[:6]
    state = SubjectState(letter)
    status, place, matches, facts_of_parents = _read_facts(facts, parents)
    return Outcome(
        state=state,
        tier=int(tier),
        revision=int(revision),
        fresh=False,
        origin=read_origin(origin),
        first_origin=_read_first(first),
        fingerprint=fingerprint,
        dedup_status=status,
        matches=matches,
        parents=facts_of_parents,
        place=place,
        payload=payload,
        record=record if state is SubjectState.PENDING else b"",
    )


def _read_fresh(ask: Ask, answer: bytes) -> Outcome:
    """Read what the step has decided; what came with the ask is not sent back."""
    header, facts = answer.split(b"\n")
    letter, tier, revision, first = header.decode().split(" ")
    state = SubjectState(letter)
    status, place, matches, parents = _read_facts(facts, [parent for parent, _ in ask.parents])
    return Outcome(
        state=state,
        tier=int(tier),
        revision=int(revision),
        fresh=True,
        origin=ask.origin,
        first_origin=_read_first(first),
        fingerprint=ask.fingerprint,
        dedup_status=status,
        matches=matches,
        parents=parents,
        place=place,
        payload=ask.payload,
        record=ask.record if state is SubjectState.PENDING else b"",
    )


def write_stored(stored: StoredOutcome) -> bytes:
    """Return what load.lua reads of an outcome.

    Raises:
        ValueError: The outcome would break the layout.
    """
    outcome, query = stored.outcome, stored.dedup or NO_DEDUP
    check_query(query, outcome.payload)
    match_class = stored.match_class
    return pack(
        (
            *_subject_fields(stored.subject, outcome.fingerprint, outcome.origin),
            outcome.state.value.encode(),
            b"%d" % outcome.tier,
            b"%d" % outcome.revision,
            b"-" if outcome.first_origin is None else write_origin(outcome.first_origin),
            b"-" if stored.joined_to is None else short_bytes(stored.joined_to.digest),
            _write_facts(outcome).encode(),
            outcome.payload,
            outcome.record,
            short_bytes(query.scope),
            index_keys(query.stored),
            query.signature,
            b"%d" % stored.horizon,
            b"" if match_class is None else _CLASS_LETTERS[match_class].encode(),
            b"%d" % outcome.origin.timestamp,
            b"".join([short_bytes(parent.digest) for parent in stored.parents]),
            b"%d" % stored.by_people,
        )
    )


def write_origin(origin: RecordOrigin) -> bytes:
    """Write an origin as one word.

    Raises:
        ValueError: The topic's name is none that Kafka allows, or the digest is no SHA-256.
    """
    if not origin.topic.replace(".", "").replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"not the name of a topic: {origin.topic!r}")
    place = f"{origin.topic},{origin.partition},{origin.offset},{origin.timestamp},"
    return place.encode() + _short_sha256(origin.sha256)


def read_origin(text: str) -> RecordOrigin:
    """Read what `write_origin` wrote."""
    topic, partition, offset, timestamp, sha256 = text.split(",")
    return RecordOrigin(topic, int(partition), int(offset), int(timestamp), read_sha256(sha256))


def read_sha256(text: str) -> str:
    """Read the 43 characters that stand for a SHA-256; return its hexadecimal form."""
    return urlsafe_b64decode(text + "=").hex()


def short(data: bytes) -> str:
    """Write a digest as base64 that is safe in a key, without padding."""
    return short_bytes(data).decode()


def user_digest(subject: Subject) -> str:
    """Return the name under which the waiting claims and the places of a user are kept."""
    return short(digest(subject.tenant_id, subject.user_id))


def short_bytes(data: bytes) -> bytes:
    """As `short`, in bytes."""
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_URL_SAFE)


def pack(fields: Sequence[bytes]) -> bytes:
    """Join fields, each behind its length of 4 bytes: one argument costs the server a sixth of fourteen."""
    return b"".join([part for field in fields for part in (_LENGTH.pack(len(field)), field)])


def index_keys(keys: Sequence[bytes]) -> bytes:
    """Join keys as the index has them: 4 bytes tell those of one scope apart, and a mix-up costs a needless look."""
    return b"".join([key[:_INDEX_KEY] for key in keys])


def check_query(query: DedupQuery, payload: bytes) -> None:
    """Check what the layout rests on.

    Raises:
        ValueError: the payload, a key or the signature is none.
    """
    if b"\n" in payload:
        raise ValueError("the payload is more than one line")
    if any(len(key) != KEY_BYTES for keys in (query.stored, query.probed) for key in keys):
        raise ValueError(f"a key is {KEY_BYTES} bytes")
    if query is not NO_DEDUP and (len(query.signature) - HEADER_BYTES) % ID_BYTES:
        raise ValueError("the signature is none")


def _subject_fields(subject: Subject, fingerprint: str, origin: RecordOrigin) -> tuple[bytes, ...]:
    return (
        short_bytes(subject.digest),
        short_bytes(digest(subject.tenant_id, subject.user_id)),
        subject.tenant_id.encode(),
        subject.subject_id.encode(),
        _short_sha256(fingerprint),
        write_origin(origin),
    )


def _short_sha256(text: str) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != 32:
        raise ValueError(f"not the hexadecimal form of a SHA-256: {text!r}")
    return short_bytes(data)


def _read_first(text: str) -> RecordOrigin | None:
    return None if text == "-" else read_origin(text)


def _read_facts(line: bytes, parents: Sequence[str]) -> tuple[str, Place, list[DedupMatch], list[ParentFact]]:
    """Return the status of deduplication, the queue's answer, the matches, and where the parents stood."""
    marks, _, rest = line.decode().partition(" ")
    states, _, matches = rest.partition(" ")
    return (
        STATUSES[marks[0]],
        PLACES[marks[1]],
        [
            DedupMatch(
                subject_id=name, inter=inter, union=union, difference=difference, match_class=CLASSES[letter]
            )
            for name, inter, union, difference, letter in (json.loads(matches) if matches else ())
        ],
        [
            ParentFact(id=parent, state=PARENT_STATES[letter])
            for parent, letter in zip(parents, "" if states == "-" else states, strict=True)
        ],
    )


def _write_facts(outcome: Outcome) -> str:
    marks = _STATUS_LETTERS[outcome.dedup_status] + _PLACE_LETTERS[outcome.place]
    parents = "".join([_PARENT_LETTERS[parent.state] for parent in outcome.parents])
    matches = [
        [match.subject_id, match.inter, match.union, match.difference, _CLASS_LETTERS[match.match_class]]
        for match in outcome.matches
    ]
    if matches:
        return f"{marks} {parents or '-'} {json.dumps(matches, ensure_ascii=False, separators=(',', ':'))}"
    return f"{marks} {parents}" if parents else marks
