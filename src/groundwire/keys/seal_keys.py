"""Keys with which gates seal what they published, and those by which others check it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from groundwire.config import Settings
from groundwire.errors import SealUnavailable, UsageError, naming
from groundwire.keys.attestation import AttestationState, Key, Keys
from groundwire.keys.ed25519 import SIGNATURE_BYTES
from groundwire.keys.watched import WatchedKeys
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.seals import EventSignature, SealHead, signed_bytes

_COMMAND_SECONDS: Final = 10.0
_MOST_PRINTED: Final = 1_024


class SealSigner:
    """Signs with the key of a keys file that holds now and began last, so that a key and its successor may overlap.

    Raises: UsageError, the file cannot be read, or no key of it may seal now.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime]) -> None:
        self._keys = WatchedKeys.load(path)
        try:
            self.key_id(now())
        except SealUnavailable as exc:
            raise UsageError(f"keys file {path}: {exc}") from None

    def key_id(self, at: datetime) -> str:
        """Name the key that signs at a time. Raises: SealUnavailable, none holds."""
        holding = [
            (key.not_before or datetime.min.replace(tzinfo=UTC), name)
            for name, key in self._sealing()
            if key.holds(at)
        ]
        if not holding:
            raise SealUnavailable(
                "no key with the role seal, and a private_key or a command with its public_key, holds now:"
                " `groundwire keys new --ed25519 --role seal`"
            )
        return max(holding)[1]

    @property
    def expires(self) -> datetime | None:
        """When the last key that seals expires; None: one has no end."""
        ends = [key.not_after for _, key in self._sealing()]
        return None if None in ends else max(filter(None, ends), default=datetime.min.replace(tzinfo=UTC))

    def _sealing(self) -> Iterator[tuple[str, Key]]:
        for name, key in self._keys:
            # what a command signed is checked, so that its public key stands beside it
            if "seal" in key.roles and (key.private_key or (key.command and key.public_key)):
                yield name, key

    async def sign_event(self, event: AuditEvent) -> AuditEvent:
        """Return an event of a worker with its signature. Raises: SealUnavailable."""
        key_id = self.key_id(event.at)
        signature = await self.sign(key_id, signed_bytes(event))
        signed = EventSignature(key=key_id, signature=signature.hex()).model_dump()
        return event.model_copy(update={"detail": {**event.detail, "signed": signed}})

    async def sign(self, key_id: str, data: bytes) -> bytes:
        """Sign with a key. Raises: SealUnavailable, the key is gone, or its command fails."""
        key = dict(self._keys).get(key_id)
        if key is None:
            raise SealUnavailable(f"the key {key_id} is gone from the keys file")
        if not key.command:
            return key.sign(data)
        printed = await run_command(key.command, data, "that signs")
        signature = printed
        if len(printed) != SIGNATURE_BYTES:
            with suppress(binascii.Error):
                signature = base64.b64decode(printed.strip(), validate=True)
        if len(signature) != SIGNATURE_BYTES:
            raise SealUnavailable(f"the command that signs printed no signature of {SIGNATURE_BYTES} bytes")
        if not key.verifies(data, signature):
            raise SealUnavailable(
                f"the command of the key {key_id} signs with another key than its public_key"
            )
        return signature


class SealKeys:
    """The public keys of gates. Raises: UsageError, the file cannot be read, or holds no key with the role seal."""

    def __init__(self, path: Path) -> None:
        self._keys = dict(Keys.load(path))
        if not any("seal" in key.roles for key in self._keys.values()):
            raise UsageError(f"keys file {path}: it holds no key with the role seal")

    def check(self, head: SealHead, signature: bytes) -> AttestationState:
        return self._check(head.key, head.at, head.to_bytes(), signature)

    def check_event(self, event: AuditEvent) -> tuple[str, AttestationState]:
        """Return the key that an event of a worker names, and whether it has signed."""
        try:
            signed = EventSignature.model_validate(event.detail.get("signed"))
            data = signed_bytes(event)
        except ValueError:
            return "", AttestationState.INVALID
        return signed.key, self._check(signed.key, event.at, data, bytes.fromhex(signed.signature))

    def _check(self, key_id: str, at: datetime, data: bytes, signature: bytes) -> AttestationState:
        key = self._keys.get(key_id)
        if key is None:
            return AttestationState.UNKNOWN_KEY
        if "seal" not in key.roles:
            return AttestationState.NOT_ENTITLED
        if not key.verifies(data, signature):
            return AttestationState.INVALID
        return AttestationState.VALID if key.holds(at) else AttestationState.EXPIRED

    def not_after(self, key_id: str) -> datetime | None:
        """Return until when a key holds; None: without end."""
        return self._keys[key_id].not_after


def required_seal_keys(settings: Settings) -> SealKeys:
    """Read the file of GROUNDWIRE_SEAL_KEYS. Raises: UsageError, it is not set, or as of `SealKeys`."""
    if settings.seal_keys is None:
        raise UsageError("GROUNDWIRE_SEAL_KEYS (--seal-keys): a file of public keys is needed")
    with naming("GROUNDWIRE_SEAL_KEYS (--seal-keys)"):
        return SealKeys(settings.seal_keys)


async def run_command(command: list[str], data: bytes, purpose: str) -> bytes:
    """Have a program read data from standard input; return what it prints. Raises: SealUnavailable."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=_MOST_PRINTED
        )
    except (OSError, ValueError) as exc:
        raise SealUnavailable(f"the command {purpose} cannot be run: {type(exc).__name__}") from exc
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            printed = await _asked(process, data)
            ended = await process.wait()
    except TimeoutError as exc:
        raise SealUnavailable(f"the command {purpose} took longer than {_COMMAND_SECONDS:g} s") from exc
    finally:
        # kill it and whatever it has started, unless it has ended; what its pipe still holds is dropped
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while process.stdout and await process.stdout.read(1 << 16):
                    pass
                await process.wait()
    if ended:
        raise SealUnavailable(f"the command {purpose} ended with {ended}")
    return printed


async def _asked(process: Process, data: bytes) -> bytes:
    """Return what a program prints of what it reads: of a flood the beginning."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    with suppress(ConnectionError):  # one that reads nothing
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
    printed = b""
    while len(printed) < _MOST_PRINTED and (more := await process.stdout.read(_MOST_PRINTED)):
        printed += more
    return printed
