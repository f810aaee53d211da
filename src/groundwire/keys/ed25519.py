"""Ed25519 keys as they stand in TOML files: the 32 bytes of each half in base64 (RFC 8032)."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


def new_private_key() -> str:
    """Return a random private key."""
    return base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode()


def public_key_of(private_key: str) -> str:
    """Return the public half of a private key. Raises: ValueError, it is no key."""
    return base64.b64encode(_private(private_key).public_key().public_bytes_raw()).decode()


def check_public_key(public_key: str) -> None:
    """Check that a text is a public key. Raises: ValueError."""
    _public(public_key)


def sign(private_key: str, data: bytes) -> bytes:
    """Return the signature of data, 64 bytes; the same for the same data. Raises: ValueError, it is no key."""
    return _private(private_key).sign(data)


def is_signed(public_key: str, data: bytes, signature: bytes) -> bool:
    """Say whether a signature is of these bytes by this key. Raises: ValueError, it is no key."""
    try:
        _public(public_key).verify(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(64)
def _private(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_raw(text))


@lru_cache(64)
def _public(text: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(_raw(text))


def _raw(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ValueError(f"must be {KEY_BYTES} bytes in base64")
    return raw
