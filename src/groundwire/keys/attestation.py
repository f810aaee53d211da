"""Who vouches for a record: signatures under keys that stand in a TOML file (C-34).

```toml
[keys.docs-sync]
secret = "..."                        # HMAC: its UTF-8 bytes; who checks with it could sign with it
tenants = ["acme"]                    # for whom it may speak
sources = ["documentation", "adr"]    # as what
roles = []                            # "reviewer": may sign review decisions; "grounding": what responses rest on
not_before = 2026-01-01T00:00:00Z     # optional
not_after = 2027-01-01T00:00:00Z      # optional

[keys.console]
private_key = "..."                   # Ed25519, base64: signs, and checks with its public half
tenants = ["acme"]
roles = ["reviewer"]

[keys.other-console]
public_key = "..."                    # Ed25519, base64: checks, and cannot sign
tenants = ["acme"]
roles = ["reviewer"]

[keys.gate-seals]
command = ["kms-sign", "gate-seals"]  # a program that signs; public_key may stand beside it
roles = ["seal"]                      # seals what workers publish: alone, and never by HMAC

[reviewers]
acme = ["lead@acme.example"]          # who may decide other people's claims
```
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from groundwire.errors import UsageError, naming
from groundwire.keys import ed25519
from groundwire.messages.base import ShortId, TenantId, Time
from groundwire.toml_files import parse_toml

logger = logging.getLogger(__name__)

Role = Literal["reviewer", "grounding", "seal"]
"""A reviewer decides what waits; grounding says what a model was given; a seal says what a worker published."""
KeyId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
SourceName = Annotated[str, Field(min_length=1, max_length=100)]

_HEADER: Final = re.compile(r"([A-Za-z0-9._-]{1,100}):([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})", re.ASCII)
_NOT_OF_A_KEY_ID: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


class AttestationState(StrEnum):
    """What a signature is worth; everything but `valid` counts as none. `expired`: outside the key's time."""

    VALID = "valid"
    INVALID = "invalid"
    EXPIRED = "expired"
    UNKNOWN_KEY = "unknown_key"
    NOT_ENTITLED = "not_entitled"


@dataclass(frozen=True, slots=True)
class Attestation:
    """What checking a `gw-attestation` header gave."""

    key_id: str  # that the header names, without what no key id holds, at most 100 characters
    state: AttestationState

    @property
    def valid(self) -> bool:
        return self.state is AttestationState.VALID

    def fact(self) -> dict[str, Any]:
        return {"key_id": self.key_id, "state": str(self.state)}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


_Text = Annotated[str, StringConstraints(min_length=1)]


class Key(_Strict):
    """A secret for HMAC-SHA256 or a half of an Ed25519 key, and what may be signed with it; see the module."""

    secret: _Text | None = Field(None, repr=False)
    private_key: Annotated[str, AfterValidator(ed25519.checked_private_key)] | None = Field(None, repr=False)
    public_key: Annotated[str, AfterValidator(ed25519.checked_public_key)] | None = None
    command: Annotated[list[_Text], Field(min_length=1)] | None = None
    tenants: list[TenantId] = Field(default_factory=list)
    sources: list[SourceName] = Field(default_factory=list)
    roles: list[Role] = Field(default_factory=list)
    not_before: Time | None = None
    not_after: Time | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        halves = (self.secret, self.private_key, self.command or self.public_key)
        if sum(half is not None for half in halves) != 1:
            raise ValueError(
                "secret, private_key, public_key or command: exactly one (command may have a public_key)"
            )
        if "seal" in self.roles:
            if self.secret is not None:
                raise ValueError(
                    "secret: the role seal needs an Ed25519 key: who checks a seal must not be able to make one"
                )
            if len(self.roles) > 1 or self.sources:
                raise ValueError("roles: a key with the role seal has no other role, and no sources")
        elif not self.tenants:
            raise ValueError('tenants: may be empty only with roles = ["seal"]')
        if self.not_before and self.not_after and self.not_before > self.not_after:
            raise ValueError("not_before: is after not_after")
        return self

    @property
    def kind(self) -> Literal["hmac", "ed25519", "public", "command"]:
        if self.secret is not None:
            return "hmac"
        if self.private_key is not None:
            return "ed25519"
        return "public" if self.command is None else "command"

    @property
    def verifying_key(self) -> str | None:
        """The public half in base64; None of an HMAC key, and of a command that stands alone."""
        return ed25519.public_key_of(self.private_key) if self.private_key is not None else self.public_key

    def sign(self, value: bytes) -> bytes:
        """Return the signature of a value: 32 bytes of HMAC-SHA256, or 64 of Ed25519. Raises: UsageError."""
        if self.secret is not None:
            return hmac.digest(self.secret.encode(), value, hashlib.sha256)
        if self.private_key is not None:
            return ed25519.sign(self.private_key, value)
        raise UsageError("it holds neither secret nor private_key, and signs nothing here")

    def verifies(self, value: bytes, signature: bytes) -> bool:
        """Say whether a signature is of these bytes by this key. The key alone says by which method it is read."""
        if self.secret is not None:
            return hmac.compare_digest(self.sign(value), signature)
        public_key = self.verifying_key
        return public_key is not None and ed25519.is_signed(public_key, value, signature)

    def holds(self, at: datetime) -> bool:
        """Say whether the key is valid at a time: from `not_before` to `not_after`, both included."""
        return (self.not_before or at) <= at <= (self.not_after or at)

    def entitles(self, tenant: str | None, source: str | None, role: Role | None) -> bool:
        return (
            (tenant is None or tenant in self.tenants)
            and (source is None or source in self.sources)
            and (role is None or role in self.roles)
        )


class KeyFile(_Strict):
    keys: dict[KeyId, Key] = Field(default_factory=dict)
    reviewers: dict[TenantId, list[ShortId]] = Field(default_factory=dict)


class Keys:
    """The keys of a deployment and its delegated reviewers."""

    def __init__(self, content: KeyFile) -> None:
        self._content = content

    def held(self) -> KeyFile:
        """Return what the file holds now."""
        return self._content

    @classmethod
    def empty(cls) -> Self:
        """Return no keys: every signature is of an unknown key, and nobody is delegated."""
        return cls(KeyFile())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a keys file; log a warning where it holds what signs and others may read it. Raises: UsageError."""
        try:
            with path.open("rb") as file:
                data, mode = file.read(), os.fstat(file.fileno()).st_mode
        except OSError as exc:
            raise UsageError(f"keys file {path}: {exc.strerror or 'cannot be read'}") from exc
        keys = cls.parse(data, path)
        sealing = next((key_id for key_id, key in keys if key.private_key and "seal" in key.roles), None)
        if sealing is not None and mode & (stat.S_IRGRP | stat.S_IROTH):
            raise UsageError(
                f"keys file {path}: its group or others can read it, and the key {sealing!r} makes seals: chmod 600"
            )
        if mode & stat.S_IROTH and any(key.secret or key.private_key for _, key in keys):
            logger.warning("keys file %s can be read by every user of this machine: chmod 600", path)
        return keys

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Self:
        return cls(parse_toml(KeyFile, data, f"keys file {path}"))

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        return iter(self.held().keys.items())

    def __contains__(self, key_id: object) -> bool:
        return key_id in self.held().keys

    def produces(self, key_id: str) -> bool:
        """Return whether a key may sign what producers send: claims of a source, or what a model was given."""
        key = self.held().keys.get(key_id)
        return key is not None and bool(key.sources or "grounding" in key.roles)

    def delegated(self, tenant: str, reviewer: str) -> bool:
        return reviewer in self.reviewers(tenant)

    def reviewers(self, tenant: str) -> frozenset[str]:
        return frozenset(self.held().reviewers.get(tenant, ()))

    def sign(self, key_id: str, value: bytes) -> bytes:
        """Return the value of the header `gw-attestation` for a record's value. Raises: UsageError."""
        key = self.held().keys.get(key_id)
        if key is None:
            raise UsageError(
                f"no key {key_id!r} in the keys file; `groundwire keys list` shows those there are"
            )
        with naming(f"the key {key_id!r}"):
            return f"{key_id}:{key.sign(value).hex()}".encode()

    def check(
        self,
        header: str | None,
        value: bytes,
        *,
        tenant: str | None,
        at: datetime,
        source: str | None = None,
        role: Role | None = None,
    ) -> Attestation | None:
        """Check the header `gw-attestation` of a record, which anybody may have written; None: there is none."""
        if header is None:
            return None
        parts = _HEADER.fullmatch(header)
        if parts is None:
            name = _NOT_OF_A_KEY_ID.sub("", header.partition(":")[0])[:100]
            return Attestation(name, AttestationState.INVALID)
        key = self.held().keys.get(parts[1])
        if key is None:
            state = AttestationState.UNKNOWN_KEY
        elif not key.verifies(value, bytes.fromhex(parts[2])):
            state = AttestationState.INVALID
        elif not key.holds(at):
            state = AttestationState.EXPIRED
        elif not key.entitles(tenant, source, role):
            state = AttestationState.NOT_ENTITLED
        else:
            state = AttestationState.VALID
        return Attestation(parts[1], state)
