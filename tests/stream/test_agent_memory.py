"""What agents remember with LangGraph's store and with pgvector, against a real worker (X-16)."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from deploy.embedded import MissingServiceError
from groundwire.client import Producer
from groundwire.errors import RecordError
from groundwire.messages.erasure import Erasure
from groundwire.messages.topics import record_key
from tests.services.fixtures import or_skip
from tests.services.postgres import with_pgvector
from tests.stream.harness import ROOT, Deployment, until
from tests.unit.docs.pages import DOCS, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

MARIA = ("default", "maria")


def langgraph_store():
    """The example as a module; in CI its package must be there."""
    if importlib.util.find_spec("langgraph") is None:
        raise MissingServiceError("LangGraph's store is not there: make examples")
    spec = importlib.util.spec_from_file_location("langgraph_store", ROOT / "examples" / "langgraph_store.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def erase(deployment: Deployment, user: tuple[str, str]) -> None:
    tombstone = Erasure(*user, datetime.now(UTC))
    topic = f"{deployment.prefix}retractions"
    await deployment.producer.send_and_wait(topic, None, record_key(*user), headers=tombstone.headers)


async def test_langgraph_reads_what_the_gate_approved_and_hears_why_it_approved_nothing(
    deployment: Deployment,
) -> None:
    example = or_skip(langgraph_store)
    await deployment.start_worker("claims").ready()
    where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
    async with Producer(**where) as gate, example.GroundwireStore.open(gate, **where) as store:
        await store.aput(MARIA, "tabs", {"content": "I prefer tabs over spaces", "source": "user"})
        item = await store.aget(MARIA, "tabs")
        assert item.value["content"] == "I prefer tabs over spaces"

        with pytest.raises(example.NotApproved, match="blocked, personal_speculation") as refused:
            await store.aput(MARIA, "maybe", {"content": "Maybe we use Redis", "source": "user"})
        assert [hedge.text for hedge in refused.value.decision.hedges] == ["Maybe"]
        assert await store.aget(MARIA, "maybe") is None
        with pytest.raises(RecordError, match="another claim"):
            await store.aput(MARIA, "tabs", {"content": "I prefer spaces", "source": "user"})
        with pytest.raises(RecordError, match="colour"):
            await store.aput(MARIA, "red", {"content": "I like red", "colour": "red"})
        with pytest.raises(NotImplementedError, match="groundwire review retract"):
            await store.adelete(MARIA, "tabs")

        soon = (datetime.now(UTC) + timedelta(seconds=8)).isoformat()
        lunch = {"content": "Lunch is at noon today", "source": "user", "validity_horizon": soon}
        await asyncio.to_thread(store.put, MARIA, "lunch", lunch)  # as a tool in a thread does
        found = await store.asearch(("default",), filter={"source": "user"})
        assert [one.key for one in found] == ["tabs", "lunch"]
        assert await store.alist_namespaces() == [MARIA]
        with pytest.raises(RuntimeError, match="aget"):
            store.get(MARIA, "tabs")
        async with asyncio.timeout(60):
            while await store.aget(MARIA, "lunch"):  # noqa: ASYNC110 - until it has expired
                await asyncio.sleep(0.1)

        async with example.GroundwireStore.open(gate, **where) as second:  # as after a restart
            assert [one.key for one in await second.asearch(MARIA)] == ["tabs"]
        await erase(deployment, MARIA)
        async with asyncio.timeout(60):
            while await store.aget(MARIA, "tabs"):  # noqa: ASYNC110 - until the tombstone is read
                await asyncio.sleep(0.1)


async def test_the_page_shows_what_an_agent_with_langgraph_is_told(deployment: Deployment) -> None:
    or_skip(langgraph_store)
    (shown,) = (block for block in blocks(DOCS / "use" / "clients.md") if "langgraph" in block.mark)
    await deployment.start_worker("claims").ready()
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "examples")))
    status, printed, errors = await deployment.command(program=shown.text, PYTHONPATH=path)
    assert status == 0, errors
    assert printed == shown.shown


async def test_pgvector_follows_what_a_worker_approves_and_what_is_erased(deployment: Deployment) -> None:
    program = [sys.executable, str(ROOT / "examples" / "vector_store")]
    await deployment.start_worker("claims").ready()
    with or_skip(with_pgvector) as server:
        log = deployment.folder / "follow.log"

        def search() -> str:
            asked = [*program, "search", "--database", server.url, "--user", "maria", "which database?"]
            done = subprocess.run(
                asked, env=deployment.settings(), capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        with (
            log.open("wb") as written,
            subprocess.Popen(  # noqa: ASYNC220 - it starts at once
                [*program, "follow", "--database", server.url],
                env=deployment.settings(),
                stdout=written,
                stderr=written,
            ) as following,
        ):
            try:
                await until(lambda: "caught up" in log.read_text(), log.read_text)
                claim = {"user_id": "maria", "source": "user"}
                database = {**claim, "claim_id": "db", "content": "The database is PostgreSQL"}
                await deployment.produce([database, {**claim, "claim_id": "m", "content": "Maybe Redis"}])
                await deployment.settled(2)
                await until(lambda: search().endswith(" db The database is PostgreSQL\n"), log.read_text)
                await erase(deployment, MARIA)
                await until(lambda: search() == "", log.read_text)
            finally:
                following.terminate()
        assert following.returncode == 0, log.read_text()
