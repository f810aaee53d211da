"""Encodes what state stores, and decodes it.

An entry is text, readable with `redis-cli GET`: a header, a line of facts, the payload, and while pending the record;
of a retracted subject, the affected claims. A payload's prefix before a tab is stored once, and named here.

    A 1 1 <fingerprint> <origin> <first origin> <joined to> <scope>/<local id>
    on AP [["id",23,25,"none","A"]]
    0b0e2a7c1f3d<tab>{"t":...

Header: state, tier, revision and so on, `-` if missing; then the timestamp of the latest answered record, if later than
the origin's. Digests are base64 (43 characters for 32 bytes, 22 for 16); an origin is
`topic,partition,offset,timestamp,sha256`. Facts: dedup status (o, f, d), place (n, f, u, t, a), a letter per parent or
`-`, matches; empty parts are omitted. Parent ids are not stored: records with the same fingerprint name the same ones.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from groundwire.checks.dedup.keys import KEY_BYTES
from groundwire.checks.dedup.signature import is_signature
from groundwire.messages.decisions import DedupMatch, MatchClass, ParentFact, Place
from groundwire.messages.identity import digest
from groundwire.state.matching import Indexed
from groundwire.state.model import (
    HeldEntry,
    Outcome,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewRequest,
    SubjectState,
    SubjectStatus,
)
from groundwire.state.workspace import RecordedAction, StoredEntry

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
_STATES: Final = {state.value: state for state in SubjectState}
PARENT_STATES: Final = {state.value: state.name.lower() for state in SubjectState} | {"U": "unknown"}

_STATUS_LETTERS: Final = {name: letter for letter, name in STATUSES.items()}
_PLACE_LETTERS: Final = {place: letter for letter, place in PLACES.items()}
_CLASS_LETTERS: Final = {match_class: letter for letter, match_class in CLASSES.items()}
_PARENT_LETTERS: Final = {name: letter for letter, name in PARENT_STATES.items()}
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_CODE: Final = re.compile(r"[a-z0-9_]*")
_GIVEN_UP: Final = SubjectStatus(SubjectState.REFUSED, 0)


def _read_outcome(
    header: Sequence[str],
    facts: bytes,
    parents: Sequence[str] | None,
    record: bytes,
    **known: Any,  # noqa: ANN401 - the other attributes
) -> Outcome:
    letter, tier, revision, first = header
    marks, _, rest = facts.decode().partition(" ")
    states, _, matches = rest.partition(" ")
    states = "" if states == "-" else states
    # a request that is refused before its record is read names no parents
    names = parents if parents is not None and len(parents) == len(states) else [""] * len(states)
    return Outcome(
        state=_STATES[letter],
        tier=int(tier),
        revision=int(revision),
        first_origin=None if first == "-" else read_origin(first),
        dedup_status=STATUSES[marks[0]],
        place=PLACES[marks[1]],
        matches=[
            DedupMatch(
                subject_id=name, inter=inter, union=union, difference=difference, match_class=CLASSES[letter]
            )
            for name, inter, union, difference, letter in (json.loads(matches) if matches else ())
        ],
        parents=[
            ParentFact(id=parent, state=PARENT_STATES[letter])
            for parent, letter in zip(names, states, strict=True)
        ],
        record=record if letter == SubjectState.PENDING else b"",
        **known,
    )


def read_held(entry: bytes) -> HeldEntry | None:
    """Decode an entry; None if empty, waiting or given up. Raises: ValueError, LookupError."""
    if not entry:
        return None
    header, _, payload, record = entry.split(b"\n", 3)
    letter, _, revision = header.decode().split(" ")[:3]
    state = SubjectState(letter)
    if state is SubjectState.WAITING or not payload:
        return None
    kept = record if state is SubjectState.PENDING else b""
    return HeldEntry(state, int(revision), fingerprint_of(entry), payload, kept)


def read_status(head: bytes) -> SubjectStatus | None:
    """Decode the head of an entry; None if empty or given up. Raises: ValueError."""
    if not head:
        return None
    letter, _, revision = head.decode().split(" ")[:3]
    status = SubjectStatus(SubjectState(letter), int(revision))
    return None if status == _GIVEN_UP else status


def write_place(origin: RecordOrigin) -> bytes:
    """Encode where and when a record was published. Raises: ValueError: the topic is invalid."""
    return b"%b,%d,%d,%d" % (_topic(origin.topic), origin.partition, origin.offset, origin.timestamp)


def write_origin(origin: RecordOrigin) -> bytes:
    """Encode an origin as one word. Raises: ValueError: the topic or the digest is invalid."""
    return write_place(origin) + b"," + _short_sha256(origin.sha256)


@lru_cache(1 << 6)
def _topic(name: str) -> bytes:
    if not name.replace(".", "").replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"not the name of a topic: {name!r}")
    return name.encode()


def read_origin(text: str) -> RecordOrigin:
    topic, partition, offset, timestamp, sha256 = text.split(",")
    return RecordOrigin(topic, int(partition), int(offset), int(timestamp), read_sha256(sha256))


def read_sha256(text: str) -> str:
    return urlsafe_b64decode(text + "=").hex()


@lru_cache(1 << 12)  # a batch names each several times
def short_bytes(data: bytes) -> bytes:
    """Encode a digest as URL-safe base64 without padding."""
    return _base64(data)


def _base64(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_URL_SAFE)


def pack(fields: Sequence[bytes]) -> bytes:
    """Join fields behind their lengths: one argument costs the server a sixth of fourteen."""
    return _lengths(len(fields)).pack(*map(len, fields)) + b"".join(fields)


@lru_cache(1 << 10)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def index_keys(keys: Sequence[bytes]) -> bytes:
    """Join the first 4 bytes of keys; rare collisions cost one comparison. Raises: ValueError: a key is none."""
    joined = b"".join(keys)
    if len(joined) != KEY_BYTES * len(keys):
        raise ValueError(f"a key is {KEY_BYTES} bytes")
    return memoryview(joined).cast("I")[::2].tobytes()


def _short_sha256(text: str) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != 32:
        raise ValueError(f"not the hexadecimal form of a SHA-256: {text!r}")
    return _base64(data)


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


def action_digest(request: ReviewRequest) -> bytes:
    """Return the key of an action; expiries by the gate have keys that no person can use."""
    tenant = request.subject.tenant_id
    if request.action is ReviewAction.EXPIRE:
        return digest(tenant, request.action_id, request.action.value, request.subject.digest.hex())
    return digest(tenant, request.action_id)


def fingerprint_of(entry: bytes) -> str:
    return read_sha256(entry.split(b" ", 4)[3].decode())


def read_digest(text: bytes) -> bytes:
    """Decode 16 bytes from 22 characters."""
    return urlsafe_b64decode(text + b"==")


def read_stored(value: bytes, parents: Sequence[str] | None) -> StoredEntry:
    """Decode an entry with its whole payload; `parents` are the ids in its record, None where nobody asks for them.

    Raises: ValueError, LookupError.
    """
    head, facts, payload, record = value.split(b"\n", 3)
    letter, tier, revision, fingerprint, place, first, joined, index, *answered = head.decode().split(" ")
    state, origin = SubjectState(letter), read_origin(place)
    first_origin = None if first == "-" else read_origin(first)
    outcome = affected = None
    if state is not SubjectState.WAITING and payload:
        known = {"origin": origin, "fingerprint": read_sha256(fingerprint), "payload": payload}
        outcome = _read_outcome((letter, tier, revision, first), facts, parents, record, fresh=False, **known)
    if record and state is SubjectState.BLOCKED:
        total, names = json.loads(record)
        affected = total, names
    scope, _, number = index.partition("/")
    return StoredEntry(
        read_sha256(fingerprint),
        origin,
        int(answered[0]) if answered else origin.timestamp,
        state,
        int(revision),
        first_origin,
        outcome,
        None if joined == "-" else read_digest(joined.encode()),
        None if index == "-" else (read_digest(scope.encode()), int(number)),
        affected,
    )


def write_entry(entry: StoredEntry, payload: bytes) -> bytes:
    """Encode an entry; `payload`: with the name of its prefix. Raises: ValueError: it would break the layout."""
    outcome = entry.outcome
    if outcome is not None and b"\n" in outcome.payload:
        raise ValueError("the payload is more than one line")
    if outcome is not None:
        tier, facts = outcome.tier, _write_facts(outcome)
    else:
        tier, facts = (0, "") if entry.waits else (2, "on")
    scope, number = entry.indexed or (b"", 0)
    head = [
        b"%b %d %d" % (entry.state.encode(), tier, entry.revision),
        _short_sha256(entry.fingerprint),
        write_origin(entry.origin),
        b"-" if entry.first_origin is None else write_origin(entry.first_origin),
        b"-" if entry.joined_to is None else short_bytes(entry.joined_to),
        b"-" if entry.indexed is None else b"%b/%d" % (short_bytes(scope), number),
    ]
    if entry.answered > entry.origin.timestamp:
        head.append(b"%d" % entry.answered)
    record = outcome.record if outcome else b""
    if entry.affected is not None:
        record = json.dumps(entry.affected, ensure_ascii=False, separators=(",", ":")).encode()
    return b"\n".join((b" ".join(head), facts.encode(), payload, record))


def read_member(number: int, member: bytes) -> Indexed:
    """Decode an indexed claim. Raises: ValueError, LookupError."""
    head, _, signature = member.partition(b"\0")
    time, horizon, digest, subject_id = head[1:].split(b" ", 3)
    of = read_digest(digest) if digest else b""
    return Indexed(number, subject_id.decode(), of, CLASSES[chr(head[0])], int(time), int(horizon), signature)


def write_member(claim: Indexed) -> bytes:
    """Encode an indexed claim; joined claims need the digest of a pending one. Raises: ValueError: no signature."""
    if not is_signature(claim.signature):
        raise ValueError("the signature is none")
    digest = short_bytes(claim.digest) if claim.match_class is MatchClass.PENDING else b""
    letter = _CLASS_LETTERS[claim.match_class].encode()
    head = b"%b%d %d %b %b" % (letter, claim.time, claim.horizon, digest, claim.subject_id.encode())
    return head + b"\0" + claim.signature


def read_action(value: bytes) -> RecordedAction:
    """Decode what is recorded of an action. Raises: ValueError, LookupError."""
    subject, action, decisive, place, *outcome = value.decode().split(" ")
    origin = read_origin(place)
    what = (
        read_digest(subject.encode()),
        ReviewAction(action),
        b"" if decisive == "-" else _unshort(decisive),
        origin,
    )
    if outcome[0][0] == "+":
        return RecordedAction(*what, None, int(outcome[0][1:]), SubjectState(outcome[1]))
    current = SubjectStatus(SubjectState(outcome[1]), int(outcome[2])) if outcome[1:] else None
    return RecordedAction(*what, RefusedAction(outcome[0][1:], current, origin.timestamp))


def write_action(action: RecordedAction) -> bytes:
    """Encode what is recorded of an action. Raises: ValueError: a code is none."""
    refused = action.refused
    if refused is None:
        outcome = f"+{action.revision} {action.state}"
    else:
        if not _CODE.fullmatch(refused.code):
            raise ValueError(f"not a code: {refused.code!r}")
        current = refused.current
        outcome = f"-{refused.code}" + (f" {current.state} {current.revision}" if current else "")
    decisive = short_bytes(action.decisive) or b"-"
    what = short_bytes(action.subject), action.action.value.encode(), decisive, write_origin(action.origin)
    return b" ".join((*what, outcome.encode()))


def _unshort(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
