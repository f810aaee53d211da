"""`groundwire audit`: holds the claims of answers against their evidence, for a person at a terminal (S4-62)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import click
from rich.console import Console
from rich.text import Text

from groundwire.checks import ReportWarning
from groundwire.checks.source_tags import check_tags
from groundwire.checks.sources import verify_sources
from groundwire.cli.options import file_argument, format_option, policy_option, reporting
from groundwire.cli.output import escape_json
from groundwire.config import load_settings
from groundwire.epistemic.asking import assess
from groundwire.epistemic.plan import LEAST_CHARACTERS
from groundwire.epistemic.types import ClaimVerification, HallucinationReport, ModelCall, gap_band
from groundwire.errors import RecordError
from groundwire.gate.response_checks import check_claims, citable_by, evidence_of, plan_claims, why_skipped
from groundwire.library.check import LineError
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy, load_policy
from groundwire.text.normalise import escape_controls
from groundwire.verify.models import AnyModel, load_model

SUPPORTED: Final = "supported"
_STYLES: Final = {SUPPORTED: "green", "partial_support": "yellow", "over_extrapolation": "yellow"}
_WRONG: Final = "red"
_SHOWN: Final = 3  # places of evidence that a line has room for
_WIDTH: Final = 21  # of a verdict or the type of a warning, one blank more than the longest
_NOT_DUE: Final = (
    f"as no claim is due: answers under {LEAST_CHARACTERS} characters, no evidence, or not in the sample"
)


class AuditPrinter:
    """Prints the claims of one response after the other, and a summary.

    Nothing of a record reaches the terminal but as text; colours appear on a terminal only.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._responses = self._claims = self._flagged = self._unseen = self._bad = self._warned = 0
        self._calls: list[ModelCall] = []

    def report(
        self, response: LlmResponse, report: HallucinationReport, warnings: Sequence[ReportWarning] = ()
    ) -> None:
        self._responses += 1
        self._claims += report.total_claims
        self._flagged += report.flagged_claims
        self._unseen += report.unverified_claims
        self._calls += report.calls
        parts = [_counts(report.total_claims, report.flagged_claims, report.unverified_claims)]
        if report.claims:
            parts.append(f"support of the whole {report.answer_support:.2f}")
            parts.append(f"widest gap {report.max_gap_bits:.2f} bits")
        elif not response.answer:
            parts.append("no answer")
        if not (response.context or response.chunks):
            parts.append("no evidence given, as context or chunks")
        headline = f"{escape_controls(response.response_id)}: {', '.join(parts)}"
        self._print(Text(headline, style="bold"))
        at = places(response)
        for claim in report.claims:
            self._claim(claim, at)
        self._warned += bool(warnings)
        for warning in warnings:
            line = Text(f"  {str(warning.type).lower():<{_WIDTH}}", style=_WRONG)
            self._print(line.append(_one_line(warning.message), style="default"))
        self._print(Text())

    def error(self, bad: LineError) -> None:
        self._bad += 1
        self._print(
            Text(
                f"record {bad.line}: {bad.error.code}: {escape_controls(bad.error.message)}", style="magenta"
            )
        )

    def summary(self, model: AnyModel | None = None) -> None:
        bad = f", {self._bad} bad" if self._bad else ""
        found = _counts(self._claims, self._flagged, self._unseen)
        warned = f"; {self._warned} with a warning about sources" if self._warned else ""
        self._print(Text(f"{self._responses} audited{bad}: {found}{warned}"))
        if self._calls:
            calls, trouble = self._calls, model.trouble if model is not None else ""
            faults = Counter(call.fault for call in calls if call.fault is not None)
            why = "".join(f"; {number} {fault}" for fault, number in sorted(faults.items()))
            last = f" (last: {trouble})" if faults and trouble else ""
            asked = f"{len(calls)} question{'s' * (len(calls) != 1)}"
            cost = sum(call.cost_usd for call in calls)
            self._print(Text(f"model: {asked}, ${cost:.5f}{why}{last}"))
        elif model is not None and self._responses:
            self._print(Text(f"model: not asked, {_NOT_DUE}"))

    def _claim(self, claim: ClaimVerification, at: dict[str, str]) -> None:
        verdict = claim.flag_reason or SUPPORTED
        style = _STYLES.get(verdict, _WRONG)
        line = Text(f"  {verdict:<{_WIDTH}}", style=style)
        line.append(
            f"support {claim.evidence_support:4.2f}  gap {claim.evidence_gap_bits:5.2f} bits, ",
            style="default",
        )
        line.append(f"{gap_band(claim.evidence_gap_bits):<20}", style="default")
        shown = [at.get(name, f"{name} (not there)") for name in claim.evidence_ids[:_SHOWN]]
        more = len(claim.evidence_ids) - _SHOWN
        evidence = ", ".join([*shown, *([f"{more} more"] if more > 0 else [])]) or "no evidence"
        line.append(escape_controls(evidence), style="dim")
        self._print(line)
        text = Text(f"    {claim.claim_id.rpartition('/')[2].replace('#', ' ')}: ")
        done = 0  # the words that no evidence holds are marked, all on one line
        ends = (len(claim.claim_text), len(claim.claim_text))
        for start, end in (*((w.start - claim.start, w.end - claim.start) for w in claim.uncovered), ends):
            if start >= done:
                marked = f"bold underline {style}"
                text.append(_one_line(claim.claim_text[done:start]), style="default")
                text.append(_one_line(claim.claim_text[start:end]), style=marked)
                done = end
        self._print(text)
        if claim.uncovered:
            words = ", ".join(dict.fromkeys(word.text for word in claim.uncovered))
            self._print(Text(f"    not covered: {escape_controls(words)}", style="dim"))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=not self._console.is_terminal)


def _one_line(text: str) -> str:
    return escape_controls(" ".join(text.split("\n")))


def places(response: LlmResponse) -> dict[str, str]:
    """Return id of evidence -> where it stands: file and lines of chunks, else the id."""
    if response.context is not None:
        return {name: name for name in response.context}
    found: dict[str, list[str]] = {}
    for chunk in response.chunks or ():
        found.setdefault(chunk.chunk_id, []).append(f"{chunk.file}:{chunk.start_line}-{chunk.end_line}")
    return {name: ", ".join(places) for name, places in found.items()}


def _counts(claims: int, flagged: int, unseen: int) -> str:
    counts = f"{claims} claim{'s' * (claims != 1)}, {flagged} flagged"
    return f"{counts}, {unseen} not looked at" if unseen else counts


_MEANT: Final = {
    "context": "context is an object of ids and texts",
    "evidence": "evidence holds quotes of a transcript by dimension; claims are held against context or chunks",
}
"""What the fields are that are taken for something else, as other functions take evidence in other forms."""


@click.command()
@file_argument
@policy_option
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
        model = load_model(policy.verification, network=not (no_network or settings.no_network))
    printer = AuditPrinter(sys.stdout)
    data = file.read().removeprefix(BOM_UTF8)
    given_records: Iterable[tuple[int, Any]]
    try:
        document = parse_json(data)
        given_records = enumerate(document if isinstance(document, list) else [document], start=1)
    except RecordError:  # several lines, or something that a line's error will tell
        lines = enumerate(data.split(b"\n"), start=1)
        given_records = ((number, line.rstrip(b"\r")) for number, line in lines if line.strip())
    bad = records = labelled = 0
    with _unlogged(), asyncio.Runner() as runner:
        for number, given in given_records:
            records += 1
            try:
                parsed = parse_json(given) if isinstance(given, bytes) else given
                labelled += isinstance(parsed, dict) and {"claim", "evidence"} <= parsed.keys()
                if isinstance(parsed, dict):
                    parsed = {"response_id": f"record {number}", "user_id": "audit"} | parsed
                response = validate(LlmResponse, parsed)
            except RecordError as error:
                bad += 1
                meant = _MEANT.get((error.field or "").partition(".")[0])
                if meant:
                    error.message += f"; {meant}"
                failed = LineError(number, error)
                _echo(failed.as_dict()) if layout == "json" else printer.error(failed)
                continue
            report = runner.run(_report_of(response, policy, model))
            warnings: list[ReportWarning] = []
            if response.chunks is not None:
                warnings += verify_sources(response.sources or (), response.chunks).warnings
                required = policy.require_source_tags
                if response.answer is not None:
                    warnings += check_tags(response.answer, citable_by(response), required=required).warnings
            if layout == "json":
                found = {
                    "line": number,
                    "report": report.model_dump(mode="json"),
                    "evidence": places(response),
                }
                _echo(found | {"warnings": [warning.as_dict() for warning in warnings]})
            else:
                printer.report(response, report, warnings)
    if layout != "json":
        printer.summary(model)
    if records == labelled > 0:
        click.echo("this looks like labelled rows: groundwire evaluate", err=True)
    sys.exit(1 if bad else 0)


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


async def _report_of(response: LlmResponse, policy: Policy, model: AnyModel | None) -> HallucinationReport:
    config, evidence = policy.verification, evidence_of(response) or {}
    facts = None
    if model is not None and why_skipped(response, config) is None:
        async with model:
            facts = await assess(plan_claims(response, evidence, config, ask=True), model, config)
    answers = facts.model_dump(mode="json") if facts else None
    return check_claims(response, evidence, config, answers).report


def _echo(found: dict[str, Any]) -> None:
    click.echo(escape_json(json.dumps(found, ensure_ascii=False)))
