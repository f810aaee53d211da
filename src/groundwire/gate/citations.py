"""Citations of a batch: local ones at once, network ones from the cache, the rest only where it may be asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Any

from groundwire.checks.citations import Citation
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import PreparedClaim, as_finding
from groundwire.messages.decisions import CitationState
from groundwire.policy import Policy
from groundwire.verify.citations import NETWORK, CitationVerifier
from groundwire.verify.relevance import relevance
from groundwire.verify.results import CitationCheck

Answers = dict[tuple[str, str], CitationCheck]


class CitationDesk:
    """Looks up the citations of prepared claims, each batch with as few questions as it can."""

    def __init__(self, verifier: CitationVerifier, policy: Policy) -> None:
        self._verifier = verifier
        self._policy = policy

    async def look_up(self, claims: Sequence[PreparedClaim], *, ask_network: bool) -> None:
        """Fill in `findings`, `relevance` and `wait` of each claim."""
        cited = [
            (claim.claim.tenant_id, citation) for claim in claims for citation in claim.reading.verifiable
        ]
        if not cited:
            return
        answers = await _nothing_if_broken(self._local(cited))
        remote = [request for request in cited if request[1].type in NETWORK]
        if remote:
            want_text = self._policy.verify_claim_relevance
            answers |= await _nothing_if_broken(self._verifier.cached(remote, want_text=want_text))
            missing = [
                (tenant, citation) for tenant, citation in remote if (tenant, citation.label) not in answers
            ]
            if missing and ask_network:
                answers |= await _nothing_if_broken(self._verifier.remote(missing, want_text=want_text))
        for claim in claims:
            self._hand_over(claim, answers)

    async def _local(self, cited: Sequence[tuple[str, Citation]]) -> Answers:
        tenants: defaultdict[str, list[Citation]] = defaultdict(list)
        for tenant, citation in cited:
            if citation.type not in NETWORK:
                tenants[tenant].append(citation)
        answers: Answers = {}
        for tenant, citations in tenants.items():
            found = await self._verifier.local(
                tenant, citations, want_text=self._policy.verify_claim_relevance
            )
            answers |= {(tenant, label): check for label, check in found.items()}
        return answers

    def _hand_over(self, claim: PreparedClaim, answers: Answers) -> None:
        tenant = claim.claim.tenant_id
        first: dict[str, Citation] = {}
        for citation in claim.reading.verifiable:
            first.setdefault(citation.label, citation)
        checks = {label: answers.get((tenant, label)) for label in first}
        claim.wait = None in checks.values()
        claim.findings = {label: as_finding(check) for label, check in checks.items() if check is not None}
        if self._policy.verify_claim_relevance:
            claim.relevance = [
                self._relevance(claim.claim.content, first[label], check)
                for label, check in checks.items()
                if check is not None and check.state == CitationState.VERIFIED
            ]

    def _relevance(self, content: str, citation: Citation, check: CitationCheck) -> dict[str, Any]:
        """Return the entry of `facts.relevance`; `start` says which citation, without repeating its text."""
        score = None
        if check.text is not None:
            try:
                score = relevance(content, check.text)
            except Exception as exc:  # noqa: BLE001 - a check that broke takes credit away, never a claim
                report_fault("relevance.failed", exc)
        relevant = score is not None and score >= self._policy.relevance_minimum
        return {"start": citation.start, "score": score, "relevant": relevant}


async def _nothing_if_broken(lookup: Awaitable[Answers]) -> Answers:
    """Await a look-up; what it could not say is not checked, and gives no credit (S0-21)."""
    try:
        return await lookup
    except Exception as exc:  # noqa: BLE001 - as it says
        report_fault("citations.failed", exc)
        return {}
