"""/metrics, /live and /ready on one port, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from agents.pauses import Pauses

PATIENCE: Final = 120.0
"""Seconds without progress after which a worker with work under way is taken for dead."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class's signature
        """Say nothing: probes come every few seconds."""


def serve_health(host: str, port: int, pauses: Pauses) -> None:
    """Serve in the background; port 0 serves nothing."""
    if not port:
        return
    metrics_app = make_wsgi_app()
    answers: dict[str, Callable[[], bool]] = {
        "/live": lambda: pauses.alive(PATIENCE),
        "/ready": pauses.ready,
    }

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = answers.get(environ["PATH_INFO"])
        if answer is None:
            page: Iterable[bytes] = metrics_app(environ, start_response)
            return page
        good = answer()
        text = "ok" if good else "paused: " + ", ".join(sorted(pauses.current) or ["no progress"])
        start_response("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [text.encode()]

    server = make_server(host, port, app, server_class=_Server, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
