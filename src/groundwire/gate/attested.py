"""What a record's signature comes to, as the fact `attestation` of its decision."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from groundwire.keys.attestation import Keys, Role
from groundwire.messages.headers import ATTESTATION, InboundRecord, header


def attestation_fact(
    keys: Keys,
    record: InboundRecord,
    at: datetime,
    *,
    tenant: str,
    source: str | None = None,
    role: Role | None = None,
) -> dict[str, Any] | None:
    """Check the header `gw-attestation` of a record; see `Keys.check`. None where there is none."""
    signed = header(record.headers, ATTESTATION)
    found = keys.check(signed, record.value or b"", tenant=tenant, at=at, source=source, role=role)
    return found.fact() if found else None


def is_valid(attestation: dict[str, Any] | None) -> bool:
    return (attestation or {}).get("state") == "valid"
