"""What asks the outside whether a citation exists: URLs, git, the ADR folder, the issue tracker."""

import asyncio
import os
from pathlib import Path

from groundwire.checks.citations import Citation
from groundwire.verify.cache import CitationCache, Lifetimes, MemoryCache, RedisCache
from groundwire.verify.citations import CitationVerifier
from groundwire.verify.git import find_repository
from groundwire.verify.issues import GitHubTracker, GitLabTracker, IssueTracker
from groundwire.verify.local import Sources
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.relevance import MINIMUM_RELEVANCE, relevance
from groundwire.verify.results import CitationCheck, CitationState, VerificationResult
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.urls import UrlChecker

__all__ = [
    "MINIMUM_RELEVANCE",
    "AddressGuard",
    "CitationCache",
    "CitationCheck",
    "CitationState",
    "CitationVerifier",
    "GitHubTracker",
    "GitLabTracker",
    "IssueTracker",
    "Lifetimes",
    "MemoryCache",
    "Pacer",
    "PacingLimits",
    "RedisCache",
    "Sources",
    "UrlChecker",
    "VerificationResult",
    "relevance",
    "verify_citation",
]

_answers = MemoryCache()  # shared by calls without a verifier, each of which may run in a loop of its own


async def verify_citation(
    citation: Citation, *, verifier: CitationVerifier | None = None, tenant: str = "default"
) -> VerificationResult:
    """Say whether a detected citation exists (S0-64). It proves existence only, not content (S0-71).

    Args:
        citation: What `CitationDetector` found.
        verifier: Where to look. Without one: `GROUNDWIRE_ADR_DIR` or `docs/adrs`, `GROUNDWIRE_REPO` or the
            git repository of the working directory, URLs of the public internet (none if
            `GROUNDWIRE_NO_NETWORK` is 1), and no issue tracker, so that an issue is not valid (S0-68).
        tenant: Whose sources of `verifier` to look in.

    Returns:
        (valid, reason), e.g. `(False, "HTTP 404")`. Timeouts, name errors, refused connections and a missing
        git are not valid and carry the reason; no exception comes out (S0-70).
    """
    if verifier is not None:
        return await _ask(verifier, tenant, citation)
    own = await asyncio.to_thread(default_verifier)
    try:
        return await _ask(own, tenant, citation)
    finally:
        await own.close()


async def _ask(verifier: CitationVerifier, tenant: str, citation: Citation) -> VerificationResult:
    check = (await verifier.verify(tenant, [citation]))[citation.label]
    return VerificationResult(check.valid, check.detail)


def default_verifier() -> CitationVerifier:
    repo = os.environ.get("GROUNDWIRE_REPO")
    sources = Sources(
        adr_dir=Path(os.environ.get("GROUNDWIRE_ADR_DIR") or "docs/adrs"),
        repo=Path(repo) if repo else find_repository(Path.cwd()),
    )
    network = os.environ.get("GROUNDWIRE_NO_NETWORK") != "1"
    return CitationVerifier({"*": sources}, network=network, cache=_answers)
