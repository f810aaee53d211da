"""One node of Apache Kafka in KRaft mode, broker and controller in one: its settings and its process."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.embedded.process import HOST, ServerProcess, ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Any id in Kafka's form (a UUID in base 64); all nodes of a cluster share it.
_CLUSTER_ID = "Z3JvdW5kd2lyZS10ZXN0cw"
_STARTED = "Kafka Server started"
_FORMAT_SECONDS = 240.0
_MEMORY = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def settings(
    node: int, ports: Sequence[tuple[int, int]], data: Path, listener: str = "PLAINTEXT"
) -> dict[str, str]:
    """Return a node's settings: short timeouts for tests, durability and security as in production.

    Args:
        node: its id, from 1.
        ports: of each node, the port for clients and the one for controllers.
        data: the folder for its records.
        listener: the security protocol that clients and nodes speak.
    """
    copies = min(3, len(ports))
    client, controller = ports[node - 1]
    voters = ",".join(f"{i}@{HOST}:{control}" for i, (_, control) in enumerate(ports, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": f"{listener}://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": f"{listener}:{listener},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": listener,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(copies),
        "min.insync.replicas": "2" if copies == 3 else "1",  # as in production: one of three may be down
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # a killed node cannot come back before its session has ended: 9 s by default; much less, and a node that
        # waits for a busy disk is fenced
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }


@dataclass(frozen=True, slots=True)
class Security:
    """How clients have to speak to the nodes.

    Attributes:
        protocol: `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
        settings: what Kafka needs for it: key stores, mechanisms, users.
        users: name and password of each that may use SCRAM-SHA-512; written where the data are formatted.
    """

    protocol: str
    settings: Mapping[str, str]
    users: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class KafkaNode:
    """A node whose data, settings and log are in a folder of its own.

    Args:
        number: its id, from 1.
        ports: of each node of the cluster, the port for clients and the one for controllers.
        folder: where everything of it goes.
        java: path of the Java program.
        jars: folder with the jars of Kafka.
        security: None: clients speak in the clear.
    """

    number: int
    ports: Sequence[tuple[int, int]]
    folder: Path
    java: str
    jars: Path
    security: Security | None = None
    server: ServerProcess = field(init=False)

    def __post_init__(self) -> None:
        command = [self.java, *_MEMORY, *self._classpath(), "kafka.Kafka", str(self._properties)]
        self.server = ServerProcess(f"Kafka node {self.number}", command, self.log)

    @property
    def log(self) -> Path:
        return self.folder / "kafka.log"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _classpath(self) -> list[str]:
        logging = Path(__file__).with_name("log4j2.xml")
        return [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{self.jars}/*"]

    def format(self) -> None:
        """Write the settings and make the data folder Kafka's own; done once.

        Raises:
            ServiceError: Kafka refused them; the message is its own.
        """
        if (self.folder / "data" / "meta.properties").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(self._properties)]
        if self.security is None:
            chosen = settings(self.number, self.ports, self.folder / "data")
        else:
            chosen = settings(self.number, self.ports, self.folder / "data", self.security.protocol)
            chosen |= self.security.settings
            for name, password in self.security.users.items():
                arguments += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        formatted = subprocess.run(  # noqa: S603 - the command is built here
            [self.java, *_MEMORY, *self._classpath(), "kafka.tools.StorageTool", *arguments],
            capture_output=True,
            text=True,
            timeout=_FORMAT_SECONDS,
            check=False,
        )
        if formatted.returncode:
            raise ServiceError(f"Kafka could not format {self.folder}:\n{formatted.stdout}{formatted.stderr}")

    def start(self) -> None:
        """Start the process, without waiting for it."""
        if not self.server.running:
            if self.log.exists():  # so that only what is logged from here on counts
                self.log.rename(self.log.with_suffix(f".{self.log.stat().st_mtime_ns}.log"))
            self.server.start()

    def wait(self, seconds: float) -> None:
        """Wait until the node serves clients.

        Raises:
            ServiceError: it ended or took longer; the message holds the end of its log.
        """
        self.server.wait_until(self._serves, seconds)

    def _serves(self) -> bool:
        return _STARTED in self.log.read_text(errors="replace")
