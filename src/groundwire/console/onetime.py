"""The sign-in link of the embedded demo: a secret that works once, and not for long."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from groundwire.review.people import Person

LASTS: Final = timedelta(minutes=10)


class OneTimeLinks:
    """Makes sign-in secrets and takes each once; keeps their hashes alone."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._open: dict[bytes, tuple[Person, datetime]] = {}

    def issue(self, person: Person) -> str:
        """Return a secret that signs `person` in once within ten minutes."""
        secret = secrets.token_urlsafe(24)
        self._open[_hash(secret)] = (person, self._clock() + LASTS)
        return secret

    def redeem(self, secret: str) -> Person | None:
        """Return whom a secret signs in, the first time; None when it is unknown, used or too old."""
        given = _hash(secret)
        known = next((key for key in self._open if hmac.compare_digest(key, given)), None)
        if known is None:
            return None
        person, until = self._open.pop(known)
        return person if self._clock() < until else None

    def __bool__(self) -> bool:
        """Say whether any link was made and not used."""
        return bool(self._open)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
