"""Guidelines of a tenant for its reviewers: a Markdown file, read again when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

_MOST: Final = 50_000  # bytes of a file that are shown


class Guidelines:
    """The files `<tenant>.md` of a folder; None: no tenant has guidelines."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._read: dict[str, tuple[tuple[int, int, int], str]] = {}

    def of(self, tenant: str) -> str | None:
        """Return the Markdown of a tenant; None where it has no file, or one that cannot be read."""
        if self._folder is None:
            return None
        path = self._folder / f"{tenant}.md"
        try:
            status = path.stat()
            version = status.st_mtime_ns, status.st_size, status.st_ino
            if self._read.get(tenant, (None,))[0] != version:
                with path.open("rb") as file:
                    found = file.read(_MOST + 1)
                if len(found) > _MOST:
                    logger.warning("guidelines.cut", path=str(path), most=_MOST)
                text = found[:_MOST].decode("utf-8", "replace") + "\u2026" * (len(found) > _MOST)
                self._read[tenant] = version, text
        except FileNotFoundError:
            return None
        except OSError as exc:
            logger.warning("guidelines.unreadable", path=str(path), error=str(exc))
            return None
        return self._read[tenant][1]
