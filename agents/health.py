"""Whether a worker lives and is ready: what it waits for, and when it last made progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog
from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from agents.hooks import Batch, Hook
from groundwire import metrics

log = structlog.get_logger()

STALL_SECONDS: Final = 120.0
"""Seconds without progress after which a busy worker counts as dead."""

STATE_SECONDS: Final = 5.0
"""Seconds without an answer of state after which a worker is not ready; it is asked every second."""


class Health(Hook):
    """What the worker waits for, and when it last made progress. Logged once per change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, object], float] = {}  # since when, by dependency and waiter
        self._progressed = self.loop_ticked = clock()
        self.partitions: int | None = None
        self.under_way = 0
        self._state_answered: float | None = None

    async def before_batch(self, batch: Batch) -> None:  # noqa: ARG002 - as all hooks
        if not self.under_way:
            self.progress()
        self.under_way += 1

    async def after_batch(self, batch: Batch) -> None:
        self.under_way -= 1
        self.progress()
        for dependency, waiter in list(self._waiting):
            if waiter is batch:
                self.end(dependency, batch)

    @property
    def current(self) -> frozenset[str]:
        """The dependencies that are waited for."""
        return frozenset(dependency for dependency, _ in list(self._waiting))  # other threads ask too

    def begin(self, dependency: str, waiter: object = None) -> float:
        """Note that someone waits; return since when, in seconds of the clock."""
        if dependency not in self.current:
            metrics.PAUSED.labels(dependency).set(1)
            log.warning("paused", dependency=dependency)
        return self._waiting.setdefault((dependency, waiter), self._clock())

    def end(self, dependency: str, waiter: object = None) -> None:
        waited = self._waiting.pop((dependency, waiter), None) is not None
        if waited and dependency not in self.current:
            metrics.PAUSED.labels(dependency).set(0)
            log.info("resumed", dependency=dependency)

    def note_topics(self, missing: Sequence[str]) -> None:
        """Note which topics are missing; named once."""
        if missing and "topics" not in self.current:
            log.error("topics.missing", topics=missing, hint="`groundwire topics declare` makes them")
        (self.begin if missing else self.end)("topics")

    def waiters(self, dependency: str) -> list[Any]:
        return [waiter for waited_for, waiter in self._waiting if waited_for == dependency]

    @property
    def waits_for(self) -> frozenset[str]:
        """The dependencies waited for, state included if it was silent for too long."""
        answered = self._state_answered
        silent = answered is None or self._clock() - answered > STATE_SECONDS
        return self.current | {"state"} if silent else self.current

    def state_answered(self) -> None:
        self._state_answered = self._clock()

    def tick(self) -> None:
        self.loop_ticked = self._clock()

    def progress(self) -> None:
        self._progressed = self._clock()

    def alive(self) -> bool:
        """Return whether the event loop ran of late, and work progressed or waits for a dependency."""
        now = self._clock()
        if now - self.loop_ticked > STALL_SECONDS:
            return False
        return not self.under_way or bool(self.current) or now - self._progressed < STALL_SECONDS

    def ready(self) -> bool:
        """Return whether the worker has joined its group, state answers, and nothing is waited for."""
        return self.partitions is not None and not self.waits_for


def serve_health(host: str, port: int, health: Health) -> None:
    """Serve /metrics, /live and /ready in a thread; port 0: not at all."""
    if not port:
        return
    metrics_app = make_wsgi_app()  # answers whatever the path
    answers: dict[str, Callable[[], bool]] = {"/live": health.alive, "/ready": health.ready}

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            page: Iterable[bytes] = metrics_app(environ, start_response)
            return page
        status, text = "404 Not Found", "not found: there are /metrics, /live and /ready"
        if path in answers:
            good = answers[path]()
            status = "200 OK" if good else "503 Service Unavailable"
            text = "ok" if good else "paused: " + ", ".join(sorted(health.waits_for) or ["no progress"])
        start_response(status, [("Content-Type", "text/plain")])
        return [text.encode()]

    server = make_server(host, port, app, server_class=ThreadingWSGIServer, handler_class=_QuietHandler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class's signature
        ...
