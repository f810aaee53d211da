"""`groundwire.client`, `groundwire mcp` and the programs of two pages of the documentation against real workers.

Those of docs/use/clients.md and examples/java, and those of docs/reference/wire.md for Kafka's own tool and kcat
(X-07, X-16, X-17).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from deploy.embedded import MissingServiceError
from deploy.kafka.jars import JARS_VARIABLE, find_java, tools_folder
from groundwire.client import ApprovedTable, Producer
from groundwire.errors import RecordError
from tests.services.brokers import BROKER_VARIABLE
from tests.services.fixtures import or_skip
from tests.stream.harness import COMMAND, ROOT, Deployment
from tests.unit.docs.pages import DOCS, agrees, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

CITED = "Search runs on PostgreSQL, see ADR-003."
GUESSED = "Maybe search runs on PostgreSQL."
CHUNK = {"chunk_id": "1", "file": "a.md", "content": "Redis listens on 6379.", "start_line": 1, "end_line": 1}


@pytest.fixture(autouse=True)
def adrs(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "ADR-003-search.md").touch()
    deployment.environment["GROUNDWIRE_ADR_DIR"] = str(tmp_path)


async def run(command: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    """Run a command that must end with 0; its output and errors."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=env, stdout=PIPE, stderr=STDOUT)
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


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
    page = blocks(DOCS / "use" / "clients.md")
    programs = [block for block in page if (block.language, block.mark) == ("python", "needs: kafka")]
    assert len(programs) == 3
    await deployment.start_workers("claims", "responses")
    for number, block in enumerate(programs):
        file = tmp_path / f"program_{number}.py"
        file.write_text(block.text)
        # as on a reader's machine: strict, and without the settings of this repository
        checking = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(file)]
        await run(checking, tmp_path, {"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"})
        printed, _ = await deployment.succeeds(program=block.text)
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

    async def call(agent: Client, tool: str, **arguments: object) -> dict[str, object]:
        result = await agent.call_tool(tool, arguments)
        assert not result.is_error, result
        assert result.structured_content is not None
        return result.structured_content

    async with agent("--wait", "0.5") as asking:
        assert (await call(asking, "remember", content="The hall is cold."))["verdict"] == "pending"
        result = await asking.call_tool("remember", {"content": ""})
        assert (result.is_error, "content" in str(result.content)) == (True, True)
    await deployment.start_workers("claims", "responses")
    async with agent() as asking:
        names = {tool.name for tool in (await asking.list_tools()).tools}
        assert names == {"remember", "check_answer", "recall_status"}
        blocked = await call(asking, "remember", content=GUESSED)
        assert (blocked["verdict"], blocked["hedges"]) == ("blocked", ["Maybe"])
        stored = await call(asking, "remember", content=CITED)
        assert (stored["verdict"], stored["citations"]) == ("approved", ["adr:003: verified"])
        assert await call(asking, "recall_status", claim_id=stored["id"]) == stored
        assert (await call(asking, "recall_status", claim_id="another"))["verdict"] == "pending"
        for port, approved in ((6380, False), (6379, True)):
            answer = f"Redis listens on {port} [source:1]."
            checked = await call(asking, "check_answer", answer=answer, chunks=[CHUNK])
            assert (checked["verdict"] == "approved", bool(checked["failed"])) == (approved, not approved)
    assert {seen.subject[:2] for seen in deployment.decisions} == {("acme", "maria")}


WIRE = list(blocks(DOCS / "reference" / "wire.md"))
ON_KAFKA = os.environ.get(BROKER_VARIABLE, "embedded") != "embedded"


@pytest.mark.skipif(not ON_KAFKA, reason="the embedded broker does not take kcat's format: make test-kafka")
async def test_kafkas_own_tool_and_kcat_send_claims_and_kcat_prints_decisions_with_their_headers(
    deployment: Deployment, tmp_path: Path
):
    def lines(name: str) -> str:
        return next(block.text for block in WIRE if block.language == "sh" and name in block.text)

    async def run_lines(text: str) -> str:
        """Run lines of the page with the broker's address and the prefix of the topics replaced."""
        ours = text.replace("127.0.0.1:9092", deployment.broker.bootstrap)
        return await run(["/bin/sh", "-ec", ours.replace("groundwire.", deployment.prefix)], tmp_path)

    def kcat() -> None:
        if shutil.which("kcat") is None:
            raise MissingServiceError("kcat is not installed: apt-get install kcat")

    jars = or_skip(tools_folder)
    script = tmp_path / "bin" / "kafka-console-producer.sh"  # which Kafka's archive has and its jars have not
    script.parent.mkdir()
    main = "org.apache.kafka.tools.ConsoleProducer"
    script.write_text(f"#!/bin/sh\nexec '{find_java()}' -Xmx256m -cp '{jars}/*' {main} \"$@\"\n")
    script.chmod(0o755)
    await deployment.start_worker("claims").ready()
    printed = await run_lines(lines("kafka-console-producer"))
    assert "deprecated" not in printed.lower()
    decision = await deployment.decision("7")
    assert decision.key == b"default:maria"
    assert decision.json["citations"][0]["value"] == "003"

    or_skip(kcat)
    sending, reading = lines("kcat").split("kcat -C")
    claim = {"claim_id": "1", "user_id": "maria", "content": "I prefer tabs", "source": "user"}
    await deployment.produce([claim])
    await deployment.decision("1")
    await run_lines(sending)
    assert (await deployment.decision("8")).json["reason_code"] == "personal_speculation"
    printed = await run_lines(f"kcat -C{reading}")
    key_and_headers, *_ = [line for line in printed.splitlines() if not line.startswith("%")]
    assert key_and_headers.startswith("default:maria ")
    assert "ce_type=groundwire.decision.v1" in key_and_headers
    values = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert "1" in {value["subject_id"] for value in values}


@pytest.mark.skipif(
    shutil.which("javac") is None, reason="no compiler of Java: apt-get install default-jdk-headless"
)
async def test_a_java_producer_and_consumer_work_as_the_examples_show(deployment: Deployment, tmp_path: Path):
    jars = Path(os.environ.get(JARS_VARIABLE) or ROOT / ".cache" / "kafka")
    if not list(jars.glob("kafka-clients*.jar")):  # noqa: ASYNC240 - the start of the broker may just have fetched them
        pytest.skip("no jars of Kafka: `make test-kafka` fetches them")
    await deployment.start_worker("claims").ready()
    printed = ""
    for name in ("SendClaim", "ReadApproved"):
        shutil.copy(ROOT / "examples" / "java" / f"{name}.java", tmp_path)
        classes = f"{jars}/*{os.pathsep}{tmp_path}"
        env = deployment.settings(GROUP=deployment.prefix)
        for command in (["javac", "-cp", classes, f"{name}.java"], ["java", "-cp", classes, name]):
            printed += await run(command, tmp_path, env)
    assert (await deployment.decision("9")).json["verdict"] == "approved"
    assert printed == "groundwire.decision.v1 default:maria\n"
