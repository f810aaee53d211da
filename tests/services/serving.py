"""Servers of a test's own event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

HOST = "127.0.0.1"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, host: str = HOST, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve connections on a free port, and abort those that are open at the end: none may outlive its loop."""
    transports: list[asyncio.WriteTransport] = []
    tasks: list[asyncio.Future[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transports.append(writer.transport)
        tasks.append(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)  # who has just been let in arrives
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in transports:
            transport.abort()
        await asyncio.sleep(0.01)  # sockets are closed by the loop
