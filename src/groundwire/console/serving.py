"""Serving the console by uvicorn, until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

_LOOK: Final = 0.1
_GRACE: Final = 5
"""Seconds that requests may take to end once the server stops."""


def make_server(app: Starlette) -> uvicorn.Server:
    """Return a server that says nothing of itself, writes no access log, and believes no forwarding header."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=True,
            lifespan="on",
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
    )


async def serve(server: uvicorn.Server, app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT, SIGTERM or `server.should_exit`; open event streams are ended first."""
    ending = asyncio.create_task(_end_streams(server, app))
    try:
        with _outlived_signals():
            await server.serve(sockets=[listening])
    finally:
        ending.cancel()
        await asyncio.wait([ending])


async def _end_streams(server: uvicorn.Server, app: Starlette) -> None:
    while not server.should_exit:  # noqa: ASYNC110 - uvicorn has a flag, not an event
        await asyncio.sleep(_LOOK)
    await app.state.site.live.close()


@contextlib.contextmanager
def _outlived_signals() -> Iterator[None]:
    """Let the process live on after a signal that ended the server: uvicorn raises it once more."""
    try:
        before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: there are no signals here
        yield
        return
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
