"""Encodes requests and loaded outcomes for the scripts, and decodes answers.

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
from dataclasses import replace
from typing import Any, Final

from groundwire.checks.dedup.keys import KEY_BYTES
from groundwire.checks.dedup.signature import Thresholds, is_signature
from groundwire.messages.decisions import DedupMatch, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject, digest
from groundwire.state.model import (
    Conflict,
    DedupQuery,
    GivenUp,
    HeldEntry,
    MatchRules,
    Outcome,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    Reviewed,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectState,
    SubjectStatus,
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
_STATES: Final = {state.value: state for state in SubjectState}
PARENT_STATES: Final = {state.value: state.name.lower() for state in SubjectState} | {"U": "unknown"}

_STATUS_LETTERS: Final = {name: letter for letter, name in STATUSES.items()}
_PLACE_LETTERS: Final = {place: letter for letter, place in PLACES.items()}
_CLASS_LETTERS: Final = {match_class: letter for letter, match_class in CLASSES.items()}
_PARENT_LETTERS: Final = {name: letter for letter, name in PARENT_STATES.items()}
_FLAGS: Final = struct.Struct("<7BcIII")
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
NO_DEDUP: Final = DedupQuery(b"", (), (), b"", MatchRules(Thresholds(0, 0, 0)))
_CODE: Final = re.compile(r"[a-z0-9_]*")
_GIVEN_UP: Final = SubjectStatus(SubjectState.REFUSED, 0)


def write_step(request: StepRequest) -> bytes:
    """Encode a request for step.lua. Raises: ValueError: it would break the layout."""
    query = request.dedup or NO_DEDUP
    status = b"f" if request.dedup_failed else b"o" if request.dedup else b"d"
    check_query(query, request.payload)
    stored = index_keys(query.stored)
    flags = _FLAGS.pack(
        request.base_tier,
        request.capped,
        request.wait,
        request.ordered,
        request.queued,
        query.rules.material_difference,
        query.rules.word_difference,
        status,
        *query.rules.thresholds,
    )
    return flags + pack(
        (
            *_subject_fields(request.subject, request.fingerprint, request.origin),
            b"%d" % request.origin.timestamp,
            b"%d" % request.horizon,
            short_bytes(query.scope),
            stored,
            stored if query.probed is query.stored else index_keys(query.probed),
            query.signature,
            b"".join([short_bytes(parent.digest) for _, parent in request.parents]),
            request.payload,
            request.record if request.queued and request.base_tier < 3 else b"",  # may become pending
        )
    )


def is_place(answer: bytes) -> bool:
    """Return whether step.lua has just given a place."""
    return answer[:2] == b"+P"


def read_answer(request: StepRequest, answer: bytes) -> StepAnswer:
    """Decode an answer of step.lua. Raises: ValueError, LookupError."""
    match answer[:1]:
        case b"!":
            return Conflict()
        case b"W":
            return Waiting(publish=True)
        case b"w":
            return Waiting(publish=False)
        case b"=" if not answer.split(b"\n", 3)[2]:
            return GivenUp()
        case b"=":
            return read_entry(answer[1:], [parent for parent, _ in request.parents], request.fingerprint)
        case b"+":  # what came with the request is not sent back
            header, facts = answer[1:].split(b"\n")
            return _read_outcome(
                header.decode().split(" "),
                facts,
                [parent for parent, _ in request.parents],
                request.record,
                fresh=True,
                origin=request.origin,
                fingerprint=request.fingerprint,
                payload=request.payload,
            )
    raise ValueError("not an answer of the step")


def read_entry(entry: bytes, parents: Sequence[str], fingerprint: str) -> Outcome:
    """Decode a decided entry; `parents` are the ids in its record. Raises: ValueError, LookupError."""
    header, facts, payload, record = entry.split(b"\n", 3)
    letter, tier, revision, _, place, first = header.decode().split(" ")[:6]
    own, origin = (letter, tier, revision, first), read_origin(place)
    known = {"origin": origin, "fingerprint": fingerprint, "payload": payload}
    return _read_outcome(own, facts, parents, record, fresh=False, **known)


def _read_outcome(
    header: Sequence[str],
    facts: bytes,
    parents: Sequence[str],
    record: bytes,
    **known: Any,  # noqa: ANN401 - the other attributes
) -> Outcome:
    letter, tier, revision, first = header
    marks, _, rest = facts.decode().partition(" ")
    states, _, matches = rest.partition(" ")
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
            for parent, letter in zip(parents, "" if states == "-" else states, strict=True)
        ],
        record=record if letter == SubjectState.PENDING else b"",
        **known,
    )


def write_stored(stored: StoredOutcome) -> bytes:
    """Encode an outcome for load.lua. Raises: ValueError: it would break the layout."""
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


def write_review(request: ReviewRequest) -> bytes:
    """Encode an action for review.lua. Raises: ValueError: it would break the layout."""
    if not _CODE.fullmatch(request.refused):
        raise ValueError(f"not a code: {request.refused!r}")
    query = request.dedup or NO_DEDUP
    check_query(query, request.payload)
    status = "f" if request.dedup_failed else "o" if request.dedup else "d"
    subject, rules = request.subject, query.rules
    flags = f"{request.expired:d} {status} {rules.material_difference:d} {rules.word_difference:d}"
    flags += f" {' '.join(map(str, rules.thresholds))}"
    flags += f" {request.horizon} {request.only_recorded:d} {request.forgets:d}"
    return pack(
        (
            short_bytes(subject.digest),
            user_digest(subject).encode(),
            subject.tenant_id.encode(),
            subject.subject_id.encode(),
            write_origin(request.origin),
            short_bytes(action_digest(request)),
            request.action.value.encode(),
            b"%d" % request.expected_revision,
            request.refused.encode(),
            flags.encode(),
            short_bytes(query.scope),
            index_keys(query.stored),
            index_keys(query.probed),
            query.signature,
            b"".join([short_bytes(parent.digest) for _, parent in request.parents]),
            request.payload,
            short_bytes(request.decisive) or b"-",
        )
    )


def read_reviewed(request: ReviewRequest, answer: bytes) -> ReviewAnswer:
    """Decode an answer of review.lua. Raises: ValueError, LookupError."""
    kind, rest = answer[:1], answer[1:]
    if kind == b"-":
        at, code, *current = rest.decode().split(" ", 2)
        return RefusedAction(code, read_status(current[0].encode()) if current else None, int(at))
    if kind not in {b"+", b"*"}:
        raise ValueError("not an answer of a review")
    head, entry = rest.split(b"\n", 1)
    at, revision, letter = head.decode().split(" ")
    outcome = read_entry(entry, [name for name, _ in request.parents], _fingerprint(entry))
    reviewed = Reviewed(int(revision), outcome, fresh=kind == b"*", at=int(at), state=SubjectState(letter))
    if request.action is not ReviewAction.RETRACT:
        return reviewed
    total, affected = json.loads(entry.split(b"\n", 3)[3])
    return replace(reviewed, affected=tuple(affected), affected_total=total)


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
    return HeldEntry(state, int(revision), _fingerprint(entry), payload, kept)


def read_status(text: bytes) -> SubjectStatus | None:
    """Decode a status; None if empty or given up. Raises: ValueError."""
    if not text:
        return None
    letter, revision = text.decode().split(" ")
    status = SubjectStatus(SubjectState(letter), int(revision))
    return None if status == _GIVEN_UP else status


def write_origin(origin: RecordOrigin) -> bytes:
    """Encode an origin as one word. Raises: ValueError: the topic or the digest is invalid."""
    if not origin.topic.replace(".", "").replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"not the name of a topic: {origin.topic!r}")
    place = f"{origin.topic},{origin.partition},{origin.offset},{origin.timestamp},"
    return place.encode() + _short_sha256(origin.sha256)


def read_origin(text: str) -> RecordOrigin:
    topic, partition, offset, timestamp, sha256 = text.split(",")
    return RecordOrigin(topic, int(partition), int(offset), int(timestamp), read_sha256(sha256))


def read_sha256(text: str) -> str:
    return urlsafe_b64decode(text + "=").hex()


def short(data: bytes) -> str:
    """Encode a digest as URL-safe base64 without padding."""
    return short_bytes(data).decode()


def user_digest(subject: Subject) -> str:
    return short(digest(subject.tenant_id, subject.user_id))


def short_bytes(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_URL_SAFE)


def pack(fields: Sequence[bytes]) -> bytes:
    """Join length-prefixed fields: one argument costs the server a sixth of fourteen."""
    parts: list[bytes] = []
    for field in fields:
        parts += len(field).to_bytes(4, "little"), field
    return b"".join(parts)


def index_keys(keys: Sequence[bytes]) -> bytes:
    """Join the first 4 bytes of keys; rare collisions cost one comparison."""
    return b"".join([key[:4] for key in keys])


def check_query(query: DedupQuery, payload: bytes) -> None:
    """Raise ValueError if payload, a key or the signature breaks the layout."""
    if b"\n" in payload:
        raise ValueError("the payload is more than one line")
    if {*map(len, query.stored), *map(len, query.probed)} - {KEY_BYTES}:
        raise ValueError(f"a key is {KEY_BYTES} bytes")
    if query is not NO_DEDUP and not is_signature(query.signature):
        raise ValueError("the signature is none")


def _subject_fields(subject: Subject, fingerprint: str, origin: RecordOrigin) -> tuple[bytes, ...]:
    return (
        short_bytes(subject.digest),
        user_digest(subject).encode(),
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


def _fingerprint(entry: bytes) -> str:
    return read_sha256(entry.split(b" ", 4)[3].decode())
