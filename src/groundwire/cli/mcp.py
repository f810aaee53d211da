"""`groundwire mcp`: the gate as tools of an agent, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from groundwire.cli.options import Deployment, deployment_options, keys_file_option, wait_option
from groundwire.client.mcp import Speaker, server
from groundwire.client.producer import Producer
from groundwire.errors import UsageError
from groundwire.policy import TRUSTED_SOURCES


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
