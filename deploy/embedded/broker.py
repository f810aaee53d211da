"""A broker in one process that speaks the Kafka protocol on loopback, for the demo and the tests.

    python -m deploy.embedded.broker [--port N] [--advertise N] [--topic NAME:PARTITIONS ...]

It prints `ready 127.0.0.1:PORT`, takes commands as lines on standard input (`down`, `up`,
`topic NAME PARTITIONS`; each is answered `ok` or `error WHY`) and ends at SIGTERM or at the end of its
input, so that it never outlives its parent.

It is no Kafka. One node, no replication, no transactions, no authentication, no compaction and no
retention: everything is kept in memory and gone when the process ends. It offers the protocol versions that
aiokafka speaks. What it does have behaves as Apache Kafka does, and the same tests run on both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import struct
import sys
from typing import TYPE_CHECKING

from deploy.embedded.node import UNSUPPORTED_VERSION, Node
from deploy.embedded.process import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

_API_VERSIONS = 18
_REQUEST_HEAD = struct.Struct(">hhih")  # api key, api version, correlation id, length of the client id
_EXPIRY_SECONDS = 0.1


class Connection(asyncio.Protocol):
    """One client connection: requests are answered in the order in which they came."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._received = bytearray()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: asyncio.Transport | None = None
        self._serving: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server makes no other kind
        self.transport = transport
        self._serving = asyncio.create_task(self._serve(transport))
        self._broker.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Split the received bytes into requests."""
        self._received += data
        while len(self._received) >= 4:  # each request is preceded by its length
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            self._requests.put_nowait(bytes(self._received[4:end]))
            del self._received[:end]

    def connection_lost(self, _error: Exception | None) -> None:
        self._broker.connections.discard(self)
        if self._serving:
            self._serving.cancel()

    async def _serve(self, transport: asyncio.Transport) -> None:
        try:
            while True:
                request = await self._requests.get()
                await self._answer(transport, request)
        except Exception:
            # as Kafka does with a request that it cannot parse
            logger.exception("request failed")
            transport.abort()

    async def _answer(self, transport: asyncio.Transport, request: bytes) -> None:
        api_key, version, correlation, client_length = _REQUEST_HEAD.unpack_from(request)
        body = request[_REQUEST_HEAD.size + max(client_length, 0) :]
        if api_key == _API_VERSIONS and (api_key, version) not in self._broker.node.requests:
            # Kafka's rule for a client that is too new: version 0 of the answer, naming what is spoken
            answer = struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        else:
            encoded = await self._broker.node.answer(api_key, version, body)
            if encoded is None:
                return
            answer = encoded
        transport.write(struct.pack(">ii", len(answer) + 4, correlation) + answer)


class Broker:
    """The node behind a listener that can be closed and opened again.

    Args:
        port: where it listens.
        advertised: the port that clients are told; None: the same. Another one is that of a proxy before it.
    """

    def __init__(self, port: int, advertised: int | None = None) -> None:
        self.port = port
        self.node = Node(HOST, advertised or port)
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def up(self) -> None:
        if self._server is None:
            for group in self.node.groups.values():
                group.touch_all()
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: Connection(self), HOST, self.port)

    async def down(self) -> None:
        """Refuse connections and drop those that are open; what is stored stays."""
        if self._server:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            if connection.transport:
                connection.transport.abort()

    async def expire_sessions(self) -> None:
        """End the sessions of members without heartbeats, while the broker is up."""
        while True:
            await asyncio.sleep(_EXPIRY_SECONDS)
            if self._server:
                for group in self.node.groups.values():
                    group.expire()

    async def command(self, line: str) -> str:
        """Do what a line of standard input says and return the answer."""
        match line.split():
            case ["up"]:
                await self.up()
            case ["down"]:
                await self.down()
            case ["topic", name, partitions] if partitions.isdecimal() and int(partitions) > 0:
                self.node.create_topic(name, int(partitions))
            case _:
                return f"error not a command: {line.strip()!r}"
        return "ok"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def serve(port: int, topics: Sequence[tuple[str, int]], advertised: int | None = None) -> None:
    """Run the broker until SIGTERM, SIGINT or the end of standard input."""
    broker = Broker(port, advertised)
    for name, partitions in topics:
        broker.node.create_topic(name, partitions)
    await broker.up()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lines.feed_eof)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    expiry = asyncio.create_task(broker.expire_sessions())
    _say(f"ready {HOST}:{port}")
    while line := await lines.readline():
        _say(await broker.command(line.decode()))
    expiry.cancel()
    await broker.down()


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.rpartition(":")
    if not name or not partitions.isdecimal() or int(partitions) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS")
    return name, int(partitions)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.broker", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--advertise", type=int, help="the port that clients are told, where a proxy listens")
    parser.add_argument("--topic", type=_topic, action="append", default=[], metavar="NAME:PARTITIONS")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(chosen.port or free_port(), chosen.topic, chosen.advertise))


if __name__ == "__main__":
    main()
