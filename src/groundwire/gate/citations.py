"""Citations of a batch: local ones at once, network ones from the cache, the rest only where it may be asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from groundwire.checks.citations import Citation
from groundwire.gate.prepared import Prepared, as_finding
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

    async def look_up(self, claims: Sequence[Prepared], *, ask_network: bool) -> None:
        """Fill in `findings`, `relevance` and `wait` of each claim."""
        cited = [
            (claim.claim.tenant_id, citation) for claim in claims for citation in claim.reading.verifiable
        ]
        if not cited:
            return
        answers = await self._local(cited)
        remote = [request for request in cited if request[1].type in NETWORK]
        if remote:
            want_text = self._policy.verify_claim_relevance
            answers |= await self._verifier.cached(remote, want_text=want_text)
            missing = [
                (tenant, citation) for tenant, citation in remote if (tenant, citation.label) not in answers
            ]
            if missing and ask_network:
                answers |= await self._verifier.remote(missing, want_text=want_text)
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

    def _hand_over(self, claim: Prepared, answers: Answers) -> None:
        tenant = claim.claim.tenant_id
        checks: dict[str, CitationCheck] = {}
        for citation in claim.reading.verifiable:
            check = answers.get((tenant, citation.label))
            if check is None:
                claim.wait = True
            else:
                checks[citation.label] = check
        claim.findings = {label: as_finding(check) for label, check in checks.items()}
        if self._policy.verify_claim_relevance:
            claim.relevance = [
                self._relevance(claim.claim.content, label, check)
                for label, check in checks.items()
                if check.state == CitationState.VERIFIED
            ]

    def _relevance(self, content: str, label: str, check: CitationCheck) -> dict[str, Any]:
        score = relevance(content, check.text) if check.text is not None else None
        relevant = score is not None and score >= self._policy.relevance_minimum
        return {"citation": label, "score": score, "relevant": relevant}
