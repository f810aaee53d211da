"""The verdict rule of responses over generated readings, against the contract's list said once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.entities import EntityGrounding, MissingEntity, MissingReason
from groundwire.checks.fields import FieldCheckResult
from groundwire.checks.quote_results import PolarityNote
from groundwire.checks.quotes import EvidenceGroundingStats, QuoteGrounding, RejectedQuote
from groundwire.checks.relations import RelationPreservation, RelationReason, Violation
from groundwire.checks.source_tags import TagReport
from groundwire.checks.sources import SourceReport, SourceVerificationResult
from groundwire.checks.stale_index import IndexReport
from groundwire.checks.values import UnsupportedValue, ValueReport
from groundwire.checks.versions import VersionConflict, VersionConflicts
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.decide.response_checks import list_response_checks
from groundwire.decide.response_claims import ClaimReport
from groundwire.decide.response_reading import Broken, ResponseReading, Skipped
from groundwire.decide.responses import INTERNAL, STATE, ResponseCase, broken_checks, list_broken
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.report import build_report, is_critical
from groundwire.epistemic.types import ClaimVerification
from groundwire.messages.decisions import Facts, Place
from groundwire.messages.responses import LlmResponse
from groundwire.policy import Policy
from tests.unit.gate.world import NOW

CHECKS = tuple(field.name for field in fields(ResponseReading))

# --- results of the checks, as these give them

names = st.sampled_from(["a", "b.py", "src/c.py", "\u202ed", "e f"])
some_names = st.lists(names, max_size=4, unique=True)
counts = st.integers(0, 5)


def a_warning(kind: WarningType) -> ReportWarning:
    return ReportWarning(kind, "Something does not hold", {"n": 1})


def sources_of(parts: list[tuple[str, int, int]]) -> SourceReport:
    """Sources as (file, parts given, parts that hold); the file is the first part."""
    results = tuple(
        (file, SourceVerificationResult(held > 0, held > 1, held > 2, held / given_))
        for file, given_, held in parts
    )
    confidence = sum(result.confidence for _, result in results) / len(results) if results else 1.0
    failed = [(file, held) for file, given_, held in parts if held < given_]
    return SourceReport(
        results=results,
        confidence=confidence,
        warnings=tuple(
            a_warning(WarningType.SNIPPET_MISMATCH if held else WarningType.PHANTOM_FILE)
            for _, held in failed
        ),
        phantom_files=tuple(dict.fromkeys(file for file, held in failed if not held)),
        mismatched_files=tuple(dict.fromkeys(file for file, held in failed if held)),
    )


a_source = st.integers(1, 3).flatmap(lambda n: st.tuples(names, st.just(n), st.integers(0, n)))
a_source_report = st.lists(a_source, max_size=4).map(sources_of)


def index_of(stale: list[str], current: list[str]) -> IndexReport:
    warnings = tuple(a_warning(WarningType.STALE_INDEX) for _ in stale)
    return IndexReport(tuple(stale), tuple(dict.fromkeys([*stale, *current])), warnings)


def fields_of(verified: int, unverified: int) -> FieldCheckResult:
    total = verified + unverified
    return FieldCheckResult(
        [f"v{n}" for n in range(verified)],
        [f"u{n}" for n in range(unverified)],
        verified / total if total else 1.0,
    )


def tags_of(tags: list[int], chunks: int, missing: int) -> TagReport:
    phantom = tuple(dict.fromkeys(tag for tag in tags if not 0 < tag <= chunks))
    places = tuple((n, n + 1) for n in range(missing))
    warnings = [a_warning(WarningType.PHANTOM_FILE)] if phantom else []
    warnings += [a_warning(WarningType.SOURCE_TAG_MISSING)] if missing else []
    return TagReport(
        tags=tuple(tags),
        phantom=phantom,
        missing=places,
        claims=missing + 1,
        coverage=1.0,
        present=True,
        warnings=tuple(warnings),
    )


def quotes_of(validated: int, rejected: int, polarity: int) -> QuoteGrounding:
    return QuoteGrounding(
        validated={"d": ["q"] * validated},
        stats=EvidenceGroundingStats(validated + rejected, validated, rejected, {"d": rejected}),
        rejected=(RejectedQuote("d", "0" * 12, 1, None, "not_found"),) * rejected,
        polarity=tuple(PolarityNote("d", n) for n in range(min(polarity, validated))),
        mode="substring",
        transcript_hash="0" * 12,
        transcript_len=9,
    )


def entities_of(missing: int, grounded: int) -> EntityGrounding:
    lost = tuple(MissingEntity(f"m{n}", MissingReason.NOT_FOUND, n) for n in range(missing))
    return EntityGrounding(lost, tuple(f"g{n}" for n in range(grounded)))


def relations_of(violations: int, unspecified: int, holding: int) -> RelationPreservation:
    found = tuple(Violation(n, RelationReason.MISSING_SOURCE) for n in range(violations))
    return RelationPreservation(found, tuple(range(unspecified)), violations + unspecified + holding)


def values_of(unsupported: int, holding: int, left_out: int) -> ValueReport:
    left_out = left_out if unsupported else 0
    listed = tuple(UnsupportedValue("5", "number", n, n + 1, "not_in_sources") for n in range(unsupported))
    warnings = [a_warning(WarningType.UNSUPPORTED_VALUE) for _ in listed]
    found = unsupported + holding + left_out
    return ValueReport(found=found, unsupported=listed, warnings=warnings, left_out=left_out)


def claim_of(number: int, reason: str | None, bits: float) -> ClaimVerification:
    return ClaimVerification(
        claim_id=f"r/claim#{number}",
        claim_text=f"It has {number} parts.",
        evidence_ids=["k"],
        evidence_support=0.4 if reason else 0.9,
        evidence_dependence=0.5,
        consistency_score=1.0,
        confidence_justified=not reason,
        evidence_gap_bits=bits,
        is_flagged=reason is not None,
        flag_reason=reason,
    )


def claims_of(
    held: int, minor: int, critical: int, unverified: int = 0, *, retry: bool = False
) -> ClaimReport:
    """Claims that hold, that want a little, that want much, and that nobody looked at."""
    config = VerificationConfig(on_failure="retry" if retry else "flag")
    kinds = [(None, -0.2)] * held + [("partial_support", 1.9)] * minor + [("contradicted", 4.9)] * critical
    claims = [claim_of(number, *kind) for number, kind in enumerate(kinds, start=1)]
    report = build_report("r", claims, config, unverified=unverified)
    return ClaimReport(report, sum(is_critical(gap, config) for gap in report.gaps))


def versions_of(documents: list[str]) -> VersionConflicts:
    return VersionConflicts(tuple(VersionConflict(name, ("1", "2")) for name in documents))


RESULTS = {
    "sources": a_source_report,
    "index": st.builds(index_of, some_names, st.lists(names, min_size=1, max_size=3, unique=True)),
    "versions": st.builds(versions_of, st.one_of(st.just([]), some_names)),
    "fields": st.builds(fields_of, counts, counts),
    "source_tags": st.builds(tags_of, st.lists(st.integers(-1, 4), max_size=4), counts, st.integers(0, 2)),
    "quotes": st.builds(quotes_of, counts, counts, st.integers(0, 1)),
    "entities": st.builds(entities_of, st.integers(0, 1), counts),
    "relations": st.builds(relations_of, st.integers(0, 1), st.integers(0, 1), counts),
    "values": st.builds(values_of, st.integers(0, 2), counts, counts),
    "claims": st.builds(
        claims_of, counts, st.integers(0, 1), st.integers(0, 2), st.integers(0, 1), retry=st.booleans()
    ),
}
not_run = st.sampled_from([Skipped("not_provided"), Skipped("disabled"), Skipped("bypassed")])
broke = st.builds(Broken, st.sampled_from(["KeyError", "StateUnavailable"]))
# Most results are clean, else the first rules of the list would hide all others.
CLEAN = {
    "sources": st.lists(st.tuples(names, st.just(3), st.just(3)), max_size=2).map(sources_of),
    "index": st.builds(index_of, st.just([]), st.lists(names, min_size=1, max_size=3, unique=True)),
    "versions": st.just(versions_of([])),
    "fields": st.builds(fields_of, counts, st.just(0)),
    "source_tags": st.builds(tags_of, st.lists(st.just(1), max_size=2), st.just(1), st.just(0)),
    "quotes": st.builds(quotes_of, counts, st.just(0), st.just(0)),
    "entities": st.builds(entities_of, st.just(0), counts),
    "relations": st.builds(relations_of, st.just(0), st.just(0), counts),
    "values": st.builds(values_of, st.just(0), counts, st.just(0)),
    "claims": st.builds(claims_of, counts, st.just(0), st.just(0)),
}
_SHARES = ["clean"] * 5 + ["not run"] * 5 + ["any"] * 2


@st.composite
def readings(draw: st.DrawFn) -> ResponseReading:
    broken = draw(st.one_of(*[st.just(())] * 4, st.lists(st.sampled_from(CHECKS), max_size=2)))
    found: dict[str, Any] = {}
    for name in CHECKS:
        kind = draw(st.sampled_from(_SHARES))
        found[name] = draw({"clean": CLEAN[name], "not run": not_run, "any": RESULTS[name]}[kind])
        if name in broken:
            found[name] = draw(broke)
    return ResponseReading(**found)


reported = st.one_of(
    st.floats(0, 1),
    st.integers(0, 10_000).map(lambda n: n / 10_000),
    st.sampled_from([0.0, -0.0, 0.29994, 0.29996, 0.3, 0.49996, 0.69994, 0.69996, 0.7, 1.0]),
)


@st.composite
def cases(draw: st.DrawFn, **given_: Any) -> ResponseCase:
    reading = given_["reading"] if "reading" in given_ else draw(readings())
    errors = {name: broken.error for name, broken in reading.broken}
    errors |= draw(st.sampled_from([{}, {}, {}, {INTERNAL: "RuntimeError"}, {STATE: "StateUnavailable"}]))
    response = LlmResponse(
        response_id="r",
        user_id="u",
        answer="Yes.",
        confidence=draw(st.one_of(st.just(1.0), reported)),
        verify=draw(st.booleans()),
        fan_out=draw(st.booleans()),
        mode=draw(st.sampled_from(["instant", "auto", "thinking"])),
        query=draw(st.sampled_from([None, "How?"])),
    )
    policy = Policy(
        evidence_quote_fail_on_all_rejected=draw(st.booleans()),
        on_critical=draw(st.sampled_from(["review", "block"])),
        verification=VerificationConfig(max_retries=draw(st.integers(0, 4))),
    )
    facts = Facts(
        clock=NOW,
        place=draw(st.sampled_from(list(Place))),
        extraction=draw(st.sampled_from([None, []])),
        reply_to=draw(
            st.sampled_from(
                [
                    None,
                    {"response_id": "p", "mode": "auto", "attempt": 0},
                    {"response_id": "p", "mode": "instant", "attempt": 1},
                    {"response_id": "p", "mode": None, "attempt": 2},
                    {"response_id": "p", "mode": None, "attempt": None},
                ]
            )
        ),
        error=list_broken(errors),
    )
    return ResponseCase(response, reading, policy, facts)


# --- the contract's list, said once more


def ran(section: Any) -> Any:
    return None if isinstance(section, Skipped | Broken) else section


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


def contract(case: ResponseCase, confidence: float) -> tuple[str, str]:  # noqa: C901, PLR0911, PLR0912 - a list of rules
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
    claims = r["claims"].found if r["claims"] else None
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
        or (r["values"] and r["values"].unsupported)
        or (r["versions"] and r["versions"].conflicts)
        or (claims and claims.verified_claims < claims.total_claims)
    ):
        return "tier_2", "flagged_claims"
    if confidence < 0.7:
        return "tier_2", "low_confidence"
    if not compared(case.reading):
        return "tier_2", "nothing_to_ground_on"
    return "tier_1", "grounded"


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
        "claims": len(r["claims"].found.claims) if r["claims"] else 0,
    }
    return [name for name, count in counted.items() if count]


@given(cases())
def test_tier_and_reason_are_the_first_of_the_contracts_list_that_applies(case):
    standing = case.standing()
    assert (str(standing.tier), str(standing.code)) == contract(case, case.confidence)


@given(cases())
def test_confidence_is_the_exact_one_to_four_decimals(case):
    exact = plain_confidence(case)
    assert 0 <= case.confidence <= 1
    assert abs(Fraction(Decimal(str(case.confidence))) - exact) <= Fraction(1, 20_000) + Fraction(1, 10**9)
    if not is_a_tie(exact):
        assert Fraction(Decimal(str(case.confidence))) == round(exact, 4)


@pytest.mark.parametrize(
    ("sent", "confidence", "code"),
    [
        (0.29994, 0.2999, "tier_3"),
        (0.29996, 0.3, "tier_2"),
        (0.69994, 0.6999, "tier_2"),
        (0.69996, 0.7, "tier_1"),
        (1, 1.0, "tier_1"),
    ],
)
def test_a_score_is_rounded_before_it_is_compared(sent, confidence, code):
    case = clean_case(confidence=sent)
    assert (case.confidence, str(case.standing().tier)) == (confidence, code)


def test_a_confidence_of_minus_zero_is_shown_as_zero():
    case = clean_case(confidence=-0.0)
    assert str(case.confidence) == "0.0"
    assert "low_confidence: 0" in list_response_checks(case).failed


def clean_reading(**found: Any) -> ResponseReading:
    skipped = dict.fromkeys(CHECKS, Skipped("not_provided"))
    return ResponseReading(**{**skipped, "fields": fields_of(1, 0), **found})


def clean_case(*, reading: ResponseReading | None = None, confidence: float = 1.0) -> ResponseCase:
    response = LlmResponse(response_id="r", user_id="u", answer="Yes.", confidence=confidence)
    return ResponseCase(response, reading or clean_reading(), Policy(), Facts(clock=NOW))


@given(cases())
def test_what_is_approved_is_grounded_by_a_check_that_compared_something(case):
    """S2-43: and nothing but `grounded` approves a response."""
    standing = case.standing()
    approved = str(standing.tier) == "tier_1"
    assert approved == (standing.code == "grounded")
    if approved:
        assert compared(case.reading)
        assert not case.warnings
        claims = ran(case.reading.claims)
        assert not claims or not (claims.found.flagged_claims or claims.found.unverified_claims)
        assert not list(case.reading.broken)
        assert case.confidence >= 0.7


@given(st.sampled_from(sorted(CLEAN)).flatmap(lambda name: CLEAN[name].map(lambda found: (name, found))))
def test_one_check_alone_approves_only_where_it_compared_something(check):
    name, found = check
    reading = replace(clean_reading(fields=Skipped("not_provided")), **{name: found})
    tier = str(clean_case(reading=reading).standing().tier)
    assert tier == ("tier_1" if compared(reading) else "tier_2")
    if name in {"index", "versions"}:
        assert tier == "tier_2"


@given(a_source_report, RESULTS["fields"], reported)
def test_what_does_not_hold_of_sources_and_of_fields_is_taken_off_both(sources, named, sent):
    """S2-15, C-44."""
    case = clean_case(reading=clean_reading(sources=sources, fields=named), confidence=sent)
    exact = plain_confidence(case)
    if not is_a_tie(exact):
        assert Fraction(Decimal(str(case.confidence))) == round(exact, 4)


# Every failure alone, in the order of the contract: what is found, the reason, and the check that says it.
FAILURES: list[tuple[dict[str, Any], str, str]] = [
    ({"entities": entities_of(1, 1)}, "entity_grounding_failed", "entity_grounding_failed: 1"),
    ({"relations": relations_of(1, 0, 1)}, "relation_preservation_failed", "relation_preservation_failed: 1"),
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


@pytest.mark.parametrize(("found", "code", "check"), FAILURES)
def test_a_failure_alone_is_the_reason_and_stands_among_the_failed_checks(found, code, check):
    case = clean_case(reading=clean_reading(**found))
    assert case.standing().code == code
    failed = [name for name in list_response_checks(case).failed if not name.startswith("low_confidence")]
    assert check.startswith("low_confidence") or failed == ([check] if check else [])
    assert not check or check in list_response_checks(case).failed


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FAILURES[m], FAILURES[n])
        for m in range(len(FAILURES))
        for n in range(m + 1, len(FAILURES))
        if not FAILURES[m][0].keys() & FAILURES[n][0].keys()
    ],
)
def test_of_two_failures_the_earlier_in_the_contract_is_the_reason(first, second):
    case = clean_case(reading=clean_reading(**first[0], **second[0]))
    blocked_by_score = case.confidence < 0.3
    expected = "low_confidence" if blocked_by_score and not first[1].endswith("_failed") else first[1]
    assert case.standing().code == expected


# --- more that fails never helps


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
    said_of = r["claims"].found if r["claims"] else claims_of(0, 0, 0).found
    critical = r["claims"].critical if r["claims"] else 0
    minor = len(said_of.gaps) - critical
    for what, more in (("claim", (1, 0, 0)), ("critical claim", (0, 1, 0)), ("unseen claim", (0, 0, 1))):
        counted = (minor + more[0], critical + more[1], said_of.unverified_claims + more[2])
        yield what, *with_(claims=claims_of(said_of.verified_claims, *counted))
    yield "reported", reading, response.model_copy(update={"confidence": response.confidence / 2})


@given(cases())
def test_one_more_failure_never_raises_the_tier(case):
    reading = case.reading
    before = str(case.standing().tier)
    for what, other, response in worse(reading, case.response):
        after = ResponseCase(response, other, case.policy, case.facts).standing()
        # what a check found is not known once it broke; and a quote that holds, though noted, is not all rejected
        strict = case.policy.evidence_quote_fail_on_all_rejected
        replaces = what.endswith(" broke") or (strict and what == "polarity")
        if not replaces:
            assert str(after.tier) >= before, what
        assert str(after.tier) >= "tier_2", what


@given(cases())
def test_a_place_in_the_queue_never_raises_the_tier(case):
    standing, outcome = case.standing(), case.outcome()
    if str(standing.tier) == "tier_2" and str(case.facts.place).endswith("_full"):
        assert (str(outcome.tier), str(outcome.code)) == ("tier_3", "review_queue_full")
    else:
        assert outcome == standing


# --- the lists of checks

TABLE = {
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
"""The contract's table: check -> what it says where it passed, and where it failed."""


def groups(case: ResponseCase, check: str) -> set[str]:
    checks = list_response_checks(case)
    passed, failed = TABLE[check]
    listed = {"passed": checks.passed, "failed": checks.failed, "skipped": checks.skipped}
    words = {"passed": {passed}, "failed": {*failed, f"{check}_unavailable"}, "skipped": {f"{check}_skipped"}}
    return {
        group
        for group, entries in listed.items()
        if words[group] & {entry.partition(":")[0] for entry in entries}
    }


@given(cases())
def test_every_check_is_in_one_group_and_every_name_is_the_contracts(case):
    for check in TABLE:
        assert len(groups(case, check)) == 1, check
    checks = list_response_checks(case)
    assert {name.partition(":")[0] for name in checks.passed} <= {
        *(passed for passed, _ in TABLE.values()),
        "confidence_sufficient",
        "review_place",
    }
    assert {name.partition(":")[0] for name in checks.failed} <= {
        *(name for _, failed in TABLE.values() for name in failed),
        *(f"{check}_unavailable" for check in TABLE),
        "low_confidence",
        "review_queue_full",
    }
    for entry in checks.skipped:
        name, _, why = entry.partition(": ")
        assert name.removesuffix("_skipped") in {*TABLE, "fan_out"}, entry
        assert why in {"not_provided", "disabled", "bypassed"}, entry
    every = checks.passed + checks.failed + checks.skipped
    assert len(set(every)) == len(every)


@given(cases())
def test_a_check_that_broke_is_unavailable_and_nothing_else(case):
    checks = list_response_checks(case)
    broke_ = {"index" if name == "versions" else name for name, _ in case.reading.broken}
    assert {name.removesuffix("_unavailable") for name in checks.failed if "_unavailable" in name} == broke_


@given(cases())
def test_what_blocks_or_needs_review_stands_among_the_failed_checks(case):
    """A person who reads the lists finds the reason there, but for what no check finds."""
    code = str(case.standing().code)
    failed = {name.partition(":")[0] for name in list_response_checks(case).failed}
    told = {
        "phantom_source": {"phantom_file", "source_tag_phantom"},
        "flagged_claims": {
            "source_tags_missing",
            "quote_polarity",
            "values_unsupported",
            "flagged_claims",
        },
        "check_unavailable": {f"{check}_unavailable" for check in TABLE},
    }.get(code, {code})
    silent = code in {"grounded", "nothing_to_ground_on", "internal_error"}
    warned = code == "flagged_claims" and (
        ran(case.reading.versions) or (ran(case.reading.relations) and case.reading.relations.unspecified)
    )
    without_state = code == "check_unavailable" and STATE in case.broken
    assert silent or warned or without_state or told & failed


# --- what is asked of the generator


@given(cases())
def test_at_most_one_simpler_mode_is_asked_for_and_never_after_the_second_attempt(case):
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


@given(cases())
def test_another_answer_in_the_same_mode_is_asked_for_where_a_gap_is_critical_and_the_policy_retries(case):
    """S4-31, S4-39: at most twice, and `max_retries` times."""
    claims = ran(case.reading.claims)
    wanted = claims is not None and claims.critical > 0 and claims.found.should_retry
    attempts = min(2, case.policy.verification.max_retries)
    known = case.attempt is not None and STATE not in case.broken
    asked = case.regeneration
    assert (asked is not None and asked.why == "critical_gap") == (
        wanted and case.confidence >= 0.5 and known and case.attempt < attempts
    )
    if asked and asked.why == "critical_gap":
        assert asked.mode == case.mode
        assert asked.attempt == case.attempt + 1 <= attempts


def test_a_critical_gap_blocks_only_where_the_policy_says_so_and_before_low_confidence():
    reading = clean_reading(claims=claims_of(1, 0, 1), quotes=quotes_of(0, 1, 0))
    response = LlmResponse(response_id="r", user_id="u", answer="Yes.", confidence=0.2)
    blocking, strict = (
        Policy(on_critical="block"),
        Policy(on_critical="block", evidence_quote_fail_on_all_rejected=True),
    )
    codes = [
        ResponseCase(response, reading, policy, Facts(clock=NOW)).standing().code
        for policy in (Policy(), blocking, strict)
    ]
    assert codes == ["low_confidence", "critical_gap", "quotes_rejected"]
    minor = clean_reading(claims=claims_of(1, 1, 0))
    case = ResponseCase(response.model_copy(update={"confidence": 1.0}), minor, blocking, Facts(clock=NOW))
    assert case.standing().code == "flagged_claims"


@given(st.dictionaries(st.sampled_from([*CHECKS, INTERNAL, STATE]), st.sampled_from(["KeyError", "E2"])))
def test_what_broke_is_read_back_as_it_was_written(broken):
    assert broken_checks(list_broken(broken)) == broken
