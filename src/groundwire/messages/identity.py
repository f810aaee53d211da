"""Who a record is: subjects, fingerprints and the ids of what is published."""

from __future__ import annotations

import hashlib
import uuid
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from groundwire.messages.base import InputRecord, canonical_json, sha256_hex
from groundwire.messages.decisions import Decision, Kind

NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:groundwire:decision")

_BEGUN: Final = hashlib.sha1(NAMESPACE.bytes, usedforsecurity=False)

_NOT_DECISIVE: Final = {"metadata", "captured_at", "schema_version"}
"""Fields that may differ between two sendings of the same record: they do not decide it."""


class _Ids(NamedTuple):
    tenant_id: str
    user_id: str
    kind: Kind
    subject_id: str


class Subject(_Ids):
    """The identity of what is decided: one claim or response of one user of one tenant."""

    @cached_property
    def digest(self) -> bytes:
        """16 bytes under which state keeps the subject; no choice of ids can imitate another subject."""
        return digest(*self.names)

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The four in plain text, under which everything about the subject is named."""
        return self.tenant_id, self.user_id, str(self.kind), self.subject_id


def subject_of_decision(decision: Decision) -> Subject:
    """Return the identity of what was decided."""
    return Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)


@lru_cache(1 << 12)  # those of users come again and again
def digest(*ids: str) -> bytes:
    """Hash ids with their lengths before them to 16 bytes."""
    parts: list[bytes] = []
    for text in ids:
        data = text.encode()
        parts += len(data).to_bytes(4, "big"), data
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def decisive(record: InputRecord) -> dict[str, Any]:
    """Return what decides a record, as JSON: its fields after defaults, but metadata and times of sending."""
    plain: dict[str, Any] = record.__pydantic_serializer__.to_python(
        record, mode="json", exclude=_NOT_DECISIVE
    )
    return plain


def fingerprint(record: InputRecord) -> str:
    """Return the SHA-256 of the canonical form of what decides a record."""
    return sha256_hex(canonical_json(decisive(record)))


def decision_id(subject: Subject, revision: int) -> str:
    """Return the id of a subject's decision at `revision` (1 or higher)."""
    return _uuid_of(to_json((*subject.names, revision)))  # texts and a number: no other form is canonical


def provisional_id(
    subject: Subject, origin: tuple[str | None, int, int], policy_sha256: str, engine: str
) -> str:
    """Return the id of a revision 0: the same record under the same policy and engine gives the same one."""
    return _uuid([*subject.names, 0, *origin, policy_sha256, engine])


def retraction_id(decision: str) -> str:
    """Return the `ce_id` of the Retraction that a decision brings."""
    return _uuid([decision, "retraction"])


def request_id(decision: str) -> str:
    """Return the id of the RegenerateRequest that a decision brings."""
    return _uuid([decision, "regenerate"])


def expire_id(decision: str) -> str:
    """Return the action id with which the gate expires the review of a decision."""
    return _uuid([decision, "expire"])


def event_id(event_type: str, cause: object) -> str:
    """Return the id of an AuditEvent; `cause` is the origin as JSON or the action id."""
    return _uuid([event_type, cause])


def _uuid(parts: list[object]) -> str:
    return _uuid_of(canonical_json(parts))


def _uuid_of(name: bytes) -> str:
    # as str(uuid.uuid5(NAMESPACE, ...)), which makes an object on the way
    hasher = _BEGUN.copy()
    hasher.update(name)
    hashed = hasher.hexdigest()
    variant = "89ab"[int(hashed[16], 16) & 3]
    return f"{hashed[:8]}-{hashed[8:12]}-5{hashed[13:16]}-{variant}{hashed[17:20]}-{hashed[20:32]}"
