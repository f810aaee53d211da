"""Evidence gaps in bits: how much information is missing for a claim to be as reliable as it should be (S4-21..S4-23).

Required is what takes a claim from its prior to the target reliability; observed is what the evidence gave, with the
sign of its direction: evidence that speaks against a claim is not observed for it (C-58). Both are Kullback-Leibler
divergences of two coins, in bits.
"""

from __future__ import annotations

from math import isfinite, log2
from typing import Final, Literal

PRIOR: Final = 0.02
"""Support without evidence, where it is not measured (C-59)."""
TARGET: Final = 0.95
"""Reliability that a claim should have (C-57)."""

_EDGE: Final = 1e-6  # certainty would be worth endless bits

Band = Literal["supported", "minor", "suspicious", "likely_hallucination"]


def evidence_gap_bits(p1: float, p0: float = PRIOR, tau: float = TARGET) -> float:
    """Return the bits that a claim lacks: KL(tau, p0) less the observed KL(p1, p0), negative below p0 (S4-21, S4-22).

    Args:
        p1: support with the evidence, 0..1.
        p0: support without it, 0..1.
        tau: target reliability, 0..1.

    Returns:
        0 or less where the evidence gives enough; with the defaults 2.00 at a support of 0.70.

    Raises:
        ValueError: an argument is no number from 0 to 1.

    Example:
        >>> round(evidence_gap_bits(0.99), 2), round(evidence_gap_bits(0.01, 0.9), 1)
        (-0.43, 3.2)
    """
    for name, value in (("p1", p1), ("p0", p0), ("tau", tau)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    observed = _divergence(p1, p0)
    return _divergence(tau, p0) - (observed if p1 >= p0 else -observed)


def gap_band(bits: float) -> Band:
    """Return what a gap means: below 0 supported, to 2 minor, to 10 suspicious, above that likely invented (S4-23).

    Raises:
        ValueError: `bits` is no finite number.
    """
    if not isfinite(bits):
        raise ValueError(f"bits must be a finite number, got {bits!r}")
    if bits < 0:
        return "supported"
    if bits <= 2:
        return "minor"
    return "suspicious" if bits <= 10 else "likely_hallucination"


def _divergence(p: float, q: float) -> float:
    p, q = (min(max(value, _EDGE), 1 - _EDGE) for value in (p, q))
    return p * log2(p / q) + (1 - p) * log2((1 - p) / (1 - q))
