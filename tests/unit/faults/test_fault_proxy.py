"""The proxy of the fault suite passes everything on, until it is told not to."""

from __future__ import annotations

import asyncio

import pytest

from deploy.embedded.process import HOST
from tests.faults.proxy import Proxies, Proxy
from tests.services.serving import serving


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say what is heard."""
    while data := await reader.read(1000):
        writer.write(data)


async def say(proxy: Proxy, words: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    try:
        writer.write(words)
        return await reader.readexactly(len(words))
    finally:
        writer.close()


async def test_it_passes_on_cuts_refuses_and_freezes():
    with Proxies() as proxies:
        async with serving(echo) as port:
            proxy = proxies.before(port)
            assert await say(proxy, b"hello") == b"hello"

            reader, writer = await asyncio.open_connection(HOST, proxy.port)
            writer.write(b"open")
            assert await reader.readexactly(4) == b"open"
            proxy.cut()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            writer.close()
            assert await say(proxy, b"again") == b"again"

            proxy.set(closed=True)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await say(proxy, b"closed")

            proxy.set(frozen=True)
            waiting = asyncio.create_task(say(proxy, b"frozen"))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            proxy.set()
            assert await waiting == b"frozen"

            proxy.set(delay=0.01, rate=10_000)
            assert await say(proxy, b"x" * 500) == b"x" * 500


async def test_a_connection_to_a_server_that_is_not_there_is_closed():
    with Proxies() as proxies:
        async with serving(echo) as port:
            pass
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await say(proxies.before(port), b"anybody?")
