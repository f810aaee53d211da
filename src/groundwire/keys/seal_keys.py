"""Keys with which gates seal what they published, and those by which others check it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from groundwire.config import Settings
from groundwire.errors import SealUnavailable, UsageError, naming
from groundwire.keys.attestation import AttestationState, Key, Keys
from groundwire.keys.ed25519 import SIGNATURE_BYTES
from groundwire.keys.watched import WatchedKeys
from groundwire.messages.seals import Seal

_COMMAND_SECONDS: Final = 10.0
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


class SealSigner:
    """Signs with the key of a keys file that holds now and began last, so that a key and its successor may overlap.

    Args:
        path: of the keys file.
        now: the wall clock.

    Raises:
        UsageError: the file cannot be read, or no key of it may seal now.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime]) -> None:
        self._keys = WatchedKeys.load(path)
        self._now = now
        try:
            self.key_id()
        except SealUnavailable as exc:
            raise UsageError(f"keys file {path}: {exc}") from None

    def key_id(self) -> str:
        """Name the key that signs now. Raises: SealUnavailable, none holds."""
        now = self._now()
        holding = [
            (key.not_before or _FIRST, name) for name, key in self._keys if _may_seal(key) and key.holds(now)
        ]
        if not holding:
            raise SealUnavailable(
                "no key with the role seal and a private half holds now: `groundwire keys new --ed25519 --role seal`"
            )
        return max(holding)[1]

    async def sign(self, key_id: str, data: bytes) -> bytes:
        """Sign with a key. Raises: SealUnavailable, the key is gone, or its command fails."""
        key = dict(self._keys).get(key_id)
        if key is None:
            raise SealUnavailable(f"the key {key_id} is gone from the keys file")
        return await _signed_by_command(key.command, data) if key.command else key.sign(data)


class SealKeys:
    """The public keys of gates, each for its time.

    Raises:
        UsageError: the file cannot be read, or holds no key with the role seal.
    """

    def __init__(self, path: Path) -> None:
        self._keys = dict(Keys.load(path))
        if not any("seal" in key.roles for key in self._keys.values()):
            raise UsageError(f"keys file {path}: it holds no key with the role seal")

    def check(self, seal: Seal) -> AttestationState:
        """Say what the signature of a seal is worth."""
        key = self._keys.get(seal.head.key)
        if key is None:
            return AttestationState.UNKNOWN_KEY
        if "seal" not in key.roles:
            return AttestationState.NOT_ENTITLED
        if not key.verifies(seal.head.to_bytes(), seal.signature):
            return AttestationState.INVALID
        return AttestationState.VALID if key.holds(seal.head.at) else AttestationState.EXPIRED

    def not_after(self, key_id: str) -> datetime | None:
        """Return until when a key holds; None: without end."""
        return self._keys[key_id].not_after


def required_seal_keys(settings: Settings) -> SealKeys:
    """Read the file of GROUNDWIRE_SEAL_KEYS. Raises: UsageError, it is not set, or as of `SealKeys`."""
    if settings.seal_keys is None:
        raise UsageError("GROUNDWIRE_SEAL_KEYS (--seal-keys): a file of public keys is needed")
    with naming("GROUNDWIRE_SEAL_KEYS (--seal-keys)"):
        return SealKeys(settings.seal_keys)


def _may_seal(key: Key) -> bool:
    return "seal" in key.roles and bool(key.private_key or key.command)


async def _signed_by_command(command: list[str], data: bytes) -> bytes:
    """Have a program sign what it reads from standard input: it prints 64 bytes, or the same in base64."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    except OSError as exc:
        raise SealUnavailable(f"the command that signs: {exc.strerror}") from exc
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            printed, _ = await process.communicate(data)
    except TimeoutError as exc:
        raise SealUnavailable(f"the command that signs took longer than {_COMMAND_SECONDS:g} s") from exc
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        raise SealUnavailable(f"the command that signs ended with {process.returncode}")
    signature = printed if len(printed) == SIGNATURE_BYTES else _decoded(printed)
    if len(signature) != SIGNATURE_BYTES:
        raise SealUnavailable(f"the command that signs printed no signature of {SIGNATURE_BYTES} bytes")
    return signature


def _decoded(printed: bytes) -> bytes:
    try:
        return base64.b64decode(printed.strip(), validate=True)
    except binascii.Error:
        return b""
