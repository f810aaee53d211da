"""`groundwire replay`: decides records of the topics again, and says what comes out otherwise."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from groundwire.cli.options import (
    FiniteRange,
    StartParam,
    format_option,
    policies_option,
    quiet_kafka,
    reporting,
    start_of,
    stored_policies,
)
from groundwire.cli.output import StepProgress, escape_json
from groundwire.config import Settings, load_settings
from groundwire.errors import UsageError
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.connection import producer
from groundwire.kafka.reader import OffsetRange
from groundwire.logs import configure_logs
from groundwire.policy import Policy, load_policy
from groundwire.replay.reading import INPUTS, OUTPUTS, Rate, ReplayReader
from groundwire.replay.report import (
    FileWriter,
    Nowhere,
    ReplayStatus,
    TopicWriter,
    as_json,
    as_table,
    create_topic,
    policy_changes,
    replay_name,
    replay_topic,
    write_page,
)
from groundwire.replay.run import Replayer, Simulation, Task, Writer
from groundwire.replay.store import Job, ReplayOrder
from groundwire.state.policies import KnownPolicies
from groundwire.text.normalise import escape_controls

_PATIENCE = 30.0
_DIFFERS, _MISSING = 1, 3


class _PlaceParam(click.ParamType):
    """A place in a topic, kept as text: a job file names it."""

    name = "offset|time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        StartParam("earliest", "latest").convert(value, param, ctx)
        return value


@click.command()
@click.option(
    "--from", "start", type=_PlaceParam(), default="earliest", show_default=True, help="First record."
)
@click.option(
    "--to", "end", type=_PlaceParam(), default="latest", show_default=True, help="Record to stop before."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=click.Choice([str(name) for name in INPUTS]),
    help="Input topic, may be given several times.  [default: all]",
)
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="Policy to decide by instead.")
@click.option("--simulate", is_flag=True, help="Find duplicates, parents and places in the queue anew.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="File for decisions, one a line."
)
@click.option("--output-topic", metavar="replay.NAME", help="Topic for decisions.")
@click.option("--name", help="What decisions carry in `replay`.  [default: NAME of the topic, else replay]")
@policies_option
@click.option(
    "--job",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keeps what was read and done; with the file of an interrupted replay it goes on.",
)
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Records a second at most.")
@click.option(
    "--facts-from",
    type=_PlaceParam(),
    default="earliest",
    show_default=True,
    help="Where output topics are read from: nothing that bears on the records was published before.",
)
@format_option
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the report as a page, of 2 MB at most.",
)
def replay(  # noqa: PLR0913 - click hands over one argument for each option
    *,
    start: str,
    end: str,
    topics: tuple[str, ...],
    policy_file: Path | None,
    simulate: bool,
    output: Path | None,
    output_topic: str | None,
    name: str | None,
    policies: Path | None,
    job: Path | None,
    rate: float | None,
    facts_from: str,
    layout: str,
    html: Path | None,
) -> None:
    """Decide a stretch of the log again, from the recorded facts, beside the workers.

    Under the policies that decided, the decisions are the same, byte for byte but for the field `replay`; under
    another policy the report says which came out otherwise. Reads without a consumer group, asks neither Redis nor
    the network, and writes to no live topic. Brokers and prefix come from the environment, as for workers.

    Exit status: 0 when nothing is wrong, 1 when decisions differ under their own policies, 2 for wrong usage or a
    broker out of reach, 3 when a record or a policy is missing.

    Example: groundwire replay --from 2026-01-31T00:00:00Z --policy strict.toml --html diff.html
    """
    quiet_kafka()
    with reporting(), TemporaryDirectory(prefix="groundwire-replay-") as folder:
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        if output is not None and output_topic is not None:
            raise UsageError("--output and --output-topic: give one of them")
        if output is not None and job is not None and output.resolve() == job.resolve():
            raise UsageError(
                "--output and --job: two files, one for decisions and one for how far it has come"
            )
        if html is not None and find_spec("jinja2") is None:  # told before everything is read and derived
            raise UsageError("--html needs Jinja2: pip install 'groundwire[console]'")
        topic = replay_topic(output_topic, settings.topic_prefix) if output_topic else None
        policy = load_policy(policy_file, os.environ) if policy_file else None
        if policy is not None:
            dedup_scheme(policy)
        default = topic.removeprefix(settings.topic_prefix + "replay.") if topic else "replay"
        order = ReplayOrder(
            name=replay_name(name or default),
            topics=[settings.topic_prefix + each for each in (topics or INPUTS)],
            start=start,
            end=end,
            policy=policy.canonical.decode() if policy else None,
            simulate=simulate,
            output=topic or (str(output.resolve()) if output else None),
            facts_from=facts_from,
        )
        place = job or Path(folder) / "job"
        replaying = _replay(settings, order, policy, policies, place, Rate(rate), layout, html)
        sys.exit(asyncio.run(replaying))


async def _replay(
    settings: Settings,
    order: ReplayOrder,
    policy: Policy | None,
    folder: Path | None,
    place: Path,
    rate: Rate,
    layout: str,
    html: Path | None,
) -> int:
    in_force = load_policy(settings.policy_file, os.environ)
    async with AsyncExitStack() as stack:
        stored = await stack.enter_async_context(stored_policies(settings, folder))
        progress, job = stack.enter_context(StepProgress()), stack.enter_context(Job(place, order))
        policies = KnownPolicies([in_force, *([policy] if policy else [])], stored)
        reader = ReplayReader(settings.brokers, settings.topic_prefix, rate, progress.show)
        known = job.known("ranges")
        if known is None:  # a job that continues keeps the offsets that it began with
            start, end, since = (start_of(text) for text in (order.start, order.end, order.facts_from))
            names = [settings.topic_prefix + name for name in OUTPUTS]
            parts = await reader.plan(order.topics, start, end), await reader.plan(names, since, "latest")
            known = json.dumps(parts)
            job.note(ranges=known)
        inside, outputs = ([OffsetRange(*each) for each in part] for part in json.loads(known))
        await reader.read(job, inside, outputs, everything=order.simulate)
        simulation = None
        if order.simulate:
            simulation = Simulation(job, policies, policy)
            await simulation.load(job.decisions_before(inside), policy or in_force)
        task = Task(order.name, policies, policy, simulation)
        async with _writer(settings, order.output) as writer:
            summary = await Replayer(job, task, writer, rate, progress.show).run()
        progress.stop()
        if html is not None:
            write_page(html, job, summary, await policy_changes(summary, policies, policy))
        if layout == "json":
            for part in as_json(job, order.name, summary):
                click.echo(escape_json(part.rstrip("\n")), nl=False)
            click.echo()
        else:
            for line in as_table(job, summary):
                click.echo(escape_controls(line))
    if task.by_bytes and summary.statuses[ReplayStatus.DIFFERS]:
        return _DIFFERS
    return _MISSING if summary.statuses[ReplayStatus.MISSING] else 0


@asynccontextmanager
async def _writer(settings: Settings, output: str | None) -> AsyncIterator[Writer]:
    """Open the writer of a file, whose path is absolute, or of a topic."""
    if output is None:
        yield Nowhere()
    elif Path(output).is_absolute():
        with closing(FileWriter(Path(output))) as file:
            yield file
    else:
        await create_topic(settings, output)
        async with producer(settings.brokers, _PATIENCE) as client:
            yield TopicWriter(client, output)
