"""`groundwire audit`: the seed's `/verify` as a command (S4-62)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from groundwire.check import LineError
from groundwire.checks.source_tags import check_tags
from groundwire.checks.sources import verify_sources
from groundwire.checks.warnings import ReportWarning
from groundwire.client.text import visible_json
from groundwire.commands.audit_text import AuditPrinter, places
from groundwire.commands.options import format_option, reporting
from groundwire.decide.response_claims import check_claims, evidence_of, plan_claims, why_skipped
from groundwire.epistemic import HallucinationReport
from groundwire.epistemic.assess import assess
from groundwire.errors import RecordError
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.responses import LlmResponse
from groundwire.policy import Policy, load_policy
from groundwire.settings import load_settings
from groundwire.verify.models import HttpModel, load_model

_MEANT: Final = {
    "context": "context is an object of ids and texts",
    "evidence": "evidence holds quotes of a transcript by dimension; claims are held against context or chunks",
}
"""What the fields are that are taken for something else, as other functions take evidence in other forms."""


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), help="Policy file, TOML or effective JSON."
)
@click.option("--no-network", is_flag=True, help="No model is asked.")
@format_option
def audit(file: BinaryIO, policy_file: Path | None, *, no_network: bool, layout: str) -> None:
    """Hold each claim of answers, and each step behind them, against the evidence given.

    FILE has LLM responses, one JSON record a line, or a single JSON document: a response or a list of them. Evidence
    is `context`, else `chunks`; `response_id` and `user_id` may be left out. For each claim its verdict is printed,
    with its support, the gap in bits, the evidence, and the words that no evidence holds. What the gate finds wrong
    with `sources` and source tags, such as one that counts no chunk, is told too. Rules decide, without any service;
    where GROUNDWIRE_MODEL_API names a language model it is asked too, as the policy says.

    Exit status: 0 when every record was audited, whatever was found; 1 when some were bad, 2 for wrong usage.

    Example: echo '{"answer":"It retries 5 times.","context":{"a":"It retries 3 times."}}' | groundwire audit
    """
    with reporting():
        settings = load_settings()
        policy = load_policy(policy_file or settings.policy_file, os.environ)
        model = load_model(network=not (no_network or settings.no_network))
    with _unlogged(), asyncio.Runner() as runner:
        held = partial(_held, policy=policy, model=model)
        sys.exit(_audit(file, policy, lambda response: runner.run(held(response)), layout, model))


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep the log of single questions off the terminal: their faults are counted in the summary."""
    logger = logging.getLogger("groundwire.epistemic.asking")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _audit(
    file: BinaryIO,
    policy: Policy,
    report_of: Callable[[LlmResponse], HallucinationReport],
    layout: str,
    model: HttpModel | None,
) -> int:
    """Print what is found in each record; return the exit status."""
    printer = AuditPrinter(sys.stdout)
    status = 0
    records = labelled = 0
    for number, given in _records(file.read().removeprefix(BOM_UTF8)):
        records += 1
        try:
            parsed = parse_json(given) if isinstance(given, bytes) else given
            labelled += _is_labelled(parsed)
            response = _response(parsed, number)
        except RecordError as error:
            status = 1
            bad = LineError(number, error)
            _echo(bad.as_dict()) if layout == "json" else printer.error(bad)
            continue
        report = report_of(response)
        warnings = _cited_in_vain(response, policy)
        if layout == "json":
            found = {"line": number, "report": report.model_dump(mode="json"), "evidence": places(response)}
            _echo(found | {"warnings": [warning.as_dict() for warning in warnings]})
        else:
            printer.report(response, report, warnings)
    if layout != "json":
        printer.summary(model)
    if records == labelled > 0:
        click.echo("this looks like labelled rows: groundwire evaluate", err=True)
    return status


async def _held(response: LlmResponse, *, policy: Policy, model: HttpModel | None) -> HallucinationReport:
    """Hold a response against its evidence, and ask the model where there is one to ask."""
    config, evidence = policy.verification, evidence_of(response) or {}
    facts = None
    if model is not None and why_skipped(response, config) is None:
        async with model:
            facts = await assess(plan_claims(response, evidence, config, ask=True), model, config)
    said = facts.model_dump(mode="json") if facts else None
    return check_claims(response, evidence, config, said).found


def _records(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the records with their numbers from 1; those of lines as bytes, blank ones left out."""
    try:
        document = parse_json(data)
    except RecordError:  # several lines, or something that a line's error will tell
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                yield number, line.rstrip(b"\r")
    else:
        yield from enumerate(document if isinstance(document, list) else [document], start=1)


def _echo(found: dict[str, Any]) -> None:
    click.echo(visible_json(json.dumps(found, ensure_ascii=False)))


def _is_labelled(parsed: object) -> bool:
    """Whether it is a row for `groundwire evaluate` rather than a response."""
    return isinstance(parsed, dict) and {"claim", "evidence"} <= parsed.keys()


def _cited_in_vain(response: LlmResponse, policy: Policy) -> list[ReportWarning]:
    """Return what the gate finds wrong with the sources of a response, and with the source tags of its answer."""
    if response.chunks is None:
        return []
    warnings = list(verify_sources(response.sources or (), response.chunks).warnings)
    if response.answer is not None:
        tags = check_tags(response.answer, len(response.chunks), required=policy.require_source_tags)
        warnings += tags.warnings
    return warnings


def _response(parsed: object, number: int) -> LlmResponse:
    """Read a response. Raises: RecordError, as the gate would."""
    if isinstance(parsed, dict):
        parsed = {"response_id": f"record {number}", "user_id": "audit"} | parsed
    try:
        return validate(LlmResponse, parsed)
    except RecordError as error:
        meant = _MEANT.get((error.field or "").partition(".")[0])
        raise RecordError(error.code, f"{error.message}; {meant}", error.field) if meant else error from None
