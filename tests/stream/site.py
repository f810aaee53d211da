"""A web site on loopback that claims cite: some pages answer, some never do."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter


class Site:
    """Answers `/ok/...` with 200, `/gone/...` with 404, `/hang/...` never, and `/ill/...` with 503 until `is_well`.

    Requests are counted by path.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.port = 0
        self.is_well = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """What a worker needs so that it may ask this site."""
        return {
            "GROUNDWIRE_NO_NETWORK": "",
            "GROUNDWIRE_ALLOW_NETWORKS": "127.0.0.0/8",
            "GROUNDWIRE_ALLOW_PORTS": str(self.port),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.requests[path] += 1
            if path.startswith("/hang"):
                await reader.read()  # until the client goes
            else:
                ill = path.startswith("/ill") and not self.is_well
                status = b"404 Gone" if path.startswith("/gone") else b"503 Ill" if ill else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                await writer.drain()
        writer.close()
