"""Serves /metrics, /live and /ready of a process in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from groundwire.errors import binding

Probe = Callable[[], str]
"""Returns why a process is not well; empty: it is."""


def serve_probes(
    host: str, port: int, *, live: Probe, ready: Probe, registry: CollectorRegistry = REGISTRY
) -> None:
    """Serve; port 0: not at all. Raises: UsageError: the address cannot be bound."""
    if not port:
        return
    metrics_app = make_wsgi_app(registry)  # answers whatever the path
    probes = {"/live": live, "/ready": ready}

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            page: Iterable[bytes] = metrics_app(environ, start_response)
            return page
        status, text = "404 Not Found", "not found: there are /metrics, /live and /ready"
        if path in probes:
            why = probes[path]()
            status, text = ("503 Service Unavailable", why) if why else ("200 OK", "ok")
        start_response(status, [("Content-Type", "text/plain")])
        return [text.encode()]

    with binding("GROUNDWIRE_METRICS_HOST, GROUNDWIRE_METRICS_PORT", host, port):
        server = make_server(host, port, app, server_class=ThreadingWSGIServer, handler_class=_QuietHandler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class's signature
        ...
