"""Epistemic verification: whether each claim of an answer rests on its evidence (S4-01..S4-54).

    verify_claim("It retries 3 times.", "The gate retries three times.").evidence_support

By default rules decide, in this process, without a model and without a network. With a client, a language model is
asked as well; it can lower a verdict, and raise it only where configured.
"""

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.functions import (
    audit_reasoning,
    detect_hallucinations,
    evidence_dependence,
    verify_claim,
)
from groundwire.epistemic.model import Client
from groundwire.epistemic.response import annotate, verify_response
from groundwire.epistemic.scale import evidence_gap_bits, gap_band
from groundwire.epistemic.traces import ReasoningTraces
from groundwire.epistemic.types import (
    ClaimVerification,
    EpistemicGap,
    HallucinationReport,
    ModelCall,
    UncoveredWord,
    VerifiedResponse,
)

__all__ = [
    "ClaimVerification",
    "Client",
    "EpistemicGap",
    "HallucinationReport",
    "ModelCall",
    "ReasoningTraces",
    "UncoveredWord",
    "VerificationConfig",
    "VerifiedResponse",
    "annotate",
    "audit_reasoning",
    "detect_hallucinations",
    "evidence_dependence",
    "evidence_gap_bits",
    "gap_band",
    "verify_claim",
    "verify_response",
]
