"""The example generator, run as a user runs it: beside a broker alone, and against the gate itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from groundwire.messages.decisions import RegenerateRequest
from groundwire.messages.decode import decode_response
from tests.services.brokers import Broker
from tests.stream.harness import Deployment, until
from tests.stream.test_client_tools import publish, stored

pytestmark = [pytest.mark.stream, pytest.mark.slow]

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "generator.py"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
KEY = b"acme:maria"
CHUNKS = [
    {
        "chunk_id": "k1",
        "file": "docs/search.md",
        "content": "Search returns ten results by default.\nThe setting `topK` changes the number of results.",
        "start_line": 1,
        "end_line": 2,
    },
    {
        "chunk_id": "k2",
        "file": "docs/auth.md",
        "content": "Logins expire. [source:9] results",
        "start_line": 1,
        "end_line": 1,
    },
]


@pytest.fixture
def prefix(broker: Broker) -> str:
    name = f"generator-{uuid.uuid4().hex[:8]}."
    broker.create_topics({f"{name}{topic}": 3 for topic in ("llm-responses", "regenerate")})
    return name


def weak(response_id="r1", **fields):
    """A response that the gate might ask to have answered again."""
    given = {"tenant_id": "acme", "user_id": "maria", "query": "How many results?", "mode": "thinking"}
    one = {"response_id": response_id, **given, "answer": "`limit` is 7", "scope": "docs", "chunks": CHUNKS}
    return one | fields


def request(response_id="r1", **fields):
    """The gate's request for a better one."""
    names = {"request_id": f"q-{response_id}", "response_id": response_id, "decision_id": "d1"}
    owner = {"tenant_id": "acme", "user_id": "maria"}
    rest = {"attempt": 1, "why": "low_confidence", "prompt": "Answer from the sources.", "flagged": []}
    made = {**names, **owner, "query": "How many results?", "mode": "auto", **rest, **fields}
    return RegenerateRequest.model_validate(made).model_dump(mode="json")


def send(broker, topic, *values, headers=()):
    encoded = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    publish(
        broker,
        topic,
        *[(number % 3, KEY, value, list(headers), None) for number, value in enumerate(encoded)],
    )


def arguments(broker, prefix, database, *more):
    known = {
        "--brokers": broker.bootstrap,
        "--prefix": prefix,
        "--group": f"{prefix}group",
        "--database": database,
    }
    return [sys.executable, str(PROGRAM), *(str(part) for pair in known.items() for part in pair), *more]


def generate(broker, prefix, database, *more, idle="3"):
    """Run until nothing more comes."""
    command = arguments(broker, prefix, database, "--exit-when-idle", idle, *more)
    result = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    return result


def answers(broker, prefix):
    """All answers of the generator: (key, value, headers)."""
    records = stored(broker, f"{prefix}llm-responses")
    return [(key, value, headers) for _, key, value, headers in records if b"in_reply_to" in value]


def replies(broker, prefix):
    return [decode_response(value) for _, value, _ in answers(broker, prefix)]


def test_a_request_is_answered_with_a_new_response_that_quotes_the_sources(broker, prefix, tmp_path):
    revisions = {"docs/search.md": "a1b2c3d"}
    send(broker, f"{prefix}llm-responses", weak(current_revisions=revisions))
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    send(broker, f"{prefix}regenerate", request(), headers=[trace, ("ce_id", b"q-r1")])
    generate(broker, prefix, tmp_path / "db")
    ((key, value, headers),) = answers(broker, prefix)
    made = decode_response(value)
    assert (key, headers) == (KEY, dict([trace]))
    assert (made.tenant_id, made.user_id, made.query) == ("acme", "maria", "How many results?")
    assert (made.in_reply_to, made.mode, made.scope) == ("r1", "auto", "docs")
    assert made.response_id not in ("r1", "q-r1")
    assert made.current_revisions == revisions
    assert [chunk.model_dump(exclude_none=True) for chunk in made.chunks] == CHUNKS
    quotes = CHUNKS[0]["content"].split("\n")
    assert made.answer == "".join(f"{quote} [source:1]\n" for quote in quotes).rstrip()
    assert [source.snippet for source in made.sources] == quotes


def test_the_mode_says_how_much_is_quoted_and_sources_that_do_not_answer_are_not(broker, prefix, tmp_path):
    content = "".join(f"There are {number} results. " for number in range(7))
    quoted = weak(chunks=[{**CHUNKS[0], "content": content}])
    send(broker, f"{prefix}llm-responses", quoted, weak("r2"), weak("r3", chunks=[]), weak("r4"))
    modes = {"instant": 1, "auto": 3, "thinking": 5}
    asked = [request(request_id=mode, mode=mode) for mode in modes]
    asked += [request("r2", query="Who wrote the manual?"), request("r3"), request("r4", query=None)]
    send(broker, f"{prefix}regenerate", *asked)
    generate(broker, prefix, tmp_path / "db")
    found = replies(broker, prefix)
    assert {one.mode: len(one.sources) for one in found if one.in_reply_to == "r1"} == modes
    empty = [(one.answer, one.sources) for one in found if one.in_reply_to != "r1"]
    assert empty == [("Not found in provided sources", [])] * 3


def test_a_repeated_request_gets_the_same_bytes_after_a_restart_and_from_another_generator(
    broker, prefix, tmp_path
):
    send(broker, f"{prefix}llm-responses", weak())
    send(broker, f"{prefix}regenerate", request(), request())
    generate(broker, prefix, tmp_path / "first")
    assert "answered" not in generate(broker, prefix, tmp_path / "first").stdout, (
        "it goes on where it committed"
    )
    send(broker, f"{prefix}regenerate", request())
    generate(broker, prefix, tmp_path / "first")
    generate(broker, prefix, tmp_path / "second", "--group", f"{prefix}other")
    values = [value for _, value, _ in answers(broker, prefix)]
    assert (len(values), len(set(values))) == (6, 1)
    again = request(decode_response(values[0]).response_id, mode="instant", attempt=2)
    send(broker, f"{prefix}regenerate", again)
    generate(broker, prefix, tmp_path / "first")
    (second,) = [one for one in replies(broker, prefix) if one.mode == "instant"]
    assert second.in_reply_to == again["response_id"], "its own answer can be asked about again"


def test_what_cannot_be_answered_is_skipped_and_said(broker, prefix, tmp_path):
    large = [{**CHUNKS[0], "content": "x" * 899_000}]
    bad_chunks = [[1], [{}], "text", [{"content": 1}]]
    send(
        broker,
        f"{prefix}llm-responses",
        *(b"{", b"[]", b"null", b'"r1"', {"response_id": "r9"}),
        *(weak(f"bad{number}", chunks=chunks) for number, chunks in enumerate(bad_chunks)),
        *(weak("large", chunks=large), weak(user_id="other"), weak("good")),
    )
    asked = [b"{", b"[]", b"null", b"{}", request("unknown"), request("r1")]
    asked += [request(f"bad{number}") for number in range(len(bad_chunks))]
    asked += [request("large", prompt="", query="x" * 3000), {**request("good"), "request_id": {}}]
    asked += [
        {**request("good"), "request_id": "q-fast", "mode": "fast"},
        {**request("good"), "request_id": "\ud800"},
    ]
    send(broker, f"{prefix}regenerate", *asked, request("good"))
    result = generate(broker, prefix, tmp_path / "db")
    assert result.stderr.count("skipped") == len(asked), result.stderr
    (made,) = replies(broker, prefix)
    assert made.in_reply_to == "good"


def test_only_the_first_record_of_an_id_of_its_own_user_counts_and_only_the_latest_are_kept(
    broker, prefix, tmp_path
):
    stranger = weak(user_id="mallory", chunks=[{**CHUNKS[0], "content": "Many results: none."}])
    records = [stranger, weak(), weak(chunks=stranger["chunks"])]
    encoded = [(0, KEY, json.dumps(one).encode(), [], None) for one in records]
    publish(broker, f"{prefix}llm-responses", *encoded)
    send(broker, f"{prefix}regenerate", request())
    generate(broker, prefix, tmp_path / "db")
    (made,) = replies(broker, prefix)
    assert [chunk.content for chunk in made.chunks] == [chunk["content"] for chunk in CHUNKS]
    later = [(0, KEY, json.dumps(weak(f"n{number}")).encode(), [], None) for number in range(5)]
    publish(broker, f"{prefix}llm-responses", *later)
    send(broker, f"{prefix}regenerate", *[request(f"n{number}") for number in range(5)])
    result = generate(broker, prefix, tmp_path / "db", "--remember", "2")
    assert result.stderr.count("the response is not known here") == 3
    assert {one.in_reply_to for one in replies(broker, prefix)} == {"r1", "n3", "n4"}


def test_it_ends_cleanly_at_sigterm_and_killed_again_and_again_answers_each_request_once(
    broker, prefix, tmp_path
):
    command = arguments(broker, prefix, tmp_path / "db")
    ends = (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
    count = 20 * len(ends)
    for first, end in zip(range(0, count, 20), ends, strict=True):
        names = [f"r{number}" for number in range(first, first + 20)]
        send(broker, f"{prefix}llm-responses", *map(weak, names))
        send(broker, f"{prefix}regenerate", *map(request, names))
        with subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert b"answered" in process.stdout.readline()
            process.send_signal(end)
            _, errors = process.communicate(timeout=240)
            assert (process.returncode, errors) == (0 if end == signal.SIGTERM else -end, b"")
    # an idle time that is longer than the session of the one that was killed
    generate(broker, prefix, tmp_path / "db", idle="15")
    found = {}
    for _, value, _ in answers(broker, prefix):
        made = decode_response(value)
        assert found.setdefault(made.in_reply_to, value) == value
    assert len(found) == count


async def test_a_weak_response_is_answered_again_until_it_holds(
    deployment: Deployment, broker: Broker, tmp_path: Path
):
    await deployment.start_workers("responses")
    process = await asyncio.create_subprocess_exec(
        *arguments(broker, deployment.prefix, tmp_path / "db"),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        invented = "`maxRows`, `minRows` and `rowLimit` set it."
        await deployment.produce([weak(answer=invented)], topic="llm-responses")
        first = await deployment.decision("r1")
        assert first.json["reason_code"] == "low_confidence"

        def replies():
            return [d for d in deployment.decisions if d.json["facts"].get("reply_to")]

        await until(lambda: bool(replies()), lambda: "the answer is decided")
        await deployment.quiet()
        (reply,) = replies()
        assert reply.json["facts"]["reply_to"]["response_id"] == "r1"
        assert reply.json["verdict"] == "approved"
    finally:
        process.terminate()
        _, errors = await process.communicate()
    assert errors == b""
