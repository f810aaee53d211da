"""Serving the console to its end."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from types import SimpleNamespace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from groundwire.console.app import make_server, serve


def test_who_does_not_read_the_answer_to_its_end_leaves_no_socket_open() -> None:
    """What is still open when the server ends is cut off."""
    asked = asyncio.Event()

    async def large(_: Request) -> Response:
        asked.set()
        return Response(b"x" * 20_000_000)

    async def close() -> None: ...

    async def served_once(listening: socket.socket) -> None:
        app = Starlette(routes=[Route("/", large)])
        app.state.site = SimpleNamespace(live=SimpleNamespace(close=close))
        server = make_server(app)
        server.config.timeout_graceful_shutdown = 0
        serving = asyncio.create_task(serve(server, app, listening))
        await asked.wait()
        server.should_exit = True
        await serving

    with (
        warnings.catch_warnings(record=True) as told,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        warnings.simplefilter("always")
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        asyncio.run(served_once(listening))
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []
