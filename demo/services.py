"""The broker, the Redis server and the workers of one run, as processes that end with it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.embedded import EmbeddedBroker, EmbeddedRedis
from deploy.embedded.process import HOST, ServerProcess, free_port, tail

ROLES: Final = ("claims", "responses", "deferred", "reviews")


@dataclass(slots=True)
class Services:
    """What runs; `logs` by name of the process, `metrics` as `host:port` of each worker."""

    broker: EmbeddedBroker
    redis: EmbeddedRedis
    workers: list[ServerProcess]
    logs: dict[str, Path]
    metrics: list[str]

    def ended(self) -> str | None:
        return next((worker.name for worker in self.workers if not worker.running), None)

    def log_tails(self) -> str:
        return "\n".join(f"--- {name}\n{tail(path).rstrip()}" for name, path in self.logs.items())


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedRedis]]:
    """Start the broker and the Redis server side by side, and stop them at the end."""
    broker, redis = EmbeddedBroker(folder / "broker"), EmbeddedRedis(folder / "redis")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        stack.callback(redis.close)
        stack.callback(broker.stop)
        for started in [pool.submit(broker.start), pool.submit(redis.start)]:
            started.result()
        yield broker, redis


def environment(broker: EmbeddedBroker, redis: EmbeddedRedis, more: Mapping[str, str]) -> dict[str, str]:
    """The workers' environment: nothing of the user's own settings of Groundwire."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWIRE_")}
    return {
        **inherited,
        "GROUNDWIRE_BROKERS": broker.bootstrap,
        "GROUNDWIRE_REDIS_URL": redis.url,
        "GROUNDWIRE_PARTITIONS": "4",
        "GROUNDWIRE_STATE_GRACE": "1",
        "GROUNDWIRE_LOG_FORMAT": "json",
        **more,
    }


@contextlib.contextmanager
def workers(
    folder: Path, environment: Mapping[str, str], broker: EmbeddedBroker, redis: EmbeddedRedis
) -> Iterator[Services]:
    """Start one worker of each role, wait until they are ready, stop them at the end. Raises: ServiceError."""
    ports, root = {role: free_port() for role in ROLES}, Path(__file__).resolve().parents[1]
    started = []
    for role, port in ports.items():
        command, own = [sys.executable, "-m", "agents", role], {"GROUNDWIRE_METRICS_PORT": str(port)}
        log = folder / f"worker-{role}.log"
        started.append(ServerProcess(f"worker {role}", command, log, {**environment, **own}, root))
    logs = {worker.name: worker.log for worker in started}
    logs |= {"broker": broker.directory / "broker.log", "redis": redis.directory / "redis.log"}
    with ThreadPoolExecutor() as pool:
        try:
            for worker in started:
                worker.start()
            for worker in started:
                worker.wait_until(lambda log=worker.log: '"event": "ready"' in log.read_text("utf-8"), 45.0)  # type: ignore[misc]
            yield Services(broker, redis, started, logs, [f"{HOST}:{port}" for port in ports.values()])
        finally:
            list(pool.map(lambda worker: worker.stop(15.0), started))
