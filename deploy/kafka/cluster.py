"""Apache Kafka on loopback, one node or three, for the tests and for trying things out.

    python -m deploy.kafka.cluster [--nodes 1|3] [--dir DIR] [--port PORT]

It prints `ready HOST:PORT,...` once every node serves clients, and stops all of them at SIGTERM or at the
end of its standard input, which it says: whoever starts it in the background keeps that open. It needs
Java, and Maven the first time.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from deploy.embedded.process import HOST, MissingServiceError, ServiceError, free_port
from deploy.kafka.jars import find_java, jars_folder
from deploy.kafka.node import KafkaNode, Security

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

_START_SECONDS = 240.0


class KafkaCluster:
    """One node or three of Apache Kafka as child processes; a context manager.

    Each keeps its ports and its data over `stop_node` and `start_node`.

    Args:
        nodes: 1 or 3.
        directory: where data and logs go; None: a temporary folder that `stop` removes.
        security: how clients have to speak to it; None: in the clear.
        port: of the first node, for clients; None: a free one.

    Raises:
        ValueError: another number of nodes.
        MissingServiceError: no Java, or no Maven to fetch Kafka with.
        ServiceError: from `start`, with the end of the node's log.
    """

    def __init__(
        self,
        nodes: int = 1,
        directory: Path | None = None,
        security: Security | None = None,
        *,
        port: int | None = None,
    ) -> None:
        if nodes not in {1, 3}:
            raise ValueError(f"nodes: {nodes}, must be 1 or 3")
        java, jars = find_java(), jars_folder()
        self._temporary = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="groundwire-kafka-"))).resolve()
        ports = [(free_port(), free_port()) for _ in range(nodes)]
        ports[0] = port or ports[0][0], ports[0][1]
        self._ports = [client for client, _ in ports]
        self.nodes = [
            KafkaNode(number, ports, self.directory / f"node-{number}", java, jars, security)
            for number in range(1, nodes + 1)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    @property
    def replication(self) -> int:
        return len(self.nodes)

    def start(self) -> None:
        """Format what is new, start all nodes, and wait until each serves clients."""
        try:
            for node in self.nodes:
                node.format()
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait(_START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop_node(self, number: int, *, hard: bool = True) -> None:
        """Stop one node (from 1): by SIGKILL, as a crash would, or in good order."""
        server = self.nodes[number - 1].server
        if hard:
            server.kill()
        else:
            server.stop()

    def start_node(self, number: int) -> None:
        """Start a stopped node again, on the same ports with its data, and wait until it serves clients."""
        node = self.nodes[number - 1]
        node.start()
        node.wait(_START_SECONDS)

    def pause_node(self, number: int) -> None:
        """Stop a node by SIGSTOP: its connections stay open and nothing answers."""
        self.nodes[number - 1].server.signal(signal.SIGSTOP)

    def resume_node(self, number: int) -> None:
        """Continue a stopped node by SIGCONT."""
        self.nodes[number - 1].server.signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all nodes; a temporary folder is removed with its records."""
        # by SIGKILL: in a controlled shutdown three nodes wait for each other once the majority has ended
        for node in self.nodes:
            node.server.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka.cluster", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--dir", type=Path, help="for data and logs (default: a temporary folder)")
    parser.add_argument("--port", type=int, help="of the first node, for clients (default: a free one)")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    try:
        with KafkaCluster(chosen.nodes, chosen.dir, port=chosen.port) as cluster:
            sys.stdout.write(f"ready {cluster.bootstrap}\n")
            sys.stdout.flush()
            sys.stdin.read()
            sys.stderr.write("kafka: its standard input has ended, so it stops\n")
    except (MissingServiceError, ServiceError) as problem:
        raise SystemExit(f"kafka: {problem}") from problem


if __name__ == "__main__":
    main()
