"""A schema registry for tests: the REST API of Confluent's, as its clients use it, in memory."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Found = tuple[int, dict[str, Any]]


@dataclass
class SchemaRegistry:
    """What is registered, what was asked, and whether it answers.

    Attributes:
        status: of every answer; None: as it is asked.
        user: name and password that it asks for.
    """

    url: str = ""
    status: int | None = None
    user: tuple[str, str] | None = None
    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema; the same one again has the same id."""
        plain = {"schemaType": "AVRO", "references": [], **schema}
        plain = {name: plain[name] for name in ("schema", "schemaType", "references")}
        with self.lock:
            if plain not in self.schemas:
                self.schemas.append(plain)
            number = 1 + self.schemas.index(plain)
            versions = self.versions.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Found:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self.schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self._shown(int(number), query)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body)}
            case "POST", ["subjects", subject]:
                number = self.register(subject, body)
                return 200, self._version(subject, self.versions[subject].index(number), query)
            case "GET", ["subjects", subject, "versions", version]:
                known = self.versions.get(subject, [])
                at = len(known) if version == "latest" else int(version)
                if not 0 < at <= len(known):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                return 200, self._version(subject, at - 1, query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, at: int, query: dict[str, list[str]]) -> dict[str, Any]:
        number = self.versions[subject][at]
        return {"subject": subject, "version": at + 1, "id": number, **self._shown(number, query)}

    def _shown(self, number: int, query: dict[str, list[str]]) -> dict[str, Any]:
        shown = {name: value for name, value in self.schemas[number - 1].items() if value != "AVRO" and value}
        if shown.get("schemaType") == "PROTOBUF" and query.get("format") != ["serialized"]:
            shown["schema"] = 'syntax = "proto3"; // as text'
        return shown


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            made.asked.append(where.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            status, found = made.answer(self.command, where.path, parse_qs(where.query), body)
            if made.status is not None:
                status, found = made.status, {"error_code": 50001, "message": "not now"}
            elif made.user is not None:
                wanted = "Basic " + base64.b64encode(":".join(made.user).encode()).decode()
                if self.headers.get("Authorization") != wanted:
                    status, found = 401, {"error_code": 401, "message": "Unauthorized"}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the base class's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
            ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
