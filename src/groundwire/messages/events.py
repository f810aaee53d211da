"""Events of the checks: what they found, as ids, counts, codes and hashes, never as text."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

HASH_LENGTH: Final = 12
"""Hexadecimal characters of a text's hash in an event (S1-37)."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a check found: its name and what it carries, never text."""

    name: str
    payload: Mapping[str, Any]
    level: Literal["info", "warning"] = "warning"


class _Hashing:
    """The process's key: hashes stand in events only, never in what is decided."""

    key = b""


def use_hash_key(key: str) -> None:
    """Key the hashes of this process's events, so that nobody can look texts up by guessing; empty: plain."""
    _Hashing.key = key.encode()


def text_hash(text: str) -> str:
    """Return the first 12 hexadecimal characters of a text's SHA-256, keyed where a key is in use (S1-37)."""
    data = text.encode("utf-8", "surrogatepass")
    if _Hashing.key:
        return hmac.new(_Hashing.key, data, hashlib.sha256).hexdigest()[:HASH_LENGTH]
    return hashlib.sha256(data).hexdigest()[:HASH_LENGTH]
