"""Both APIs against a local server: what is sent, how each answer ends, how often it is asked, and what follows."""

import asyncio
import json
import logging
import os
import ssl
from datetime import UTC, datetime

import pytest
import trustme

from groundwire.epistemic.model import ModelRequest
from groundwire.errors import UsageError
from groundwire.library.epistemic import detect_hallucinations
from groundwire.verify.models import ModelLimits, load_model
from groundwire.verify.models.http import retry_after
from tests.services.serving import serving

from . import model_service as service
from .model_service import CONTEXT, FULL, KEY, KINDS, PATHS, QUESTION, YES, fault_of, good, model_of, replying
from .server import Reply


@pytest.fixture(params=["openai", "anthropic"])
def api(request):
    return request.param


def encoded(value):
    return Reply(body=json.dumps(value).encode())


def settings(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", str(value))


async def test_a_question_goes_to_the_api_as_it_wants_it_with_the_given_options_and_its_answer_is_counted(
    server, api
):
    replying(server, api, good(api))
    answer = await model_of(api, server, names={"haiku": "small-1"}).answer(QUESTION)
    assert (answer.text, answer.input_tokens, answer.output_tokens, answer.requests) == (YES, 120, 20, 1)
    (asked,) = server.asked
    body = json.loads(asked.body)
    user = {"role": "user", "content": "the data"}
    assert (asked.method, asked.path) == ("POST", PATHS[api])
    assert (body["model"], body["max_tokens"]) == ("small-1", 300)
    if api == "openai":
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert body["messages"] == [{"role": "system", "content": "the instructions"}, user]
    else:
        assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
        assert (body["system"], body["messages"]) == ("the instructions", [user])
    assert await model_of(api, server).complete("prompt", model="m") == YES, "the least port is served too"
    # options put members into the body or leave them out, and never touch the prompt
    server.asked.clear()
    await model_of(api, server, options={"max_tokens": None, "seed": 1}).answer(QUESTION)
    body = json.loads(server.asked[0].body)
    assert (body["seed"], "max_tokens" in body) == (1, False)
    for name in ("messages", "model", "system", "stream", "n"):
        with pytest.raises(ValueError, match=f"options: {name}"):
            model_of(api, server, options={name: 1})


async def test_log_probabilities_are_asked_for_and_read_where_they_are_offered(server):
    offered = service.document("openai")
    token = {"token": YES, "logprob": -0.1, "top_logprobs": [{"token": "x", "logprob": -3}]}
    offered["choices"][0]["logprobs"] = {"content": [token]}
    broken = offered | {"choices": [offered["choices"][0] | {"logprobs": {"content": [{}]}}]}
    replying(server, "openai", encoded(offered), encoded(broken))
    model = model_of("openai", server, logprobs=True)
    (found,) = (await model.answer(QUESTION)).tokens
    assert (found.text, found.logprob, found.others) == (YES, -0.1, {"x": -3.0})
    assert json.loads(server.asked[0].body)["logprobs"] is True
    assert (await model.answer(QUESTION)).tokens == ()


async def test_an_answer_that_did_not_end_well_or_refuses_is_none_and_its_tokens_are_paid_for(server, api):
    for end, code in (("truncated", "truncated"), ("refused", "refused"), ("tool_use", "malformed")):
        replying(server, api, good(api, end=end))
        fault = await fault_of(model_of(api, server))
        found = fault.code, fault.requests, fault.input_tokens, fault.output_tokens
        assert found == (code, 1, 120, 20)
    refused = service.document("openai", text=None)
    refused["choices"][0]["message"]["refusal"] = "I cannot help with that."
    filtered = Reply(400, body=b'{"error": {"code": "content_filter"}}')
    replying(server, "openai", encoded(refused), filtered)
    model = model_of("openai", server)
    assert [(await fault_of(model)).code for _ in range(2)] == ["refused", "refused"]


async def test_a_body_of_another_shape_size_or_encoding_is_malformed_and_not_asked_for_again(server, api):
    wrong = []
    for body in (
        *(b"", b"{", b"[]", b"null", b"{}", b'"text"', b"[" * 100_000, b"\xff", b'{"choices": []}'),
        *(b'{"content": [1]}', b'{"choices": [{"message": null, "finish_reason": "stop"}]}'),
        b'{"stop_reason": "end_turn", "content": []}',
        b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}], "usage": 5}',
    ):
        server.asked.clear()
        replying(server, api, Reply(body=body))
        found = (await fault_of(model_of(api, server))).code, len(server.asked)
        wrong += [(body[:80], found)] * (found != ("malformed", 1))
    assert wrong == []
    replying(server, api, Reply(headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b"))
    assert (await fault_of(model_of(api, server))).code == "malformed", "a compressed one is not opened"
    replying(server, api, Reply(body=b" " * 50_000_000))
    fault = await fault_of(model_of(api, server, limits=ModelLimits(most_bytes=100_000)))
    assert fault.code == "malformed"
    assert server.written < 50_000_000, "an endless one is not read to its end"


async def test_only_what_may_succeed_later_is_asked_again_as_often_as_configured_and_all_requests_count(
    server, api
):
    expected = {429: ("rate_limited", 3), 401: ("unauthorized", 1), 403: ("unauthorized", 1)}
    expected |= dict.fromkeys((408, 500, 503, 529), ("server_error", 3))
    expected |= dict.fromkeys((400, 404, 302), ("rejected", 1))
    found = {}
    for status in expected:
        server.asked.clear()
        replying(server, api, Reply(status, headers={"Location": server.url("/elsewhere")}))
        fault = await fault_of(model_of(api, server))
        found[status] = fault.code, fault.requests
        assert [asked.path for asked in server.asked] == [PATHS[api]] * fault.requests
    assert found == expected
    fault = await fault_of(KINDS[api]("http://127.0.0.1:1", backoff=lambda _failures: 0.0))
    assert (fault.code, fault.requests) == ("unreachable", 3), "nobody listens"
    broken = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    replying(server, api, Reply(429), broken, good(api))
    answer = await model_of(api, server).answer(QUESTION)
    assert (answer.text, answer.requests) == (YES, 3)

    async def never(_):
        await asyncio.Event().wait()

    server.routes[PATHS[api]] = never
    fault = await fault_of(model_of(api, server), ModelRequest("p", "m", timeout=0.2))
    assert (fault.code, fault.requests, fault.input_tokens) == ("timeout", 1, None)


async def test_a_service_is_left_alone_for_as_long_as_it_asks_if_that_is_in_time(server, api):
    """A wait is a number of seconds or a date, and never less than nothing."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    replying(server, api, Reply(429, headers={"Retry-After": "7"}), good(api))
    assert (await model_of(api, server, sleep=sleep).answer(QUESTION)).requests == 2
    replying(server, api, Reply(503, headers={"Retry-After": "31"}), good(api))
    assert (await fault_of(model_of(api, server, sleep=sleep))).requests == 1
    assert slept == [7.0]
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    dates = ("Sat, 31 Jan 2026 12:00:05 GMT", "Sat, 31 Jan 2026 11:00:00 GMT")
    assert [retry_after({"retry-after": date}, now) for date in dates] == [5.0, 0.0]
    odd = ("-1", "nan", "inf", "1e3", "", "soon", "١")
    assert [text for text in odd if retry_after({"retry-after": text}) is not None] == []


async def test_no_more_than_the_limit_is_asked_at_once_and_each_event_loop_has_its_own_connections(
    server, api
):
    gate, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(_):
        waiting.release()
        await gate.wait()
        return good(api)

    server.routes[PATHS[api]] = hold
    async with model_of(api, server, limits=ModelLimits(concurrency=2)) as model:
        jobs = [asyncio.create_task(model.answer(QUESTION)) for _ in range(6)]
        for _ in range(2):
            await waiting.acquire()
        gate.set()
        await asyncio.gather(*jobs)
    assert (server.most_in_flight, len(server.asked), server.connections) == (2, 6, 2)
    replying(server, api, good(api))
    model = model_of(api, server)
    answers = [await asyncio.to_thread(asyncio.run, model.answer(QUESTION)) for _ in range(2)]
    assert [answer.text for answer in answers] == [YES, YES]


async def test_a_service_that_fails_in_a_row_is_not_asked_for_a_while(server, api):
    for status in (500, 401):
        server.asked.clear()
        replying(server, api, Reply(status))
        model = model_of(api, server, limits=ModelLimits(attempts=1, failures=2, pause=3_600))
        faults = [await fault_of(model) for _ in range(4)]
        assert [fault.code for fault in faults][2:] == ["paused", "paused"]
        assert (faults[3].requests, len(server.asked)) == (0, 2)
    replying(server, api, Reply(400))
    model = model_of(api, server, limits=ModelLimits(failures=2))
    assert {(await fault_of(model)).code for _ in range(4)} == {"rejected"}, "the prompt is at fault"
    # a question whose own requests failed reports that rather than the pause they caused
    replying(server, api, Reply(500))
    model = model_of(api, server, limits=ModelLimits(attempts=3, failures=2, pause=3_600))
    assert model.trouble == ""
    first, second = await fault_of(model), await fault_of(model)
    assert (first.code, first.requests, second.code, second.requests) == ("server_error", 2, "paused", 0)
    assert model.trouble == "HTTP 500"


async def test_the_key_stands_in_no_error_no_log_and_no_representation(server, api, caplog):
    caplog.set_level(logging.DEBUG)
    replying(server, api, Reply(401, body=KEY.encode()), Reply(raw=b"garbage\r\n\r\n"), Reply(400))
    model = model_of(api, server)
    told = [repr(model), str(model)]
    for _ in range(3):
        fault = await fault_of(model)
        told += [repr(fault), str(fault), str(fault.__cause__), str(vars(fault))]
    told += [record.getMessage() for record in caplog.records if not record.name.startswith("httpcore")]
    assert not [text for text in told if KEY in text or "the data" in text]


def test_a_key_or_an_address_that_cannot_be_is_refused_unnamed(api):
    for key in ("with space", "line\nbreak", "", "schlüssel"):
        with pytest.raises(ValueError, match=r"^key: must be printable ASCII without spaces$"):
            KINDS[api]("http://127.0.0.1", key)
    for url in ("ftp://a", "a.example", "http://", "http://u:p@a", "http://a?k=1", "http://a#b"):
        with pytest.raises(ValueError, match=r"^url: must") as raised:
            KINDS[api](url)
        assert "u:p" not in str(raised.value)
    public = "http://api.example", "http://8.8.8.8", "http://[2001:4860::8888]:8000", "http://local.example."
    for url in public:  # a key goes in clear to this machine and a private network alone
        with pytest.raises(ValueError, match=r"^url: must begin with https://"):
            KINDS[api](url, KEY)
        assert KINDS[api](url)
        assert KINDS[api](url.replace("http:", "https:"), KEY)
    for url in ("localhost:8000", "10.0.0.1", "[fd00::1]", "vllm", "vllm.models.svc"):
        assert KINDS[api](f"http://{url}", KEY)


async def test_a_service_is_trusted_only_if_somebody_vouches_for_it(server, tmp_path, monkeypatch):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    replying(server, "openai", good("openai"))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with serving(server.serve, tls=context) as port:
        settings(monkeypatch, API="openai", URL=f"https://127.0.0.1:{port}", ATTEMPTS=1)
        assert (await fault_of(load_model())).code == "unreachable"
        assert server.asked == []
        settings(monkeypatch, CA_FILE=tmp_path / "ca.pem")
        assert (await load_model().answer(QUESTION)).text == YES


async def test_a_model_with_its_key_file_names_and_options_comes_from_the_environment_and_only_with_a_network(
    server, tmp_path, monkeypatch
):
    assert load_model() is None
    with monkeypatch.context() as patch:
        settings(patch, API="anthropic", KEY=KEY)
        assert repr(load_model()) == "AnthropicModel('https://api.anthropic.com/v1/messages')"
        assert load_model(network=False) is None
    (tmp_path / "key").write_text(f"{KEY}\n")
    replying(server, "anthropic", good("anthropic"))
    settings(monkeypatch, API="anthropic", URL=server.url(""), KEY_FILE=tmp_path / "key")
    settings(monkeypatch, NAMES='{"big": "large-2"}', OPTIONS='{"top_k": 1}')
    for name in ("haiku", "big", "other"):
        await load_model().complete("p", model=name)
    bodies = [json.loads(asked.body) for asked in server.asked]
    assert [body["model"] for body in bodies] == ["claude-haiku-4-5", "large-2", "other"]
    assert {body["top_k"] for body in bodies} == {1}
    assert {asked.headers["x-api-key"] for asked in server.asked} == {KEY}


def test_a_setting_at_fault_is_named_and_what_may_be_secret_is_not_repeated(monkeypatch):
    for variable, given in (
        ("API", {"API": "cohere"}),
        ("URL", {"URL": "http://u:secret@a"}),
        ("URL", {"URL": "http://models.example", "KEY": "secret"}),
        ("KEY_FILE", {}),
        ("KEY", {"KEY": "two secret words"}),
        ("KEY_FILE", {"KEY": "secret", "KEY_FILE": "/x"}),
        ("KEY_FILE: /nowhere: No such file or directory", {"KEY_FILE": "/nowhere"}),
        ("CA_FILE: /nowhere: No such file or directory", {"CA_FILE": "/nowhere"}),
        ("OPTIONS", {"OPTIONS": "secret"}),
        ("OPTIONS", {"OPTIONS": '{"model": "secret"}'}),
        ("NAMES", {"NAMES": '["secret"]'}),
        ("LOGPROBS", {"API": "anthropic", "LOGPROBS": "1"}),
        ("ATTEMPTS", {"ATTEMPTS": "0"}),
    ):
        with monkeypatch.context() as patch:
            settings(patch, **{"API": "openai"} | given)
            with pytest.raises(UsageError, match=f"GROUNDWIRE_MODEL_{variable}") as raised:
                load_model()
        assert "secret" not in str(raised.value)


def test_the_real_service_tells_what_is_stated_from_what_is_not(api):
    """Runs where a key is at hand; `GROUNDWIRE_TEST_MODEL_<API>` names a model (S4-58)."""
    variable = f"{api.upper()}_API_KEY"
    model_name = os.environ.get(f"GROUNDWIRE_TEST_MODEL_{api.upper()}")
    if not os.environ.get(variable) or not model_name:
        pytest.skip(f"no {variable}")
    url = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}[api]
    model = KINDS[api](url, os.environ[variable])
    update = {"verification_model": model_name, "timeout_seconds": 60, "budget_seconds": 120}
    config = FULL.model_copy(update=update)
    report = detect_hallucinations(
        service.ANSWER.replace("3 times", "9 times"), CONTEXT, client=model, config=config
    )
    assert [claim.is_flagged for claim in report.claims] == [True, False]
    assert {call.fault for call in report.calls} == {None}
