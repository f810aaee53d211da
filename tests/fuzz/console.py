"""The console's pages and its HTTP interface, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from groundwire.console.pages import ROUTES
from tests.fuzz import inputs
from tests.fuzz.inputs import CANARY, ODD, TABLES, Dice, mutated, scratched, text, written
from tests.fuzz.runner import Case, Entry, hold, listening, quiet
from tests.unit.console.rooms import NOBODYS, TOKENS, Room, make_decision, make_room

MARK: Final = "<script>alert(1)</script>"
_HOSTS: Final = (*(b"127.0.0.1:8700",) * 20, b"evil.example", b"", b"127.0.0.1:8700@evil")
_TYPES: Final = (*(b"application/json",) * 8, b"application/x-www-form-urlencoded", b"text/plain", b"")
_HEADERS: Final = (
    *(b"origin", b"cookie", b"x-csrf-token", b"content-length", b"accept", b"referer", b"x-forwarded-for"),
)


async def _request(room: Room, items: list[str], heard: Callable[[], str], rng: Dice) -> int:
    """Send a request; whatever it is, the answer is one of the documented ones, and never a fault."""
    room.clock.forward(seconds=2)  # limits are by time
    route = rng.choice(ROUTES)
    method = route.method if rng.chance(0.95) else rng.one("PUT", "HEAD", "OPTIONS", "GET", "POST", "X")
    path = route.path.replace(":uuid", "")
    for name in ("{decision_id}", "{action_id}"):
        odd = quote(text(rng)[:80], errors="replace")
        path = path.replace(name, rng.one(*items, *items, NOBODYS, odd))
    if rng.chance(0.7):
        path = "/api/queue" if path == "/" else f"/api{path}"
    elif rng.chance(0.2):
        path = rng.one(*TABLES["public_paths"], "/" + quote(text(rng)[:200], errors="replace"))
    if rng.chance(0.5):
        names = [rng.one(*TABLES["query_names"], text(rng)[:20]) for _ in range(rng.randint(1, 3))]
        held = (text(rng)[:100], "1", "-1", "9" * 30, "risk", "NaN")
        path += "?" + urlencode([(name, rng.choice(held)) for name in names], errors="replace")
    target = path.encode("ascii", "replace")
    target = scratched(rng, target) if rng.chance(0.05) else target
    body = _body(rng, items) if method == "POST" or rng.chance(0.02) else b""
    token = rng.one(*TOKENS, "lead-token", "lead-token", "lead-token", "ana-token", "", "nobody")
    headers = [(b"host", rng.choice(_HOSTS)), (b"content-type", rng.choice(_TYPES))]
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    if rng.chance(0.2):
        said = text(rng)[:60].encode("latin-1", "replace")
        odd_values = (b"null", b"session=" + b"A" * 300, b"-1", b"\xff\xfe", b"9" * 40, said)
        headers.append((rng.choice(_HEADERS), rng.choice(odd_values)))
    status, answer = await asked(room, method, target, headers, body)
    hold(status < 500 or status == 503, f"{method} answers {status}")
    if b"<!doctype html" in answer[:200].lower():
        hold(MARK.encode() not in answer, "a text is markup on a page")
    if len(room.recorder.sent) > 100:
        room.recorder.sent.clear()
    quiet(heard())
    return len(target) + len(body)


def _body(rng: Dice, items: list[str]) -> bytes:
    plain: dict[str, Any] = {
        "action": rng.one("approve", "reject", "edit", "retract", "expire"),
        "revision": 1,
        "reason": rng.one(None, "incorrect", "other"),
        "note": CANARY,
        "content": inputs.content(rng),
        "items": [{"decision_id": rng.choice(items), "revision": 1}],
        "query": text(rng),
    }
    kept = rng.sample(sorted(plain), rng.one(1, 2, 3, 4, len(plain)))
    if rng.chance(0.1):
        return urlencode({name: str(plain[name]) for name in kept}, errors="replace").encode()
    return written(rng, mutated(rng, {name: plain[name] for name in kept}, 0, 2))


async def asked(
    room: Room, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    """Send a request as a server hands it on: what a client library would refuse to send arrives too."""
    raw, _, query = target.partition(b"?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(raw.decode("latin-1")), "raw_path": raw, "query_string": query, "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8700),
    }  # fmt: skip
    parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)] or [b""]
    status, answer = 0, bytearray()

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        answer.extend(message.get("body", b""))

    await room.app(scope, receive, send)
    return status, bytes(answer)


@asynccontextmanager
async def _opened() -> AsyncIterator[Case]:
    with listening() as heard:
        room = make_room()
        texts = [f"{CANARY} {MARK}", *ODD[:20], "Water is wet."]
        items = room.add(*[
            make_decision(f"c{n}", one.encode("utf-8", "replace").decode()) for n, one in enumerate(texts) if one
        ])  # fmt: skip
        yield partial(_request, room, items, heard)


ENTRIES: Final = (Entry("console", _opened, 3),)
