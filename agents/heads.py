"""Keeps heads of seals outside of Kafka, where whoever can rewrite topics cannot write."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from groundwire.errors import SealUnavailable
from groundwire.keys.seal_keys import run_command
from groundwire.messages.seals import SealHead, SignedHead

EVERY: Final = timedelta(minutes=1)
"""Least time between two heads of a partition, by the worker's clock: a file grows by half a megabyte a day."""


class HeadKeeper:
    """Appends heads to a file, and hands each to a command, such as one that puts it into an object store."""

    def __init__(self, file: Path | None, command: Sequence[str]) -> None:
        self._file = file
        self._command = command
        self._kept: dict[str, SealHead] = {}

    async def keep(self, heads: Sequence[SignedHead]) -> None:
        """Keep those that are due. Raises: SealUnavailable: nothing may be committed that is not kept."""
        due = [each for each in heads if self._is_due(each.seal)]
        lines = "".join(f"{each.model_dump_json()}\n" for each in due).encode()
        if not due:
            return
        if self._file:
            try:
                await asyncio.to_thread(_append, self._file, lines)
            except OSError as exc:
                raise SealUnavailable(f"GROUNDWIRE_HEADS_FILE: {self._file}: {exc.strerror}") from exc
        if self._command:
            await run_command(list(self._command), lines, "of GROUNDWIRE_HEADS_COMMAND")
        self._kept |= {each.seal.input: each.seal for each in due}

    def _is_due(self, head: SealHead) -> bool:
        kept = self._kept.get(head.input)
        return kept is None or head.at - kept.at >= EVERY


def _append(path: Path, lines: bytes) -> None:
    with path.open("ab+", buffering=0) as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            if file.read(1) != b"\n":  # a full disk or a crash has torn the last line
                lines = b"\n" + lines
        if file.write(lines) != len(lines):  # one write: several workers may append to a file
            raise OSError(errno.ENOSPC, "not all was written")
        os.fsync(file.fileno())
