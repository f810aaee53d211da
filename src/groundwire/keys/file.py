"""Edits TOML files that hold secrets: other content stays, and a crash leaves the old file or the new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from groundwire.errors import UsageError
from groundwire.keys import ed25519
from groundwire.keys.attestation import Keys
from groundwire.messages.base import format_time

TomlValue = str | bool | datetime | Sequence[str] | None


def new_key(
    path: Path,
    key_id: str,
    *,
    tenants: Sequence[str],
    sources: Sequence[str] = (),
    roles: Sequence[str] = (),
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    asymmetric: bool = False,
) -> str | None:
    """Append a random key to a keys file, which is created where there is none, as `edit`. Raises: UsageError.

    Returns:
        The public half of an Ed25519 key; None of a secret.
    """
    private_key = ed25519.new_private_key() if asymmetric else None
    fields: dict[str, TomlValue] = {
        "secret": None if asymmetric else secrets.token_hex(32),
        "private_key": private_key,
        "tenants": tenants,
        "sources": sources,
        "roles": roles,
        "not_before": not_before,
        "not_after": not_after,
    }

    def add(before: bytes) -> bytes:
        if key_id in Keys.parse(before, path):
            raise UsageError(f"keys file {path}: the key {key_id!r} exists; keys are not overwritten")
        after = with_table(before, "keys", key_id, fields)
        Keys.parse(after, path)
        return after

    edit(path, add, what="keys file")
    return ed25519.public_key_of(private_key) if private_key else None


def end_key(path: Path, key_id: str, not_after: datetime) -> None:
    """Set until when a key of a keys file holds. Raises: UsageError."""

    def end(before: bytes) -> bytes:
        if key_id not in Keys.parse(before, path):
            raise UsageError(f"keys file {path}: there is no key {key_id!r}")
        document: Any = tomlkit.parse(before)
        document["keys"][key_id]["not_after"] = tomlkit.datetime(format_time(not_after))
        after: bytes = document.as_string().encode()
        Keys.parse(after, path)
        return after

    edit(path, end, what="keys file")


def public_keys(keys: Keys) -> tuple[bytes, list[str]]:
    content, left_out = b"", []
    for key_id, key in keys:
        if key.verifying_key is None:
            left_out.append(key_id)
            continue
        halves = {"secret", "private_key", "public_key", "command"}
        rest: dict[str, TomlValue] = {name: value for name, value in key if name not in halves}
        content = with_table(content, "keys", key_id, {"public_key": key.verifying_key, **rest})
    return content, left_out


def edit(path: Path, change: Callable[[bytes], bytes], *, what: str) -> None:
    """Replace a file's content in one step by what `change` makes of it, mode 0600. Raises: UsageError."""
    path = path.resolve()
    # the new file is its own lock: a second editor cannot create it, so that neither loses the other's change
    draft = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(change(path.read_bytes() if path.exists() else b""))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{what} {path} is being edited; if it is not, remove {draft}") from None
    except OSError as exc:
        raise UsageError(f"{what} {path}: {exc.strerror or 'cannot be written'}") from exc


def with_table(before: bytes, section: str, name: str, fields: Mapping[str, TomlValue]) -> bytes:
    """Return TOML content with the table `[section.name]` appended, less fields that are None. Raises: UsageError."""
    given = {
        field: tomlkit.datetime(format_time(value)) if isinstance(value, datetime) else value
        for field, value in fields.items()
        if value is not None
    }
    gap = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
    try:
        return before + gap + tomlkit.dumps({section: {name: given}}).encode()
    except UnicodeEncodeError:
        raise UsageError("an id, name, tenant or source is not text") from None


def without_table(before: bytes, section: str, name: str) -> bytes | None:
    """Return TOML content without the entry `section.name`; None where it cannot be taken out by a program."""
    try:
        document = tomlkit.parse(before)
        del document[section][name]
        return document.as_string().encode()
    except (TOMLKitError, LookupError, TypeError):
        return None
