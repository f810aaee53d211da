"""A tiny HTTP server on a free loopback port: tests say what each path answers, and read what was asked."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.services.serving import serving


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    raw: bytes | None = None  # sent instead of everything above


@dataclass
class Server:
    port: int = 0
    routes: dict[str, "Reply | Callable[[Asked], Reply | Awaitable[Reply]]"] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    written: int = 0

    def url(self, path, host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = self.routes.get(path, Reply(404))
            if callable(reply):
                reply = reply(asked)
            if isinstance(reply, Awaitable):
                reply = await reply
            await asyncio.sleep(reply.delay)
        finally:
            self.in_flight -= 1
        await self._send(writer, method, reply)
        return reply.raw is None

    async def _send(self, writer, method, reply):
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return
        fields = {"Content-Length": str(len(reply.body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{k}: {v}" for k, v in fields.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if method != "HEAD":
            for at in range(0, len(reply.body), 16_384):
                writer.write(reply.body[at : at + 16_384])
                await writer.drain()
                self.written += 16_384
        await writer.drain()


@asynccontextmanager
async def running(host="127.0.0.1"):
    server = Server()
    async with serving(server.serve, host) as server.port:
        yield server
