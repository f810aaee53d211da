"""Scripts, styles and pictures of the pages: under an address that changes with them, browsers keep them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER: Final = Path(str(files("groundwire.console") / "static"))


def _version() -> str:
    together = hashlib.sha256()
    for path in sorted(_FOLDER.iterdir()):
        together.update(path.name.encode() + b"\0" + path.read_bytes())
    return together.hexdigest()[:12]


VERSION: Final = _version()
"""Names the files as they are; a script finds those that it imports beside it, in the same version."""


class Assets(StaticFiles):
    """Files that a browser may keep; those not asked for by their version it asks about before it uses them."""

    def __init__(self) -> None:
        super().__init__(directory=str(_FOLDER))

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file. Raises: HTTPException 404, 405."""
        version, _, name = path.partition("/")
        kept = version == VERSION
        response = await super().get_response(name if kept else path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if kept else "no-cache"
        return response
