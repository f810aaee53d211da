"""What an approval has to show, worked out again from the record, the policy and the facts."""

from __future__ import annotations

from collections.abc import Iterator

from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.responses import LlmResponse
from groundwire.policy import Policy
from tests.fuzz.entry import hold, read_strictly

LARGEST = 256_000  # bytes of a Decision
GROUNDS = {
    "verified_citation": "citation_verified",
    "trusted_source": "trusted_source",
    "stated_decision": None,
    "stated_preference": None,
}
_GROUNDED = frozenset(
    {
        *(
            "sources_verified",
            "fields_verified",
            "source_tags_present",
            "quotes_grounded",
            "entities_grounded",
        ),
        *("relations_preserved", "values_supported", "claims_supported"),
    }
)
STANDING = frozenset({"adr:003", "adr:3", "url:https://docs.example.org/good"})
"""The citations that stand in the fuzzer's world; in it nothing else exists."""


def check_decision(decision: Decision, record: Claim | LlmResponse, policy: Policy) -> None:
    """Hold a decision of the gate to its contract, and an approval to its checks. Raises: Failed."""
    value = decision.to_bytes()
    hold(len(value) <= LARGEST, f"a decision of {len(value)} bytes")
    read_strictly(value)
    hold(decision.reason_code != "internal_error", "something broke inside")
    hold(
        (decision.approved, decision.verdict == "approved", decision.tier == "tier_1")
        in {(True,) * 3, (False,) * 3},
        "verdict, tier and approved do not agree",
    )
    for citation in decision.citations:
        label = f"{citation.type}:{citation.value}"
        hold(
            citation.state != "verified" or label in STANDING,
            f"verified that does not stand: {label[:100]!r}",
        )
    if decision.approved:
        problems = (
            _claim(decision, record, policy)
            if isinstance(record, Claim)
            else _response(decision, record, policy)
        )
        told = list(problems)
        hold(not told, f"approved as {decision.reason_code}, though {'; '.join(told)}")


def _names(checks: list[str]) -> set[str]:
    return {check.split(":")[0] for check in checks}


def _claim(decision: Decision, claim: Claim, policy: Policy) -> Iterator[str]:
    passed, failed = _names(decision.checks_passed), _names(decision.checks_failed)
    hedged = policy.trusted_technical_hedges == "approve" or policy.grounded_speculation == "review"
    ground = GROUNDS.get(decision.reason_code, "")
    fact = decision.facts.attestation or {}
    trusted, cited = ground == "trusted_source", ground == "citation_verified"
    synthesis = "source_not_trusted" in failed and claim.source not in {"conversation", "chat"}
    due = {
        "no_speculation": not hedged,
        "not_duplicate": policy.enable_dedup,
        "not_previously_rejected": policy.enable_dedup,
        "parents_approved": bool(claim.derived_from),
        "not_expired": claim.validity_horizon is not None,
        "citation_relevant": policy.verify_claim_relevance and cited,
        str(ground): ground is not None,
    }
    yield from (
        f"{name or 'no ground'} has not passed"
        for name, needed in due.items()
        if needed and name not in passed
    )
    if trusted and policy.attestation == "hmac" and fact.get("state") != "valid":
        yield "nobody vouches for its source"
    if "citation_unverified" in failed and policy.failed_citation_overrides_trust:
        yield "a citation was not verified"
    if synthesis and not policy.auto_approve_ai_synthesis:
        yield "it is AI synthesis"


def _response(decision: Decision, response: LlmResponse, policy: Policy) -> Iterator[str]:
    passed, failed = _names(decision.checks_passed), _names(decision.checks_failed)
    if failed:
        yield f"{', '.join(sorted(failed))} failed"
    if not response.verify and "claims_supported" in passed:
        yield "the check of its claims was to be bypassed"
    if not passed & _GROUNDED:
        yield "nothing was grounded"
    quoted = policy.evidence_quote_validation_enabled
    due = {
        "sources_verified": response.sources and response.chunks is not None,
        "quotes_grounded": quoted and response.evidence and response.transcript is not None,
        "entities_grounded": response.entities and response.corpus_index is not None,
        "relations_preserved": response.claims and response.relations is not None,
    }
    yield from (f"{name} was not looked at" for name, given in due.items() if given and name not in passed)
    if decision.kind != Kind.RESPONSE:
        yield "it is no response"
