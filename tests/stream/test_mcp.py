"""`groundwire mcp` with the SDK's own client, against real workers (X-17)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.stream.harness import COMMAND, ROOT, Deployment

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@asynccontextmanager
async def agent(deployment: Deployment, *options: str) -> AsyncIterator[Client]:
    """A client of a server that remembers for maria."""
    command = ["-c", COMMAND, "mcp", "--user", "maria", "--tenant", "acme", *options]
    server = StdioServerParameters(
        command=sys.executable, args=command, env=deployment.settings(), cwd=str(ROOT)
    )
    async with Client(stdio_client(server)) as client:
        yield client


@pytest.fixture
def adrs(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "ADR-003-search.md").touch()
    deployment.environment["GROUNDWIRE_ADR_DIR"] = str(tmp_path)


async def told(client: Client, tool: str, **arguments: object) -> dict[str, object]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content


@pytest.mark.usefixtures("adrs")
async def test_an_agent_remembers_repairs_and_asks_where_it_stands(deployment: Deployment) -> None:
    await deployment.start_workers("claims")
    async with agent(deployment) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"remember", "check_answer", "recall_status"}
        blocked = await told(client, "remember", content="Maybe search runs on PostgreSQL.")
        assert (blocked["verdict"], blocked["hedges"]) == ("blocked", ["Maybe"])
        stored = await told(client, "remember", content="Search runs on PostgreSQL, see ADR-003.")
        assert (stored["verdict"], stored["citations"]) == ("approved", ["adr:003: verified"])
        assert await told(client, "recall_status", claim_id=stored["id"]) == stored
        assert (await told(client, "recall_status", claim_id="another"))["verdict"] == "pending"
    assert {seen.subject[:2] for seen in deployment.decisions} == {("acme", "maria")}


async def test_an_agent_holds_an_answer_against_its_passages(deployment: Deployment) -> None:
    await deployment.start_workers("responses")
    chunk = {
        "chunk_id": "1",
        "file": "a.md",
        "content": "Redis listens on 6379.",
        "start_line": 1,
        "end_line": 1,
    }
    async with agent(deployment) as client:
        wrong = await told(client, "check_answer", answer="Redis listens on 6380 [source:1].", chunks=[chunk])
        assert wrong["verdict"] != "approved"
        assert wrong["failed"]
        right = await told(client, "check_answer", answer="Redis listens on 6379 [source:1].", chunks=[chunk])
        assert right["verdict"] == "approved"


async def test_a_tool_that_waits_in_vain_says_pending_and_an_error_names_the_field(
    deployment: Deployment,
) -> None:
    async with agent(deployment, "--wait", "0.5") as client:
        assert (await told(client, "remember", content="Search runs on PostgreSQL."))["verdict"] == "pending"
        result = await client.call_tool("remember", {"content": ""})
        assert result.is_error
        assert "content" in str(result.content)
