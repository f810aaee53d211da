"""Reading what callers give: in range and of the right type, or an error that names it."""

from __future__ import annotations

import math
import uuid

from groundwire.review_queue.body import digest
from groundwire.review_queue.model import Attempt


def new_attempt(
    queue_id: str, actor: str, tenant_id: str, *, delegated: bool = False, detail: str | None = None
) -> Attempt:
    """Return who asks for what, with a token of its own."""
    return Attempt(
        queue_id=text("queue_id", queue_id),
        tenant=digest(text("tenant_id", tenant_id)),
        owner=owner_of(tenant_id, "reviewer", actor),
        delegated=delegated,
        token=uuid.uuid4().hex,
        actor=actor,
        detail=detail,
    )


def owner_of(tenant_id: str, name: str, user_id: str) -> str:
    """Return the digest of an owner; `name` is the argument that named the user."""
    return digest(text("tenant_id", tenant_id), text(name, user_id))


def text(name: str, value: object) -> str:
    """Return what is text, however it is made: whoever is named by it may be nobody."""
    if not isinstance(value, str):
        raise ValueError(f"{name}: must be text, not {type(value).__name__}")  # noqa: TRY004 - every bad value is a ValueError
    return value


def count(name: str, value: object) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: must be a whole number of at least 1, not {value!r}")
    return value


def microseconds(name: str, seconds: object) -> int:
    """Return a time above 0 in microseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ValueError(f"{name}: must be seconds above 0, not {seconds!r}")
    return max(1, round(seconds * 1e6))
