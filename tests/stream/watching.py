"""Prometheus that scrapes a deployment as deploy/prometheus/prometheus.yml says, and commands sealed as containers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from deploy.embedded.process import ServerProcess, find_program, free_port, listening
from tests.services.serving import serving
from tests.stream.harness import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
HOST = "127.0.0.1"

KAFKA_EXPORTER = (
    b'kafka_consumergroup_lag{consumergroup="groundwire-claims",partition="0",topic="groundwire.claims"} 0\n'
)
"""What kafka-exporter 1.9 says, as its documentation has it: no package brings it here, so this is no proof of it."""

_SELECTOR = re.compile(r"\b(?:groundwire|redis|process|kafka)_\w+(?:\{[^}]*\})?")


class Prometheus:
    """Asks a Prometheus server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{HOST}:{port}/api/v1"

    async def ask(self, path: str, **parameters: str) -> Any:
        def ask() -> Any:
            query = urllib.parse.urlencode(parameters).encode() if parameters else None
            with urllib.request.urlopen(f"{self._url}/{path}", data=query, timeout=10) as answer:  # noqa: S310 - our own server
                return json.load(answer)["data"]

        return await asyncio.to_thread(ask)

    async def values(self, query: str) -> list[float]:
        """Return what a query's series are at now, but what is no number."""
        found = (await self.ask("query", query=query))["result"]
        return [value for series in found if (value := float(series["value"][1])) == value]

    async def without_data(self, queries: Sequence[str]) -> list[str]:
        """Return the queries that bring nothing."""
        return [query for query in queries if not await self.values(query)]


def selectors(expression: str) -> list[str]:
    """The series that an expression is made of, with their labels."""
    return _SELECTOR.findall(expression)


class Programs(NamedTuple):
    """Where what watches is installed."""

    prometheus: str
    redis_exporter: str

    @classmethod
    def find(cls) -> Self:
        """Look on the PATH. Raises: MissingServiceError."""
        names = ("prometheus", "prometheus-redis-exporter")
        return cls(*(find_program(name, f"Debian's package {name}") for name in names))


@asynccontextmanager
async def watching(
    programs: Programs, folder: Path, targets: Mapping[str, int], redis_url: str
) -> AsyncIterator[Prometheus]:
    """Run Prometheus with the rules of the repository, every second, over metrics ports by role."""
    port, redis_port = free_port(), free_port()
    config = folder / "prometheus.yml"
    exporting = [f"-redis.addr={redis_url}", f"-web.listen-address={HOST}:{redis_port}"]
    scraping = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}"]
    scraping.append(f"--web.listen-address={HOST}:{port}")
    servers = [
        ServerProcess("redis exporter", [programs.redis_exporter, *exporting], folder / "redis-exporter.log"),
        ServerProcess("prometheus", [programs.prometheus, *scraping], folder / "prometheus.log"),
    ]
    async with serving(_say_lag) as lag:
        exporters = {"redis": redis_port, "kafka": lag}
        config.write_text(yaml.safe_dump(_configuration(targets, exporters)))
        try:
            for server, at in zip(servers, (redis_port, port), strict=True):
                server.start()
                await asyncio.to_thread(server.wait_until, lambda at=at: listening(at), 30)
            yield Prometheus(port)
        finally:
            for server in servers:
                server.stop()


def _configuration(targets: Mapping[str, int], exporters: Mapping[str, int]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        if job["job_name"] == "groundwire":  # names of containers, which compose's own resolver knows
            assert set(job.pop("dns_sd_configs")[0]["names"]) == set(targets)
            assert job.pop("relabel_configs")[0]["target_label"] == "role"
            job["static_configs"] = [
                {"targets": [f"{HOST}:{port}"], "labels": {"role": role}} for role, port in targets.items()
            ]
        else:
            job["static_configs"] = [{"targets": [f"{HOST}:{exporters[job['job_name']]}"]}]
    return config


async def _say_lag(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(KAFKA_EXPORTER) + KAFKA_EXPORTER)
    await writer.drain()
    writer.close()


_SEAL = """
mount --make-rprivate / && mount --bind / / && cd "$PWD" && mount -o remount,bind,ro / \
&& mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR" \
&& exec setpriv --no-new-privs --bounding-set -all --inh-caps -all "$@"
"""


@cache
def can_seal() -> bool:
    """Whether this machine lets us: it takes root, and a kernel that gives namespaces away."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "--make-rprivate", "/"], capture_output=True, check=False
    )
    return tried.returncode == 0


def sealed(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment under which it is sealed; as they are where this machine does not allow it.

    Args:
        folder: becomes the command's own folder for temporary files.
    """
    folder.mkdir()
    if not can_seal():
        return list(command), {**environment, "TMPDIR": str(folder)}
    wrapped = ["unshare", "--mount", "sh", "-ec", _SEAL, "sh", *command]
    return wrapped, {**environment, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
