"""How actions of people are written for review.lua, and how its answers and the entries of subjects are read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from groundwire.messages.identity import digest
from groundwire.state.entries import (
    NO_DEDUP,
    check_query,
    index_keys,
    pack,
    read_entry,
    read_sha256,
    short_bytes,
    user_digest,
    write_origin,
)
from groundwire.state.model import (
    HeldEntry,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewAsk,
    Reviewed,
    Standing,
    SubjectState,
)

_CODE: Final = re.compile(r"[a-z0-9_]*")
_GIVEN_UP: Final = Standing(SubjectState.REFUSED, 0)


def write_review(ask: ReviewAsk) -> bytes:
    """Return what review.lua reads of an action.

    Raises:
        ValueError: The ask would break the layout.
    """
    if not _CODE.fullmatch(ask.refused):
        raise ValueError(f"not a code: {ask.refused!r}")
    query = ask.dedup or NO_DEDUP
    check_query(query, ask.payload)
    status = "f" if ask.dedup_failed else "o" if ask.dedup else "d"
    flags = f"{ask.expired:d} {status} {query.material_difference:d} {query.threshold_parts} {ask.horizon}"
    flags += f" {ask.only_recorded:d} {ask.forgets:d}"
    subject = ask.subject
    return pack(
        (
            short_bytes(subject.digest),
            user_digest(subject).encode(),
            subject.tenant_id.encode(),
            subject.subject_id.encode(),
            write_origin(ask.origin),
            short_bytes(_action_digest(ask)),
            ask.action.value.encode(),
            b"%d" % ask.expected_revision,
            ask.refused.encode(),
            flags.encode(),
            short_bytes(query.scope),
            index_keys(query.stored),
            index_keys(query.probed),
            query.signature,
            b"".join([short_bytes(parent.digest) for _, parent in ask.parents]),
            ask.payload,
            short_bytes(ask.decisive) or b"-",
        )
    )


def read_reviewed(ask: ReviewAsk, answer: bytes) -> ReviewAnswer:
    """Read what review.lua answers for an action.

    Raises:
        ValueError: (and LookupError) where it is no such answer.
    """
    kind, rest = answer[:1], answer[1:]
    if kind == b"-":
        at, code, *current = rest.decode().split(" ", 2)
        return RefusedAction(code, read_standing(current[0].encode()) if current else None, int(at))
    if kind not in {b"+", b"*"}:
        raise ValueError("not an answer of a review")
    head, entry = rest.split(b"\n", 1)
    at, revision, letter = head.decode().split(" ")
    outcome = read_entry(entry, [name for name, _ in ask.parents], _fingerprint(entry))
    reviewed = Reviewed(int(revision), outcome, fresh=kind == b"*", at=int(at), state=SubjectState(letter))
    if ask.action is not ReviewAction.RETRACT:
        return reviewed
    total, affected = json.loads(entry.split(b"\n", 3)[3])
    return replace(reviewed, affected=tuple(affected), affected_total=total)


def read_held(entry: bytes) -> HeldEntry | None:
    """Read an entry; None where it is empty, its subject waits, or its record was given up.

    Raises:
        ValueError: (and LookupError) where it is no entry.
    """
    if not entry:
        return None
    header, _, payload, record = entry.split(b"\n", 3)
    state, _, revision = header.decode().split(" ")[:3]
    standing = Standing(SubjectState(state), int(revision))
    if standing.state is SubjectState.WAITING or not payload:
        return None
    return HeldEntry(
        state=standing.state,
        revision=standing.revision,
        fingerprint=_fingerprint(entry),
        payload=payload,
        record=record if standing.state is SubjectState.PENDING else b"",
    )


def read_standing(text: bytes) -> Standing | None:
    """Read a state and a revision; None where there is neither, or no decision: the record was given up.

    Raises:
        ValueError: where it is no standing.
    """
    if not text:
        return None
    letter, revision = text.decode().split(" ")
    standing = Standing(SubjectState(letter), int(revision))
    return None if standing == _GIVEN_UP else standing


def _action_digest(ask: ReviewAsk) -> bytes:
    """Return the name of what became of an action; the gate's own expiries have names that no person can take."""
    tenant = ask.subject.tenant_id
    if ask.action is ReviewAction.EXPIRE:
        return digest(tenant, ask.action_id, ask.action.value, ask.subject.digest.hex())
    return digest(tenant, ask.action_id)


def _fingerprint(entry: bytes) -> str:
    return read_sha256(entry.split(b" ", 4)[3].decode())
