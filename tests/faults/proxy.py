"""A TCP proxy on loopback whose connections can be cut, delayed, throttled and frozen."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from deploy.embedded.process import HOST, free_port

_CHUNK = 65_536


@dataclass(frozen=True)
class Weather:
    """What becomes of bytes on their way.

    Attributes:
        delay: seconds that every piece waits, each way.
        rate: bytes a second of one connection and direction; None: as fast as it goes.
        frozen: nothing passes; connections stay open.
        closed: connections are dropped, and new ones at once.
    """

    delay: float = 0.0
    rate: int | None = None
    frozen: bool = False
    closed: bool = False


FAIR = Weather()


class Proxy:
    """One port in front of another; `weather` is changed by `set` from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port = free_port()
        self.target = target
        self.weather = FAIR
        self._loop = loop
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def set(self, **weather: float | bool | None) -> None:
        """Change the weather; what is not named becomes fair."""
        changed = replace(FAIR, **weather)  # type: ignore[arg-type]
        asyncio.run_coroutine_threadsafe(self._set(changed), self._loop).result()

    def cut(self) -> None:
        """Drop all connections once; new ones are welcome."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def close(self) -> None:
        """Listen no more, and drop all connections."""
        if self._server:
            self._server.close()
        await self._drop()

    async def _set(self, weather: Weather) -> None:
        self.weather = weather
        if weather.frozen:
            self._thawed.clear()
        else:
            self._thawed.set()
        if weather.closed:
            await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._thawed.wait()
            if not self.weather.closed:
                back, onward = await asyncio.open_connection(HOST, self.target)
                self._writers.add(onward)
                await asyncio.wait(
                    [
                        asyncio.ensure_future(self._pump(reader, onward)),
                        asyncio.ensure_future(self._pump(back, writer)),
                    ]
                )
        except OSError:
            pass  # nobody is behind us: the client finds its connection closed
        finally:
            for each in filter(None, (writer, onward)):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on until one side ends; then the other is told."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._thawed.wait()
                weather = self.weather
                await asyncio.sleep(weather.delay + (len(data) / weather.rate if weather.rate else 0))
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if writer.transport.is_closing() else writer.close()


class Proxies:
    """Proxies in a thread of their own, so that they pass on whatever their owner is busy with; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._all: list[Proxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._all:
            self._do(proxy.close)
        self._do(self._rest)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def before(self, target: int) -> Proxy:
        """Return a proxy that listens before a port, whether somebody listens there yet or not."""
        proxy = Proxy(self._loop, target)
        self._do(proxy.open)
        self._all.append(proxy)
        return proxy

    def _do(self, what: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(what(), self._loop).result()  # type: ignore[arg-type]

    async def _rest(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
