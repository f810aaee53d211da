"""Events of the checks: what they found, as ids, counts, codes and hashes, never as text."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Event:
    """A finding of a check: its name and payload, never text."""

    name: str
    payload: Mapping[str, Any]
    level: Literal["info", "warning"] = "warning"


class _Hashing:
    """Holds the process's key; no decision depends on it."""

    key = b""


def use_hash_key(key: str) -> None:
    """Key the hashes of this process's events, so that nobody can look texts up by guessing; empty: plain."""
    _Hashing.key = key.encode()


def text_hash(text: str) -> str:
    """Return the first 12 hexadecimal characters of a text's SHA-256, keyed where a key is in use (S1-37)."""
    data = text.encode("utf-8", "surrogatepass")
    keyed = hmac.new(_Hashing.key, data, hashlib.sha256) if _Hashing.key else hashlib.sha256(data)
    return keyed.hexdigest()[:12]
