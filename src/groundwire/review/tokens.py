"""API tokens of the console: a TOML file with tables `[tokens.ID]` of their SHA-256, person and tenants."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import stat
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from groundwire.errors import UsageError
from groundwire.keys.attestation import KeyId
from groundwire.keys.file import TomlValue, edit, with_table, without_table
from groundwire.keys.watched import WatchedFile
from groundwire.messages.base import ShortId, TenantId, Time, sha256_hex
from groundwire.review.permissions import Person
from groundwire.toml_files import parse_toml

logger = logging.getLogger(__name__)

_WHAT: Final = "tokens file"


class ApiToken(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", repr=False)]
    person: ShortId
    tenants: Annotated[list[TenantId], Field(min_length=1)]
    read_only: bool = False
    not_after: Time | None = None

    @property
    def may(self) -> str:
        return "look" if self.read_only else "decide"


class _TokenFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tokens: dict[KeyId, ApiToken] = Field(default_factory=dict)


class Tokens:
    def __init__(self, tokens: dict[str, ApiToken]) -> None:
        self._tokens = tokens

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokens file; warn where other users may read or write it.

        Raises: UsageError, naming file, token and field, and never a hash.
        """
        try:
            data = path.read_bytes()
            if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                logger.warning("tokens file %s is open to every user of this machine: chmod 600", path)
        except OSError as exc:
            raise UsageError(f"{_WHAT} {path}: {exc.strerror or 'cannot be read'}") from exc
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Self:
        """Parse the content of the tokens file `path`. Raises: UsageError, as `load`."""
        found = parse_toml(_TokenFile, data, f"{_WHAT} {path}").tokens
        if len({token.sha256 for token in found.values()}) < len(found):
            raise UsageError(f"{_WHAT} {path}: two tokens have the same hash; revoke one of them")
        return cls(found)

    def __iter__(self) -> Iterator[tuple[str, ApiToken]]:
        return iter(self._tokens.items())

    def __contains__(self, token_id: object) -> bool:
        return token_id in self._tokens

    def person(self, token: str, at: datetime) -> Person | None:
        """Return the person of a token, up to and including its `not_after`; None where it is not valid.

        Takes constant time: all hashes are compared.
        """
        given = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        found: ApiToken | None = None
        for each in self._tokens.values():
            if hmac.compare_digest(each.sha256, given):
                found = each
        if found is None or (found.not_after is not None and at > found.not_after):
            return None
        return Person(found.person, frozenset(found.tenants), read_only=found.read_only)


class WatchedTokens:
    """The tokens of a file as it is now: a revoked token is refused at once, an unreadable file refuses all.

    Raises: UsageError, as `Tokens.load`, at the start.
    """

    def __init__(self, path: Path) -> None:
        def none(error: UsageError, _: Tokens) -> Tokens:
            logger.error("tokens file %s cannot be read any more: no token counts", path, exc_info=error)
            return Tokens({})

        self._file = WatchedFile(path, Tokens.load, broken=none)

    def person(self, token: str, at: datetime) -> Person | None:
        return self._file.current().person(token, at)


def new_token(
    path: Path,
    token_id: str,
    *,
    person: str,
    tenants: Sequence[str],
    read_only: bool = False,
    not_after: datetime | None = None,
) -> str:
    """Add a random token of 32 bytes to a tokens file, and return it; it is stored nowhere. Raises: UsageError."""
    token = f"gwt_{secrets.token_urlsafe(32)}"  # secret scanners know tokens by the prefix
    fields: dict[str, TomlValue] = {
        "sha256": sha256_hex(token.encode()),
        "person": person,
        "tenants": tenants,
        "read_only": True if read_only else None,
        "not_after": not_after,
    }

    def add(before: bytes) -> bytes:
        if token_id in Tokens.parse(before, path):
            raise UsageError(f"{_WHAT} {path}: the token {token_id!r} exists; revoke it first")
        after = with_table(before, "tokens", token_id, fields)
        Tokens.parse(after, path)
        return after

    edit(path, add, what=_WHAT)
    return token


def revoke_token(path: Path, token_id: str) -> None:
    """Remove a token from a tokens file; the rest stays byte for byte. Raises: UsageError."""

    def remove(before: bytes) -> bytes:
        tokens = dict(Tokens.parse(before, path))
        if tokens.pop(token_id, None) is None:
            raise UsageError(f"{_WHAT} {path}: there is no token {token_id!r}")
        after = without_table(before, "tokens", token_id)
        if after is None or dict(Tokens.parse(after, path)) != tokens:
            raise UsageError(f"{_WHAT} {path}: the token {token_id!r} cannot be taken out; remove it by hand")
        return after

    edit(path, remove, what=_WHAT)
