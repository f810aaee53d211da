"""Both APIs against a local server: what is sent, how each answer ends, and how often it is asked."""

import asyncio
import json
import logging
import os
import ssl
from datetime import UTC, datetime

import pytest
import trustme

from groundwire.epistemic.asking import ask
from groundwire.epistemic.model import ModelRequest
from groundwire.epistemic.prompts import prior_prompt
from groundwire.errors import UsageError
from groundwire.library.epistemic import detect_hallucinations
from groundwire.verify.models import ModelLimits, load_model
from groundwire.verify.models.http import retry_after
from tests.services.serving import serving

from .model_service import (
    ANSWER,
    CONTEXT,
    FULL,
    KEY,
    KINDS,
    PATHS,
    QUESTION,
    TEXT,
    YES,
    document,
    fault_of,
    good,
    model_of,
    replying,
)
from .server import Reply, Server


@pytest.fixture(params=["openai", "anthropic"])
def api(request):
    return request.param


# What is sent ----------------------------------------------------------------------------------------------


async def test_a_question_goes_to_the_api_as_it_wants_it_and_its_answer_is_counted_by_the_service(
    server: Server, api
):
    replying(server, api, good(api))
    answer = await model_of(api, server, names={"haiku": "small-1"}).answer(QUESTION)
    assert (answer.text, answer.input_tokens, answer.output_tokens, answer.requests) == (YES, 120, 20, 1)
    (asked,) = server.asked
    body = json.loads(asked.body)
    user = {"role": "user", "content": "the data"}
    assert (asked.method, asked.path, body["model"], body["max_tokens"]) == (
        "POST",
        PATHS[api],
        "small-1",
        300,
    )
    if api == "openai":
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert body["messages"] == [{"role": "system", "content": "the instructions"}, user]
    else:
        assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
        assert (body["system"], body["messages"]) == ("the instructions", [user])


async def test_options_put_members_into_the_body_or_leave_them_out_and_never_touch_the_prompt(
    server: Server, api
):
    replying(server, api, good(api))
    await model_of(api, server, options={"max_tokens": None, "seed": 1}).answer(QUESTION)
    body = json.loads(server.asked[0].body)
    assert (body["seed"], "max_tokens" in body) == (1, False)
    for name in ("messages", "model", "system", "stream", "n"):
        with pytest.raises(ValueError, match=f"options: {name}"):
            model_of(api, server, options={name: 1})


async def test_the_least_port_is_served_too(server: Server, api):
    replying(server, api, good(api, text="0.85 because"))
    assert await model_of(api, server).complete("prompt", model="m") == "0.85 because"


async def test_log_probabilities_are_asked_for_and_read_where_they_are_offered(server: Server):
    offered = document("openai")
    token = {"token": YES, "logprob": -0.1, "top_logprobs": [{"token": "x", "logprob": -3}]}
    offered["choices"][0]["logprobs"] = {"content": [token]}
    broken = document("openai") | {"choices": [offered["choices"][0] | {"logprobs": {"content": [{}]}}]}
    replying(server, "openai", *(Reply(body=json.dumps(one).encode()) for one in (offered, broken)))
    model = model_of("openai", server, logprobs=True)
    (found,) = (await model.answer(QUESTION)).tokens
    assert (found.text, found.logprob, found.others) == (YES, -0.1, {"x": -3.0})
    assert json.loads(server.asked[0].body)["logprobs"] is True
    assert (await model.answer(QUESTION)).tokens == ()


# How an answer ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["truncated", "refused", "tool_use"])
async def test_an_answer_that_did_not_end_well_is_none_and_its_tokens_are_paid_for(server: Server, api, end):
    replying(server, api, good(api, end=end))
    fault = await fault_of(model_of(api, server))
    assert fault.code == ("malformed" if end == "tool_use" else end)
    assert (fault.requests, fault.input_tokens, fault.output_tokens) == (1, 120, 20)


async def test_a_refusal_in_its_own_member_or_as_an_error_is_a_refusal(server: Server):
    refused = document("openai", text=None)
    refused["choices"][0]["message"]["refusal"] = "I cannot help with that."
    filtered = Reply(400, body=b'{"error": {"code": "content_filter"}}')
    replying(server, "openai", Reply(body=json.dumps(refused).encode()), filtered)
    model = model_of("openai", server)
    assert [(await fault_of(model)).code for _ in range(2)] == ["refused", "refused"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"{}", b'"text"', b"[" * 100_000, b'{"choices": []}', b'{"content": [1]}',
     b'{"choices": [{"message": null, "finish_reason": "stop"}]}', b'{"stop_reason": "end_turn", "content": []}',
     b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}], "usage": 5}', b"\xff"],
)  # fmt: skip
async def test_a_body_of_another_shape_is_malformed_and_not_asked_for_again(server: Server, api, body):
    replying(server, api, Reply(body=body))
    assert (await fault_of(model_of(api, server))).code == "malformed"
    assert len(server.asked) == 1


async def test_an_endless_answer_is_not_read_to_its_end(server: Server, api):
    replying(server, api, Reply(body=b" " * 50_000_000))
    fault = await fault_of(model_of(api, server, limits=ModelLimits(most_bytes=100_000)))
    assert fault.code == "malformed"
    assert server.written < 50_000_000


async def test_a_compressed_answer_is_not_opened(server: Server, api):
    replying(server, api, Reply(headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b"))
    assert (await fault_of(model_of(api, server))).code == "malformed"


async def test_a_service_that_does_not_answer_in_time_is_asked_once(server: Server, api):
    async def never(_):
        await asyncio.Event().wait()

    server.routes[PATHS[api]] = never
    fault = await fault_of(model_of(api, server), ModelRequest("p", "m", timeout=0.2))
    assert (fault.code, fault.requests, fault.input_tokens) == ("timeout", 1, None)


@pytest.mark.parametrize(
    ("status", "code", "requests"),
    [(429, "rate_limited", 3), (500, "server_error", 3), (503, "server_error", 3), (529, "server_error", 3),
     (408, "server_error", 3), (401, "unauthorized", 1), (403, "unauthorized", 1), (400, "rejected", 1),
     (404, "rejected", 1), (302, "rejected", 1)],
)  # fmt: skip
async def test_only_what_may_succeed_later_is_asked_again_and_at_most_as_often_as_configured(
    server: Server, api, status, code, requests
):
    replying(server, api, Reply(status, headers={"Location": server.url("/elsewhere")}))
    fault = await fault_of(model_of(api, server))
    assert (fault.code, fault.requests, len(server.asked)) == (code, requests, requests)
    assert {asked.path for asked in server.asked} == {PATHS[api]}


async def test_an_answer_after_failures_counts_with_all_its_requests(server: Server, api):
    broken = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    replying(server, api, Reply(429), broken, good(api))
    answer = await model_of(api, server).answer(QUESTION)
    assert (answer.text, answer.requests, len(server.asked)) == (YES, 3, 3)


async def test_nobody_who_listens_is_unreachable(server: Server, api):
    model = KINDS[api]("http://127.0.0.1:1", backoff=lambda _failures: 0.0)
    fault = await fault_of(model)
    assert (fault.code, fault.requests) == ("unreachable", 3)


async def test_a_service_is_left_alone_for_as_long_as_it_asks_if_that_is_in_time(server: Server, api):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    replying(server, api, Reply(429, headers={"Retry-After": "7"}), good(api))
    assert (await model_of(api, server, sleep=sleep).answer(QUESTION)).requests == 2
    assert slept == [7.0]
    replying(server, api, Reply(503, headers={"Retry-After": "31"}), good(api))
    assert (await fault_of(model_of(api, server, sleep=sleep))).requests == 1
    assert slept == [7.0]


def test_a_wait_is_a_number_of_seconds_or_a_date_and_never_less_than_nothing():
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    dates = ("Sat, 31 Jan 2026 12:00:05 GMT", "Sat, 31 Jan 2026 11:00:00 GMT")
    assert [retry_after({"retry-after": date}, now) for date in dates] == [5.0, 0.0]
    for odd in ("-1", "nan", "inf", "1e3", "", "soon", "١"):
        assert retry_after({"retry-after": odd}) is None


# Limits ----------------------------------------------------------------------------------------------------


async def test_no_more_than_the_limit_is_asked_at_once(server: Server, api):
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
    assert (server.most_in_flight, len(server.asked)) == (2, 6)
    assert server.connections == 2


@pytest.mark.parametrize("status", [500, 401])
async def test_a_service_that_fails_in_a_row_is_not_asked_for_a_while(server: Server, api, status):
    replying(server, api, Reply(status))
    model = model_of(api, server, limits=ModelLimits(attempts=1, failures=2, pause=3_600))
    faults = [await fault_of(model) for _ in range(4)]
    assert [fault.code for fault in faults][2:] == ["paused", "paused"]
    assert (faults[3].requests, len(server.asked)) == (0, 2)


async def test_a_question_whose_own_requests_failed_tells_that_rather_than_the_pause_they_brought(
    server: Server, api
):
    replying(server, api, Reply(500))
    model = model_of(
        api, server, limits=ModelLimits(attempts=3, failures=2, pause=3_600), backoff=lambda _failures: 0.0
    )
    assert model.trouble == ""
    first, second = await fault_of(model), await fault_of(model)
    assert (first.code, first.requests, second.code, second.requests) == ("server_error", 2, "paused", 0)
    assert model.trouble == "HTTP 500"


async def test_a_prompt_that_a_service_rejects_does_not_pause_it(server: Server, api):
    replying(server, api, Reply(400))
    model = model_of(api, server, limits=ModelLimits(failures=2))
    assert {(await fault_of(model)).code for _ in range(4)} == {"rejected"}


def test_each_event_loop_has_its_own_connections_and_limits(server_thread, api):
    model = server_thread(api)
    for _ in range(2):
        assert asyncio.run(model.answer(QUESTION)).text == YES


@pytest.fixture
def server_thread():
    """A server on a thread of its own, for what runs in several loops."""
    import threading  # noqa: PLC0415 - only here
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415 - only here

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(document("openai" if "chat" in self.path else "anthropic")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield lambda api: KINDS[api](f"http://127.0.0.1:{httpd.server_port}", KEY)
    httpd.shutdown()
    thread.join()
    httpd.server_close()


# Secrets ---------------------------------------------------------------------------------------------------


async def test_the_key_stands_in_no_error_no_log_and_no_representation(server: Server, api, caplog):
    caplog.set_level(logging.DEBUG)
    replying(server, api, Reply(401, body=KEY.encode()), Reply(raw=b"garbage\r\n\r\n"), Reply(400))
    model = model_of(api, server)
    told = [repr(model), str(model)]
    for _ in range(3):
        fault = await fault_of(model)
        told += [repr(fault), str(fault), str(fault.__cause__), str(vars(fault))]
    told += [record.getMessage() for record in caplog.records if not record.name.startswith("httpcore")]
    assert not [text for text in told if KEY in text or "the data" in text]


@pytest.mark.parametrize("key", ["with space", "line\nbreak", "", "schlüssel"])
def test_a_key_that_no_header_holds_is_refused_unnamed(api, key):
    with pytest.raises(ValueError, match=r"^key: must be printable ASCII without spaces$"):
        KINDS[api]("http://127.0.0.1", key)


@pytest.mark.parametrize(
    "url", ["ftp://a", "a.example", "http://", "http://u:p@a", "http://a?k=1", "http://a#b"]
)
def test_an_address_that_is_none_or_holds_more_is_refused_unnamed(api, url):
    with pytest.raises(ValueError, match=r"^url: must") as raised:
        KINDS[api](url)
    assert "u:p" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://api.example", "http://8.8.8.8", "http://[2001:4860::8888]:8000", "http://local.example."]
)
def test_a_key_goes_to_no_public_host_in_clear(api, url):
    with pytest.raises(ValueError, match=r"^url: must begin with https://"):
        KINDS[api](url, KEY)
    assert KINDS[api](url)
    assert KINDS[api](url.replace("http:", "https:"), KEY)


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8000", "http://10.0.0.1", "http://[fd00::1]", "http://vllm", "http://vllm.models.svc"],
)
def test_a_key_goes_to_this_machine_and_to_a_private_network_in_clear(api, url):
    assert KINDS[api](url, KEY)


async def test_a_service_is_trusted_only_if_somebody_vouches_for_it(server: Server, tmp_path, monkeypatch):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    replying(server, "openai", good("openai"))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with serving(server.serve, tls=context) as port:
        for name, value in {"API": "openai", "URL": f"https://127.0.0.1:{port}", "ATTEMPTS": "1"}.items():
            monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", value)
        assert (await fault_of(load_model())).code == "unreachable"
        assert server.asked == []
        monkeypatch.setenv("GROUNDWIRE_MODEL_CA_FILE", str(tmp_path / "ca.pem"))
        assert (await load_model().answer(QUESTION)).text == YES


# Settings --------------------------------------------------------------------------------------------------


def test_without_settings_there_is_no_model_and_without_a_network_neither(monkeypatch):
    assert load_model() is None
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "anthropic")
    monkeypatch.setenv("GROUNDWIRE_MODEL_KEY", KEY)
    assert repr(load_model()) == "AnthropicModel('https://api.anthropic.com/v1/messages')"
    assert load_model(network=False) is None


async def test_a_key_comes_from_a_file_and_names_and_options_from_the_environment(
    server: Server, tmp_path, monkeypatch
):
    (tmp_path / "key").write_text(f"{KEY}\n")
    replying(server, "anthropic", good("anthropic"))
    settings = {"API": "anthropic", "URL": server.url(""), "KEY_FILE": str(tmp_path / "key")}
    settings |= {"NAMES": '{"big": "large-2"}', "OPTIONS": '{"top_k": 1}'}
    for name, value in settings.items():
        monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", value)
    for name in ("haiku", "big", "other"):
        await load_model().complete("p", model=name)
    bodies = [json.loads(asked.body) for asked in server.asked]
    assert [body["model"] for body in bodies] == ["claude-haiku-4-5", "large-2", "other"]
    assert {body["top_k"] for body in bodies} == {1}
    assert {asked.headers["x-api-key"] for asked in server.asked} == {KEY}


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"API": "cohere"}, "API"),
        ({"API": "openai", "URL": "http://u:secret@a"}, "URL"),
        ({"API": "openai", "URL": "http://models.example", "KEY": "secret"}, "URL"),
        ({"API": "openai"}, "KEY_FILE"),
        ({"API": "openai", "KEY": "two secret words"}, "KEY"),
        ({"API": "openai", "KEY": "secret", "KEY_FILE": "/x"}, "KEY_FILE"),
        ({"API": "openai", "KEY_FILE": "/nowhere"}, "KEY_FILE"),
        ({"API": "openai", "CA_FILE": "/nowhere"}, "CA_FILE"),
        ({"API": "openai", "OPTIONS": "secret"}, "OPTIONS"),
        ({"API": "openai", "OPTIONS": '{"model": "secret"}'}, "OPTIONS"),
        ({"API": "openai", "NAMES": '["secret"]'}, "NAMES"),
        ({"API": "anthropic", "LOGPROBS": "1"}, "LOGPROBS"),
        ({"API": "openai", "ATTEMPTS": "0"}, "ATTEMPTS"),
    ],
)
def test_a_setting_at_fault_is_named_and_what_may_be_secret_is_not_repeated(monkeypatch, settings, variable):
    for name, value in settings.items():
        monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", value)
    with pytest.raises(UsageError, match=f"GROUNDWIRE_MODEL_{variable}") as raised:
        load_model()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["KEY_FILE", "CA_FILE"])
def test_a_file_that_is_not_there_is_told_in_words(monkeypatch, tmp_path, name):
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "openai")
    monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="none: No such file or directory"):
        load_model()


# What is known, and the real services ---------------------------------------------------------------------


async def test_a_known_answer_costs_no_request(server: Server, api):
    replying(server, api, good(api, text='{"verdict": "true", "probability": 0.9}'))
    model = model_of(api, server)
    calls = [(await ask(model, prior_prompt(TEXT), FULL, claim_id="a")).call for _ in range(2)]
    assert [call.cached for call in calls] == [False, True]
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("name", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
def test_the_real_service_tells_what_is_stated_from_what_is_not(name, variable):
    """Runs where a key is at hand; `GROUNDWIRE_TEST_MODEL_<API>` names a model (S4-58)."""
    model_name = os.environ.get(f"GROUNDWIRE_TEST_MODEL_{name.upper()}")
    if not os.environ.get(variable) or not model_name:
        pytest.skip(f"no {variable}")
    url = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}[name]
    model = KINDS[name](url, os.environ[variable])
    config = FULL.model_copy(
        update={"verification_model": model_name, "timeout_seconds": 60, "budget_seconds": 120}
    )
    wrong = ANSWER.replace("3 times", "9 times")
    report = detect_hallucinations(wrong, CONTEXT, client=model, config=config)
    assert [claim.is_flagged for claim in report.claims] == [True, False]
    assert {call.fault for call in report.calls} == {None}
