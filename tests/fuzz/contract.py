"""What holds whatever the input: of decisions, approvals, published records and logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, Literal, get_args, get_origin

import structlog

from agents.outputs import followers, outputs
from groundwire.gate.types import Result
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.records import Claim, LlmResponse
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from tests.faults.rules_approval import GROUNDS
from tests.fuzz.inputs import CANARY, Dice


def some_policy(rng: Dice) -> Policy:
    """Set a few of the policy's switches."""
    choices: dict[str, tuple[Any, ...]] = {}
    for name, field in Policy.model_fields.items():
        if field.annotation is bool or get_origin(field.annotation) is Literal:
            choices[name] = get_args(field.annotation) or (True, False)
    choices["dedup_method"] = ("minhash", "partition")  # "vector" needs embeddings
    names = rng.sample(sorted(choices), rng.one(0, 0, 1, 3))
    return Policy(**{name: rng.choice(choices[name]) for name in names})


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """Redirect logs from the terminal; gives a function that returns what was logged since its last call."""
    heard, root = StringIO(), logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers, root.level = [logging.StreamHandler(heard)], logging.DEBUG
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=structlog.PrintLoggerFactory(heard),
        cache_logger_on_first_use=False,
    )

    def logged() -> str:
        found = heard.getvalue()
        heard.seek(0)
        heard.truncate()
        return found

    try:
        yield logged
    finally:
        root.handlers, root.level = before, level
        structlog.reset_defaults()


def quiet(logged: str, *, faults: bool = False) -> None:
    """Assert that a log holds no text of a record and, unless allowed, no fault inside."""
    assert CANARY.lower() not in logged.lower(), "a log holds the text of a record"
    for line in logged.splitlines():
        assert faults or '"where":' not in line, f"something broke inside: {line[:600]}"


def read_strictly(value: bytes) -> Any:
    """Read JSON as the strictest reader does."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a published record has a duplicate key"
        return dict(pairs)

    def no_constant(name: str) -> None:
        raise AssertionError(f"a published record has {name}")

    return json.loads(value.decode(), object_pairs_hook=once, parse_constant=no_constant)


def check_outputs(results: Sequence[Result]) -> None:
    """Assert that whatever is published for a batch can be."""
    for each in (*outputs(results), *followers(results)):
        assert each.key is None or isinstance(each.key, bytes)
        for name, value in each.headers:
            assert isinstance(value, bytes | None), f"the header {name[:40]!r} is no bytes"
            name.encode()
        if each.topic is not TopicName.DEAD_LETTER and each.topic is not TopicName.DEFERRED:
            fits = each.value is not None and len(each.value) <= 1_048_576  # what a broker takes
            assert fits, f"a record for {each.topic} is too large"
            read_strictly(each.value or b"")


def check_decision(decision: Decision, record: Claim | LlmResponse, policy: Policy) -> None:
    """Assert the contract of a decision, and that an approval has passed its checks."""
    value = decision.to_bytes()
    assert len(value) <= 256_000
    read_strictly(value)
    assert decision.reason_code != "internal_error"
    agree = {decision.approved, decision.verdict == "approved", decision.tier == "tier_1"}
    assert len(agree) == 1, "verdict, tier and approved do not agree"
    for citation in decision.citations:
        exists = {"adr:003", "adr:3", "url:https://docs.example.org/good"}
        label = f"{citation.type}:{citation.value}"
        assert citation.state != "verified" or label in exists, (
            f"verified, and does not exist: {label[:100]!r}"
        )
    if decision.approved:
        passed, failed = (
            {check.split(":")[0] for check in checks}
            for checks in (decision.checks_passed, decision.checks_failed)
        )
        missing = list(
            _unchecked_claim(decision, record, policy, passed, failed)
            if isinstance(record, Claim)
            else _unchecked_response(decision, record, policy, passed, failed)
        )
        assert not missing, f"approved as {decision.reason_code}, though {'; '.join(missing)}"


def _unchecked_claim(
    decision: Decision, claim: Claim, policy: Policy, passed: set[str], failed: set[str]
) -> Iterator[str]:
    hedged = policy.trusted_technical_hedges == "approve" or policy.grounded_speculation == "review"
    ground = GROUNDS.get(decision.reason_code, "")
    due = {
        "no_speculation": not hedged,
        "not_duplicate": policy.enable_dedup,
        "not_previously_rejected": policy.enable_dedup,
        "parents_approved": bool(claim.derived_from),
        "not_expired": claim.validity_horizon is not None,
        "citation_relevant": policy.verify_claim_relevance and ground == "citation_verified",
        str(ground): ground is not None,
    }
    yield from (
        f"{name or 'no ground'} has not passed"
        for name, needed in due.items()
        if needed and name not in passed
    )
    attested = (decision.facts.attestation or {}).get("state") == "valid"
    if ground == "trusted_source" and policy.attestation == "hmac" and not attested:
        yield "its source is not attested"
    if "citation_unverified" in failed and policy.failed_citation_overrides_trust:
        yield "a citation was not verified"
    synthesis = "source_not_trusted" in failed and claim.source not in {"conversation", "chat"}
    if synthesis and not policy.auto_approve_ai_synthesis:
        yield "it is AI synthesis"


def _unchecked_response(
    decision: Decision, response: LlmResponse, policy: Policy, passed: set[str], failed: set[str]
) -> Iterator[str]:
    if failed:
        yield f"{', '.join(sorted(failed))} failed"
    if not response.verify and "claims_supported" in passed:
        yield "the check of its claims was to be bypassed"
    if not passed & {
        *("sources_verified", "fields_verified", "source_tags_present", "quotes_grounded"),
        *("entities_grounded", "relations_preserved", "values_supported", "claims_supported"),
    }:
        yield "nothing was grounded"
    quoted = policy.evidence_quote_validation_enabled
    due = {
        "sources_verified": response.sources and response.chunks is not None,
        "quotes_grounded": quoted and response.evidence and response.transcript is not None,
        "entities_grounded": response.entities and response.corpus_index is not None,
        "relations_preserved": response.claims and response.relations is not None,
    }
    yield from (f"{name} was not run" for name, given in due.items() if given and name not in passed)
    if decision.kind != Kind.RESPONSE:
        yield "it is no response"
