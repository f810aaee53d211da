"""The example programs, run as a user runs them: beside a broker alone, and against workers (X-07, X-16)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta

import pytest

from deploy.embedded import MissingServiceError
from groundwire.client import Producer
from groundwire.errors import RecordError
from groundwire.messages.decisions import Decision, Kind, RegenerateRequest
from groundwire.messages.decode import decode_claim, decode_response
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import decision_headers, event_headers
from groundwire.messages.identity import Subject, decision_id, retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.topics import record_key
from tests.services.fixtures import or_skip
from tests.services.postgres import with_pgvector
from tests.stream.harness import PATIENCE, ROOT, Deployment, until
from tests.unit.docs.pages import DOCS, blocks
from tests.unit.examples.loading import load

pytestmark = [pytest.mark.stream, pytest.mark.slow]

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
KEY, MARIA = b"acme:maria", ("default", "maria")
CHUNK = {"file": "docs/search.md", "start_line": 1, "end_line": 2}
SEARCH = "Search returns ten results by default.\nThe setting `topK` changes the number of results."
CHUNKS = [
    {"chunk_id": "k1", "content": SEARCH, **CHUNK},
    {"chunk_id": "k2", "content": "Logins expire. [source:9] results", **CHUNK, "file": "docs/auth.md"},
]


async def run(name, *arguments, env=ENVIRONMENT):
    """Run an example to its end."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    options = {"env": env, "capture_output": True, "text": True, "check": False}
    return await asyncio.to_thread(subprocess.run, command, **options)


@asynccontextmanager
async def running(name, *arguments, env=ENVIRONMENT, **options):
    """An example as a process, asked to end at the latest when the block does."""
    program = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*program, env=env, stderr=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        _, process.errors = await process.communicate()


def following(topics, folder, *more):
    """Options of a program that follows topics with a group and a database of its own."""
    where = ("--brokers", topics.broker.bootstrap, "--prefix", topics.prefix, "--database", folder)
    return (*where, "--group", f"{topics.prefix}group", *more)


async def test_the_producer_sends_claims_that_the_gate_reads(topics):
    hostile = "'; DROP TABLE claims; -- \x1b[31m ü"
    where = ["--brokers", topics.broker.bootstrap, "--topic", f"{topics.prefix}claims"]
    for _ in range(2):
        done = await run(
            *("producer.py", "Redis is fast", hostile, "--user", "maria", "--tenant", "acme"), *where
        )
        assert done.returncode == 0, done.stderr
    records = await topics.stored("claims")
    claims = [decode_claim(seen.value) for seen in records]
    assert [claim.content for claim in claims] == ["Redis is fast", hostile] * 2
    assert {seen.key for seen in records} == {KEY}
    assert claims[0] == claims[2], "sent again, it is the same claim"
    assert len({claim.claim_id for claim in claims}) == 2
    assert len(done.stdout.splitlines()) == 2


async def test_the_consumer_keeps_the_highest_revision_and_skips_what_is_no_decision(topics, tmp_path):
    """It goes on where its group committed, and ends cleanly at SIGTERM."""
    sample = (ROOT / "tests/contract/samples/decision.good.approved-claim.json").read_text("utf-8")
    whole = Decision.model_validate_json(sample).model_dump(by_alias=True)

    def approval(subject_id="c1", revision=1, content="Redis is fast"):
        subject = Subject("acme", "maria", Kind.CLAIM, subject_id)
        own = {"subject_id": subject_id, "user_id": "maria", "revision": revision}
        own |= {
            "decision_id": decision_id(subject, revision),
            "evidence": whole["evidence"] | {"claim": content},
        }
        return Decision.model_validate(whole | own)

    def retraction(approved):
        subject = Subject("acme", "maria", Kind.CLAIM, approved.subject_id)
        own = {"tenant_id": "acme", "user_id": "maria", "subject_id": approved.subject_id, "kind": "claim"}
        names = {"decision_id": decision_id(subject, 2), "supersedes": approved.decision_id}
        return Retraction(**own, **names, reason=None, actor="lead", at=approved.decided_at, affected=[])

    async def decided(*records):
        """Publish decisions, retractions, and pairs of a value and headers."""
        for one in records:
            topic = "approved"
            if isinstance(one, tuple):
                value, headers = one
            elif isinstance(one, Decision):
                value, headers = one.to_bytes(), decision_headers(one, [])
            else:
                name, topic, value = (
                    retraction_id(one.decision_id),
                    "retractions",
                    one.model_dump_json().encode(),
                )
                headers = event_headers("retraction", name, "2026-02-01T00:00:00Z", "c1", [])
            await (await topics.send(value, topic=topic, key=KEY, headers=headers))

    def table(database):
        with closing(sqlite3.connect(database)) as connection:
            query = "SELECT subject_id, revision, content FROM memories ORDER BY subject_id"
            return connection.execute(query).fetchall()

    async def consume(database):
        done = await run("approved_table", *following(topics, database, "--exit-when-idle", "3"))
        assert done.returncode == 0, done.stderr
        return table(database), done.stderr

    first, second = approval(), approval(revision=2, content="Redis is very fast")
    other = approval("c2", content="'); DROP TABLE memories; --")
    known = (
        approval("c9").to_bytes(),
        decision_headers(first, []),
    )  # another record under an id that was seen
    early, late = approval("r1"), approval("r2")
    await decided(second, first, first, other, second, other, known, retraction(early), late)
    rows, _ = await consume(tmp_path / "db")
    expected = [("c1", 2, "Redis is very fast"), ("c2", 1, "'); DROP TABLE memories; --")]
    assert rows == [*expected, ("r2", 1, "Redis is fast")]
    await decided(early, retraction(late))
    assert (await consume(tmp_path / "db"))[0] == expected

    headers = decision_headers(first, [])
    bad = [(b"{", headers), (b"[]", headers), (b"null", headers), (b"{}", headers), (b"{}", [])]
    wrong = (
        {"user_id": {}},
        {"revision": None},
        {"revision": 2**70},
        {"evidence": 1},
        {"evidence": {"claim": []}},
    )
    valid = json.loads(first.to_bytes())
    bad += [(json.dumps({**valid, **fields}).encode(), headers) for fields in wrong]
    tomorrow = json.loads(approval("c3").to_bytes()) | {"tomorrow": 1}
    await decided(*bad, (json.dumps(tomorrow).encode(), decision_headers(approval("c3"), [])))
    rows, errors = await consume(tmp_path / "second")
    assert errors.count("skipped") == len(bad)
    assert [row[0] for row in rows] == ["c3"], "it goes on where its group committed"
    await decided(approval("c4"))
    async with running("approved_table", *following(topics, tmp_path / "second")) as process:
        await until(lambda: len(table(tmp_path / "second")) == 2, "it is stored")
    assert (process.returncode, process.errors) == (0, b"")


async def test_a_request_is_answered_once_with_a_new_response_that_quotes_the_sources_of_its_own_user(
    topics, tmp_path
):
    """What cannot be answered is skipped; the first record of an id counts; only the latest are kept."""

    def weak(response_id="r1", **fields):
        """A response that the gate might ask to have answered again."""
        given = {"tenant_id": "acme", "user_id": "maria", "query": "How many results?", "mode": "thinking"}
        given |= {"answer": "`limit` is 7", "scope": "docs", "chunks": CHUNKS}
        return {"response_id": response_id, **given, **fields}

    def request(response_id="r1", **fields):
        """The gate's request for a better one."""
        names = {"request_id": f"q-{response_id}", "response_id": response_id, "decision_id": "d1"}
        owner = {"tenant_id": "acme", "user_id": "maria"}
        rest = {"attempt": 1, "why": "low_confidence", "prompt": "Answer from the sources.", "flagged": []}
        made = {**names, **owner, "query": "How many results?", "mode": "auto", **rest, **fields}
        return RegenerateRequest.model_validate(made).model_dump(mode="json")

    async def asked(responses, requests, headers=()):
        await topics.produce(responses, topic="llm-responses", key=KEY)
        await topics.produce(requests, topic="regenerate", key=KEY, headers=headers)

    async def generate(*more, idle="3"):
        """Run the generator until nothing more comes; its errors, and its answers so far."""
        options = following(topics, tmp_path / "db", "--exit-when-idle", idle, *more)
        done = await run("generator.py", *options)
        assert done.returncode == 0, done.stderr
        answers = [seen for seen in await topics.stored("llm-responses") if b"in_reply_to" in seen.value]
        return done.stderr, [(seen, decode_response(seen.value)) for seen in answers]

    revisions = {"docs/search.md": "a1b2c3d"}
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await asked([weak(current_revisions=revisions)], [request()], [trace, ("ce_id", b"q-r1")])
    _, ((answer, made),) = await generate()
    assert (answer.key, answer.headers) == (KEY, (trace,))
    assert (made.tenant_id, made.user_id, made.query) == ("acme", "maria", "How many results?")
    assert (made.in_reply_to, made.mode, made.scope) == ("r1", "auto", "docs")
    assert made.response_id not in ("r1", "q-r1")
    assert made.current_revisions == revisions
    assert [chunk.model_dump(exclude_none=True) for chunk in made.chunks] == CHUNKS
    quotes = SEARCH.split("\n")
    assert made.answer == "".join(f"{quote} [source:1]\n" for quote in quotes).rstrip()
    assert [source.snippet for source in made.sources] == quotes

    content = "".join(f"There are {number} results. " for number in range(7))
    modes = {"instant": 1, "auto": 3, "thinking": 5}
    quoted = weak("q", chunks=[{**CHUNKS[0], "content": content}])
    again = [request("q", request_id=mode, mode=mode) for mode in modes]
    again += [request("r2", query="Who wrote the manual?"), request("r3"), request("r4", query=None)]
    stranger = weak("good", user_id="mallory", chunks=[{**CHUNKS[0], "content": "Many results: none."}])
    twice = [stranger, weak("good"), weak("good", chunks=stranger["chunks"])]
    bad_chunks = [[1], [{}], "text", [{"content": 1}]]
    large = weak("large", chunks=[{**CHUNKS[0], "content": "x" * 899_000}])
    bad = [weak(f"bad{number}", chunks=chunks) for number, chunks in enumerate(bad_chunks)]
    bad += [b"{", b"[]", b"null", b'"r1"', {"response_id": "r9"}, large, weak("other", user_id="other")]
    skipped = [b"{", b"[]", b"null", b"{}", request("unknown"), request("other")]
    skipped += [request(f"bad{number}") for number in range(len(bad_chunks))]
    skipped += [request("large", prompt="", query="x" * 3000), {**request("good"), "request_id": {}}]
    skipped += [{**request("good"), "request_id": "q-fast", "mode": "fast"}]
    skipped += [json.dumps({**request("good"), "request_id": "\ud800"}).encode()]
    responses = [quoted, weak("r2"), weak("r3", chunks=[]), weak("r4"), *bad, *twice]
    await asked(responses, [*again, *skipped, request("good")])
    errors, found = await generate()
    assert errors.count("skipped") == len(skipped), errors
    assert {one.mode: len(one.sources) for _, one in found if one.in_reply_to == "q"} == modes
    of = {one.in_reply_to: one for _, one in found}
    assert of.keys() == {"r1", "q", "r2", "r3", "r4", "good"}
    empty = [(of[name].answer, of[name].sources) for name in ("r2", "r3", "r4")]
    assert empty == [("Not found in provided sources", [])] * 3
    assert [chunk.content for chunk in of["good"].chunks] == [chunk["content"] for chunk in CHUNKS]
    names = [f"n{number}" for number in range(5)]
    await asked(map(weak, names), map(request, names))
    errors, found = await generate("--remember", "2")
    assert errors.count("the response is not known here") == 3
    assert {one.in_reply_to for _, one in found} - of.keys() == {"n3", "n4"}

    # ended and killed again and again, it answers each request once
    ends = (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
    for number, end in enumerate(ends):
        names = [f"k{number}-{each}" for each in range(20)]
        await asked(map(weak, names), map(request, names))
        options = following(topics, tmp_path / "db")
        async with running("generator.py", *options, stdout=subprocess.PIPE) as process:
            assert b"answered" in await process.stdout.readline()
            process.send_signal(end)
            await process.wait()
        assert (process.returncode, process.errors) == (0 if end == signal.SIGTERM else -end, b"")
    # an idle time that is longer than the session of the one that was killed
    await generate(idle="15")
    await asked([], [request("k0-1")])
    other = ("--database", tmp_path / "other", "--group", f"{topics.prefix}other")
    _, found = await generate(*other)
    answers = {}
    for seen, one in found:
        if one.in_reply_to.startswith("k"):
            assert answers.setdefault(one.in_reply_to, seen.value) == seen.value, "the same, whoever answers"
    assert len(answers) == 20 * len(ends)
    replied = next(one for _, one in found if one.in_reply_to == "k0-1")
    await asked([], [request(replied.response_id, mode="instant", attempt=2)])
    _, found = await generate()
    assert replied.response_id in {one.in_reply_to for _, one in found}, "its own answer is answered, too"


async def test_a_weak_response_is_answered_again_until_it_holds(deployment: Deployment, tmp_path):
    await deployment.start_workers("responses")
    options = following(deployment, tmp_path / "db")
    async with running("generator.py", *options, stdout=subprocess.DEVNULL) as process:
        invented = "`maxRows`, `minRows` and `rowLimit` set it."
        weak = {"response_id": "r1", "tenant_id": "acme", "user_id": "maria", "query": "How many results?"}
        weak |= {"mode": "thinking", "answer": invented, "scope": "docs", "chunks": CHUNKS}
        await deployment.produce([weak], topic="llm-responses")
        first = await deployment.decision("r1")
        assert first.json["reason_code"] == "low_confidence"

        def replies():
            return [seen.json for seen in deployment.decisions if seen.json["facts"].get("reply_to")]

        await until(replies, "the answer is decided")
        await deployment.quiet()
        (reply,) = replies()
        assert reply["facts"]["reply_to"]["response_id"] == "r1"
        assert reply["verdict"] == "approved"
    assert process.errors == b""


async def erase(deployment: Deployment, user: tuple[str, str]) -> None:
    tombstone = Erasure(*user, datetime.now(UTC))
    await (await deployment.send(None, topic="retractions", key=record_key(*user), headers=tombstone.headers))


async def test_langgraph_reads_what_the_gate_approved_and_is_told_why_it_approved_nothing(
    deployment: Deployment,
) -> None:
    def start():
        if importlib.util.find_spec("langgraph") is None:
            raise MissingServiceError("LangGraph's store is not there: make examples")
        return load("langgraph_store.py")

    example, ada = or_skip(start), ("default", "ada")
    (shown,) = (block for block in blocks(DOCS / "use" / "clients.md") if "langgraph" in block.mark)
    await deployment.start_worker("claims").ready()
    where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
    async with Producer(**where) as gate, example.GroundwireStore.open(gate, **where) as store:
        await store.aput(ada, "tabs", {"content": "I prefer tabs over spaces", "source": "user"})
        item = await store.aget(ada, "tabs")
        assert item.value["content"] == "I prefer tabs over spaces"

        with pytest.raises(example.NotApproved, match="blocked, personal_speculation") as refused:
            await store.aput(ada, "maybe", {"content": "Maybe we use Redis", "source": "user"})
        assert [hedge.text for hedge in refused.value.decision.hedges] == ["Maybe"]
        assert await store.aget(ada, "maybe") is None
        with pytest.raises(RecordError, match="another claim"):
            await store.aput(ada, "tabs", {"content": "I prefer spaces", "source": "user"})
        with pytest.raises(RecordError, match="colour"):
            await store.aput(ada, "red", {"content": "I like red", "colour": "red"})
        with pytest.raises(NotImplementedError, match="groundwire review retract"):
            await store.adelete(ada, "tabs")

        soon = (datetime.now(UTC) + timedelta(seconds=15)).isoformat()
        lunch = {"content": "Lunch is at noon today", "source": "user", "validity_horizon": soon}
        await asyncio.to_thread(store.put, ada, "lunch", lunch)  # as a tool in a thread does
        found = await store.asearch(("default",), filter={"source": "user"})
        assert [one.key for one in found] == ["tabs", "lunch"]
        assert await store.alist_namespaces() == [ada]
        with pytest.raises(RuntimeError, match="aget"):
            store.get(ada, "tabs")
        async with asyncio.timeout(PATIENCE):
            while await store.aget(ada, "lunch"):  # noqa: ASYNC110 - until it has expired
                await asyncio.sleep(0.1)
        async with example.GroundwireStore.open(gate, **where) as second:  # as after a restart
            assert [one.key for one in await second.asearch(ada)] == ["tabs"]
        await erase(deployment, ada)
        async with asyncio.timeout(PATIENCE):
            while await store.aget(ada, "tabs"):  # noqa: ASYNC110 - until the tombstone is read
                await asyncio.sleep(0.1)
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "examples")))
    assert (await deployment.succeeds(program=shown.text, PYTHONPATH=path))[0] == shown.shown


async def test_pgvector_follows_what_a_worker_approves_and_what_is_erased(deployment: Deployment) -> None:
    await deployment.start_worker("claims").ready()
    with or_skip(with_pgvector) as server:
        log = deployment.folder / "follow.log"
        env = deployment.settings()

        async def found(expected: str) -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    asking = ("search", "--database", server.url, "--user", "maria", "which database?")
                    done = await run("vector_store", *asking, env=env)
                    assert done.returncode == 0, done.stderr
                    if done.stdout.endswith(expected) and bool(done.stdout) == bool(expected):
                        return

        with log.open("wb") as written:
            options = ("follow", "--database", server.url)
            async with running("vector_store", *options, env=env, stdout=written) as process:
                await until(lambda: "caught up" in log.read_text(), log.read_text)
                claim = {"user_id": "maria", "source": "user"}
                database = {**claim, "claim_id": "db", "content": "The database is PostgreSQL"}
                await deployment.produce([database, {**claim, "claim_id": "m", "content": "Maybe Redis"}])
                await deployment.settled(2)
                await found(" db The database is PostgreSQL\n")
                await erase(deployment, MARIA)
                await found("")
        assert process.returncode == 0, process.errors
