"""About which claims a model is asked (S4-35, S4-44, S4-45)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.negations import negations
from groundwire.checks.tokens import tokenize
from groundwire.epistemic.claims import Draft
from groundwire.epistemic.config import VerificationConfig

_CITED: Final = re.compile(r"\d|\[[^\]]{1,200}\]|https?://", re.IGNORECASE)
_hedges = HedgeDetector()


def is_sampled(claim_id: str, rate: float, seed: str = "") -> bool:
    """Tell whether a claim belongs to the sample: always the same for the same id and seed (C-61)."""
    digest = blake2b(f"{seed}\0{claim_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < rate * 2**64


def is_critical_text(claim: str) -> bool:
    """Tell whether a claim holds an uncertainty marker, a number, a citation or a negation (S4-45, C-62)."""
    return bool(_CITED.search(claim) or negations(tokenize(claim)) or _hedges.find(claim))


def chosen(drafts: Iterable[Draft], config: VerificationConfig) -> tuple[list[Draft], int]:
    """Return the claims about which a model is asked, in order, and how many were due beyond the limit (S4-33)."""
    due = [draft for draft in drafts if _is_due(draft, config)]
    return due[: config.max_claims_per_response], max(0, len(due) - config.max_claims_per_response)


def _is_due(draft: Draft, config: VerificationConfig) -> bool:
    if draft.phantom:
        return False  # known to be wrong without a question (S4-24)
    if config.mode == "full":
        return True
    if config.mode == "sample":
        return is_sampled(draft.claim_id, config.sample_rate, config.sample_seed)
    return draft.critical or is_critical_text(draft.text)
