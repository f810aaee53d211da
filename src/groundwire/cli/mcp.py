"""`groundwire mcp`: the gate as tools of an agent, by the Model Context Protocol, without any code (X-17)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from typing_extensions import TypedDict

from groundwire import __version__
from groundwire.cli.options import Deployment, deployment_options, keys_file_option, wait_option
from groundwire.client.fields import ChunkFields
from groundwire.client.producer import Producer, Sent
from groundwire.errors import GroundwireError, UsageError
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.identity import Subject
from groundwire.messages.records import MemoryType
from groundwire.policy import TRUSTED_SOURCES

_INSTRUCTIONS = (
    "A gate before a knowledge base. Store a statement with remember: say it without hedging, and cite the ADR, commit,"
    " URL or issue that it rests on. Where it is not approved, the answer says why; say it better, or leave it."
)


class Told(TypedDict):
    """What became of a claim or an answer.

    `verdict` is `approved`, `review` (a person decides, later), `blocked`, `pending`: not decided in time, to be
    asked for later, or `unknown`: nothing is known of that id. `unsupported` has the statements of an answer that its
    passages do not bear out, and `unsupported_count` how many these are, with those that nobody looked at.
    """

    id: str
    verdict: str
    reason_code: str
    reason: str
    hedges: list[str]
    citations: list[str]
    conflicts_with: str | None
    failed: list[str]
    unsupported: list[str]
    unsupported_count: int


@dataclass(frozen=True, slots=True)
class Speaker:
    """For whom the agent remembers: chosen by who runs the server, never by the model."""

    user_id: str
    tenant_id: str
    source: str
    seconds: float


def server(producer: Producer, speaker: Speaker) -> MCPServer[Any]:
    """Return a server whose tools work through a producer that is open, on behalf of one user."""
    made: MCPServer[Any] = MCPServer("groundwire", instructions=_INSTRUCTIONS, version=__version__)
    user_id, tenant_id = speaker.user_id, speaker.tenant_id

    @made.tool()
    async def remember(
        content: str, memory_type: MemoryType = "fact", derived_from: list[str] | None = None
    ) -> Told:
        """Ask to have one statement stored; the gate decides, and the answer says why.

        Args:
            content: one statement, without hedges, with what it cites in the text.
            memory_type: fact, preference or decision.
            derived_from: ids of stored claims that it rests on.
        """
        sending = producer.claim(
            content,
            user_id=user_id,
            tenant_id=tenant_id,
            source=speaker.source,
            memory_type=memory_type,
            derived_from=derived_from or [],
        )
        return await _outcome(producer, sending, speaker.seconds)

    @made.tool()
    async def check_answer(answer: str, chunks: list[ChunkFields], query: str | None = None) -> Told:
        """Hold an answer against the passages that it was made from, before it is given or stored.

        Args:
            answer: the text; [source:1] cites the first passage.
            chunks: what was retrieved.
            query: the question.
        """
        sending = producer.response(answer, user_id=user_id, tenant_id=tenant_id, chunks=chunks, query=query)
        return await _outcome(producer, sending, speaker.seconds)

    @made.tool()
    async def recall_status(claim_id: str, kind: Literal["claim", "response"] = "claim") -> Told:
        """Say where a claim or an answer stands now, also after a person has decided it or withdrawn it.

        Args:
            claim_id: `id` of what remember or check_answer said.
            kind: claim for remember, response for check_answer.
        """
        subject = Subject(tenant_id, user_id, Kind(kind), claim_id)
        try:
            decision = await producer.status(subject, speaker.seconds)
        except TimeoutError:
            raise ToolError("its state could not be read in time; ask again") from None
        except GroundwireError as exc:
            raise ToolError(str(exc)) from None
        if decision is None:
            return _untold(claim_id, "unknown", "nothing is known of it, or it was erased")
        return _told(decision)

    return made


async def _outcome(producer: Producer, sending: Awaitable[Sent], seconds: float) -> Told:
    try:
        sent = await sending
        decision = await producer.decided(sent, seconds)
        return _told(decision)
    except TimeoutError:
        return _untold(sent.subject.subject_id, "pending", "not decided yet")
    except GroundwireError as exc:
        raise ToolError(str(exc)) from None


def _untold(subject_id: str, verdict: str, reason: str) -> Told:
    return Told(
        id=subject_id,
        verdict=verdict,
        reason_code="",
        reason=reason,
        hedges=[],
        citations=[],
        conflicts_with=None,
        failed=[],
        unsupported=[],
        unsupported_count=0,
    )


def _told(decision: Decision) -> Told:
    epistemic = (decision.report or {}).get("epistemic") or {}
    return Told(
        id=decision.subject_id,
        verdict=decision.verdict,
        reason_code=decision.reason_code,
        reason=decision.reason,
        hedges=[hedge.text for hedge in decision.hedges],
        citations=[f"{one.type}:{one.value}: {one.state}" for one in decision.citations],
        conflicts_with=decision.conflicting_memory_id,
        failed=decision.checks_failed,
        unsupported=[claim["claim_text"] for claim in epistemic.get("claims") or [] if claim["is_flagged"]],
        unsupported_count=epistemic.get("flagged_claims", 0) + epistemic.get("unverified_claims", 0),
    )


@click.command()
@click.option("--user", "user_id", required=True, help="Whose memory the agent writes to.")
@click.option("--tenant", "tenant_id", default="default", show_default=True, help="Whose user that is.")
@click.option("--source", default="ai_synthesis", show_default=True, help="Who says what is remembered.")
@click.option("--attest", metavar="KEY_ID", help="Sign records with this key of the keys file.")
@keys_file_option("--keys-file")
@wait_option("How long a tool waits for a decision; then it says pending.", least=0.1)
@deployment_options
def mcp(
    *,
    user_id: str,
    tenant_id: str,
    source: str,
    attest: str | None,
    keys_file: Path | None,
    wait: float,
    deployment: Deployment,
) -> None:
    """Serve the tools remember, check_answer and recall_status to an agent, on standard input and output.

    Tenant, user and source are those given here: the model cannot choose them. Claims alone are signed: the model
    brings the passages of its answers itself. Exit status: 0 at the end of input, 2 for usage and a broker out of
    reach.

    Example: groundwire mcp --user maria
    """
    if source in TRUSTED_SOURCES:
        click.echo(
            f"warning: --source {source} is trusted by default: what the model says is approved without a citation",
            err=True,
        )
    producer = Producer(
        brokers=deployment.brokers,
        topic_prefix=deployment.prefix,
        attest=attest,
        keys_file=keys_file,
        attest_responses=False,
        seconds=deployment.seconds,
    )
    if attest and "grounding" in producer.roles:
        raise UsageError(
            f"--attest: the key {attest} has the role grounding, which is a retriever's: a model would vouch by it for"
            " the evidence that it brings; make one without it, by `groundwire keys new`"
        )

    async def serve() -> None:
        async with producer:
            await server(producer, Speaker(user_id, tenant_id, source, wait)).run_stdio_async()

    asyncio.run(serve())
