"""Adding a key to a keys file: what stands there stays, and a crash leaves the old file or the new one."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from groundwire.attestation import Keys
from groundwire.errors import UsageError
from groundwire.messages.base import format_time

_SECRET_BYTES = 32


def new_key(
    path: Path,
    key_id: str,
    *,
    tenants: Sequence[str],
    sources: Sequence[str] = (),
    roles: Sequence[str] = (),
    not_after: datetime | None = None,
) -> None:
    """Append a key with a random secret of 32 bytes to a keys file, which is created where there is none.

    The file is replaced in one step and gets the mode 0600; its other content stays byte for byte.

    Raises:
        UsageError: the id exists, a value is not one that `Keys.load` reads, or the file cannot be written.
    """
    path = path.resolve()  # a symbolic link stays one
    try:
        _replace(path, key_id, _table(key_id, tenants, sources, roles, not_after))
    except OSError as exc:
        raise UsageError(f"keys file {path}: {exc.strerror or 'cannot be written'}") from exc


def _table(
    key_id: str,
    tenants: Sequence[str],
    sources: Sequence[str],
    roles: Sequence[str],
    not_after: datetime | None,
) -> str:
    lines = [
        f"[keys.{_quote(key_id)}]",
        f"secret = {_quote(secrets.token_hex(_SECRET_BYTES))}",
        *(
            f"{name} = [{', '.join(_quote(value) for value in values)}]"
            for name, values in (("tenants", tenants), ("sources", sources), ("roles", roles))
        ),
    ]
    if not_after is not None:
        lines.append(f"not_after = {format_time(not_after)}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    # a JSON string is a TOML basic string, but for DEL, which TOML wants escaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replace(path: Path, key_id: str, table: str) -> None:
    # the new file is its own lock: a second editor cannot create it, so that neither loses the other's key
    draft = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"keys file {path} is being edited; if it is not, remove {draft}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_appended(path, key_id, table))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _appended(path: Path, key_id: str, table: str) -> bytes:
    before = path.read_bytes() if path.exists() else b""
    if key_id in Keys.parse(before, path):
        raise UsageError(f"keys file {path}: the key {key_id!r} exists; keys are not overwritten")
    gap = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
    try:
        after = before + gap + table.encode()
    except UnicodeEncodeError:
        raise UsageError("a key id, tenant or source is not text") from None
    Keys.parse(after, path)
    return after
