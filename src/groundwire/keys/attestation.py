"""Who vouches for a record: HMAC signatures under keys that stand in a TOML file (C-34).

```toml
[keys.docs-sync]
secret = "..."                        # its UTF-8 bytes are the HMAC key
tenants = ["acme"]                    # for whom it may speak
sources = ["documentation", "adr"]    # as what
roles = []                            # "reviewer": may sign review decisions; "grounding": what responses rest on
not_after = 2027-01-01T00:00:00Z      # optional

[reviewers]
acme = ["lead@acme.example"]          # who may decide other people's claims
```
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groundwire.errors import UsageError
from groundwire.messages.base import ShortId, TenantId, Time

logger = logging.getLogger(__name__)

Role = Literal["reviewer", "grounding"]
"""A reviewer decides what waits; grounding says what a model was given."""
KeyId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
SourceName = Annotated[str, Field(min_length=1, max_length=100)]

_HEADER: Final = re.compile(r"([A-Za-z0-9._-]{1,100}):([0-9A-Fa-f]{64})", re.ASCII)
_NOT_OF_A_KEY_ID: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


class AttestationState(StrEnum):
    """What a signature is worth; everything but `valid` counts as none."""

    VALID = "valid"
    INVALID = "invalid"
    EXPIRED = "expired"
    UNKNOWN_KEY = "unknown_key"
    NOT_ENTITLED = "not_entitled"


@dataclass(frozen=True, slots=True)
class Attestation:
    """What checking a `gw-attestation` header gave.

    Attributes:
        key_id: the key that the header names, without what no key id holds, at most 100 characters.
        state: what the signature is worth.
    """

    key_id: str
    state: AttestationState

    @property
    def valid(self) -> bool:
        """Say whether the record is vouched for."""
        return self.state is AttestationState.VALID

    def fact(self) -> dict[str, Any]:
        """Return the entry for `facts.attestation`."""
        return {"key_id": self.key_id, "state": str(self.state)}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Key(_Strict):
    """A secret, and what may be signed with it."""

    secret: Annotated[str, Field(min_length=1, repr=False)]
    tenants: Annotated[list[TenantId], Field(min_length=1)]
    sources: list[SourceName] = Field(default_factory=list)
    roles: list[Role] = Field(default_factory=list)
    not_after: Time | None = None

    def signature(self, value: bytes) -> bytes:
        """Return the HMAC-SHA256 of a record's value, 32 bytes."""
        return hmac.digest(self.secret.encode(), value, hashlib.sha256)

    def entitles(self, tenant: str | None, source: str | None, role: Role | None) -> bool:
        """Say whether a tenant's record with this source, or of this role, may be signed with the key."""
        return (
            (tenant is None or tenant in self.tenants)
            and (source is None or source in self.sources)
            and (role is None or role in self.roles)
        )


class _File(_Strict):
    keys: dict[KeyId, Key] = Field(default_factory=dict)
    reviewers: dict[TenantId, list[ShortId]] = Field(default_factory=dict)


class Keys:
    """The keys of a deployment and its delegated reviewers."""

    def __init__(self, file: _File) -> None:
        self._keys = file.keys
        self._reviewers = {tenant: frozenset(names) for tenant, names in file.reviewers.items()}

    @classmethod
    def empty(cls) -> Self:
        """Return no keys: every signature is of an unknown key, and nobody is delegated."""
        return cls(_File())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a keys file; a file that others may read is warned of in the log.

        Raises:
            UsageError: the file cannot be read, is no TOML, or holds an unknown field or a wrong value;
                the message names file, key and field, and never a secret.
        """
        try:
            data = path.read_bytes()
            if path.stat().st_mode & stat.S_IROTH:
                logger.warning("keys file %s can be read by every user of this machine: chmod 600", path)
        except OSError as exc:
            raise UsageError(f"keys file {path}: {exc.strerror or 'cannot be read'}") from exc
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Self:
        """Read the contents of the keys file `path`. Raises: UsageError, as `load`."""
        try:
            return cls(_File.model_validate(tomllib.loads(data.decode())))
        except UnicodeDecodeError as exc:
            raise UsageError(f"keys file {path}: not UTF-8 at byte {exc.start}") from exc
        except ValidationError as exc:
            raise UsageError(f"keys file {path}: {_first_error(exc)}") from None  # its input holds secrets
        except (ValueError, RecursionError) as exc:
            raise UsageError(f"keys file {path}: {not_toml(exc)}") from exc

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        """Yield (key id, key) in the order of the file."""
        return iter(self._keys.items())

    def __contains__(self, key_id: object) -> bool:
        """Say whether there is a key of this id."""
        return key_id in self._keys

    def delegated(self, tenant: str, reviewer: str) -> bool:
        """Say whether `reviewer` may decide the claims of other people of `tenant`."""
        return reviewer in self.reviewers(tenant)

    def reviewers(self, tenant: str) -> frozenset[str]:
        """Return who may decide the claims of other people of `tenant`."""
        return self._reviewers.get(tenant, frozenset())

    def sign(self, key_id: str, value: bytes) -> bytes:
        """Return the value of the header `gw-attestation` for a record's value.

        Raises:
            UsageError: there is no such key.
        """
        key = self._keys.get(key_id)
        if key is None:
            raise UsageError(
                f"no key {key_id!r} in the keys file; `groundwire keys list` shows those there are"
            )
        return f"{key_id}:{key.signature(value).hex()}".encode()

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
        """Check the header `gw-attestation` of a record, which anybody may have written.

        Args:
            header: its text, or None where there is none.
            value: the record's value, byte for byte.
            tenant: the tenant that the record names; None: the key may be of any.
            at: the later of the record's timestamp and the wall clock; a key holds up to and including its `not_after`.
            source: the source that a claim names, None for other records.
            role: the role that the record needs, None for claims.

        Returns:
            None without a header, else what it is worth.
        """
        if header is None:
            return None
        parts = _HEADER.fullmatch(header)
        if parts is None:
            name = _NOT_OF_A_KEY_ID.sub("", header.partition(":")[0])[:100]
            return Attestation(name, AttestationState.INVALID)
        key = self._keys.get(parts[1])
        if key is None:
            state = AttestationState.UNKNOWN_KEY
        elif not hmac.compare_digest(key.signature(value), bytes.fromhex(parts[2])):
            state = AttestationState.INVALID
        elif key.not_after is not None and at > key.not_after:
            state = AttestationState.EXPIRED
        elif not key.entitles(tenant, source, role):
            state = AttestationState.NOT_ENTITLED
        else:
            state = AttestationState.VALID
        return Attestation(parts[1], state)


def not_toml(exc: ValueError | RecursionError) -> str:
    """Say why a text is no TOML: beside wrong syntax, integers of thousands of digits, and nesting without end."""
    return "nested too deeply" if isinstance(exc, RecursionError) else f"not TOML: {str(exc).split(';')[0]}"


def _first_error(exc: ValidationError) -> str:
    first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part != "[key]")
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
