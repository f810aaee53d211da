"""Builds results of the checks, readings and cases of responses, and generates them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from groundwire.checks import ReportWarning, WarningType
from groundwire.checks.entities import (
    EntityGrounding,
    MissingEntity,
    MissingReason,
    VersionConflict,
    VersionConflicts,
)
from groundwire.checks.quotes import EvidenceGroundingStats, PolarityNote, QuoteGrounding, RejectedQuote
from groundwire.checks.relations import RelationPreservation, RelationReason, Violation
from groundwire.checks.source_tags import TagReport
from groundwire.checks.sources import FieldCheckResult, IndexReport, SourceReport, SourceVerificationResult
from groundwire.checks.values.answer import UnsupportedValue, ValueReport
from groundwire.epistemic.plan import build_report, is_critical
from groundwire.epistemic.types import ClaimVerification, VerificationConfig
from groundwire.gate.response_case import STATE, ResponseCase
from groundwire.gate.response_checks import (
    INTERNAL,
    Broken,
    ClaimReport,
    ResponseReading,
    Skipped,
    list_broken,
)
from groundwire.messages.decisions import DedupMatch, Facts, MatchClass, Place
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from tests.unit.gate.world import NOW, chunk

CHECKS = tuple(field.name for field in fields(ResponseReading))

WHOLE: dict[str, Any] = {
    "response_id": "r",
    "user_id": "u",
    "confidence": 1.0,
    "answer": "`user.name` is 5 [source:1].",
    "chunks": [chunk("user.name is 5", "a.py", revision="a1")],
    "sources": [{"file": "a.py"}],
    "current_revisions": {"a.py": "a1"},
    "evidence": {"mood": ["I slept well"]},
    "transcript": "I slept well",
    "entities": [{"id": "Ada"}],
    "corpus_index": {"Ada": {"confidence": 0.9}},
    "claims": [{"subject": "a", "relation": "b", "object": "c"}],
    "relations": [{"subject": "a", "relation": "b", "object": "c"}],
}
"""A response with everything that the checks need, each of which holds."""


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
        validated={"d": ["three content words"] * validated},
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


def match(
    subject: str = "m1", match_class: str = "approved", difference: str = "none", inter: int = 23
) -> DedupMatch:
    return DedupMatch(
        subject_id=subject, inter=inter, union=25, difference=difference, match_class=MatchClass(match_class)
    )


def versions_of(documents: list[str]) -> VersionConflicts:
    return VersionConflicts(tuple(VersionConflict(name, ("1", "2")) for name in documents))


def results(bad: int) -> dict[str, st.SearchStrategy[Any]]:
    """Results of every check; those of `results(0)` find nothing wrong."""
    counts, few, many = st.integers(0, 5), st.integers(0, bad), st.integers(0, 5 * bad)
    names = st.sampled_from(["a", "b.py", "src/c.py", "\u202ed", "e f"])
    a_source = st.integers(1, 3).flatmap(
        lambda n: st.tuples(names, st.just(n), st.integers(0 if bad else n, n))
    )
    wrong_names = st.lists(names, max_size=4, unique=True) if bad else st.just([])
    tags = st.lists(st.integers(-1, 4) if bad else st.just(1), max_size=4)
    return {
        "sources": st.lists(a_source, max_size=4).map(sources_of),
        "index": st.builds(index_of, wrong_names, st.lists(names, min_size=1, max_size=3, unique=True)),
        "versions": st.builds(versions_of, wrong_names),
        "fields": st.builds(fields_of, counts, many),
        "source_tags": st.builds(tags_of, tags, counts if bad else st.just(1), st.integers(0, 2 * bad)),
        "quotes": st.builds(quotes_of, counts, many, few),
        "entities": st.builds(entities_of, few, counts),
        "relations": st.builds(relations_of, few, few, counts),
        "values": st.builds(values_of, st.integers(0, 2 * bad), counts, many),
        "claims": st.builds(claims_of, counts, few, st.integers(0, 2 * bad), few, retry=st.booleans()),
    }


@st.composite
def readings(draw: st.DrawFn) -> ResponseReading:
    """Most results are clean, else the first rules of the list would hide all others."""
    broken = draw(st.one_of(*[st.just(())] * 4, st.lists(st.sampled_from(CHECKS), max_size=2)))
    not_run = st.sampled_from([Skipped("not_provided"), Skipped("disabled"), Skipped("bypassed")])
    clean, any_, found = results(0), results(1), dict[str, Any]()
    for name in CHECKS:
        found[name] = draw(draw(st.sampled_from([clean[name]] * 5 + [not_run] * 5 + [any_[name]] * 2)))
        if name in broken:
            found[name] = Broken(draw(st.sampled_from(["KeyError", "StateUnavailable"])))
    return ResponseReading(**found)


reported = st.one_of(
    st.floats(0, 1),
    st.integers(0, 10_000).map(lambda n: n / 10_000),
    st.sampled_from([0.0, -0.0, 0.29994, 0.29996, 0.3, 0.49996, 0.69994, 0.69996, 0.7, 1.0]),
)


@st.composite
def cases(draw: st.DrawFn) -> ResponseCase:
    reading = draw(readings())
    errors = {name: broken.error for name, broken in reading.broken}
    errors |= draw(st.sampled_from([{}, {}, {}, {INTERNAL: "RuntimeError"}, {STATE: "StateUnavailable"}]))
    given_ = st.fixed_dictionaries({
        "confidence": st.just(1.0) | reported,
        "verify": st.booleans(),
        "fan_out": st.booleans(),
        "mode": st.sampled_from(["instant", "auto", "thinking"]),
        "query": st.sampled_from([None, "How?"]),
    })  # fmt: skip
    response = LlmResponse(response_id="r", user_id="u", answer="Yes.", **draw(given_))
    policy = Policy(
        evidence_quote_fail_on_all_rejected=draw(st.booleans()),
        on_critical=draw(st.sampled_from(["review", "block"])),
        verification=VerificationConfig(max_retries=draw(st.integers(0, 4))),
    )
    replied = draw(st.sampled_from([None, ("auto", 0), ("instant", 1), (None, 2), (None, None)]))
    facts = Facts(
        clock=NOW,
        place=draw(st.sampled_from(list(Place))),
        extraction=draw(st.sampled_from([None, []])),
        reply_to=replied and {"response_id": "p", "mode": replied[0], "attempt": replied[1]},
        error=list_broken(errors),
    )
    return ResponseCase(response, reading, policy, facts)


def clean_reading(**found: Any) -> ResponseReading:
    skipped = dict.fromkeys(CHECKS, Skipped("not_provided"))
    return ResponseReading(**{**skipped, "fields": fields_of(1, 0), **found})


def clean_case(*, reading: ResponseReading | None = None, confidence: float = 1.0) -> ResponseCase:
    response = LlmResponse(response_id="r", user_id="u", answer="Yes.", confidence=confidence)
    return ResponseCase(response, reading or clean_reading(), Policy(), Facts(clock=NOW))
