"""Hostile answers of servers, and requests to the console, byte by byte and without a network."""

# ruff: noqa: PT017 - an input may be refused: then its refusal is asserted
from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import zlib
from collections.abc import Callable
from itertools import product
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import httpcore
import httpx
import pytest

from groundwire.console.pages import ROUTES
from groundwire.epistemic.model import ModelAnswer, ModelFault, ModelRequest
from groundwire.gate.lookups import Assessor
from groundwire.gate.types import Decided
from groundwire.messages.decode import decode_response
from groundwire.policy import Policy
from groundwire.verify.issues import GitHubTracker, GitLabTracker
from groundwire.verify.models import AnthropicModel, ModelLimits, OpenAIModel
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.results import CitationState
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import GuardedTransport, UrlChecker
from tests.fuzz import inputs
from tests.fuzz.contract import check_decision, check_outputs, listening, quiet
from tests.fuzz.inputs import CANARY, ODD, TABLES, Dice, any_value, feed, mutated, scratched, text, written
from tests.unit.console.rooms import NOBODYS, TOKENS, make_decision, make_room
from tests.unit.gate.world import RESPONSES, World, response_bytes
from tests.unit.verify.model_service import CONTEXT, FULL, YES, document

KEY: Final = "sk-0123456789-swordfish"
TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


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
        assert self._read < 8_000_000, "an endless answer is read without end"
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
    longest = 2_500_000  # more than anybody reads

    def longer(times: int) -> bytes:
        return (body * min(times, longest // max(1, len(body)) + 1))[:longest]

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
        said, rng.one(65_536, 4_096, 100, 7) if len(said) < 5_000 else 65_536, endless=rng.chance(0.03)
    )


def test_a_cited_page_or_issue_gets_a_state_from_whatever_is_answered_and_only_checked_addresses_are_asked():
    public = "93.184.216.34"
    wires = Wires()

    async def resolved(_host, _port):
        return [public]

    def reply(rng):
        body = "<p>" * rng.one(1, 1, 3_000) + text(rng)
        page = f"<html><head><title>{text(rng)}</title></head>{body}"
        issue = written(rng, mutated(rng, {"title": text(rng), "body": text(rng), "description": "x"}))
        odd = (b"", b"\x00" * 100, b"\xff\xfe" + b"a\x00" * 50)
        other = rng.one(*odd, written(rng, any_value(rng, 3)), bytes(rng.randbytes(50)))
        return spoken(rng, rng.one(page.encode("utf-8", "surrogatepass"), issue, other))

    async def looked_up(rng):
        wires.reply = lambda: reply(rng)
        wires.asked.clear()
        guard = AddressGuard(resolver=resolved)
        transport = GuardedTransport(guard, inner=wires, ssl_context=TLS)
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
        assert set(wires.asked) <= {public}
        assert KEY not in check.detail
        assert check.detail.isprintable()
        assert check.state in CitationState

    with listening():
        feed(4, looked_up)


def test_a_response_is_decided_by_its_checks_whatever_a_language_model_answers():
    wires = Wires()

    def model_of(api):
        kind = {"openai": OpenAIModel, "anthropic": AnthropicModel}[api]
        more = {"logprobs": True} if api == "openai" else {}
        limits = ModelLimits(attempts=2, failures=10**9)

        async def no_wait(_seconds): ...

        waiting = {"backoff": lambda _failures: 0.0, "sleep": no_wait}
        model = kind("https://model.example.org", KEY, limits=limits, tls=TLS, **waiting, **more)
        transport = httpx.AsyncHTTPTransport(verify=TLS)
        transport._pool._network_backend = wires
        model._client = lambda: httpx.AsyncClient(transport=transport, timeout=None)  # noqa: S113 - as the sender's own
        return model

    async def known():
        """Answer with counts of tokens, log probabilities and redirects that mean nothing."""

        async def answered(api: str, *said: bytes):
            wires.reply = lambda: Wire(b"HTTP/1.1 " + b"\r\n".join(said), 65_536, endless=False)
            return await model_of(api).answer(ModelRequest("x", "haiku"))

        async def read(api: str, answer: object):
            body = json.dumps(answer).encode()
            return await answered(api, b"200 OK", b"content-length: %d" % len(body), b"", body)

        for api, tokens in product(("openai", "anthropic"), (2**53, 10**40, True, -1, 1.5)):
            answer = await read(api, document(api, sent=tokens, received=tokens))
            assert answer.output_tokens is None
            assert answer.input_tokens in {None, 100 + tokens - 200}
        odd = document("openai")
        token = {"token": "a", "logprob": 10**400, "top_logprobs": []}
        odd["choices"][0]["logprobs"] = {"content": [token]}
        assert (await read("openai", odd)).tokens == ()
        for place in (b"http://[::1", b"http:a"):
            with pytest.raises(ModelFault) as raised:
                await answered("openai", b"302 Found", b"location: " + place, b"content-length: 0", b"", b"")
            assert raised.value.code in {"unreachable", "rejected"}

    def answer(rng, api, said):
        endings = ("good", "good", "good", "truncated", "refused", text(rng)[:10])
        made = document(api, said, end=rng.one(*endings))
        if api == "openai":
            others = [{"token": "x", "logprob": -3}]
            pieces = [said[at : at + 4] for at in range(0, len(said), 4)][:20]
            tokens = [
                {"token": piece, "logprob": rng.one(-0.1, -1e400, 5, float("nan")), "top_logprobs": others}
                for piece in pieces
            ]
            made["choices"][0]["logprobs"] = {"content": tokens}
        return made

    def reply(rng, api):
        odd = written(rng, mutated(rng, json.loads(YES))).decode("utf-8", "replace")
        said = rng.one(YES, YES, odd, text(rng))
        body = written(rng, mutated(rng, answer(rng, api, said), 0, 2))
        plain = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        return spoken(rng, body) if rng.chance(0.5) else Wire(plain, 65_536, endless=False)

    async def decided(rng):
        api = rng.one("openai", "anthropic")
        wires.reply = lambda: reply(rng, api)
        model = model_of(api)
        if rng.chance(0.5):
            try:
                answer = await model.answer(ModelRequest("data", "haiku", timeout=20))
                assert isinstance(answer, ModelAnswer)
                assert isinstance(answer.text, str)
            except ModelFault as fault:
                assert KEY not in str(fault)
        else:
            policy = Policy(verification=FULL)
            world = World(policy=policy, assessor=Assessor(model))
            said = f"{CONTEXT['a']} {CANARY} is located in Dublin."
            value = response_bytes(answer=said, context=CONTEXT)
            results = await world.results(world.record(value, topic=RESPONSES))
            for result in results:
                assert isinstance(result, Decided)
                check_decision(result.decision, decode_response(value), policy)
            check_outputs(results)
        quiet(heard())

    with listening() as heard:
        asyncio.run(known())
        feed(2, decided)


def test_the_console_answers_any_request_with_a_documented_status_and_no_markup_of_a_text():
    mark = "<script>alert(1)</script>"
    hosts = (*(b"127.0.0.1:8700",) * 20, b"evil.example", b"", b"127.0.0.1:8700@evil")
    types = (*(b"application/json",) * 8, b"application/x-www-form-urlencoded", b"text/plain", b"")
    odd_headers = (
        *(b"origin", b"cookie", b"x-csrf-token", b"content-length", b"accept", b"referer"),
        b"x-forwarded-for",
    )
    room = make_room()
    texts = [one for one in (f"{CANARY} {mark}", *ODD[:20], "Water is wet.") if one]
    items = room.add(*(
        make_decision(f"c{n}", one.encode("utf-8", "replace").decode()) for n, one in enumerate(texts)
    ))  # fmt: skip

    async def asked(method, target, headers, body):
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

    def target_of(rng, route):
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
        return scratched(rng, target) if rng.chance(0.05) else target

    def body_of(rng):
        plain = {
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

    async def requested(rng):
        room.clock.forward(seconds=2)  # limits are by time
        route = rng.choice(ROUTES)
        method = route.method if rng.chance(0.95) else rng.one("PUT", "HEAD", "OPTIONS", "GET", "POST", "X")
        body = body_of(rng) if method == "POST" or rng.chance(0.02) else b""
        token = rng.one(*TOKENS, "lead-token", "lead-token", "lead-token", "ana-token", "", "nobody")
        headers = [(b"host", rng.choice(hosts)), (b"content-type", rng.choice(types))]
        if token:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        if rng.chance(0.2):
            said = text(rng)[:60].encode("latin-1", "replace")
            values = (b"null", b"session=" + b"A" * 300, b"-1", b"\xff\xfe", b"9" * 40, said)
            headers.append((rng.choice(odd_headers), rng.choice(values)))
        status, answer = await asked(method, target_of(rng, route), headers, body)
        assert status < 500 or status == 503
        if b"<!doctype html" in answer[:200].lower():
            assert mark.encode() not in answer, "a text is markup on a page"
        if len(room.recorder.sent) > 100:
            room.recorder.sent.clear()
        quiet(heard())

    async def beyond_ascii():
        bearer = [(b"host", hosts[0]), (b"authorization", b"Bearer lead-token")]
        for path in (b"/api/status", b"/api/queue", b"/"):
            status, answer = await asked("GET", path + b"?days=\xff", bearer, b"")
            assert (status, b"ASCII" in answer) == (400, True)

    with listening() as heard:
        asyncio.run(beyond_ascii())
        feed(3, requested)
