"""What stands around the tree: expiry, caps in their order, the queue, and every check as it is named."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.gate.claim_case import CheckFinding, ClaimCase, prejudge, read_claim
from groundwire.gate.report import list_checks
from groundwire.messages.decisions import (
    CitationState,
    DedupFacts,
    DedupMatch,
    Facts,
    ParentFact,
    Place,
)
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from tests.unit.gate.world import NOW

CITED = "Per ADR-003, we use PostgreSQL"


def match(subject="m1", match_class="approved", difference="none", inter=23, union=25):
    return DedupMatch(
        subject_id=subject, inter=inter, union=union, difference=difference, match_class=match_class
    )


def case(content="The API returns JSON", *, policy=None, states=None, **options):
    """Make a case; what is not said is as if everything was looked at and nothing was found."""
    policy = policy or Policy()
    fields = options.pop("fields", {})
    claim = Claim(claim_id="c1", user_id="ada", content=content, **fields)
    matches = options.pop("matches", [])
    dedup = options.pop("dedup", "ok")
    parents = options.pop("parents", ())
    facts = Facts(
        clock=NOW,
        dedup=DedupFacts(status=dedup, scheme="s", matches=matches),
        parents=[ParentFact(id=name, state=state) for name, state in parents],
        **options,
    )
    findings = {label: CheckFinding(CitationState(state), "", NOW) for label, state in (states or {}).items()}
    return ClaimCase(claim, read_claim(content, policy), policy, facts, findings)


def told(subject):
    standing = subject.outcome()
    return str(standing.tier), str(standing.code)


VERIFIED = {"adr:003": "verified"}

# --- caps


STRICT = Policy(
    verify_claim_relevance=True, auto_approve_ai_synthesis=False, failed_citation_overrides_trust=True
)
CAPS = [
    # in their order; each alone turns an approval into a review
    ("conflicting_near_duplicate", {"matches": [match(difference="number")]}),
    ("previously_rejected", {"matches": [match(match_class="rejected")]}),
    ("derived_from_unapproved", {"parents": [("p", "pending")], "fields": {"derived_from": ["p"]}}),
    ("citation_irrelevant", {"relevance": [{"start": 4, "score": 0.1, "relevant": False}]}),
    ("ai_synthesis_held", {}),
    ("citation_unverified", {}),
]


@pytest.mark.parametrize("mask", range(1, 64))
def test_of_the_caps_that_apply_the_first_is_the_reason(mask):
    """Every combination of the six caps, in the contract's order."""
    chosen = [name for bit, (name, _) in enumerate(CAPS) if mask >> bit & 1]
    fields, matches, options = {}, [], {"relevance": [{"start": 4, "score": 0.9, "relevant": True}]}
    for name, parts in CAPS:
        if name in chosen:
            fields |= parts.get("fields", {})
            matches += parts.get("matches", [])
            options |= {key: value for key, value in parts.items() if key not in {"fields", "matches"}}
    content = CITED + (" and ADR-999" if "citation_unverified" in chosen else "")
    policy = STRICT.model_copy(update={"auto_approve_ai_synthesis": "ai_synthesis_held" not in chosen})
    found = case(content, policy=policy, states=VERIFIED, matches=matches, fields=fields, **options)
    assert found.base().tier == "tier_1"
    assert told(found) == ("tier_2", chosen[0])


def test_without_any_cap_the_claim_is_approved():
    relevant = [{"start": 4, "score": 0.9, "relevant": True}]
    policy = STRICT.model_copy(update={"auto_approve_ai_synthesis": True})
    assert told(case(CITED, policy=policy, states=VERIFIED, relevance=relevant)) == (
        "tier_1",
        "verified_citation",
    )


@pytest.mark.parametrize("name", [name for name, _ in CAPS[:3]])
def test_a_cap_leaves_a_review_its_own_reason(name):
    """S0-121: a tier 2 keeps its own."""
    parts = dict(CAPS)[name]
    assert told(case(**parts)) == ("tier_2", "ungrounded")
    assert told(case("It may fail", **parts)) == ("tier_2", "technical_hedge")
    assert told(case("I think it fails", **parts)) == ("tier_3", "personal_speculation")


def test_a_material_difference_is_a_plain_duplicate_where_the_policy_says_so():
    """C-08: the switch `dedup_material_difference`."""
    policy = Policy(dedup_material_difference=False)
    found = case(fields={"source": "user"}, policy=policy, matches=[match(difference="negation")])
    assert told(found) == ("tier_3", "duplicate")


def test_relevance_is_asked_of_every_verified_citation():
    """S0-155: a claim that cites one source beside the point goes to review, and the check says which."""
    policy = Policy(verify_claim_relevance=True)
    states = VERIFIED | {"adr:004": "verified"}
    half = [{"start": 4, "score": 0.9, "relevant": True}, {"start": 16, "score": 0.0, "relevant": False}]
    found = case("Per ADR-003 and ADR-004, we use it", policy=policy, states=states, relevance=half)
    assert told(found) == ("tier_2", "citation_irrelevant")
    assert "citation_irrelevant: adr:004" in list_checks(found).failed
    assert "citation_irrelevant: adr:003" not in list_checks(found).failed


def test_a_relevance_check_that_said_nothing_caps():
    found = case(CITED, policy=Policy(verify_claim_relevance=True), states=VERIFIED, relevance=None)
    assert told(found) == ("tier_2", "citation_irrelevant")


# --- options that soften a hedge


def test_grounded_speculation_goes_to_review_only_with_a_verified_citation():
    """C-02."""
    policy = Policy(grounded_speculation="review")
    text = "I think, per ADR-003, we use PostgreSQL"
    assert told(case(text, states=VERIFIED)) == ("tier_3", "personal_speculation")
    assert told(case(text, policy=policy, states=VERIFIED)) == ("tier_2", "technical_hedge")
    assert told(case(text, policy=policy, states={"adr:003": "unknown"})) == (
        "tier_3",
        "personal_speculation",
    )


def test_technical_hedges_of_trusted_sources_pass_only_where_the_policy_says_so():
    """C-26."""
    policy = Policy(trusted_technical_hedges="approve")
    text, trusted = "It typically takes 5 ms", {"source": "documentation"}
    assert told(case(text, fields=trusted)) == ("tier_2", "technical_hedge")
    assert told(case(text, policy=policy, fields=trusted)) == ("tier_1", "trusted_source")
    assert told(case(text, policy=policy)) == ("tier_2", "technical_hedge")
    assert told(case("Maybe", policy=policy, fields=trusted)) == ("tier_3", "personal_speculation")


# --- expiry


def test_a_claim_expires_at_its_horizon_not_before():
    """S0-145; expiry outranks everything else."""
    late = {"validity_horizon": NOW, "source": "user"}
    assert told(case(fields=late)) == ("tier_3", "expired")
    assert told(case(fields=late, matches=[match()])) == ("tier_3", "expired")
    assert told(case("Maybe", fields=late)) == ("tier_3", "expired")
    soon = {"validity_horizon": NOW + timedelta(microseconds=1), "source": "user"}
    assert told(case(fields=soon)) == ("tier_1", "trusted_source")


# --- the queue


@pytest.mark.parametrize("place", ["user_full", "tenant_full", "total_full"])
def test_a_full_queue_refuses_visibly(place):
    """S0-141."""
    found = case(place=Place(place))
    assert told(found) == ("tier_3", "review_queue_full")
    assert f"review_queue_full: {place.removesuffix('_full')}" in list_checks(found).failed


def test_a_pending_duplicate_follows_the_other_claim():
    """C-09: joined only when in review itself, and only without a material difference."""
    pending = match(match_class="pending")
    assert told(case(matches=[pending])) == ("tier_2", "pending_duplicate")
    assert told(case(matches=[pending], fields={"source": "user"})) == ("tier_1", "trusted_source")
    different = match(match_class="pending", difference="number")
    assert told(case(matches=[different], place=Place.FREE)) == ("tier_2", "ungrounded")


@pytest.mark.parametrize(
    ("pending", "joined", "expected"),
    [
        pytest.param(
            match(match_class="pending"), True, "not_duplicate: m1: in other words", id="other words"
        ),
        pytest.param(match(match_class="pending", inter=25), True, "not_duplicate", id="the same words"),
        pytest.param(match(match_class="pending"), False, "not_duplicate", id="not joined"),
    ],
)
def test_a_claim_that_follows_another_in_other_words_says_so(pending, joined, expected):
    checks = list_checks(case(matches=[pending]), joined=joined)
    assert [check for check in checks.passed if check.startswith("not_duplicate")] == [expected]


# --- branch 9


def test_the_code_of_branch_nine_says_what_is_missing():
    """The sentence is the same for all of them."""
    hmac = Policy(attestation="hmac")
    told_codes = {
        "ungrounded": case(),
        "citation_unverified": case(CITED),
        "source_unattested": case(CITED, policy=hmac, fields={"source": "user"}),
    }
    for code, found in told_codes.items():
        assert told(found) == ("tier_2", code)
        assert found.outcome().reason == "Ungrounded assertion needs verification"


# --- attestation


SOURCES = ["user", "documentation", "conversation", "chat", "ai_synthesis", "wiki"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("state", ["valid", "invalid", "expired", "unknown_key", "not_entitled", None])
def test_under_hmac_a_source_counts_only_where_it_is_signed_for(source, state):
    """C-34: off, the signature changes nothing; on, everything but a valid one counts as AI synthesis."""
    fact = {"key_id": "k", "state": state} if state else None
    fields = {"source": source, "memory_type": "preference"}
    for mode in ("off", "hmac"):
        found = case(policy=Policy(attestation=mode), fields=fields, attestation=fact)
        believed = mode == "off" or state == "valid"
        ai = source in {"ai_synthesis", "wiki"}
        assert found.unattested == (not believed and not ai)
        assert (told(found)[0] == "tier_1") == (believed and not ai)
        assert (f"source_unattested: {source}" in list_checks(found).failed) == found.unattested


# --- the table of checks


@pytest.mark.parametrize(
    ("options", "column", "entry"),
    [
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
        (
            {
                "content": CITED,
                "states": VERIFIED,
                "policy": Policy(verify_claim_relevance=True),
                "relevance": [{"start": 4, "score": 1.0, "relevant": True}],
            },
            "passed",
            "citation_relevant",
        ),
        ({}, "passed", "not_duplicate"),
        ({"matches": [match("m7")]}, "failed", "duplicate: m7"),
        (
            {"matches": [match("m7", difference="order")]},
            "failed",
            "conflicting_near_duplicate: m7: order",
        ),
        ({"dedup": "failed"}, "failed", "dedup_check_failed"),
        ({"dedup": "failed"}, "failed", "previously_rejected_unavailable"),
        ({"dedup": "disabled"}, "skipped", "dedup_skipped"),
        ({"dedup": "disabled"}, "skipped", "previously_rejected_skipped"),
        ({}, "passed", "not_previously_rejected"),
        ({"matches": [match("m7", "rejected")]}, "failed", "previously_rejected: m7"),
        ({"matches": [match("m7", "rejected", "number")]}, "failed", "previously_rejected: m7"),
        ({"fields": {"source": "user"}}, "passed", "trusted_source: user"),
        ({}, "failed", "source_not_trusted: ai_synthesis"),
        ({}, "skipped", "parents_skipped"),
        (
            {"fields": {"derived_from": ["p"]}, "parents": [("p", "approved")]},
            "passed",
            "parents_approved",
        ),
        (
            {"fields": {"derived_from": ["p"]}, "parents": [("p", "unknown")]},
            "failed",
            "derived_from_unapproved: p",
        ),
        (
            {"fields": {"derived_from": ["p", "p"]}, "parents": [("p", "unknown"), ("p", "unknown")]},
            "failed",
            "derived_from_unapproved: p",
        ),
        ({}, "skipped", "validity_skipped"),
        ({"fields": {"validity_horizon": NOW + timedelta(1)}}, "passed", "not_expired"),
        ({"fields": {"validity_horizon": NOW}}, "failed", "expired"),
        ({"place": Place.FREE}, "passed", "review_place"),
        ({"place": Place.TOTAL_FULL}, "failed", "review_queue_full: total"),
    ],
)
def test_every_check_appears_as_the_contract_names_it(options, column, entry):
    checks = list_checks(case(**options))
    assert getattr(checks, column).count(entry) == 1, checks
    others = {"passed", "failed", "skipped"} - {column}
    assert not any(entry in getattr(checks, other) for other in others)


NAMES = {
    "hedges": {"no_speculation", "hedge_words_detected", "hidden_text"},
    "citation": {"citation_present", "citation_missing"},
    "verified": {"citation_verified", "citation_unverified", "citation_verification_skipped"},
    "relevance": {"citation_relevant", "citation_irrelevant", "relevance_skipped"},
    "dedup": {
        "not_duplicate",
        "duplicate",
        "conflicting_near_duplicate",
        "dedup_check_failed",
        "dedup_skipped",
    },
    "rejected": {
        "not_previously_rejected",
        "previously_rejected",
        "previously_rejected_skipped",
        "previously_rejected_unavailable",
    },
    "source": {"trusted_source", "source_not_trusted", "source_unattested"},
    "parents": {"parents_approved", "derived_from_unapproved", "parents_skipped"},
    "validity": {"not_expired", "expired", "validity_skipped"},
}
CONTENTS = [
    "The API returns JSON",
    "The A\u200bPI",
    "Maybe",
    "It may fail",
    CITED,
    "Per ADR-003 and #12, I think so",
]


@settings(max_examples=300, deadline=None)
@given(
    content=st.sampled_from(CONTENTS),
    source=st.sampled_from(SOURCES),
    states=st.fixed_dictionaries({}, optional={"adr:003": st.sampled_from(["verified", "unknown"])}),
    dedup=st.sampled_from(["ok", "failed", "disabled"]),
    matches=st.lists(
        st.builds(
            match,
            st.sampled_from(["a", "b"]),
            st.sampled_from(["approved", "pending", "rejected"]),
            st.sampled_from(["none", "number"]),
        ),
        max_size=3,
    ),
    parents=st.lists(st.tuples(st.just("p"), st.sampled_from(["approved", "blocked"])), max_size=2),
    place=st.sampled_from(Place),
)
def test_every_check_is_in_exactly_one_column_and_grounding_is_never_claimed_twice(
    content, source, states, dedup, matches, parents, place
):
    """S0-03, S0-159: all checks are named, in the order in which the gate looks."""
    fields = {"source": source, "derived_from": [name for name, _ in parents]}
    found = case(
        content,
        states=states,
        dedup=dedup,
        matches=matches if dedup == "ok" else [],
        parents=parents,
        place=place,
        fields=fields,
    )
    checks = list_checks(found)
    columns = [
        {entry.split(":")[0] for entry in column} for column in (checks.passed, checks.failed, checks.skipped)
    ]
    for check, names in NAMES.items():
        used = [column & names for column in columns]
        assert any(used), check
        assert sum(map(bool, used)) == 1 or check == "verified", check
    for one, other in itertools.combinations(columns, 2):
        assert not one & other - {"citation_verified"}
    standing = found.outcome()
    assert (standing.tier == "tier_1") <= (dedup != "failed")
    assert (standing.tier == "tier_1") <= all(state == "approved" for _, state in parents)


def test_an_error_of_our_own_is_a_review_that_claims_to_know_nothing():
    """S0-23: no check of a text that could not be read has passed, and none is skipped."""
    found = case(CITED, states=VERIFIED, error="ValueError", dedup="failed", fields={"source": "user"})
    assert told(found) == ("tier_2", "internal_error")
    checks = list_checks(found)
    assert {"hedges_unavailable", "citation_unavailable", "citation_verification_unavailable"} <= set(
        checks.failed
    )
    assert "no_speculation" not in checks.passed
    assert "dedup_check_failed" in checks.failed
    assert not any("citation" in entry for entry in checks.passed + checks.skipped)


# --- what hides text

HIDING = "Per ADR-003, we use Post\u00adgre\u202eSQL"


def test_what_hides_text_is_a_review_before_every_other_cap_and_named_in_the_checks():
    found = case(HIDING, states=VERIFIED, matches=[match(difference="number")], fields={"source": "user"})
    assert told(found) == ("tier_2", "hidden_text")
    assert "hidden_text: U+00AD, U+202E" in list_checks(found).failed
    assert "no_speculation" not in list_checks(found).passed
    assert prejudge(found).cap == "hidden_text"


def test_what_hides_text_turns_approvals_only_into_reviews():
    assert told(case(f"I think: {HIDING}", states=VERIFIED)) == ("tier_3", "personal_speculation")
    assert told(case(HIDING, states=VERIFIED, matches=[match()])) == ("tier_3", "duplicate")
    assert told(case("We use Post\u00adgreSQL")) == ("tier_2", "ungrounded")


# --- what the decision names as its match


def test_the_match_that_is_named_is_the_one_that_decided():
    """S0-118."""
    approved, conflict = match("a"), match("b", difference="number")
    rejected, pending = match("c", "rejected"), match("d", "pending")
    for matches, expected in [
        ([conflict, approved], "a"),
        ([rejected, conflict], "b"),
        ([rejected], "c"),
        ([], None),
    ]:
        found = case(matches=matches, fields={"source": "user"})
        named = found.conflicting(found.outcome().code)
        assert (named.subject_id if named else None) == expected
    joined = case(matches=[rejected, pending])
    assert joined.conflicting(joined.outcome().code).subject_id == "d"


def test_prejudging_answers_as_if_nothing_were_known_of_state():
    claim = Claim(claim_id="c", user_id="u", content=CITED)
    policy = Policy(auto_approve_ai_synthesis=False)
    findings = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}
    judged = prejudge(ClaimCase(claim, read_claim(CITED, policy), policy, Facts(clock=NOW), findings))
    assert (judged.base_tier, judged.cap) == (1, "ai_synthesis_held")
