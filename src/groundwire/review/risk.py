"""In which order people look at what waits for them.

The order goes by the reason and by the other checks that failed, the gravest of them, so that it can be explained
and does not move while somebody works: first what may contradict what is known, then what could not be checked, then
what lacks support, last what merely lacks a source. Of what is equally grave the oldest comes first.

A Decision names the first reason that applied, in the order of the gate's tree, which is another: a claim that rests on
something unapproved may also cite an issue that nobody found.
"""

from __future__ import annotations

from collections.abc import Iterable
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
WAITING: Final = tuple(str(code) for code, _, _ in _ORDER)
"""Reasons for which something waits, in this order."""
_CHECKS: Final = {
    "citation_missing": ReasonCode.UNGROUNDED,
    "dedup_check_failed": ReasonCode.DEDUP_UNAVAILABLE,
    "hedge_words_detected": ReasonCode.TECHNICAL_HEDGE,
    "phantom_file": ReasonCode.PHANTOM_SOURCE,
    "previously_rejected_unavailable": ReasonCode.DEDUP_UNAVAILABLE,
    "quote_polarity": ReasonCode.FLAGGED_CLAIMS,
    "source_tag_phantom": ReasonCode.PHANTOM_SOURCE,
    "source_tags_missing": ReasonCode.FLAGGED_CLAIMS,
    "values_unsupported": ReasonCode.FLAGGED_CLAIMS,
}
"""What failed checks are as grave as; others are called like the reason that they may give, or `..._unavailable`."""

_NOTHING: Final = "source_not_trusted"
"""Fails wherever no trusted source vouches, for whatever reason the claim is in review: it says nothing beside that."""

_RISKS: Final = {str(code): Risk(rank, level, why) for rank, (code, level, why) in enumerate(_ORDER, start=1)}
_UNKNOWN: Final = Risk(0, "high", "for a reason that this version does not know")
_BY_RANK: Final = [_UNKNOWN, *_RISKS.values()]


def risk_of(reason_code: str, checks_failed: Iterable[str] = ()) -> Risk:
    """Return how soon an item is to be looked at: the gravest of its reason and of its failed checks.

    Args:
        reason_code: why it is in review; an unknown reason comes first.
        checks_failed: of its Decision, each `name` or `name: detail`; so does an unknown name.
    """
    names = {check.partition(":")[0] for check in checks_failed} - {_NOTHING}
    codes = {reason_code, *(_code(name) for name in names)}
    return min((_RISKS.get(code, _UNKNOWN) for code in codes), key=lambda risk: risk.rank)


def risk_at(rank: int) -> Risk:
    """Return the risk of a rank that `risk_of` gave."""
    return _BY_RANK[rank] if 0 <= rank < len(_BY_RANK) else _UNKNOWN


def _code(check: str) -> str:
    code = ReasonCode.CHECK_UNAVAILABLE if check.endswith("_unavailable") else check
    return _CHECKS.get(check, code)
