"""Ed25519 keys as they stand in TOML files: the 32 bytes of each half in base64 (RFC 8032).

The package `cryptography` is imported with the first key: who has none needs it not.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from groundwire.errors import UsageError, naming_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


def new_private_key() -> str:
    """Return a random private key: any 32 bytes are one (RFC 8032, 5.1.5)."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def public_key_of(private_key: str) -> str:
    """Return the public half. Raises: ValueError, it is no private key."""
    return base64.b64encode(_private(private_key).public_key().public_bytes_raw()).decode()


def checked_private_key(text: str) -> str:
    """Raises: ValueError, the text is no private key."""
    _private(text)
    return text


def checked_public_key(text: str) -> str:
    """Raises: ValueError, the text is no public key."""
    _public(text)
    return text


def sign(private_key: str, data: bytes) -> bytes:
    """Return the signature of data, 64 bytes; the same for the same data. Raises: ValueError, it is no key."""
    return _private(private_key).sign(data)


def is_signed(public_key: str, data: bytes, signature: bytes) -> bool:
    """Say whether a signature is of these bytes by this key. Raises: ValueError, it is no key."""
    key = _public(public_key)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see the module

    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


@contextmanager
def _needing_cryptography() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        raise UsageError(str(naming_extra(exc, "an Ed25519 key"))) from None


@lru_cache(64)
def _private(text: str) -> Ed25519PrivateKey:
    with _needing_cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - see the module
            Ed25519PrivateKey,
        )
    return Ed25519PrivateKey.from_private_bytes(_raw(text))


@lru_cache(64)
def _public(text: str) -> Ed25519PublicKey:
    with _needing_cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - see the module
            Ed25519PublicKey,
        )
    return Ed25519PublicKey.from_public_bytes(_raw(text))


def _raw(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ValueError(f"must be {KEY_BYTES} bytes in base64")
    return raw
