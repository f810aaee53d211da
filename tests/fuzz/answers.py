"""What servers answer: of cited pages, of trackers, of language models; byte by byte, without a network."""

from __future__ import annotations

import gzip
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import httpcore
import httpx
from redis.backoff import NoBackoff

from groundwire.epistemic.model import Answer, ModelFault, Request
from groundwire.gate.models import Assessor
from groundwire.gate.results import Decided
from groundwire.messages.decode import decode_response
from groundwire.policy import Policy
from groundwire.verify import AddressGuard, Pacer, PacingLimits, UrlChecker
from groundwire.verify.issues import GitHubTracker, GitLabTracker
from groundwire.verify.models import AnthropicModel, HttpModel, ModelLimits, OpenAIModel
from groundwire.verify.results import CitationState
from groundwire.verify.transport import GuardedTransport
from tests.fuzz.approvals import check_decision
from tests.fuzz.entry import Case, Entry, hold, listening, quiet
from tests.fuzz.records import check_outputs
from tests.fuzz.structure import any_value, mutated, written
from tests.fuzz.texts import CANARY, ODD, scratched, text
from tests.unit.gate.world import World, response_bytes
from tests.unit.verify.model_service import CONTEXT, FULL, YES, document

KEY: Final = "sk-0123456789-swordfish"
_PUBLIC: Final = "93.184.216.34"
_MOST: Final = 8_000_000
"""Bytes of one answer after which whoever still reads is taken for one who never stops."""
_LONG: Final = 2_500_000  # bytes of a long answer: more than anybody reads
_STATUS: Final = (
    *(200,) * 8,
    *(301, 302, 307, 308, 401, 403, 404, 405, 410, 429, 500, 501, 503, 206, 204, 304, 999, 100),
)
_PLACES: Final = (
    *(
        "/",
        "/a",
        "//evil.example/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
    ),
    *(
        "https://user:pw@docs.example.org/",
        "http://0x7f.1/",
        "http://docs.example.org:22/",
        "javascript:alert(1)",
        "\u0000",
    ),
    *(
        "http://2130706433/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "h" * 3_000,
        "http://\uff11\uff12\uff17.1/",
        "",
    ),
)


class Wire(httpcore.AsyncNetworkStream):
    """A connection that says what was prepared, in pieces, and then ends, or goes on for ever."""

    def __init__(self, said: bytes, piece: int, *, endless: bool) -> None:
        self._said, self._piece, self._endless = said, piece, endless
        self.read_from = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 - httpcore's
        """Return the next piece."""
        part, self._said = (
            self._said[: min(self._piece, max_bytes)],
            self._said[min(self._piece, max_bytes) :],
        )
        if not part and self._endless:
            part = b"1000\r\n" + b"a" * 4096 + b"\r\n"
        self.read_from += len(part)
        hold(self.read_from < _MOST, "an endless answer is read without end")
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        """Take what is asked."""

    async def aclose(self) -> None:
        """End."""
        self._said, self._endless = b"", False

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,  # noqa: ARG002 - httpcore's
        server_hostname: str | None = None,  # noqa: ARG002 - httpcore's
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - httpcore's
    ) -> httpcore.AsyncNetworkStream:
        """Speak on as if in TLS."""
        return self

    def get_extra_info(self, info: str) -> object:  # noqa: ARG002 - httpcore's
        """Know nothing."""
        return None


class Wires(httpcore.AsyncNetworkBackend):
    """Gives each connection an answer made from the case's seed, and notes where it was to go."""

    def __init__(self) -> None:
        self.reply: Callable[[], Wire] = lambda: Wire(b"", 1, endless=False)
        self.asked: list[str] = []

    async def connect_tcp(self, host: str, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Connect to nobody."""
        self.asked.append(host)
        return self.reply()

    async def sleep(self, seconds: float) -> None:
        """Wait for nobody."""


def _longer(body: bytes, times: int) -> bytes:
    """Repeat a body, up to what counts as long: the fuzzer's own memory is not what is measured."""
    return (body * min(times, _LONG // max(1, len(body)) + 1))[:_LONG]


def spoken(rng: Random, body: bytes) -> Wire:
    """Answer over HTTP, more or less."""
    headers: list[tuple[str, str]] = [
        (
            "content-type",
            rng.choice(
                (
                    "text/html",
                    "application/json",
                    "text/plain; charset=utf-7",
                    "image/png",
                    "text/html; charset=\u00ff",
                    ODD[1],
                )
            ),
        )
    ]
    kind = rng.random()
    if kind < 0.15:
        body = rng.choice((gzip.compress, zlib.compress))(_longer(body, rng.choice((1, 1, 500))))
        headers.append(("content-encoding", rng.choice(("gzip", "deflate", "br", "identity, gzip", "x"))))
    elif kind < 0.25:
        body = _longer(body, rng.choice((2, 50, 5_000)))
    length = rng.choice((str(len(body)),) * 8 + ("-1", "0", "99999999999", str(len(body) + 1), "x", "1, 2"))
    headers.append(
        ("content-length", length)
        if rng.random() < 0.8
        else ("transfer-encoding", rng.choice(("chunked", "gzip, chunked", "x")))
    )
    status = rng.choice(_STATUS)
    if status in {301, 302, 307, 308} or rng.random() < 0.05:
        headers.append(("location", rng.choice((*_PLACES, text(rng)[:200]))))
    if rng.random() < 0.1:
        headers.append(
            (
                "retry-after",
                rng.choice(
                    ("0", "-1", "1e400", "nan", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT", text(rng)[:30])
                ),
            )
        )
    if rng.random() < 0.05:
        headers += [("x-" + text(rng)[:20], text(rng)[:5_000])] * rng.choice((1, 100))
    head = f"HTTP/1.1 {status} {rng.choice(('OK', '', text(rng)[:20]))}\r\n" + "".join(
        f"{k}: {v}\r\n" for k, v in headers
    )
    said = head.encode("utf-8", "surrogatepass") + b"\r\n" + body
    if rng.random() < 0.1:
        said = scratched(rng, said[: len(head) + 50]) + said[len(head) + 50 :]
    return Wire(
        said,
        rng.choice((65_536, 4_096, 100, 7)) if len(said) < 5_000 else 65_536,
        endless=rng.random() < 0.03,
    )


async def _resolved(_host: str, _port: int) -> list[str]:
    return [_PUBLIC]


def _pacer() -> Pacer:
    return Pacer(PacingLimits(spacing=0.0, failures=10**9))


class Pages:
    """Asks cited pages and issues."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires

    async def __call__(self, rng: Random) -> int:
        """Ask one."""
        size = 0

        def reply() -> Wire:
            nonlocal size
            page = (
                "<html><head><title>"
                + text(rng)
                + "</title></head>"
                + "<p>" * rng.choice((1, 1, 3_000))
                + text(rng)
            )
            issue = written(rng, mutated(rng, {"title": text(rng), "body": text(rng), "description": "x"}))
            wire = spoken(rng, rng.choice((page.encode("utf-8", "surrogatepass"), issue, any_bytes(rng))))
            size += len(wire._said)
            return wire

        self._wires.reply = reply
        self._wires.asked.clear()
        transport = GuardedTransport(AddressGuard(resolver=_resolved), inner=self._wires, ssl_context=_TLS)
        want = rng.random() < 0.5
        if rng.random() < 0.7:
            checker = UrlChecker(transport=transport, pacer=_pacer(), guard=AddressGuard(resolver=_resolved))
            check = await checker.check(
                rng.choice(
                    (
                        "https://docs.example.org/a",
                        "http://docs.example.org/",
                        f"http://docs.example.org/{text(rng)}",
                    )
                ),
                want_text=want,
            )
            await checker.close()
        else:
            kind = rng.choice((GitHubTracker, GitLabTracker))
            tracker = kind("https://tracker.example.org", "owner/name", KEY, transport=transport)
            check = await tracker.exists(rng.choice(("1", "12", text(rng)[:20])), want_text=want)
            await tracker.close()
        hold(
            set(self._wires.asked) <= {_PUBLIC}, f"connected to {sorted(set(self._wires.asked) - {_PUBLIC})}"
        )
        hold(KEY not in check.detail and check.detail.isprintable(), "the detail is not for people")
        hold(check.state in CitationState, "no state")
        return size


def any_bytes(rng: Random) -> bytes:
    """Return a body of anything."""
    return rng.choice(
        (
            b"",
            b"\x00" * 100,
            b"\xff\xfe" + b"a\x00" * 50,
            written(rng, any_value(rng, 3)),
            bytes(rng.randbytes(50)),
        )
    )


class Models:
    """Asks a language model about a response, and decides by what it says."""

    def __init__(self, wires: Wires, heard: Callable[[], str]) -> None:
        self._wires, self._heard = wires, heard

    async def __call__(self, rng: Random) -> int:
        """Ask one question, or all about one response."""
        api = rng.choice(("openai", "anthropic"))
        size = 0

        def reply() -> Wire:
            nonlocal size
            said = rng.choice(
                (YES, YES, written(rng, mutated(rng, json.loads(YES))).decode("utf-8", "replace"), text(rng))
            )
            body = written(rng, mutated(rng, _answer(rng, api, said), 0, 2))
            wire = (
                spoken(rng, body)
                if rng.random() < 0.5
                else Wire(
                    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body, 65_536, endless=False
                )
            )
            size += len(body)
            return wire

        self._wires.reply = reply
        model = self._model(api)
        if rng.random() < 0.5:
            try:
                answer = await model.answer(Request("data", "haiku", timeout=20))
                hold(isinstance(answer, Answer) and isinstance(answer.text, str), "no answer")
            except ModelFault as fault:
                hold(KEY not in str(fault), "a fault names the key")
        else:
            await self._decided(model)
        quiet(self._heard())
        return size

    def _model(self, api: str) -> HttpModel:
        kind: Any = {"openai": OpenAIModel, "anthropic": AnthropicModel}[api]
        more = {"logprobs": True} if api == "openai" else {}
        limits = ModelLimits(attempts=2, failures=10**9)
        model: HttpModel = kind(
            "https://model.example.org",
            KEY,
            limits=limits,
            backoff=NoBackoff(),
            sleep=_awake,
            tls=_TLS,
            **more,
        )
        transport = httpx.AsyncHTTPTransport(verify=_TLS)
        transport._pool._network_backend = self._wires  # type: ignore[attr-defined]

        def client() -> httpx.AsyncClient:
            return httpx.AsyncClient(transport=transport, timeout=None)  # noqa: S113 - as the sender's own

        model._sender._client = client  # type: ignore[method-assign]
        return model

    async def _decided(self, model: HttpModel) -> None:
        policy = Policy(verification=FULL)
        world = World(policy=policy, assessor=Assessor(model))
        answer = f"{CONTEXT['a']} {CANARY} is located in Dublin."
        value = response_bytes(answer=answer, context=CONTEXT)
        results = await world.results(world.record(value, topic="groundwire.llm-responses"))
        for result in results:
            hold(isinstance(result, Decided), f"ends as {type(result).__name__}")
            if isinstance(result, Decided):
                check_decision(result.decision, decode_response(value), policy)
        check_outputs(results)


def _answer(rng: Random, api: str, said: str) -> Any:
    made = document(
        api, said, end=rng.choice(("good", "good", "good", "truncated", "refused", text(rng)[:10]))
    )
    if api == "openai":
        tokens = [
            {
                "token": t,
                "logprob": rng.choice((-0.1, -1e400, 5, float("nan"))),
                "top_logprobs": [{"token": "x", "logprob": -3}],
            }
            for t in _pieces(said)
        ]
        made["choices"][0]["logprobs"] = {"content": tokens[:20]}
    return made


def _pieces(said: str) -> Iterable[str]:
    return (said[at : at + 4] for at in range(0, len(said), 4))


async def _awake(_seconds: float) -> None:
    """Wait for nobody."""


_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@asynccontextmanager
async def _pages() -> AsyncIterator[Case]:
    with listening():
        yield Pages(Wires())


@asynccontextmanager
async def _models() -> AsyncIterator[Case]:
    with listening() as heard:
        yield Models(Wires(), heard)


ENTRIES: Final = (Entry("pages", _pages, 4), Entry("models", _models, 2))
