"""Guidelines of a tenant for its reviewers: a Markdown file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

_MOST: Final = 50_000  # bytes of a file that are shown


def guidelines_of(folder: Path | None, tenant: str) -> str | None:
    """Return the Markdown of a tenant, `<tenant>.md` of a folder; None where it has no file that can be read."""
    if (
        folder is None or Path(tenant).name != tenant
    ):  # a record may name any tenant: none leads out of the folder
        return None
    try:
        with (folder / f"{tenant}.md").open("rb") as file:
            found = file.read(_MOST + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        logger.warning("guidelines.unreadable", tenant=tenant, error=str(exc))
        return None
    return found[:_MOST].decode("utf-8", "replace") + "\u2026" * (len(found) > _MOST)
