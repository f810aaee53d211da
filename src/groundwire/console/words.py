"""Codes and times as people read them."""

from __future__ import annotations

from typing import Final

from groundwire.messages.base import parse_time

NONE: Final = "\u2013"
"""Stands where there is nothing to say."""

_REASONS: Final = {
    "ai_synthesis_held": "AI synthesis, held by policy",
    "check_unavailable": "a check could not run",
    "citation_irrelevant": "citation is about something else",
    "citation_unverified": "citation not verified",
    "conflicting_near_duplicate": "contradicts a memory",
    "critical_gap": "critical statement unsupported",
    "dedup_unavailable": "not compared with memory",
    "derived_from_unapproved": "rests on something unapproved",
    "entity_grounding_failed": "names unknown entities",
    "expired": "no longer valid",
    "flagged_claims": "parts are unsupported",
    "grounded": "grounded in its sources",
    "human_approved": "approved by a person",
    "human_rejected": "rejected by a person",
    "internal_error": "a check failed",
    "nothing_to_ground_on": "nothing to check it against",
    "pending_duplicate": "same as a waiting item",
    "phantom_source": "names a source that is not there",
    "previously_rejected": "close to a rejected text",
    "quotes_rejected": "quotes not in their source",
    "relation_preservation_failed": "relations not in the sources",
    "review_expired": "not reviewed in time",
    "review_queue_full": "the queue was full",
    "snippet_mismatch": "quotes what the source does not say",
    "source_unattested": "source not signed for",
    "stale_index": "outdated index",
    "technical_hedge": "worded as uncertain",
    "ungrounded": "nothing vouches for it",
    "unverified_fields": "names unknown fields",
}
_CHECKS: Final = {
    "citation_missing": "names no source",
    "citation_present": "names a source",
    "citation_relevant": "citation fits the claim",
    "citation_verification": "verification of citations",
    "citation_unavailable": "citations could not be looked for",
    "citation_verification_unavailable": "citations could not be verified",
    "claims": "statements of the answer",
    "confidence_sufficient": "confidence is high enough",
    "dedup": "comparison with memory",
    "dedup_check_failed": "could not be compared with memory",
    "entities_grounded": "entities are known",
    "fan_out": "splitting into claims",
    "fields_verified": "fields are known",
    "hedge_words_detected": "hedges",
    "hedges_unavailable": "hedges could not be looked for",
    "index_current": "index is up to date",
    "no_speculation": "worded as certain",
    "not_duplicate": "new",
    "not_expired": "still valid",
    "not_previously_rejected": "unlike any rejected text",
    "parents": "what it rests on",
    "parents_approved": "what it rests on is approved",
    "parents_unavailable": "what it rests on could not be looked up",
    "phantom_file": "names a file that is not there",
    "previously_rejected_unavailable": "could not be compared with rejected texts",
    "quote_polarity": "quote says the opposite",
    "quotes_grounded": "quotes stand in their source",
    "relations_preserved": "relations are those of the sources",
    "relevance": "whether the citation fits the claim",
    "review_place": "has a place in the queue",
    "source_not_trusted": "source is not on the trusted list",
    "source_tag_phantom": "tag of a source that is not there",
    "source_tags_missing": "statements without a source tag",
    "source_tags_present": "statements have source tags",
    "sources_verified": "sources exist",
    "validity": "validity horizon",
    "values_supported": "values stand in the sources",
    "values_unsupported": "values not in the sources",
}
_WAITS: Final = {
    "state": "Redis gives no answer, or one that cannot be used. Records stay in Kafka, and the lag grows.",
    "state_lost": "State was lost and is being rebuilt from the topics. Records stay in Kafka until it is there again.",
    "broker": "Kafka does not acknowledge what is published. Nothing is lost; the lag grows.",
    "dead_letters": "A hundred records in a row could not be decided: see what is wrong with policy, keys or producers,"
    " then restart the worker.",
    "internal": "An error of Groundwire's own, tried again every five seconds: its place stands in the worker's log.",
}
_LABELS: Final = {
    **_CHECKS,
    **_REASONS,
    "ai_synthesis": "AI synthesis",
    "adr": "ADR",
    "url": "URL",
    "not_found": "not found",
    "incorrect": "Incorrect",
    "outdated": "Outdated",
    "not_verifiable": "Cannot be verified",
    "duplicate": "Duplicate",
    "sensitive": "Sensitive or private",
    "off_topic": "Not worth keeping",
    "other": "Another reason",
    "under_1h": "under an hour",
    "over_1h": "over an hour",
    "over_1d": "over a day",
    "over_7d": "over a week",
    "approve": "Approve",
    "reject": "Reject",
    "passed": "fine",
    "failed": "problem",
    "skipped": "not checked",
    "invalid_json": "not readable as JSON",
    "invalid_record": "fields are missing or wrong",
    "unsupported_version": "unknown schema version",
    "claim_id_conflict": "id used for another claim",
    "worker_crash": "stopped a worker three times",
    "unpublishable": "could not be published",
    "conflict": "changed meanwhile, or has an action on its way",
    "partly_shown": "the list shows only a part of it: open it to approve it",
    "held": "taken",
    "silent": "no answer",
    "unreadable": "not a worker's answer",
    "unresolved": "no such name",
}


def label(code: object) -> str:
    """Return a code as words; what a record says stays as it is, but for underscores."""
    if code is None:
        return NONE
    text = str(code)
    return _LABELS.get(text, text.replace("_", " "))


def waits_for(dependency: str) -> str:
    """Return what it means that a worker waits for something, as a sentence or two."""
    return _WAITS.get(dependency, "It waits for something that this console does not know.")


def amount(value: float | None) -> str:
    """Return a rate or a level, which may be less than one."""
    if value is None:
        return "not measured"
    if 0 < value < 0.01:
        return "under 0.01"
    return f"{value:.2g}" if value < 10 else number(round(value))


def number(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}".replace(",", "\u202f")


def age(seconds: float) -> str:
    """Return how long ago something was."""
    if seconds < 60:
        return "just now"
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "just now"


def duration(seconds: float | None) -> str:
    """Return how long something took."""
    if seconds is None:
        return NONE
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def share(part: int, whole: int) -> str:
    """Return a part as per cent."""
    return f"{part / whole:.0%}" if whole else NONE


def moment(time: str | None) -> str:
    """Return a time of the contract's form as a person reads it, in UTC."""
    return parse_time(time).strftime("%Y-%m-%d %H:%M UTC") if time else NONE
