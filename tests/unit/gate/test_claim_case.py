"""A claim's decision: tree, expiry, caps in their order, queue, checks by name, and the reason of a recorded tier."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.hedges import HedgeAction
from groundwire.gate import claim_case
from groundwire.gate.build import Limits
from groundwire.gate.claim_case import CheckFinding, ClaimCase, list_checks, read_claim
from groundwire.gate.claims import as_finding
from groundwire.gate.tree import cap, determine_tier, explain, is_code, reviewed
from groundwire.messages.decisions import (
    CitationState,
    DedupFacts,
    Facts,
    IngestionTier,
    ParentFact,
    Place,
    ReasonCode,
    Tier,
)
from groundwire.messages.records import Claim
from groundwire.policy import TRUSTED_SOURCES, Policy
from groundwire.verify.results import CitationCheck
from tests.unit.gate.builders import match
from tests.unit.gate.world import NOW

CITED = "Per ADR-003, we use PostgreSQL"
VERIFIED = {"adr:003": "verified"}
TRUSTED = {"source": "documentation"}
SPECULATION = ("tier_3", "personal_speculation")
HEDGE = ("tier_2", "technical_hedge")


def case(content="The API returns JSON", *, policy=None, states=None, **options):
    """Make a case; what is not given is as if everything was checked and nothing was found."""
    policy = policy or Policy()
    claim = Claim(claim_id="c1", user_id="ada", content=content, **options.pop("fields", {}))
    dedup = DedupFacts(status=options.pop("dedup", "ok"), scheme="s", matches=options.pop("matches", []))
    parents = options.pop("parents", [])
    known = None if parents is None else [ParentFact(id=name, state=state) for name, state in parents]
    facts = Facts(clock=NOW, dedup=dedup, parents=known, **options)
    findings = {label: CheckFinding(CitationState(state), "", NOW) for label, state in (states or {}).items()}
    return ClaimCase(claim, read_claim(content, policy), policy, facts, findings)


def outcome_of(subject):
    outcome = subject.outcome()
    return str(outcome.tier), str(outcome.code)


def relevance(*entries):
    return [{"start": start, "score": 0.5, "relevant": relevant} for start, relevant in entries]


def test_of_the_caps_that_apply_the_first_is_the_reason():
    """Every combination of the six caps, in the contract's order; without any, the claim is approved (S0-156)."""
    approved_citation = ("tier_1", "verified_citation")
    for held in [True, False]:
        caps = {
            "conflicting_near_duplicate": {"matches": [match(difference="number")]},
            "previously_rejected": {"matches": [match(match_class="rejected")]},
            "derived_from_unapproved": {"parents": [("p", "pending")], "fields": {"derived_from": ["p"]}},
            "citation_irrelevant": {"relevance": relevance((4, False))},
            "citation_unverified": {"content": f"{CITED} and ADR-999"},
        }
        policy = Policy(
            verify_claim_relevance=True,
            auto_approve_ai_synthesis=not held,
            failed_citation_overrides_trust=True,
        )
        wrong = []
        for size in range(len(caps) + 1):
            for chosen in itertools.combinations(caps, size):
                given_ = {"content": CITED, "relevance": relevance((4, True)), "matches": []}
                for name in chosen:
                    more = dict(caps[name])
                    given_["matches"] = given_["matches"] + more.pop("matches", [])
                    given_ |= more
                found = case(policy=policy, states=VERIFIED, **given_)
                first = chosen[0] if chosen else None
                if held and (first is None or first == "citation_unverified"):
                    first = "ai_synthesis_held"
                expected = ("tier_2", first) if first else approved_citation
                if outcome_of(found) != expected or found.base.tier != "tier_1":
                    wrong.append((chosen, outcome_of(found)))
        assert wrong == []
    # S0-121: a tier 2 keeps its own
    for parts in (
        {"matches": [match(difference="number")]},
        {"matches": [match(match_class="rejected")]},
        {"parents": [("p", "pending")], "fields": {"derived_from": ["p"]}},
    ):
        found = [outcome_of(case(text, **parts)) for text in ("It is so", "It may fail", "I think it fails")]
        assert found == [("tier_2", "ungrounded"), HEDGE, SPECULATION]


def test_the_matches_of_a_claim_are_told_apart_once_and_anew_once_state_has_answered():
    matches = [match(difference="number"), match(match_class="rejected")]
    with patch.object(claim_case, "kind_of", wraps=claim_case.kind_of) as told:
        found = case(matches=matches, fields=TRUSTED)
        judged = found.judged()
        assert judged.code == "conflicting_near_duplicate"
        list_checks(found)
        found.fields(judged, Limits(100, 500))
    assert told.call_count == 2
    assert not found.with_facts(case(matches=[]).facts).matches


def test_relevance_is_asked_of_every_verified_citation():
    """S0-155: a claim that cites one source beside the point goes to review, and the check says which."""
    policy = Policy(verify_claim_relevance=True)
    half = case(
        "Per ADR-003 and ADR-004, we use it",
        policy=policy,
        states=VERIFIED | {"adr:004": "verified"},
        relevance=relevance((4, True), (16, False)),
    )
    assert outcome_of(half) == ("tier_2", "citation_irrelevant")
    assert [c for c in list_checks(half).failed if "irrelevant" in c] == ["citation_irrelevant: adr:004"]
    assert outcome_of(case(CITED, policy=policy, states=VERIFIED, relevance=None))[1] == "citation_irrelevant"
    twice = case(f"{CITED}, as ADR-003 says", states=VERIFIED, relevance=relevance((4, True)))
    assert (len(twice.verified), twice.irrelevant) == (2, []), (
        "a citation's relevance is that of its first place"
    )


def test_no_cap_meant_for_others_lowers_a_trusted_source_or_a_conversation():
    """C-04."""
    for source, memory_type, code in (
        ("documentation", "fact", "trusted_source"),
        ("conversation", "decision", "stated_decision"),
        ("chat", "preference", "stated_preference"),
    ):
        fields = {"source": source, "memory_type": memory_type}
        assert outcome_of(case(policy=Policy(auto_approve_ai_synthesis=False), fields=fields)) == (
            "tier_1",
            code,
        )
    for overrides in (False, True):
        found = case(CITED, policy=Policy(failed_citation_overrides_trust=overrides), fields=TRUSTED)
        assert (outcome_of(found)[0] == "tier_1") is not overrides


def test_two_options_soften_a_hedge():
    """C-02: only with a verified citation. C-26: only of a trusted source."""
    grounded, trusting = (Policy(grounded_speculation="review"), Policy(trusted_technical_hedges="approve"))
    guess, timing = "I think, per ADR-003, we use PostgreSQL", "It typically takes 5 ms"
    table = [
        (guess, Policy(), VERIFIED, {}, SPECULATION),
        (guess, grounded, VERIFIED, {}, HEDGE),
        (guess, grounded, {"adr:003": "unknown"}, {}, SPECULATION),
        (timing, Policy(), {}, TRUSTED, HEDGE),
        (timing, trusting, {}, TRUSTED, ("tier_1", "trusted_source")),
        (timing, trusting, {}, {}, HEDGE),
        ("Maybe", trusting, {}, TRUSTED, SPECULATION),
    ]
    found = [(one, outcome_of(case(one[0], policy=one[1], states=one[2], fields=one[3]))) for one in table]
    assert [(one, code) for one, code in found if code != one[-1]] == []
    both = Policy(grounded_speculation="review", trusted_technical_hedges="approve")
    excused = case(f"It may fail. {CITED}", policy=both, fields=TRUSTED, states=VERIFIED)
    assert (excused.reading.action, excused.hedge) == (HedgeAction.REVIEW, HedgeAction.CONTINUE)


def test_a_full_queue_refuses_visibly():
    """S0-141."""
    for place in Place:
        found = case(place=place)
        checks = list_checks(found)
        full = place.endswith("_full")
        assert outcome_of(found) == (("tier_3", "review_queue_full") if full else ("tier_2", "ungrounded"))
        assert (f"review_queue_full: {place.removesuffix('_full')}" in checks.failed) is full
        assert ("review_place" in checks.passed) is (place == Place.FREE)


def test_a_pending_duplicate_follows_the_other_claim():
    """C-09: joined only when in review itself, without a place and without a material difference."""
    pending = match(match_class="pending")
    different = match(match_class="pending", difference="number")
    assert outcome_of(case(matches=[pending])) == ("tier_2", "pending_duplicate")
    assert outcome_of(case(matches=[pending], place=Place.FREE)) == ("tier_2", "ungrounded")
    assert outcome_of(case(matches=[pending], fields={"source": "user"})) == ("tier_1", "trusted_source")
    assert outcome_of(case(matches=[different], place=Place.FREE)) == ("tier_2", "ungrounded")
    for inter, joined, expected in (
        (23, True, "not_duplicate: m1: in other words"),
        (25, True, "not_duplicate"),
        (23, False, "not_duplicate"),
    ):
        found = case(matches=[match(match_class="pending", inter=inter)])
        assert expected in list_checks(found, joined=joined).passed


def test_expiry_people_and_the_policy_decide_around_the_tree_and_branch_nine_says_what_is_missing():
    assert outcome_of(case(review={"action": "approve"}))[1] == "human_approved"
    assert outcome_of(case(fields=TRUSTED, review={"action": "reject"}))[1] == "human_rejected"
    # The sentence is the same for all of them
    hmac = Policy(attestation="hmac")
    for code, found in {
        "ungrounded": case(),
        "citation_unverified": case(CITED),
        "source_unattested": case(CITED, policy=hmac, fields={"source": "user"}),
    }.items():
        assert outcome_of(found) == ("tier_2", code)
        assert found.outcome().reason == "Ungrounded assertion needs verification"
    # S0-145; expiry outranks everything else
    late = {"validity_horizon": NOW, "source": "user"}
    for options in ({}, {"matches": [match()]}, {"content": "Maybe"}):
        assert outcome_of(case(fields=late, **options)) == ("tier_3", "expired")
    soon = {"validity_horizon": NOW + timedelta(microseconds=1), "source": "user"}
    assert outcome_of(case(fields=soon)) == ("tier_1", "trusted_source")
    # C-08: the switch `dedup_material_difference`
    policy = Policy(dedup_material_difference=False)
    found = case(fields=TRUSTED, policy=policy, matches=[match(difference="negation")])
    assert outcome_of(found) == ("tier_3", "duplicate")


def test_every_check_appears_once_as_the_contract_names_it():
    relevant = {"policy": Policy(verify_claim_relevance=True), "relevance": relevance((4, True))}
    parent = {"derived_from": ["p"]}
    table = [
        ({}, "passed", "no_speculation"),  # S0-149
        ({"content": "Maybe it may"}, "failed", "hedge_words_detected: Maybe, may"),  # S0-150
        ({"content": CITED}, "passed", "citation_present"),
        ({}, "failed", "citation_missing"),
        ({}, "skipped", "citation_verification_skipped"),
        ({"content": CITED, "states": VERIFIED}, "passed", "citation_verified: adr:003"),
        ({"content": CITED}, "failed", "citation_unverified: adr:003"),
        ({"content": CITED, "states": {"adr:003": "unknown"}}, "failed", "citation_unverified: adr:003"),
        ({"content": CITED, "states": {"adr:003": "not_found"}}, "failed", "citation_unverified: adr:003"),
        ({}, "skipped", "relevance_skipped"),
        ({"content": CITED, "states": VERIFIED}, "skipped", "relevance_skipped"),
        ({"content": CITED, **relevant}, "skipped", "relevance_skipped"),
        ({"content": CITED, "states": VERIFIED, **relevant}, "passed", "citation_relevant"),
        ({}, "passed", "not_duplicate"),
        ({"matches": [match("m7")]}, "failed", "duplicate: m7"),
        ({"matches": [match("m7", difference="order")]}, "failed", "conflicting_near_duplicate: m7: order"),
        ({"dedup": "failed"}, "failed", "dedup_check_failed"),
        ({"dedup": "failed"}, "failed", "previously_rejected_unavailable"),
        ({"dedup": "disabled"}, "skipped", "dedup_skipped"),
        ({"dedup": "disabled"}, "skipped", "previously_rejected_skipped"),
        ({}, "passed", "not_previously_rejected"),
        ({"matches": [match("m7", "rejected")]}, "failed", "previously_rejected: m7"),
        ({"matches": [match("m7", "rejected", "number")]}, "failed", "previously_rejected: m7"),
        ({"fields": {"source": "user"}}, "passed", "trusted_source: user"),
        ({}, "failed", "source_not_trusted: ai_synthesis"),
        (
            {"fields": {"source": "user"}, "policy": Policy(attestation="hmac")},
            "failed",
            "source_unattested: user",
        ),
        ({}, "skipped", "parents_skipped"),
        ({"fields": parent, "parents": [("p", "approved")]}, "passed", "parents_approved"),
        ({"fields": parent, "parents": [("p", "unknown")] * 2}, "failed", "derived_from_unapproved: p"),
        ({}, "skipped", "validity_skipped"),
        ({"fields": {"validity_horizon": NOW + timedelta(1)}}, "passed", "not_expired"),
        ({"fields": {"validity_horizon": NOW}}, "failed", "expired"),
    ]
    wrong = []
    for options, column, entry in table:
        checks = list_checks(case(**options))
        columns = {name: getattr(checks, name).count(entry) for name in ("passed", "failed", "skipped")}
        if columns != {"passed": 0, "failed": 0, "skipped": 0, column: 1}:
            wrong.append((options, entry, checks))
    assert wrong == []
    unreachable = list_checks(case(fields=parent, parents=None))
    assert "parents_unavailable" in unreachable.failed
    assert "parents_approved" not in unreachable.passed
    duplicate = list_checks(case(matches=[match(inter=25)])).failed
    assert [name for name in duplicate if "duplicate" in name] == ["duplicate: m1"]


@given(st.data())
def test_every_check_is_in_exactly_one_column_and_grounding_is_never_claimed_twice(data):
    """S0-03, S0-159: all checks are named, in the order in which the gate looks."""
    names_table = [
        {"no_speculation", "hedge_words_detected", "hidden_text"},
        {"citation_present", "citation_missing"},
        {"citation_relevant", "citation_irrelevant", "relevance_skipped"},
        {"not_duplicate", "duplicate", "conflicting_near_duplicate", "dedup_check_failed", "dedup_skipped"},
        {
            *("not_previously_rejected", "previously_rejected"),
            *("previously_rejected_skipped", "previously_rejected_unavailable"),
        },
        {"trusted_source", "source_not_trusted", "source_unattested"},
        {"parents_approved", "derived_from_unapproved", "parents_skipped"},
        {"not_expired", "expired", "validity_skipped"},
    ]
    draw = data.draw
    dedup = draw(st.sampled_from(["ok", "failed", "disabled"]))
    matches = st.builds(
        match,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["approved", "pending", "rejected"]),
        st.sampled_from(["none", "number"]),
    )
    parents = draw(st.lists(st.tuples(st.just("p"), st.sampled_from(["approved", "blocked"])), max_size=2))
    texts = ["The API returns JSON", "The A\u200bPI", "Maybe", "It may fail", CITED, "Per ADR-003 and #12"]
    found = case(
        draw(st.sampled_from(texts)),
        states=draw(st.sampled_from([{}, VERIFIED, {"adr:003": "unknown"}])),
        dedup=dedup,
        matches=draw(st.lists(matches, max_size=3)) if dedup == "ok" else [],
        parents=parents,
        place=draw(st.sampled_from(Place)),
        fields={
            "source": draw(st.sampled_from(["user", "chat", "wiki"])),
            "derived_from": [name for name, _ in parents],
        },
    )
    checks = list_checks(found)
    columns = [
        {entry.split(":")[0] for entry in column} for column in (checks.passed, checks.failed, checks.skipped)
    ]
    for names in names_table:
        assert sum(bool(column & names) for column in columns) == 1, names
    for one, other in itertools.combinations(columns, 2):
        assert not one & other - {"citation_verified"}
    if found.outcome().tier == "tier_1":
        assert dedup != "failed"
        assert all(state == "approved" for _, state in parents)


def test_an_error_of_our_own_is_a_review_that_claims_to_know_nothing():
    """S0-23: no check of a text that could not be read has passed, and none is skipped."""
    text = f"I think it may be so. {CITED}"
    found = case(text, states=VERIFIED, error="ValueError", dedup="failed", fields={"source": "user"})
    assert outcome_of(found) == ("tier_2", "internal_error")
    assert (found.reading.hedges, found.reading.citations) == ((), ())
    checks = list_checks(found)
    unavailable = {"hedges_unavailable", "citation_unavailable", "citation_verification_unavailable"}
    assert unavailable | {"dedup_check_failed"} <= set(checks.failed)
    assert not [entry for entry in checks.passed + checks.skipped if "citation" in entry or "spec" in entry]


def test_hidden_text_turns_approvals_only_into_reviews_before_every_other_cap():
    hiding = "Per ADR-003, we use Post\u00adgre\u202eSQL"
    found = case(hiding, states=VERIFIED, matches=[match(difference="number")], fields={"source": "user"})
    assert outcome_of(found) == ("tier_2", "hidden_text")
    assert "hidden_text: U+00AD, U+202E" in list_checks(found).failed
    assert "no_speculation" not in list_checks(found).passed
    assert found.own_cap == "hidden_text"
    assert outcome_of(case(f"I think: {hiding}", states=VERIFIED)) == SPECULATION
    assert outcome_of(case(hiding, states=VERIFIED, matches=[match()])) == ("tier_3", "duplicate")
    assert outcome_of(case("We use Post\u00adgreSQL")) == ("tier_2", "ungrounded")


def test_the_match_that_is_named_is_the_one_that_decided():
    """S0-118."""
    approved, conflict = match("a"), match("b", difference="number")
    rejected, pending = match("c", "rejected"), match("d", "pending")
    user = {"source": "user"}
    for matches, fields, expected in (
        ([conflict, approved], user, "a"),
        ([rejected, conflict], user, "b"),
        ([rejected], user, "c"),
        ([], user, None),
        ([rejected, pending], {}, "d"),
    ):
        found = case(matches=matches, fields=fields)
        named = found.conflicting(found.outcome().code)
        assert (named.subject_id if named else None) == expected
    claim = Claim(claim_id="c", user_id="u", content=CITED)
    findings = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}
    for held in (False, True):
        policy = Policy(auto_approve_ai_synthesis=not held)
        found = ClaimCase(claim, read_claim(CITED, policy), policy, Facts(clock=NOW), findings)
        assert (found.base.number, found.own_cap) == (1, "ai_synthesis_held" if held else None)


def test_every_input_gets_the_first_branch_that_applies():
    """S0-01, S0-04..S0-20: the branches are written down from the requirements, apart from the code.

    S0-21: so neither a citation that is not verified nor a failed comparison raises a tier.
    """

    class Inputs(NamedTuple):
        hedge_result: HedgeAction
        is_duplicate: bool
        dedup_failed: bool
        has_verified_citation: bool
        source: str
        memory_type: str

    decided, preferred = "Decision stated in conversation", "Preference stated by user"
    branches = [
        (lambda i: i.hedge_result == "block", "tier_3", "Contains personal speculation"),
        (lambda i: i.is_duplicate, "tier_3", "Duplicate of existing memory"),
        (lambda i: i.hedge_result == "review", "tier_2", "Contains technical hedges - needs verification"),
        (lambda i: i.dedup_failed, "tier_2", "Dedup check failed - cannot verify uniqueness"),
        (lambda i: i.has_verified_citation, "tier_1", "Has verified citation"),
        (lambda i: i.source in TRUSTED_SOURCES, "tier_1", "From trusted source: {}"),
        (lambda i: (i.memory_type, i.source) == ("decision", "conversation"), "tier_1", decided),
        (
            lambda i: i.memory_type == "preference" and i.source in {"conversation", "chat"},
            "tier_1",
            preferred,
        ),
        (lambda _: True, "tier_2", "Ungrounded assertion needs verification"),
    ]
    sources = [*sorted(TRUSTED_SOURCES), "conversation", "chat", "ai_synthesis", "User", ""]
    kinds = ["fact", "preference", "decision", "other"]
    flags = (True, False)
    wrong = []
    for one in itertools.product(HedgeAction, flags, flags, flags, sources, kinds):
        inputs = Inputs(*one)
        tier, reason = next((t, r) for holds, t, r in branches if holds(inputs))
        if determine_tier(**inputs._asdict()) != (tier, reason.format(inputs.source)):
            wrong.append(inputs)
    assert wrong == []
    assert Tier is IngestionTier
    tiers = {tier.name: tier.value for tier in Tier}
    assert tiers == {"AUTO_APPROVE": "tier_1", "FLAG_REVIEW": "tier_2", "BLOCK": "tier_3"}
    assert {"user", "documentation", "adr", "commit", "manual"} == TRUSTED_SOURCES == Policy().trusted_sources
    user = HedgeAction.CONTINUE, False, False, False, "user", ""
    assert determine_tier(*user, trusted_sources={"wiki"})[0] == "tier_2"


def test_the_reasons_are_a_closed_list_and_each_has_a_sentence():
    codes = """
    expired personal_speculation duplicate technical_hedge dedup_unavailable verified_citation trusted_source
    stated_decision stated_preference ungrounded source_unattested citation_unverified hidden_text
    conflicting_near_duplicate grounding_unattested verification_bypassed previously_rejected
    derived_from_unapproved citation_irrelevant ai_synthesis_held pending_duplicate review_queue_full
    human_approved human_rejected review_expired retracted overruled internal_error entity_grounding_failed
    relation_preservation_failed quotes_rejected critical_gap low_confidence check_unavailable phantom_source
    snippet_mismatch unverified_fields stale_index flagged_claims nothing_to_ground_on grounded
    quote_polarity source_tags_missing warnings
    """
    assert {str(code) for code in ReasonCode} == set(codes.split())
    sentences = {code: explain(IngestionTier.FLAG_REVIEW, code, "user").reason for code in ReasonCode}
    assert [code for code, sentence in sentences.items() if not sentence or "{" in sentence] == []
    braces = explain(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, "{x}")
    assert braces.reason == "From trusted source: {x}"
    for code in ReasonCode:
        same = cap(code) == explain(IngestionTier.FLAG_REVIEW, code)
        assert same == (code != ReasonCode.CITATION_UNVERIFIED)
        assert cap(code)[::2] == (IngestionTier.FLAG_REVIEW, code)
    sentence = "A citation could not be verified - needs verification"
    assert cap(ReasonCode.CITATION_UNVERIFIED).reason == sentence


def test_an_action_approves_only_what_still_holds_and_is_new():
    table = [
        ("approve", False, False, "human_approved"),
        ("approve", False, True, "duplicate"),
        ("approve", True, True, "expired"),
        ("edit", True, False, "expired"),
        ("reject", True, True, "human_rejected"),
        ("expire", False, False, "review_expired"),
        ("retract", True, True, "retracted"),
    ]
    for action, expired, duplicate, code in table:
        found = reviewed(action, expired=expired, duplicate=duplicate)
        assert (found.code, found.tier == "tier_1") == (code, code == "human_approved")
    assert all(map(is_code, ["outdated", "Not-True.2", "r" * 64, "7", "a_b"]))
    assert not any(map(is_code, ["", "a b", "ä", "a\n", "-a", ".a", "r" * 65, "<b>"]))


APPROVE, REVIEW, BLOCK = IngestionTier


def test_each_recorded_tier_keeps_its_reason():
    """A finding keeps a short detail and never the source's text."""

    def reason(tier: IngestionTier, base: str, own_cap: str | None = None, **facts: Any) -> str:
        matches = [match(kind, kind, "number", 24) for kind in facts.pop("matches", ())]
        dedup = DedupFacts(status=facts.pop("status", "ok"), scheme="s", matches=matches)
        claim = Claim(claim_id="c", user_id="u", content="Snow is white", source="user", memory_type="fact")
        known = Facts(clock=NOW, dedup=dedup, **facts)
        policy = Policy(dedup_material_difference=False)  # another than the one that decided
        case = ClaimCase(claim, read_claim(claim.content, policy), policy, known, {})
        cap = ReasonCode(own_cap) if own_cap else None
        found = case.recorded_as(ReasonCode(base), cap).judged(tier)
        assert found.tier == tier
        return str(found.code)

    blocked, approved = [ParentFact(id="p", state="blocked")], [ParentFact(id="p", state="approved")]
    lowered = (REVIEW, "trusted_source", "citation_unverified")
    table = [
        # an approval keeps its grounds
        ((APPROVE, "trusted_source", "citation_irrelevant"), {"matches": ["approved"]}, "trusted_source"),
        # what blocks by itself is the reason, else a duplicate
        ((BLOCK, "expired"), {"matches": ["approved"]}, "expired"),
        ((BLOCK, "personal_speculation"), {}, "personal_speculation"),
        ((BLOCK, "trusted_source"), {}, "duplicate"),
        ((BLOCK, "technical_hedge"), {}, "duplicate"),
        # these branches come before the comparison, even where that failed
        ((REVIEW, "technical_hedge", "citation_unverified"), {"status": "failed"}, "technical_hedge"),
        ((REVIEW, "internal_error", "citation_unverified"), {"status": "failed"}, "internal_error"),
        ((REVIEW, "technical_hedge"), {"matches": ["approved", "rejected"]}, "technical_hedge"),
        # a claim without grounds is that, unless the comparison failed
        ((REVIEW, "source_unattested"), {"matches": ["approved"]}, "source_unattested"),
        ((REVIEW, "citation_unverified"), {"status": "disabled"}, "citation_unverified"),
        ((REVIEW, "ungrounded"), {"status": "failed"}, "dedup_unavailable"),
        # a claim with grounds is in review for the first cap that lowers it
        (lowered, {"parents": blocked, "status": "failed"}, "dedup_unavailable"),
        (lowered, {"parents": blocked, "matches": ["rejected", "approved"]}, "conflicting_near_duplicate"),
        (lowered, {"parents": blocked, "matches": ["pending", "rejected"]}, "previously_rejected"),
        (lowered, {"parents": blocked, "matches": ["pending"]}, "derived_from_unapproved"),
        (lowered, {"parents": blocked}, "derived_from_unapproved"),
        (lowered, {"parents": approved}, "citation_unverified"),
        ((REVIEW, "verified_citation", "ai_synthesis_held"), {"parents": approved}, "ai_synthesis_held"),
        ((REVIEW, "trusted_source"), {"parents": approved}, "conflicting_near_duplicate"),
        # of a rebuilt payload only the published reason is known
        (
            (REVIEW, "ai_synthesis_held", "ai_synthesis_held"),
            {"matches": ["approved"]},
            "ai_synthesis_held",
        ),
        (
            (REVIEW, "trusted_source", "hidden_text"),
            {"parents": blocked, "matches": ["approved"]},
            "hidden_text",
        ),
    ]
    found = [(given, facts, reason(*given, **facts), code) for given, facts, code in table]
    assert [one for one in found if one[2] != one[3]] == []
    check = CitationCheck(CitationState.VERIFIED, "x" * 400, NOW, text="secret")
    assert as_finding(check) == CheckFinding(CitationState.VERIFIED, "x" * 100, NOW)
