"""What servers answer: of cited pages, of trackers, of language models; byte by byte, without a network."""

from __future__ import annotations

import gzip
import json
import ssl
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httpcore
import httpx

from groundwire.epistemic.model import ModelAnswer, ModelFault, ModelRequest
from groundwire.gate.lookups import Assessor
from groundwire.gate.types import Decided
from groundwire.messages.decode import decode_response
from groundwire.policy import Policy
from groundwire.verify.issues import GitHubTracker, GitLabTracker
from groundwire.verify.models import AnthropicModel, HttpModel, ModelLimits, OpenAIModel
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.results import CitationState
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.transport import GuardedTransport
from groundwire.verify.url import UrlChecker
from tests.fuzz.inputs import CANARY, TABLES, Dice, any_value, mutated, scratched, text, written
from tests.fuzz.records import check_decision, check_outputs
from tests.fuzz.runner import entry, hold, quiet
from tests.unit.gate.world import World, response_bytes
from tests.unit.verify.model_service import CONTEXT, FULL, YES, document

KEY: Final = "sk-0123456789-swordfish"
_PUBLIC: Final = "93.184.216.34"
_MOST: Final = 8_000_000
"""Bytes of one answer after which whoever still reads is taken for one who never stops."""
_LONG: Final = 2_500_000  # bytes of a long answer: more than anybody reads


class Wire(httpcore.AsyncMockStream):
    """A connection that says what was prepared, in pieces, and then ends, or goes on for ever."""

    def __init__(self, said: bytes, piece: int, *, endless: bool) -> None:
        super().__init__([])
        self.said, self._piece, self._endless = said, piece, endless
        self._read = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 - httpcore's
        size = min(self._piece, max_bytes)
        part, self.said = self.said[:size], self.said[size:]
        if not part and self._endless and not self._closed:
            part = b"1000\r\n" + b"a" * 4096 + b"\r\n"
        self._read += len(part)
        hold(self._read < _MOST, "an endless answer is read without end")
        return b"" if self._closed else part


class Wires(httpcore.AsyncMockBackend):
    """Gives each connection an answer made from the case's seed, and notes where it was to go."""

    def __init__(self) -> None:
        super().__init__([])
        self.reply: Callable[[], Wire] = lambda: Wire(b"", 1, endless=False)
        self.asked: list[str] = []

    async def connect_tcp(self, host: str, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        self.asked.append(host)
        return self.reply()


def spoken(rng: Dice, body: bytes) -> Wire:
    def longer(times: int) -> bytes:
        return (body * min(times, _LONG // max(1, len(body)) + 1))[:_LONG]

    headers = [("content-type", rng.choice(TABLES["content_types"]))]
    kind = rng.random()
    if kind < 0.15:
        body = rng.one(gzip.compress, zlib.compress)(longer(rng.one(1, 1, 500)))
        headers.append(("content-encoding", rng.one("gzip", "deflate", "br", "identity, gzip", "x")))
    elif kind < 0.25:
        body = longer(rng.one(2, 50, 5_000))
    length = rng.choice((str(len(body)),) * 8 + ("-1", "0", "99999999999", str(len(body) + 1), "x", "1, 2"))
    headers.append(
        ("content-length", length)
        if rng.chance(0.8)
        else ("transfer-encoding", rng.one("chunked", "gzip, chunked", "x"))
    )
    status = rng.choice(TABLES["statuses"])
    if status in {301, 302, 307, 308} or rng.chance(0.05):
        headers.append(("location", rng.one(*TABLES["redirects"], "h" * 3_000, text(rng)[:200])))
    if rng.chance(0.1):
        headers.append(("retry-after", rng.one(*TABLES["retry_after"], text(rng)[:30])))
    if rng.chance(0.05):
        headers += [("x-" + text(rng)[:20], text(rng)[:5_000])] * rng.one(1, 100)
    head = f"HTTP/1.1 {status} {rng.one('OK', '', text(rng)[:20])}\r\n" + "".join(
        f"{k}: {v}\r\n" for k, v in headers
    )
    said = head.encode("utf-8", "surrogatepass") + b"\r\n" + body
    if rng.chance(0.1):
        said = scratched(rng, said[: len(head) + 50]) + said[len(head) + 50 :]
    return Wire(
        said,
        rng.one(65_536, 4_096, 100, 7) if len(said) < 5_000 else 65_536,
        endless=rng.chance(0.03),
    )


async def _pages(wires: Wires, rng: Dice) -> int:
    """Ask cited pages and issues."""
    size = 0

    async def resolved(_host: str, _port: int) -> list[str]:
        return [_PUBLIC]

    def reply() -> Wire:
        nonlocal size
        body = "<p>" * rng.one(1, 1, 3_000) + text(rng)
        page = f"<html><head><title>{text(rng)}</title></head>{body}"
        issue = written(rng, mutated(rng, {"title": text(rng), "body": text(rng), "description": "x"}))
        odd = (b"", b"\x00" * 100, b"\xff\xfe" + b"a\x00" * 50)
        other = rng.one(*odd, written(rng, any_value(rng, 3)), bytes(rng.randbytes(50)))
        wire = spoken(rng, rng.one(page.encode("utf-8", "surrogatepass"), issue, other))
        size += len(wire.said)
        return wire

    wires.reply = reply
    wires.asked.clear()
    guard = AddressGuard(resolver=resolved)
    transport = GuardedTransport(guard, inner=wires, ssl_context=_TLS)
    want = rng.chance(0.5)
    if rng.chance(0.7):
        pacer = Pacer(PacingLimits(spacing=0.0, failures=10**9))
        checker = UrlChecker(transport=transport, pacer=pacer, guard=guard)
        hosts = ("https://docs.example.org/a", "http://docs.example.org/")
        address = rng.one(*hosts, f"http://docs.example.org/{text(rng)}")
        check = await checker.check(address, want_text=want)
        await checker.close()
    else:
        kind = rng.one(GitHubTracker, GitLabTracker)
        tracker = kind("https://tracker.example.org", "owner/name", KEY, transport=transport)
        check = await tracker.exists(rng.one("1", "12", text(rng)[:20]), want_text=want)
        await tracker.close()
    elsewhere = set(wires.asked) - {_PUBLIC}
    hold(not elsewhere, f"connected to {sorted(elsewhere)}")
    hold(KEY not in check.detail and check.detail.isprintable(), "the detail is not for people")
    hold(check.state in CitationState, "no state")
    return size


def model_of(api: str, wires: Wires) -> HttpModel:
    kind: Any = {"openai": OpenAIModel, "anthropic": AnthropicModel}[api]
    more = {"logprobs": True} if api == "openai" else {}
    limits = ModelLimits(attempts=2, failures=10**9)

    async def no_wait(_seconds: float) -> None: ...

    waiting = {"backoff": lambda _failures: 0.0, "sleep": no_wait}
    model: HttpModel = kind("https://model.example.org", KEY, limits=limits, tls=_TLS, **waiting, **more)
    transport = httpx.AsyncHTTPTransport(verify=_TLS)
    transport._pool._network_backend = wires
    model._client = lambda: httpx.AsyncClient(transport=transport, timeout=None)  # noqa: S113 - as the sender's own
    return model


async def _models(wires: Wires, heard: Callable[[], str], rng: Dice) -> int:
    """Ask a language model about a response, and decide by its answer."""
    api = rng.one("openai", "anthropic")
    size = 0

    def reply() -> Wire:
        nonlocal size
        odd = written(rng, mutated(rng, json.loads(YES))).decode("utf-8", "replace")
        said = rng.one(YES, YES, odd, text(rng))
        body = written(rng, mutated(rng, _answer(rng, api, said), 0, 2))
        plain = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        wire = spoken(rng, body) if rng.chance(0.5) else Wire(plain, 65_536, endless=False)
        size += len(body)
        return wire

    wires.reply = reply
    model = model_of(api, wires)
    if rng.chance(0.5):
        try:
            answer = await model.answer(ModelRequest("data", "haiku", timeout=20))
            hold(isinstance(answer, ModelAnswer) and isinstance(answer.text, str), "no answer")
        except ModelFault as fault:
            hold(KEY not in str(fault), "a fault names the key")
    else:
        policy = Policy(verification=FULL)
        world = World(policy=policy, assessor=Assessor(model))
        said = f"{CONTEXT['a']} {CANARY} is located in Dublin."
        value = response_bytes(answer=said, context=CONTEXT)
        results = await world.results(world.record(value, topic="groundwire.llm-responses"))
        for result in results:
            hold(isinstance(result, Decided), f"ends as {type(result).__name__}")
            if isinstance(result, Decided):
                check_decision(result.decision, decode_response(value), policy)
        check_outputs(results)
    quiet(heard())
    return size


def _answer(rng: Dice, api: str, said: str) -> Any:
    made = document(api, said, end=rng.one("good", "good", "good", "truncated", "refused", text(rng)[:10]))
    if api == "openai":
        pieces = [said[at : at + 4] for at in range(0, len(said), 4)][:20]
        others = [{"token": "x", "logprob": -3}]
        logprobs = [rng.one(-0.1, -1e400, 5, float("nan")) for _ in pieces]
        tokens = [
            {"token": piece, "logprob": logprob, "top_logprobs": others}
            for piece, logprob in zip(pieces, logprobs, strict=True)
        ]
        made["choices"][0]["logprobs"] = {"content": tokens}
    return made


_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


ENTRIES: Final = (
    entry("pages", lambda *_: partial(_pages, Wires()), 4),
    entry("models", lambda _, heard: partial(_models, Wires(), heard), 2),
)
