"""The verdict rule of responses over generated readings, against the contract's list said once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given

from groundwire.checks.quotes import EvidenceGroundingStats
from groundwire.gate.response_case import INTERNAL, STATE, ResponseCase, list_response_checks
from groundwire.gate.response_checks import Broken, ResponseReading, Skipped, broken_checks, list_broken
from groundwire.messages.records import LlmResponse
from tests.unit.gate.builders import (
    CHECKS,
    cases,
    claims_of,
    clean_case,
    clean_reading,
    entities_of,
    fields_of,
    index_of,
    quotes_of,
    relations_of,
    sources_of,
    tags_of,
    values_of,
    versions_of,
)


def ran(section: Any) -> Any:
    return None if isinstance(section, Skipped | Broken) else section


def compared(reading: ResponseReading) -> list[str]:
    """Name the grounding checks that held something of the response against what it was given."""
    r = {name: ran(getattr(reading, name)) for name in CHECKS}
    counted = {
        "sources": len(r["sources"].results) if r["sources"] else 0,
        "fields": len(r["fields"].verified + r["fields"].unverified) if r["fields"] else 0,
        "source_tags": len(r["source_tags"].tags) if r["source_tags"] else 0,
        "quotes": r["quotes"].stats.extracted_count if r["quotes"] else 0,
        "entities": len(r["entities"].missing + r["entities"].grounded) if r["entities"] else 0,
        "relations": r["relations"].claim_count if r["relations"] else 0,
        "values": r["values"].found if r["values"] else 0,
        "claims": len(r["claims"].report.claims) if r["claims"] else 0,
    }
    return [name for name, count in counted.items() if count]


@given(cases())
def test_verdict_and_confidence_are_those_of_the_contract_and_only_what_was_compared_is_approved(case):
    """S2-15, C-44: the confidence is what was reported, less what did not hold of sources and fields."""

    def plain_confidence(case: ResponseCase) -> Fraction:
        """clamp(reported - (1 - fields) - (1 - sources)), exactly; a part that did not run counts as 1."""
        fields_, sources = ran(case.reading.fields), ran(case.reading.sources)
        share = mean = Fraction(1)
        if fields_ is not None and fields_.verified + fields_.unverified:
            share = Fraction(len(fields_.verified), len(fields_.verified) + len(fields_.unverified))
        if sources is not None and sources.results:
            # up to three parts: the float that a result holds stands for a fraction of at most 3
            each = [Fraction(result.confidence).limit_denominator(3) for _, result in sources.results]
            mean = sum(each, Fraction(0)) / len(each)
        value = Fraction(case.response.confidence) - (1 - share) - (1 - mean)
        return min(max(value, Fraction(0)), Fraction(1))

    def is_a_tie(value: Fraction) -> bool:
        """Say whether a value lies so near to the middle of two roundings that either will do."""
        return abs((value * 10_000) % 1 - Fraction(1, 2)) < Fraction(1, 10**9)

    def contract(case: ResponseCase, confidence: float) -> tuple[str, str]:
        """Verdict and reason, first that applies."""
        r = {name: ran(getattr(case.reading, name)) for name in CHECKS}
        some_broke = any(isinstance(getattr(case.reading, name), Broken) for name in CHECKS)
        error = case.facts.error or ""
        if r["entities"] and r["entities"].missing:
            return "tier_3", "entity_grounding_failed"
        if r["relations"] and r["relations"].violations:
            return "tier_3", "relation_preservation_failed"
        stats = r["quotes"].stats if r["quotes"] else EvidenceGroundingStats(0, 0, 0, {})
        all_rejected = stats.rejected_count > 0 and stats.validated_count == 0
        if case.policy.evidence_quote_fail_on_all_rejected and all_rejected:
            return "tier_3", "quotes_rejected"
        claims = r["claims"].report if r["claims"] else None
        gaps = [gap.gap_bits for gap in claims.gaps] if claims else []
        if case.policy.on_critical == "block" and any(bits > 2 for bits in gaps):
            return "tier_3", "critical_gap"
        if confidence < 0.3:
            return "tier_3", "low_confidence"
        if "internal=" in error:
            return "tier_2", "internal_error"
        if some_broke or "state=" in error:
            return "tier_2", "check_unavailable"
        phantom_files = [
            file for file, found in (r["sources"].results if r["sources"] else ()) if not found.exists
        ]
        if phantom_files or (r["source_tags"] and r["source_tags"].phantom):
            return "tier_2", "phantom_source"
        if r["sources"] and any(found.confidence < 1 for _, found in r["sources"].results):
            return "tier_2", "snippet_mismatch"
        if r["fields"] and r["fields"].unverified:
            return "tier_2", "unverified_fields"
        if r["index"] and r["index"].stale:
            return "tier_2", "stale_index"
        if stats.rejected_count:
            return "tier_2", "quotes_rejected"
        if (
            (r["source_tags"] and r["source_tags"].missing)
            or (r["quotes"] and r["quotes"].polarity)
            or (r["relations"] and r["relations"].unspecified)
            or (r["values"] and r["values"].faults)
            or (r["versions"] and r["versions"].conflicts)
            or (claims and claims.is_flagged)
        ):
            return "tier_2", "flagged_claims"
        if confidence < 0.7:
            return "tier_2", "low_confidence"
        if not compared(case.reading):
            return "tier_2", "nothing_to_ground_on"
        return "tier_1", "grounded"

    standing = case.before_queue()
    assert (str(standing.tier), str(standing.code)) == contract(case, case.confidence)
    exact = plain_confidence(case)
    assert 0 <= case.confidence <= 1
    assert abs(Fraction(Decimal(str(case.confidence))) - exact) <= Fraction(1, 20_000) + Fraction(1, 10**9)
    if not is_a_tie(exact):
        assert Fraction(Decimal(str(case.confidence))) == round(exact, 4)
    # S2-43: and nothing but `grounded` approves a response
    approved = str(standing.tier) == "tier_1"
    assert approved == (standing.code == "grounded")
    if approved:
        assert compared(case.reading)
        assert not case.warnings
        claims = ran(case.reading.claims)
        assert not claims or not claims.report.is_flagged
        assert not list(case.reading.broken)
        assert case.confidence >= 0.7
    outcome = case.outcome()
    if str(standing.tier) == "tier_2" and str(case.facts.place).endswith("_full"):
        assert (str(outcome.tier), str(outcome.code)) == ("tier_3", "review_queue_full")
    else:
        assert outcome == standing


def test_a_score_is_rounded_before_it_is_compared():
    table = ((0.29994, 0.2999, "tier_3"), (0.29996, 0.3, "tier_2"), (0.69994, 0.6999, "tier_2"))
    for sent, confidence, tier in (*table, (0.69996, 0.7, "tier_1"), (1, 1.0, "tier_1")):
        case = clean_case(confidence=sent)
        assert (case.confidence, str(case.before_queue().tier)) == (confidence, tier)
        sufficient = confidence >= 0.7
        checks = list_response_checks(case)
        assert ("confidence_sufficient" in checks.passed) is sufficient
        assert checks.failed == ([] if sufficient else [f"low_confidence: {confidence:g}"])
    zero = clean_case(confidence=-0.0)
    assert str(zero.confidence) == "0.0"
    assert "low_confidence: 0" in list_response_checks(zero).failed


def test_each_failure_is_a_reason_and_is_listed_among_the_failed_checks():
    # what is found, the reason, and the check that names it
    failures: list[tuple[dict[str, Any], str, str]] = [
        ({"entities": entities_of(1, 1)}, "entity_grounding_failed", "entity_grounding_failed: 1"),
        (
            {"relations": relations_of(1, 0, 1)},
            "relation_preservation_failed",
            "relation_preservation_failed: 1",
        ),
        ({"fields": fields_of(0, 1)}, "low_confidence", "low_confidence: 0"),
        ({"values": Broken("KeyError")}, "check_unavailable", "values_unavailable"),
        ({"versions": Broken("KeyError")}, "check_unavailable", "index_unavailable"),
        (
            {"sources": sources_of([("p", 1, 0), ("a", 1, 1), ("b", 1, 1), ("c", 1, 1)])},
            "phantom_source",
            "phantom_file: p",
        ),
        ({"source_tags": tags_of([7], 1, 0)}, "phantom_source", "source_tag_phantom: 7"),
        ({"sources": sources_of([("a", 2, 1), ("b", 1, 1)])}, "snippet_mismatch", "snippet_mismatch: a"),
        ({"fields": fields_of(4, 1)}, "unverified_fields", "unverified_fields: u0"),
        ({"index": index_of(["a"], [])}, "stale_index", "stale_index: a"),
        ({"quotes": quotes_of(1, 1, 0)}, "quotes_rejected", "quotes_rejected: 1 of 2"),
        ({"quotes": quotes_of(1, 0, 1)}, "flagged_claims", "quote_polarity: d"),
        ({"source_tags": tags_of([1], 1, 1)}, "flagged_claims", "source_tags_missing: 1"),
        ({"values": values_of(1, 1, 0)}, "flagged_claims", "values_unsupported: 1"),
        ({"relations": relations_of(0, 1, 0)}, "flagged_claims", ""),
        ({"versions": versions_of(["d"])}, "flagged_claims", ""),
        ({"claims": claims_of(1, 1, 0)}, "flagged_claims", "flagged_claims: 1"),
        ({"claims": claims_of(1, 0, 0, unverified=2)}, "flagged_claims", "flagged_claims: 2"),
    ]
    for found, code, check in failures:
        case = clean_case(reading=clean_reading(**found))
        listed = list_response_checks(case).failed
        failed = [name for name in listed if not name.startswith("low_confidence")]
        assert case.before_queue().code == code
        assert check in listed if check.startswith("low_confidence") else failed == ([check] if check else [])


@given(cases())
def test_one_more_failure_never_raises_the_tier(case):
    def worse(
        reading: ResponseReading, response: LlmResponse
    ) -> Iterator[tuple[str, ResponseReading, LlmResponse]]:
        """Yield the same response with one more failure of each kind."""
        r = {name: ran(getattr(reading, name)) for name in CHECKS}
        for name in CHECKS:
            yield f"{name} broke", replace(reading, **{name: Broken("KeyError")}), response

        def with_(**found: Any) -> tuple[ResponseReading, LlmResponse]:
            return replace(reading, **found), response

        results = r["sources"].results if r["sources"] else ()
        known = [(file, 3, round(found.confidence * 3)) for file, found in results]
        if all(
            found.confidence in {0, 1} for _, found in results
        ):  # else the mean may rise by a source that half holds
            yield "phantom source", *with_(sources=sources_of([*known, ("phantom", 1, 0)]))
        if all(found.confidence == 1 for _, found in results):
            yield "snippet", *with_(sources=sources_of([*known, ("half", 2, 1)]))
        index = r["index"] or index_of([], ["a"])
        yield "stale", *with_(index=index_of([*index.stale, "stale"], [*index.checked]))
        named = r["fields"] or fields_of(0, 0)
        yield "field", *with_(fields=fields_of(len(named.verified), len(named.unverified) + 1))
        tags = r["source_tags"] or tags_of([], 9, 0)
        yield "tag", *with_(source_tags=tags_of([*tags.tags, -7], 9, len(tags.missing)))
        yield "no tag", *with_(source_tags=tags_of([*tags.tags], 9, len(tags.missing) + 1))
        stats = r["quotes"].stats if r["quotes"] else EvidenceGroundingStats(0, 0, 0, {})
        yield "quote", *with_(quotes=quotes_of(stats.validated_count, stats.rejected_count + 1, 0))
        yield "polarity", *with_(quotes=quotes_of(stats.validated_count + 1, stats.rejected_count, 1))
        entities = r["entities"] or entities_of(0, 0)
        yield "entity", *with_(entities=entities_of(len(entities.missing) + 1, len(entities.grounded)))
        said = r["relations"] or relations_of(0, 0, 0)
        yield "relation", *with_(relations=relations_of(len(said.violations) + 1, len(said.unspecified), 0))
        yield "no version", *with_(relations=relations_of(len(said.violations), len(said.unspecified) + 1, 0))
        values = r["values"] or values_of(0, 0, 0)
        yield "value", *with_(values=values_of(len(values.unsupported) + 1, values.found, 0))
        yield "versions", *with_(versions=versions_of(["another"]))
        said_of = r["claims"].report if r["claims"] else claims_of(0, 0, 0).report
        critical = r["claims"].critical if r["claims"] else 0
        minor = len(said_of.gaps) - critical
        for what, more in (("claim", (1, 0, 0)), ("critical claim", (0, 1, 0)), ("unseen claim", (0, 0, 1))):
            counted = (minor + more[0], critical + more[1], said_of.unverified_claims + more[2])
            yield what, *with_(claims=claims_of(said_of.verified_claims, *counted))
        yield "reported", reading, response.model_copy(update={"confidence": response.confidence / 2})

    reading = case.reading
    before = str(case.before_queue().tier)
    for what, other, response in worse(reading, case.response):
        after = ResponseCase(response, other, case.policy, case.facts).before_queue()
        # what a check found is not known once it broke; and a quote that holds, though noted, is not all rejected
        strict = case.policy.evidence_quote_fail_on_all_rejected
        replaces = what.endswith(" broke") or (strict and what == "polarity")
        if not replaces:
            assert str(after.tier) >= before, what
        assert str(after.tier) >= "tier_2", what


@given(cases())
def test_every_check_is_listed_once_by_the_contracts_names_and_what_decided_is_among_the_failed(case):
    """X-02."""
    # the contract's table: check -> what it says where it passed, and where it failed
    table_ = {
        "sources": ("sources_verified", {"phantom_file", "snippet_mismatch"}),
        "index": ("index_current", {"stale_index"}),
        "fields": ("fields_verified", {"unverified_fields"}),
        "source_tags": ("source_tags_present", {"source_tags_missing", "source_tag_phantom"}),
        "quotes": ("quotes_grounded", {"quotes_rejected", "quote_polarity"}),
        "entities": ("entities_grounded", {"entity_grounding_failed"}),
        "relations": ("relations_preserved", {"relation_preservation_failed"}),
        "values": ("values_supported", {"values_unsupported"}),
        "claims": ("claims_supported", {"flagged_claims", "critical_gap"}),
    }

    def groups(case: ResponseCase, check: str) -> set[str]:
        checks = list_response_checks(case)
        passed, failed = table_[check]
        listed = {"passed": checks.passed, "failed": checks.failed, "skipped": checks.skipped}
        words = {
            "passed": {passed},
            "failed": {*failed, f"{check}_unavailable"},
            "skipped": {f"{check}_skipped"},
        }
        return {
            group
            for group, entries in listed.items()
            if words[group] & {entry.partition(":")[0] for entry in entries}
        }

    for check in table_:
        assert len(groups(case, check)) == 1, check
    checks = list_response_checks(case)
    assert {name.partition(":")[0] for name in checks.passed} <= {
        *(passed for passed, _ in table_.values()),
        "confidence_sufficient",
        "review_place",
    }
    assert {name.partition(":")[0] for name in checks.failed} <= {
        *(name for _, failed in table_.values() for name in failed),
        *(f"{check}_unavailable" for check in table_),
        "low_confidence",
        "review_queue_full",
    }
    for entry in checks.skipped:
        name, _, why = entry.partition(": ")
        assert name.removesuffix("_skipped") in {*table_, "fan_out"}, entry
        assert why in {"not_provided", "disabled", "bypassed"}, entry
    every = checks.passed + checks.failed + checks.skipped
    assert len(set(every)) == len(every)
    broke_ = {"index" if name == "versions" else name for name, _ in case.reading.broken}
    assert {name.removesuffix("_unavailable") for name in checks.failed if "_unavailable" in name} == broke_
    # A person who reads the lists finds the reason there, but for what no check finds
    code = str(case.before_queue().code)
    failed = {name.partition(":")[0] for name in list_response_checks(case).failed}
    told = {
        "phantom_source": {"phantom_file", "source_tag_phantom"},
        "flagged_claims": {"source_tags_missing", "quote_polarity", "values_unsupported", "flagged_claims"},
        "check_unavailable": {f"{check}_unavailable" for check in table_},
    }.get(code, {code})
    silent = code in {"grounded", "nothing_to_ground_on", "internal_error"}
    warned = code == "flagged_claims" and (
        ran(case.reading.versions) or (ran(case.reading.relations) and case.reading.relations.unspecified)
    )
    without_state = code == "check_unavailable" and STATE in case.broken
    assert silent or warned or without_state or told & failed


@given(cases())
def test_another_answer_is_asked_for_in_a_simpler_mode_or_without_critical_gaps_and_twice_at_most(case):
    """S2-24, S2-25."""
    asked, fallback = case.regeneration, case.fallback
    assert not (asked and fallback)
    if case.confidence >= 0.5:
        assert asked is None or asked.why == "critical_gap"
        assert fallback is None
    elif case.mode == "instant" and STATE not in case.broken:
        assert fallback == "raw_sources"
    if asked and asked.why == "low_confidence":
        assert case.attempt is not None
        assert (case.mode, asked.mode) in {("thinking", "auto"), ("auto", "instant")}
        assert 1 <= asked.attempt <= 2
        sent = case.response.mode
        order = ["instant", "auto", "thinking"]
        assert order.index(asked.mode) < order.index(sent)
    # S2-17, S4-31, S4-39: at most twice, and `max_retries` times
    claims = ran(case.reading.claims)
    wanted = claims is not None and claims.critical > 0 and claims.report.should_retry
    attempts = min(2, case.policy.verification.max_retries)
    known = case.attempt is not None and STATE not in case.broken
    asked = case.regeneration
    assert (asked is not None and asked.why == "critical_gap") == (
        wanted and case.confidence >= 0.5 and known and case.attempt < attempts
    )
    if asked and asked.why == "critical_gap":
        assert asked.mode == case.mode
        assert asked.attempt == case.attempt + 1 <= attempts


def test_what_broke_is_read_back_as_it_was_written():
    for broken in ({}, {"fields": "KeyError"}, {INTERNAL: "E2", STATE: "KeyError", "claims": "KeyError"}):
        assert broken_checks(list_broken(broken)) == broken
