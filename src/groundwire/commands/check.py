"""`groundwire check`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import click

from groundwire.check import Checker, LineError
from groundwire.commands.options import TimeParam
from groundwire.commands.show import DecisionPrinter
from groundwire.errors import UsageError
from groundwire.gate.dedup import dedup_scheme
from groundwire.gate.models import assessor_of
from groundwire.gate.responses import policy_advice
from groundwire.logs import configure_logs
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.policy import load_policy
from groundwire.settings import load_settings
from groundwire.sources import load_sources
from groundwire.verify import AddressGuard, CitationVerifier, UrlChecker
from groundwire.verify.models import HttpModel, load_model

_SHOWN: Final = 200
"""Characters of an answer that a line of a table has room for."""


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--adr-dir", type=click.Path(path_type=Path), help="Folder of ADR files.")
@click.option("--repo", type=click.Path(path_type=Path), help="Git repository for commits.")
@click.option("--no-network", is_flag=True, help="URLs and issues become unknown; no model is asked.")
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), help="Policy file, TOML or effective JSON."
)
@click.option("--now", type=TimeParam(), help="Clock of every record, RFC 3339.  [default: the start]")
@click.option("--format", "form", type=click.Choice(["json", "table"]), default="json", show_default=True)
def check(
    file: BinaryIO,
    adr_dir: Path | None,
    repo: Path | None,
    *,
    no_network: bool,
    policy_file: Path | None,
    now: datetime | None,
    form: str,
) -> None:
    """Decide claims and LLM responses, one JSON record a line, without Kafka and Redis.

    Prints one Decision a line, in the order of the input; a line that cannot be decided prints its error. State
    lives for the run: a later line can duplicate an earlier one that was approved. Where GROUNDWIRE_MODEL_API names a
    language model, it is asked about the claims of responses.

    Exit status: 0 when every line was decided, 1 when some were bad, 2 for wrong usage.

    Example: echo '{"claim_id":"1","user_id":"ann","content":"Maybe we could try GraphQL"}' | groundwire check
    """
    try:
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)  # standard output is for decisions
        policy = load_policy(policy_file or settings.policy_file, os.environ)
        dedup_scheme(policy)
        for advice in policy_advice(policy):
            click.echo(f"warning: {advice}", err=True)
        update = {"adr_dir": adr_dir or settings.adr_dir, "repo": repo or settings.repo}
        sources = load_sources(settings.model_copy(update=update))
        network = not (no_network or settings.no_network)
        model = load_model(network=network)
    except UsageError as exc:
        raise click.UsageError(str(exc)) from None
    moment = from_milliseconds(to_milliseconds(now or datetime.now(UTC)))  # as every record's clock
    urls = UrlChecker(AddressGuard(settings.networks, ports=settings.ports), clock=lambda: moment)
    verifier = CitationVerifier(sources, network=network, urls=urls, clock=lambda: moment)
    checker = Checker(policy, verifier, now=moment, assessor=assessor_of(model) if model else None)
    sys.exit(asyncio.run(_run(file, checker, verifier, model, form)))


async def _run(
    file: BinaryIO, checker: Checker, verifier: CitationVerifier, model: HttpModel | None, form: str
) -> int:
    """Print a result for each line; return the exit status."""
    answers: dict[int, str] = {}
    try:
        if model is not None:
            await model.open()
        if form == "table":
            return await _print_table(checker.check(_noting(file, answers)), answers)
        return await _print_json(checker.check(file))
    finally:
        await verifier.close()
        if model is not None:
            await model.close()
            if model.trouble:
                click.echo(f"warning: the language model failed, last by {model.trouble}", err=True)


async def _print_json(results: AsyncIterator[Decision | LineError]) -> int:
    status = 0
    out = sys.stdout.buffer
    async for result in results:
        if isinstance(result, LineError):
            status = 1
            out.write(json.dumps(result.as_dict(), ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        else:
            out.write(result.to_bytes() + b"\n")
        out.flush()
    return status


def _noting(lines: Iterable[bytes], answers: dict[int, str]) -> Iterator[bytes]:
    """Pass lines on, and note what responses answer, which their decisions do not repeat."""
    for number, line in enumerate(lines):
        if b'"response_id"' in line:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("answer"), str):
                    answers[number] = record["answer"][:_SHOWN]
        yield line


async def _print_table(results: AsyncIterator[Decision | LineError], answers: Mapping[int, str]) -> int:
    printer = DecisionPrinter(sys.stdout)
    status = 0
    async for result in results:
        if isinstance(result, LineError):
            status = 1
            printer.error(f"line {result.line}", result.error)
        else:
            printer.decision(result, answers.get(result.origin.offset))
    printer.summary()
    return status
