"""`groundwire.client`, the programs of docs/use/clients.md and `groundwire mcp` against real workers (X-16, X-17)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from groundwire.client import ApprovedTable, Producer
from groundwire.errors import RecordError
from tests.stream.harness import COMMAND, ROOT, Deployment
from tests.unit.docs.pages import DOCS, agrees, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

CITED = "Search runs on PostgreSQL, see ADR-003."
GUESSED = "Maybe search runs on PostgreSQL."
CHUNK = {"chunk_id": "1", "file": "a.md", "content": "Redis listens on 6379.", "start_line": 1, "end_line": 1}
PROGRAMS = [
    block
    for block in blocks(DOCS / "use" / "clients.md")
    if block.language == "python" and block.mark == "needs: kafka"
]


@pytest.fixture(autouse=True)
def adrs(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "ADR-003-search.md").touch()
    deployment.environment["GROUNDWIRE_ADR_DIR"] = str(tmp_path)


def client(deployment: Deployment) -> Producer:
    return Producer(brokers=deployment.broker.bootstrap, topic_prefix=deployment.prefix)


@pytest.mark.smoke
async def test_an_agent_repairs_what_was_blocked_and_whoever_asks_later_reads_the_same(
    deployment: Deployment,
):
    await deployment.start_worker("claims").ready()
    async with client(deployment) as gate:
        blocked = await gate.decided(await gate.claim(GUESSED, user_id="maria"))
        assert blocked.reason_code == "personal_speculation"
        assert [hedge.text for hedge in blocked.hedges] == ["Maybe"]
        first, again = [await gate.claim(CITED, user_id="maria") for _ in range(2)]
        assert first.subject == again.subject
        decision = await gate.decided(first)
        assert (decision.verdict, decision.reason_code) == ("approved", "verified_citation")
        assert await gate.decided(again) == decision
        other = await gate.claim(CITED, user_id="maria", source="documentation")
        assert other.subject != first.subject, "other fields are another claim"
        await gate.decided(await gate.claim(CITED, user_id="maria", claim_id="c1"))
        with pytest.raises(RecordError) as raised:
            await gate.decided(await gate.claim(GUESSED, user_id="maria", claim_id="c1"))
        assert raised.value.code == "claim_id_conflict"
        with pytest.raises(RecordError, match="content"):
            await gate.claim("", user_id="maria")
        tabs = await gate.claim("I prefer tabs over spaces", user_id="maria", source="user")
        await gate.decided(tabs)
    async with client(deployment) as later:
        assert await later.status(first.subject) == decision
        assert await later.status(first.subject._replace(subject_id="another")) is None
    await deployment.decision(tabs.subject.subject_id)
    await deployment.quiet()
    table = ApprovedTable()
    for seen in deployment.decisions:
        table.apply(seen)
    stored = {memory.content for memory in table.memories("default", "maria")}
    assert stored == {CITED, "I prefer tabs over spaces"}


async def test_a_client_waits_no_longer_than_asked_and_follows_decisions_after_the_broker_was_away(
    deployment: Deployment,
):
    async with client(deployment) as gate:
        sent = await gate.claim(CITED, user_id="maria")
        with pytest.raises(TimeoutError):
            await gate.decided(sent, seconds=0.2)
        await deployment.start_workers("claims", "responses")
        assert (await gate.decided(sent)).approved, "the record remains"
        await asyncio.to_thread(deployment.broker.stop)
        await asyncio.to_thread(deployment.broker.start)
        wrong = await gate.response("Redis listens on 6380 [source:1].", user_id="maria", chunks=[CHUNK])
        decision = await gate.decided(wrong)
        assert not decision.approved
        assert decision.report is not None


async def test_the_documented_programs_pass_mypy_and_do_what_the_page_shows(
    deployment: Deployment, tmp_path: Path
):
    assert len(PROGRAMS) == 3
    await deployment.start_workers("claims", "responses")
    for number, block in enumerate(PROGRAMS):
        file = tmp_path / f"program_{number}.py"
        file.write_text(block.text)
        # as on a reader's machine: strict, and without the settings of this repository
        checked = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
            [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(file)],
            env={"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        status, printed, errors = await deployment.command(program=block.text)
        assert status == 0, errors
        assert agrees(block.shown or "", printed), f"{block.where} prints\n{printed}"


async def test_an_mcp_agent_remembers_repairs_checks_answers_and_asks_for_the_status(deployment: Deployment):
    @asynccontextmanager
    async def agent(*options: str):
        command = ["-c", COMMAND, "mcp", "--user", "maria", "--tenant", "acme", *options]
        server = StdioServerParameters(
            command=sys.executable, args=command, env=deployment.settings(), cwd=str(ROOT)
        )
        async with Client(stdio_client(server)) as made:
            yield made

    async def told(agent: Client, tool: str, **arguments: object) -> dict[str, object]:
        result = await agent.call_tool(tool, arguments)
        assert not result.is_error, result
        assert result.structured_content is not None
        return result.structured_content

    async with agent("--wait", "0.5") as asking:
        assert (await told(asking, "remember", content="The hall is cold."))["verdict"] == "pending"
        result = await asking.call_tool("remember", {"content": ""})
        assert (result.is_error, "content" in str(result.content)) == (True, True)
    await deployment.start_workers("claims", "responses")
    async with agent() as asking:
        names = {tool.name for tool in (await asking.list_tools()).tools}
        assert names == {"remember", "check_answer", "recall_status"}
        blocked = await told(asking, "remember", content=GUESSED)
        assert (blocked["verdict"], blocked["hedges"]) == ("blocked", ["Maybe"])
        stored = await told(asking, "remember", content=CITED)
        assert (stored["verdict"], stored["citations"]) == ("approved", ["adr:003: verified"])
        assert await told(asking, "recall_status", claim_id=stored["id"]) == stored
        assert (await told(asking, "recall_status", claim_id="another"))["verdict"] == "pending"
        for port, approved in ((6380, False), (6379, True)):
            answer = f"Redis listens on {port} [source:1]."
            checked = await told(asking, "check_answer", answer=answer, chunks=[CHUNK])
            assert (checked["verdict"] == "approved", bool(checked["failed"])) == (approved, not approved)
    assert {seen.subject[:2] for seen in deployment.decisions} == {("acme", "maria")}
