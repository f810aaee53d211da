"""`groundwire verify`: derives decisions again and compares, and `groundwire seals`: what workers have signed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import click

from groundwire.cli.options import (
    FiniteRange,
    TimeParam,
    format_option,
    policies_option,
    quiet_kafka,
    reporting,
    seal_keys_option,
    settings_with_seals,
    stored_policies,
)
from groundwire.cli.output import StepProgress, columns, escape_json
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.kafka.reader import Start
from groundwire.kafka.store import SCRATCH, Store
from groundwire.keys.attestation import Keys
from groundwire.keys.seal_keys import required_seal_keys
from groundwire.logs import configure_logs
from groundwire.messages.base import format_time
from groundwire.messages.seals import SignedHead
from groundwire.policy import load_policy
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.sealed_topics import Unsealed, proof_of, read_heads, read_last_seals, read_seals
from groundwire.replay.seals import SealEvidence
from groundwire.replay.store import FileRecords
from groundwire.replay.verify import (
    MISSING_POLICY,
    Placed,
    Signatures,
    Verifier,
    VerifyStatus,
    format_counts,
    verify_files,
    verify_topics,
)
from groundwire.state.policies import KnownPolicies, PolicyStore
from groundwire.text.normalise import escape_controls

_DIFFERS, _UNDECIDED = 1, 3
_UNPROVEN = {VerifyStatus.EXPIRED, VerifyStatus.OTHER_ENGINE, VerifyStatus.MISSING}
_NOTES = {VerifyStatus.NOT_SEALED_YET, VerifyStatus.UNANCHORED}
_WRONG = set(VerifyStatus) - _UNPROVEN - _NOTES - {VerifyStatus.EQUAL}
_SHOWN = 10


@click.command()
@click.option("--decisions", type=click.Path(path_type=Path), help="Decisions, one JSON a line.")
@click.option("--records", type=click.Path(path_type=Path), help="Input values, one a line, unchanged bytes.")
@policies_option
@click.option("--from-topics", is_flag=True, help="Verify the records of the topics instead of files.")
@click.option("--since", type=TimeParam(), help="With --from-topics: decisions published from a time on.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="With --from-topics: records a second.")
@seal_keys_option
@click.option(
    "--heads",
    type=click.Path(path_type=Path),
    help="With --seal-keys: heads that `groundwire seals head --format json` printed, kept elsewhere.",
)
@click.option(
    "--keys",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --from-topics: keys file by which signatures of records are checked again.",
)
@click.option("--decision", "decision_id", help="Print what proves one decision, with --seal-keys.")
@click.option("--replay", "replay_name", help="Name that the decisions carry in `replay`.  [default: none]")
@format_option
def verify(  # noqa: PLR0913 - one argument an option
    *,
    decisions: Path | None,
    records: Path | None,
    policies: Path | None,
    from_topics: bool,
    since: datetime | None,
    rate: float | None,
    seal_keys: Path | None,
    heads: Path | None,
    keys: Path | None,
    decision_id: str | None,
    replay_name: str | None,
    layout: str,
) -> None:
    """Derive decisions again from their records, policies and facts, and compare.

    Decisions and records come from files, or from the topics of a deployment, whose brokers and prefix stand in
    the environment; nothing else is asked. It shows that a decision follows from its facts, not that the facts
    were true. Decisions that differ, or cannot be derived here, are named with the fields at fault; the counts go
    to standard error.

    With --seal-keys, whose public keys workers seal under, it shows who wrote them too: decisions that no seal
    covers, those that are gone, and breaks in the chains of seals are named. --decision prints the proof of one
    decision as JSON, which examples/check_proof.py checks without Groundwire.

    Exit status: 0 when all are equal, 1 when some differ or are contradicted (by another decision of the same id, or
    by the audit of a refused action), or seals or signatures are missing or wrong, 2 for wrong usage, 3 when a record
    has expired with its topic's retention, a record or policy is missing, or another engine decided.

    Example: groundwire verify --decisions decisions.jsonl --records claims.jsonl --policies policies/
    """
    with reporting():
        settings = settings_with_seals(seal_keys)
        configure_logs(settings.log_format, settings.log_level)
        if decision_id is not None:
            quiet_kafka()
            sys.exit(asyncio.run(_prove(settings, decision_id)))
        if from_topics:
            if decisions or records or replay_name:
                raise UsageError("--from-topics goes without --decisions, --records and --replay")
            if heads and not settings.seal_keys:
                raise UsageError("--heads needs --seal-keys")
            quiet_kafka()
            anchored = read_heads(heads) if heads else None
            seals = (
                partial(read_seals, settings, required_seal_keys(settings), heads=anchored)
                if settings.seal_keys
                else None
            )
            signatures = Signatures(seals, Keys.load(keys) if keys else None)
            start: Start = since or "earliest"
            sys.exit(asyncio.run(_verify_topics(settings, policies, start, rate, layout, signatures)))
        if heads or keys:
            raise UsageError("--heads and --keys need --from-topics")
        if decisions is None or records is None or policies is None:
            raise UsageError("--decisions, --records and --policies are needed, or --from-topics")
        if not policies.is_dir():
            raise UsageError(f"--policies: {policies} is no folder")
        with FileRecords(records, decisions) as store:
            verifier = Verifier(store, PolicyStore(policies, None), replay=replay_name)
            sys.exit(asyncio.run(_print(verify_files(store, verifier, decisions), layout)))


@asynccontextmanager
async def _sealed(settings: Settings) -> AsyncIterator[SealEvidence]:
    with Store(SCRATCH) as store:
        yield await read_seals(settings, required_seal_keys(settings), store)


async def _prove(settings: Settings, decision_id: str) -> int:
    async with _sealed(settings) as evidence:
        try:
            proof = await proof_of(settings, evidence, decision_id)
        except Unsealed as exc:
            click.echo(f"error: {escape_controls(str(exc))}", err=True)
            return _DIFFERS
    for line in json.dumps(proof, ensure_ascii=False, indent=2).splitlines():
        click.echo(escape_json(line))
    return 0


async def _verify_topics(
    settings: Settings,
    folder: Path | None,
    since: Start,
    rate: float | None,
    layout: str,
    signatures: Signatures,
) -> int:
    in_force = load_policy(settings.policy_file, os.environ)
    async with stored_policies(settings, folder) as stored:
        policies = KnownPolicies([in_force], stored)
        with StepProgress() as progress:
            reader = ReplayReader(settings.brokers, settings.topic_prefix, Rate(rate), progress.show)
            where = reader, settings.topic_prefix, since
            findings = verify_topics(*where, policies, progress.show, signatures=signatures)
            return await _print(findings, layout)


async def _print(findings: AsyncGenerator[Placed], layout: str) -> int:
    """Print what is not equal, and the counts; return the exit status.

    What has expired is counted only, but for JSON: on `approved` it comes to be nearly all.
    """
    silent = {VerifyStatus.EQUAL, VerifyStatus.NOT_SEALED_YET}
    silent |= {VerifyStatus.EXPIRED} if layout != "json" else set()
    counts: Counter[VerifyStatus] = Counter()
    unknown: Counter[str] = Counter()  # decisions by the policy that is missing
    async with aclosing(findings):
        async for where, finding in findings:
            counts[finding.status] += 1
            if finding.status in silent:
                continue
            if layout != "json" and finding.detail.startswith(MISSING_POLICY):
                unknown[finding.detail] += 1
                continue
            if layout == "json":
                named = {"where": where, "decision_id": finding.decision_id, "status": finding.status}
                fields = {**named, "fields": finding.paths, "detail": finding.detail or None}
                click.echo(escape_json(json.dumps(fields, ensure_ascii=False)))
            else:
                shown = " ".join(finding.paths[:_SHOWN]) + (" ..." if len(finding.paths) > _SHOWN else "")
                parts = [where, finding.decision_id or "?", finding.status.value, shown, finding.detail]
                click.echo(escape_controls("  ".join(part for part in parts if part)))
    for policy, count in unknown.items():
        click.echo(
            escape_controls(f"missing  {policy}: {count} decisions; --policies names a folder with it")
        )
    click.echo(format_counts(counts), err=True)
    if any(counts[status] for status in _WRONG):
        return _DIFFERS
    return _UNDECIDED if any(counts[status] for status in _UNPROVEN) else 0


@click.group(name="seals")
def seals() -> None:
    """Show what workers have sealed of what they published.

    Example: groundwire seals head --seal-keys public.toml
    """


@seals.command(name="head")
@seal_keys_option
@format_option
def head(*, seal_keys: Path | None, layout: str) -> None:
    """Print the last seal of each input partition.

    Whoever keeps it where nobody can change it notices when later somebody cuts the chain short:
    `groundwire verify --from-topics --seal-keys FILE --heads KEPT`. Workers keep heads by themselves on the topic
    `heads`, and where GROUNDWIRE_HEADS_FILE and GROUNDWIRE_HEADS_COMMAND say.

    Example: groundwire seals head --seal-keys public.toml --format json >> heads.jsonl
    """

    async def read() -> list[SignedHead]:
        settings = settings_with_seals(seal_keys)
        async with _sealed(settings) as evidence:
            return await read_last_seals(settings, evidence)

    quiet_kafka()
    with reporting():
        heads = asyncio.run(read())
    if layout == "json":
        for each in heads:
            click.echo(each.model_dump_json())
    elif heads:
        names = ["topic", "partition", "end", "seal", "at", "key"]
        rows = [
            [head.topic, str(head.partition), str(head.end), head.sha256, format_time(head.at), head.key]
            for head in (each.seal for each in heads)
        ]
        for line in columns([names, *rows]):
            click.echo(line)
