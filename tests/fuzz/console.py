"""The console's pages and its HTTP interface, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from starlette.applications import Starlette

from groundwire.console.pages import ROUTES
from tests.fuzz import inputs
from tests.fuzz.inputs import CANARY, ODD, TABLES, Dice, mutated, scratched, text, written
from tests.fuzz.runner import Case, Entry, hold, listening, quiet
from tests.unit.console.rooms import NOBODYS, TOKENS, Room, make_decision, make_room

MARK: Final = "<script>alert(1)</script>"
_PUBLIC: Final = tuple(TABLES["public_paths"])
_HOSTS: Final = (*(b"127.0.0.1:8700",) * 20, b"evil.example", b"", b"127.0.0.1:8700@evil")
_TYPES: Final = (*(b"application/json",) * 8, b"application/x-www-form-urlencoded", b"text/plain", b"")
_HEADERS: Final = (
    *(b"origin", b"cookie", b"x-csrf-token", b"content-length", b"accept", b"referer", b"x-forwarded-for"),
)
_ASKED: Final = tuple(TABLES["query_names"])


class Console:
    """Sends requests; whatever they are, the answer is one of the documented ones, and never a fault."""

    def __init__(self, room: Room, items: list[str], heard: Callable[[], str]) -> None:
        self._room, self._items, self._heard = room, items, heard

    async def __call__(self, rng: Dice) -> int:
        self._room.clock.forward(seconds=2)  # limits are by time
        method, path = self._target(rng)
        body = self._body(rng) if method == "POST" or rng.chance(0.02) else b""
        status, answer = await self._asked(method, path, self._headers(rng), body)
        hold(status < 500 or status == 503, f"{method} answers {status}")
        if b"<!doctype html" in answer[:200].lower():
            hold(MARK.encode() not in answer, "a text stands on a page as markup")
        if len(self._room.recorder.sent) > 100:
            self._room.recorder.sent.clear()
        quiet(self._heard())
        return len(path) + len(body)

    def _target(self, rng: Dice) -> tuple[str, bytes]:
        place = rng.choice(ROUTES)
        method = place.method if rng.chance(0.95) else rng.one("PUT", "HEAD", "OPTIONS", "GET", "POST", "X")
        path = place.path.replace(":uuid", "")
        for name in ("{decision_id}", "{action_id}"):
            odd = quote(text(rng)[:80], errors="replace")
            path = path.replace(name, rng.one(*self._items, *self._items, NOBODYS, odd))
        if rng.chance(0.7):
            path = "/api/queue" if path == "/" else f"/api{path}"
        elif rng.chance(0.2):
            path = rng.one(*_PUBLIC, "/" + quote(text(rng)[:200], errors="replace"))
        if rng.chance(0.5):
            names = [rng.one(*_ASKED, text(rng)[:20]) for _ in range(rng.randint(1, 3))]
            held = (text(rng)[:100], "1", "-1", "9" * 30, "risk", "NaN")
            path += "?" + urlencode([(name, rng.choice(held)) for name in names], errors="replace")
        plain = path.encode("ascii", "replace")
        return method, scratched(rng, plain) if rng.chance(0.05) else plain

    def _headers(self, rng: Dice) -> list[tuple[bytes, bytes]]:
        token = rng.one(*TOKENS, "lead-token", "lead-token", "lead-token", "ana-token", "", "nobody")
        found = [(b"host", rng.choice(_HOSTS)), (b"content-type", rng.choice(_TYPES))]
        if token:
            found.append((b"authorization", f"Bearer {token}".encode()))
        if rng.chance(0.2):
            said = text(rng)[:60].encode("latin-1", "replace")
            odd = (b"null", b"session=" + b"A" * 300, b"-1", b"\xff\xfe", b"9" * 40, said)
            found.append((rng.choice(_HEADERS), rng.choice(odd)))
        return found

    def _body(self, rng: Dice) -> bytes:
        plain: dict[str, Any] = {
            "action": rng.one("approve", "reject", "edit", "retract", "expire"),
            "revision": 1,
            "reason": rng.one(None, "incorrect", "other"),
            "note": CANARY,
            "content": inputs.content(rng),
            "items": [{"decision_id": rng.choice(self._items), "revision": 1}],
            "query": text(rng),
        }
        kept = rng.sample(sorted(plain), rng.one(1, 2, 3, 4, len(plain)))
        if rng.chance(0.1):
            return urlencode({name: str(plain[name]) for name in kept}, errors="replace").encode()
        return written(rng, mutated(rng, {name: plain[name] for name in kept}, 0, 2))

    async def _asked(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        """Send a request as a server hands it on: what a client library would refuse to send arrives too."""
        raw, _, query = target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(raw.decode("latin-1")), "raw_path": raw, "query_string": query, "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8700),
        }  # fmt: skip
        parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)] or [b""]
        told: dict[str, Any] = {"status": 0, "body": bytearray()}

        async def receive() -> dict[str, Any]:
            if not parts:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: dict[str, Any]) -> None:
            told["status"] = message.get("status", told["status"])
            told["body"] += message.get("body", b"")

        app: Starlette = self._room.app
        await app(scope, receive, send)  # type: ignore[arg-type]
        return told["status"], bytes(told["body"])


@asynccontextmanager
async def _opened() -> AsyncIterator[Case]:
    with listening() as heard:
        room = make_room()
        texts = [f"{CANARY} {MARK}", *ODD[:20], "Water is wet."]
        items = room.add(*[
            make_decision(f"c{n}", one.encode("utf-8", "replace").decode()) for n, one in enumerate(texts) if one
        ])  # fmt: skip
        yield Console(room, items, heard)


ENTRIES: Final = (Entry("console", _opened, 3),)
