"""In which order people look at what waits for them.

The order goes by the reason alone, so that it can be explained and does not move while somebody works: first
what may contradict what is known, then what could not be checked, then what lacks support, last what merely
lacks a source. Within a reason the oldest comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from groundwire.messages.decisions import ReasonCode

Level = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Risk:
    """How soon something is to be looked at.

    Attributes:
        rank: 0 comes first.
        why: one clause for people.
    """

    rank: int
    level: Level
    why: str


_ORDER: Final[tuple[tuple[ReasonCode, Level, str], ...]] = (
    (ReasonCode.CONFLICTING_NEAR_DUPLICATE, "high", "contradicts a memory that is approved or waits"),
    (ReasonCode.PREVIOUSLY_REJECTED, "high", "close to a text that a person turned down"),
    (ReasonCode.CRITICAL_GAP, "high", "a critical statement is not supported by the evidence"),
    (ReasonCode.PHANTOM_SOURCE, "high", "names a source that does not exist"),
    (ReasonCode.SNIPPET_MISMATCH, "high", "quotes what the source does not say"),
    (ReasonCode.QUOTES_REJECTED, "high", "quotes are not in their source"),
    (ReasonCode.INTERNAL_ERROR, "high", "a check failed, so it was not fully checked"),
    (ReasonCode.CHECK_UNAVAILABLE, "high", "a check was not available"),
    (ReasonCode.DEDUP_UNAVAILABLE, "high", "could not be compared with what is stored"),
    (ReasonCode.DERIVED_FROM_UNAPPROVED, "medium", "rests on something that is not approved"),
    (ReasonCode.FLAGGED_CLAIMS, "medium", "statements were flagged"),
    (ReasonCode.CITATION_IRRELEVANT, "medium", "the citation exists and is about something else"),
    (ReasonCode.CITATION_UNVERIFIED, "medium", "the citation could not be verified"),
    (ReasonCode.SOURCE_UNATTESTED, "medium", "claims a trusted source without a signature"),
    (ReasonCode.UNVERIFIED_FIELDS, "medium", "names fields that the sources do not have"),
    (ReasonCode.STALE_INDEX, "medium", "rests on an outdated index"),
    (ReasonCode.LOW_CONFIDENCE, "medium", "confidence is low"),
    (ReasonCode.TECHNICAL_HEDGE, "low", "worded as uncertain"),
    (ReasonCode.NOTHING_TO_GROUND_ON, "low", "there was nothing to check it against"),
    (ReasonCode.UNGROUNDED, "low", "names no source"),
    (ReasonCode.AI_SYNTHESIS_HELD, "low", "written by a model; held by policy"),
    (ReasonCode.PENDING_DUPLICATE, "low", "says what another waiting item says"),
)
_RISKS: Final = {str(code): Risk(rank, level, why) for rank, (code, level, why) in enumerate(_ORDER, start=1)}
_UNKNOWN: Final = Risk(0, "high", "for a reason that this version does not know")


def risk_of(reason_code: str) -> Risk:
    """Return how soon an item in review for this reason is to be looked at; an unknown reason comes first."""
    return _RISKS.get(reason_code, _UNKNOWN)
