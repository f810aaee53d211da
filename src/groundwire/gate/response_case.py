"""The decision of an LLM response, pure: its warnings, confidence and verdict, and what comes of it.

What comes of it: a request for another answer, with a grounded prompt and at most one mode lower (S2-17), and the
claims of the answer, which go through the claim gate as claims of their own (X-15).

Requirements S2-43, C-65, C-70.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from groundwire.checks import ReportWarning
from groundwire.checks.extraction import extract_claims
from groundwire.checks.source_tags import grounded_prompt
from groundwire.gate.build import Case, Checks, Fields, Limits, response_fields
from groundwire.gate.claim_case import AI_SYNTHESIS
from groundwire.gate.response_checks import (
    INTERNAL,
    RESPONSE_CHECKS,
    VERDICTS,
    Broken,
    ResponseReading,
    Skipped,
    broken_checks,
    citable_by,
    evidence_of,
    result_of,
    why_skipped,
)
from groundwire.gate.tree import TreeOutcome, explain
from groundwire.gate.types import RESPONSE_PARENT
from groundwire.messages.decisions import Decision, Facts, IngestionTier, ReasonCode, RegenerateRequest
from groundwire.messages.identity import request_id
from groundwire.messages.records import Chunk, Claim, LlmResponse, Mode
from groundwire.policy import Policy
from groundwire.text.visible import is_blank


def json_size(text: str) -> int:
    """Return the bytes of a text as a JSON string in UTF-8, quotes included: a control character takes six."""
    return len(json.dumps(text, ensure_ascii=False).encode())


LOW: Final = 0.3
"""Confidence below which a response is blocked."""
DEGRADED: Final = 0.5
"""Confidence below which a simpler mode is asked for (S2-24)."""
SUFFICIENT: Final = 0.7
"""Confidence from which on a response needs no review for it."""
LAST_ATTEMPT: Final = 2
"""Attempt after which the generator is asked no more."""
MAX_QUERY_BYTES: Final = 300_000
"""Of a query as JSON: a request holds it twice, and a longer one is never asked again."""

STATE: Final = "state"
"""In `facts.error`: state was out of reach, and the decision is provisional."""

_GIVEN: Final = ("chunks", "context", "transcript", "corpus_index", "relations")
"""What a response brings to be held against: evidence only where somebody with the role `grounding` says so."""
_DIGITS: Final = 4
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)  # from least to most thinking


class Regeneration(NamedTuple):
    mode: Mode
    attempt: int
    why: Literal["low_confidence", "critical_gap"]


class ResponseCase(Case):
    def __init__(self, response: LlmResponse, reading: ResponseReading, policy: Policy, facts: Facts) -> None:
        self.response = response
        self.subject = response.subject
        self.reading = reading
        self.policy = policy
        self.facts = facts

    def failed(self, error: Exception) -> Self:
        reading, said = ResponseReading.failed(error)
        extraction: list[str] | None = [] if self.facts.extraction is not None else None
        facts = self.facts.model_copy(update={"error": said, "extraction": extraction})
        return type(self)(self.response, reading, self.policy, facts)

    @cached_property
    def confidence(self) -> float:
        """What the generator reported, less what did not hold of sources and fields, 0..1, 4 decimals (S2-15, C-44)."""
        fields, sources = result_of(self.reading.fields), result_of(self.reading.sources)
        lost = (1 - fields.confidence if fields else 0.0) + (1 - sources.confidence if sources else 0.0)
        return round(min(max(0.0, self.response.confidence - lost), 1.0), _DIGITS)  # in this order never -0.0

    @cached_property
    def warnings(self) -> list[ReportWarning]:
        """Every warning of the checks, in their order; each can only lower the verdict."""
        return [warning for check, result in self.reading.results for warning in check.warnings(result)]

    def before_queue(self) -> TreeOutcome:
        """Return tier and reason before the queue: the first of `VERDICTS` that applies."""
        applying = {
            (rule.tier, rule.code)
            for check, result in self.reading.results
            for rule in check.rules
            if rule.applies(result, self.policy)
        }
        if self.confidence < LOW:
            applying.add((IngestionTier.BLOCK, ReasonCode.LOW_CONFIDENCE))
        unavailable = STATE in self.broken or next(self.reading.broken, None)
        reviews = {  # what no single check decides
            ReasonCode.INTERNAL_ERROR: INTERNAL in self.broken,
            ReasonCode.CHECK_UNAVAILABLE: unavailable,
            ReasonCode.GROUNDING_UNATTESTED: self.grounding_attested is False,
            ReasonCode.WARNINGS: self.warnings,
            ReasonCode.VERIFICATION_BYPASSED: self.bypassed,
            ReasonCode.LOW_CONFIDENCE: self.confidence < SUFFICIENT,
            ReasonCode.NOTHING_TO_GROUND_ON: not self.reading.grounded_on_something,
        }
        applying |= {(IngestionTier.FLAG_REVIEW, code) for code, applies in reviews.items() if applies}
        first = next((one for one in VERDICTS if one in applying), None)
        return explain(*(first or (IngestionTier.AUTO_APPROVE, ReasonCode.GROUNDED)))

    @cached_property
    def base_code(self) -> ReasonCode:
        return self.before_queue().code

    def recorded_as(self, base_code: ReasonCode) -> Self:
        """Set what state decided from: `policy` and engine may be others since."""
        self.base_code = base_code
        return self

    def judged(self, tier: IngestionTier | None = None) -> TreeOutcome:
        return explain(tier, self.base_code) if tier else self.before_queue()

    def fields(self, _outcome: TreeOutcome, limits: Limits) -> Fields:
        return response_fields(list_response_checks(self), self._report, self.facts, limits)

    @cached_property
    def _report(self) -> dict[str, Any]:
        return report_of(self)

    @property
    def grounding_attested(self) -> bool | None:
        """Whether somebody vouches for what the model was given; None where nobody has to, or nothing was given."""
        if self.policy.attestation != "hmac" or all(getattr(self.response, name) is None for name in _GIVEN):
            return None
        return self.facts.attested

    @property
    def bypassed(self) -> bool:
        """Whether its sender kept claims from being held against what is there (S4-37)."""
        given = self.response.context is not None or self.response.chunks is not None
        return given and why_skipped(self.response, self.policy.verification) == "bypassed"

    @cached_property
    def broken(self) -> dict[str, str]:
        return broken_checks(self.facts.error)

    @property
    def attempt(self) -> int | None:
        """How often an answer was asked for again before this one; None where nobody knows."""
        reply = self.facts.reply_to
        if reply is None:
            return 0
        return None if reply["attempt"] is None else min(reply["attempt"] + 1, LAST_ATTEMPT)

    @property
    def mode(self) -> Mode:
        """The lower of the sent and the asked mode."""
        asked = (self.facts.reply_to or {}).get("mode")
        sent = self.response.mode
        return sent if asked is None else min(sent, asked, key=_MODES.index)

    @cached_property
    def regeneration(self) -> Regeneration | None:
        """What to ask the generator for, if anything.

        Below 0.5, an answer in the next lower mode (S2-24); else, where the policy retries, one in the same mode
        without the claims that a critical gap parts from their evidence (S4-39). Nothing where the attempt is not
        known: a generator that names no true predecessor would be asked for ever. Nothing by a provisional
        decision either.
        """
        attempt = self.attempt
        if attempt is None or STATE in self.broken or json_size(self.response.query or "") > MAX_QUERY_BYTES:
            return None
        if self.confidence >= DEGRADED:
            claims = result_of(self.reading.claims)
            most = min(LAST_ATTEMPT, self.policy.verification.max_retries)
            retries = claims is not None and claims.report.should_retry and attempt < most
            return Regeneration(self.mode, attempt + 1, "critical_gap") if retries else None
        if self._exhausted:
            return None
        return Regeneration(_MODES[_MODES.index(self.mode) - 1], attempt + 1, "low_confidence")

    @property
    def fallback(self) -> str | None:
        """`raw_sources` where the chain has ended without an answer that holds (S2-25)."""
        ended = self.confidence < DEGRADED and self._exhausted and STATE not in self.broken
        return "raw_sources" if ended else None

    @property
    def _exhausted(self) -> bool:
        return self.mode == _MODES[0] or self.attempt == LAST_ATTEMPT


def list_response_checks(case: ResponseCase) -> Checks:
    """Name every check of a response as `name` or `name: detail` (X-02)."""
    checks = Checks()
    unknown_versions = isinstance(case.reading.versions, Broken)  # they are listed with the index
    for check in RESPONSE_CHECKS:
        if not check.passed:
            continue
        section = getattr(case.reading, check.name)
        if isinstance(section, Broken) or (check.name == "index" and unknown_versions):
            checks.failed.append(f"{check.name}_unavailable")
        elif isinstance(section, Skipped):
            checks.skipped.append(f"{check.name}_skipped: {section.why}")
        else:
            checks.add(check.passed, list(check.failures(section)))
    if case.grounding_attested is not None:
        checks.add("grounding_attested", [] if case.grounding_attested else ["grounding_unattested"])
    low = case.confidence < SUFFICIENT
    checks.add("confidence_sufficient", [f"low_confidence: {case.confidence:g}"] if low else [])
    checks.add_place(case.facts.place)
    if case.response.fan_out and case.facts.extraction is None:
        checks.skipped.append("fan_out_skipped: disabled")
    return checks


def report_of(case: ResponseCase) -> dict[str, Any]:
    """Return the whole report; sections whose check did not run are None."""
    sections: dict[str, Any] = {check.section[0]: None for check in RESPONSE_CHECKS if check.section[0]}
    for check, result in case.reading.results:
        name, section = check.section
        if name:
            sections[name] = section(result, case.response)
    sources, fields = result_of(case.reading.sources), result_of(case.reading.fields)
    results = [result for _, result in sources.results] if sources else []
    verified, unverified = (len(fields.verified), len(fields.unverified)) if fields else (0, 0)
    regeneration = case.regeneration
    return {
        **sections,
        "warnings": [warning.as_dict() for warning in case.warnings],
        "validation": {  # in camel case (S2-36)
            "sourcesVerified": sum(result.confidence == 1 for result in results),
            "sourcesTotal": len(results),
            "fieldsVerified": verified,
            "fieldsTotal": verified + unverified,
            "confidence": case.confidence,
        },
        "confidence": case.confidence,
        "fallback": case.fallback,
        "fallback_chunks": [c.chunk_id for c in case.response.chunks or ()] if case.fallback else None,
        "attempt": case.attempt,
        "regenerate": regeneration._asdict() if regeneration else None,
    }


MAX_REQUEST_BYTES: Final = 950_000
"""A request has to fit on its topic, whatever characters the chunks hold."""

_MAX_FLAGGED: Final = 100
_MAX_CHARACTERS: Final = 500


def regenerate_request(case: ResponseCase, decision: str) -> RegenerateRequest | None:
    """Return the request that the decision of this id brings, if any; the same decision gives the same one."""
    asked = case.regeneration
    if asked is None:
        return None
    query = case.response.query
    claims = result_of(case.reading.claims)
    unsupported = [claim.claim_text[:_MAX_CHARACTERS] for claim in claims.flagged] if claims else []
    warnings = (warning.message[:_MAX_CHARACTERS] for warning in case.warnings)
    flagged = [*islice((*unsupported, *warnings), _MAX_FLAGGED)]
    chunks, named = case.response.chunks, unsupported[:_MAX_FLAGGED]
    if chunks is None:
        chunks = [
            Chunk(chunk_id=name, file=name, content=text, start_line=1, end_line=text.count("\n") + 1)
            for name, text in evidence_of(case.response).items()
        ]
    while True:
        request = RegenerateRequest(
            request_id=request_id(decision),
            response_id=case.subject.subject_id,
            decision_id=decision,
            tenant_id=case.subject.tenant_id,
            user_id=case.subject.user_id,
            query=query,
            mode=asked.mode,
            attempt=asked.attempt,
            why=asked.why,
            prompt=grounded_prompt(query or "", chunks, unsupported=named),
            flagged=flagged,
        )
        # where they do not fit, the last chunks and claims are left out
        if not (chunks or named) or len(request.model_dump_json().encode()) <= MAX_REQUEST_BYTES:
            return request
        chunks, named = chunks[: len(chunks) * 3 // 4], named[: len(named) * 3 // 4]


MAX_EXTRACTION_BYTES: Final = 60_000
"""Bytes of all extracted claims as JSON: they stand in the decision, whole."""


def extract(response: LlmResponse, limit: int) -> list[str]:
    """Return the claims of a response's answer that are fanned out: the first ones, as many as have room."""
    claims: list[str] = []
    room = MAX_EXTRACTION_BYTES
    for text in extract_claims(response.answer or "", limit, citable_by(response)):
        room -= json_size(text)
        if room < 0:
            break
        claims.append(text)
    return claims


def fan_out(decision: Decision) -> Sequence[Claim]:
    """Return the claims that a response's decision sends to the claim gate; none for a blocked one.

    The same decision gives the same claims, so that sending them again changes nothing.
    """
    if decision.tier == IngestionTier.BLOCK:
        return ()
    parent = RESPONSE_PARENT + decision.subject_id
    return [
        Claim(
            claim_id=f"{decision.subject_id}#{number}",
            tenant_id=decision.tenant_id,
            user_id=decision.user_id,
            content=text,
            source=AI_SYNTHESIS,
            source_id=parent,
            derived_from=[parent],
        )
        for number, text in enumerate(decision.facts.extraction or (), 1)
        if not is_blank(text)  # a comment of HTML, which would be refused
    ]
