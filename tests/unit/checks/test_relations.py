"""What an answer says of two things has to be what the sources say (S3-17..S3-21, S3-24..S3-29, C-52..C-54)."""

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.checks.entities import ground_entities
from groundwire.checks.index import version_conflicts
from groundwire.checks.relations import MAX_CANDIDATES, RelationIndex, preserve_each, preserve_relations
from groundwire.messages.records import RelationClaim
from tests.unit.checks import growth
from tests.unit.checks.tables import failing

INCIDENTS = sorted((Path(__file__).parent / "incidents").glob("*.json"))
T1, T2, T3, T4 = (f"20{year}-01-01T00:00:00Z" for year in (20, 22, 24, 26))


def says(subject, relation, obj, **more):
    return {"subject": subject, "relation": relation, "object": obj, **more}


def suit(**more):
    return says("Acme", "sued", "Globex", **more)


def found(claim, truths, **rules):
    """Return what is wrong with a claim: reasons, with expected version or detail where there is one."""
    violations = preserve_relations([claim], truths, **rules).violations
    return [tuple(list(one.as_dict().values())[1:]) for one in violations]


# one truth


def test_what_the_source_says_holds():
    preservation = preserve_relations([suit(version="v2", timestamp=T1)], [suit(version="v2", timestamp=T1)])
    assert (preservation.violations, preservation.unspecified, preservation.grounded_claims) == ((), (), 1)
    assert preservation.events("acme") == []


def test_records_and_plain_mappings_are_read_alike():
    claim, truth = suit(version="1", timestamp=T1), suit(version="2", timestamp=T2)
    for claims in ([claim], [RelationClaim(**claim)]):
        for truths in ([truth], [RelationClaim(**truth)], RelationIndex([truth])):
            assert found(claims[0], truths) == [("version_mismatch", "2"), ("timestamp_mismatch",)]


def test_two_things_that_no_source_connects_are_one_violation_and_the_next_claim_goes_on():
    claims = [says("Acme", "sued", "Initech"), suit(), says("Globex", "sued", "Initech")]
    preservation = preserve_relations(claims, [suit()])
    assert [(one.index, one.reason) for one in preservation.violations] == [
        (0, "missing_source"),
        (2, "missing_source"),
    ]
    assert preservation.grounded_claims == 1


def test_an_empty_ground_truth_holds_nothing():
    assert found(suit(version="v1"), []) == [("missing_source",)]


def test_another_relation_of_the_two_is_a_mismatch():
    assert found(says("Acme", "owns", "Globex"), [suit()]) == [("relation_mismatch",)]


def test_plaintiff_and_defendant_swapped_are_caught():
    assert found(suit(), [says("Globex", "sued", "Acme")]) == [("relation_mismatch", "inverted")]


def test_the_other_direction_counts_only_where_there_is_nothing_in_its_own():
    truths = [says("Globex", "sued", "Acme"), suit(version="v3")]
    assert found(suit(version="v3"), truths) == []
    assert found(suit(version="v1"), truths) == [("version_mismatch", "v3")]
    assert found(suit(), [says("Globex", "sued", "Acme"), says("Acme", "owns", "Globex")]) == [
        ("relation_mismatch", "inverted")
    ]


def test_a_thing_may_be_related_to_itself():
    assert found(says("a", "cites", "a"), [says("a", "cites", "a")]) == []


def test_a_superseded_version_names_the_one_expected_as_it_is_written():
    assert found(suit(version="v1"), [suit(version="Rev. 2")]) == [("version_mismatch", "Rev. 2")]
    assert found(suit(version=1), [suit(version=2)]) == [("version_mismatch", "2")]


def test_a_claim_without_a_version_is_a_warning_and_under_strict_versions_a_violation():
    preservation = preserve_relations([suit(), suit(version="v2")], [suit(version="v2")])
    assert (preservation.violations, preservation.unspecified) == ((), (0,))
    strict = preserve_relations([suit(), suit(version="v2")], [suit(version="v2")], strict_versions=True)
    assert [one.as_dict() for one in strict.violations] == [
        {"index": 0, "reason": "version_mismatch", "expected_version": "v2"}
    ]
    assert strict.unspecified == ()


def test_what_only_the_claim_states_is_not_compared():
    assert found(suit(version="v1", timestamp=T1, qualifiers={"court": "NY"}), [suit()]) == []
    assert found(suit(version="v1"), [suit()], strict_versions=True) == []


def test_timestamps_are_instants_and_compared_where_both_have_one():
    truth = suit(timestamp="2024-01-01T12:00:00Z")
    assert found(suit(timestamp="2024-01-01T13:00:00.000+01:00"), [truth]) == []
    assert found(suit(timestamp=datetime(2024, 1, 1, 12, tzinfo=UTC)), [truth]) == []
    assert found(suit(timestamp="2024-01-01T12:00:01Z"), [truth]) == [("timestamp_mismatch",)]
    assert found(suit(), [truth]) == []


def test_what_is_no_instant_is_compared_as_it_is_written():
    def check(odd):
        assert found(suit(timestamp=odd), [suit(timestamp=odd)]) == []
        assert found(suit(timestamp=odd), [suit(timestamp=T1)]) == [("timestamp_mismatch",)]

    assert failing(check, ["2024", "yesterday", 7, datetime(2024, 1, 1)]) == []  # noqa: DTZ001


def test_one_claim_can_have_several_violations():
    claim = says("Acme", "owns", "Globex", version="v1", timestamp=T1, qualifiers={"court": "NY"})
    truth = suit(version="v2", timestamp=T2, qualifiers={"court": "CA"})
    assert found(claim, [truth], require_qualifiers=True) == [
        ("version_mismatch", "v2"),
        ("relation_mismatch",),
        ("timestamp_mismatch",),
        ("missing_qualifier", "court"),
    ]
    preservation = preserve_relations([claim, suit()], [truth])
    assert (len(preservation.violations), preservation.grounded_claims, preservation.claim_count) == (3, 1, 2)


def test_names_are_compared_without_case_spacing_and_unicode_form():
    cases = [("ACME", "Sued", "globex"), (" Acme\n", "sued", "Globex"), ("Ａｃｍｅ", "ｓｕｅｄ", "Globex")]
    assert [
        (subject, relation, obj)
        for subject, relation, obj in cases
        if found(says(subject, relation, obj), [suit()]) != []
    ] == []


def test_two_spellings_of_an_umlaut_are_one_name():
    assert found(says("Bu\u0308ro", "cites", "STRASSE"), [says("Büro", "cites", "Straße")]) == []


# qualifiers


def test_a_qualifier_of_the_source_has_to_be_stated_where_they_are_required():
    cases = [
        (None, "jurisdiction, scope"), ({}, "jurisdiction, scope"), ({"jurisdiction": "EU"}, "scope"),
        ({"jurisdiction": "US", "scope": "sales"}, "jurisdiction"),
        ({"Jurisdiction": " eu ", "scope": "SALES", "more": 1}, None),
    ]  # fmt: skip

    def check(stated, missing):
        truth = suit(qualifiers={"jurisdiction": "EU", "scope": "sales", "note": None, "tag": "  "})
        claim = suit(qualifiers=stated)
        assert found(claim, [truth]) == []
        assert found(claim, [truth], require_qualifiers=True) == (
            [("missing_qualifier", missing)] if missing else []
        )

    assert failing(check, cases) == []


def test_a_qualifier_may_have_any_value():
    class Odd:
        __hash__ = None

    cases = [
        (1, 1.0, True), (1, True, False), ({"a": {"b": [1]}}, {"a": {"b": [2]}}, False),
        (Odd(), Odd(), False),
    ]  # fmt: skip

    def check(stated, known, same):
        truths = [suit(qualifiers={"q": known}), suit(qualifiers={"q": "another"})]
        expected = [] if same else [("missing_qualifier", "q")]
        assert found(suit(qualifiers={"q": stated}), truths, require_qualifiers=True) == expected

    assert failing(check, cases) == []


def test_qualifiers_too_deep_to_compare_are_missing_and_no_crash():
    deep = []
    for _ in range(5000):
        deep = [deep]
    truths = [suit(qualifiers={"q": deep})] * 2
    assert found(suit(qualifiers={"q": deep}), truths, require_qualifiers=True) == [
        ("missing_qualifier", "q")
    ]


def test_qualifiers_that_are_no_object_are_none():
    def check(qualifiers):
        assert found(suit(), [suit(qualifiers=qualifiers)], require_qualifiers=True) == []
        assert found(suit(qualifiers=qualifiers), [suit(qualifiers={"q": 1})], require_qualifiers=True) == [
            ("missing_qualifier", "q")
        ]

    assert failing(check, [["EU"], "EU", 7]) == []


def test_each_qualified_statement_has_versions_of_its_own():
    eu, us = {"jurisdiction": "EU"}, {"jurisdiction": "US"}
    truths = [
        suit(version="v1", qualifiers=us),
        suit(version="v2", qualifiers=eu),
        suit(version="v1", qualifiers=eu),
    ]
    assert found(suit(version="v1", qualifiers=us), truths, require_qualifiers=True) == []
    assert found(suit(version="v1", qualifiers=eu), truths, require_qualifiers=True) != []
    assert found(suit(version="v2", qualifiers=eu), truths, require_qualifiers=True) == []


def test_among_many_qualified_statements_the_claims_own_is_found():
    truths = [suit(version="v1", qualifiers={"country": str(n)}) for n in range(20 * MAX_CANDIDATES)]
    for n in range(0, len(truths), 7):
        claim = suit(qualifiers={"country": str(n)})
        assert found(claim, truths, require_qualifiers=True) == []


# several truths of two things


def test_the_newest_of_versions_numbered_alike_is_in_force():
    cases = [("v1", "v2"), ("1.9", "1.10"), ("2023-04", "2024-01"), ("Edition 3", "edition 4")]

    def check(old, new, turned):
        truths = [suit(version=old), suit(version=new)]
        truths = truths[::-1] if turned else truths
        assert found(suit(version=old), truths) == [("version_mismatch", new)]
        assert found(suit(version=new), truths) == []
        assert found(suit(), truths) == []

    assert failing(check, [(old, new, turned) for (old, new), turned in product(cases, [False, True])]) == []


def test_versions_of_which_none_is_newer_hold_each():
    truths = [suit(version="v1"), suit(version="edition 2")]
    assert [found(suit(version=version), truths) for version in ("v1", "edition 2")] == [[], []]
    truths = [suit(version="draft"), suit(version="final"), suit(version="v2")]
    for version in ("draft", "final", "v2"):
        assert found(suit(version=version), truths) == []
    assert [reason for reason, *_ in found(suit(version="v1"), truths)] == ["version_mismatch"]


def test_timestamps_tell_what_is_newer_before_versions_do():
    truths = [suit(version="v9", timestamp=T1), suit(version="v1", timestamp=T3)]
    assert found(suit(version="v1"), truths) == []
    assert found(suit(version="v9"), truths) == [("version_mismatch", "v1")]


def test_a_claim_that_states_its_moment_may_rest_on_what_was_in_force_then():
    truths = [suit(version="v1", timestamp=T1), suit(version="v2", timestamp=T3)]
    assert found(suit(version="v1", timestamp=T1), truths) == []
    assert found(suit(timestamp=T1), truths) == []
    assert found(suit(version="v2", timestamp=T1), truths) == [("version_mismatch", "v1")]
    assert found(suit(version="v1", timestamp=T3), truths) == [("version_mismatch", "v2")]


def test_a_moment_between_two_is_reported_against_what_was_in_force_at_it():
    truths = [suit(version="v1", timestamp=T1), suit(version="v2", timestamp=T3)]
    assert found(suit(version="v1", timestamp=T2), truths) == [("timestamp_mismatch",)]
    assert found(suit(version="v1", timestamp=T4), truths) == [
        ("version_mismatch", "v2"),
        ("timestamp_mismatch",),
    ]
    assert found(suit(version="v2", timestamp="2019-01-01T00:00:00Z"), truths) == [("timestamp_mismatch",)]


def test_another_relation_supersedes_nothing():
    truths = [suit(version="v1"), says("Acme", "owns", "Globex", version="v2")]
    assert found(suit(version="v1"), truths) == []
    assert found(says("Acme", "knows", "Globex", version="v1"), truths) == [("relation_mismatch",)]


def test_an_unspecified_version_is_told_of_the_statement_that_it_rests_on():
    truths = [suit(version="v1", timestamp=T1), suit(timestamp=T3)]
    assert preserve_relations([suit()], truths).unspecified == ()
    assert preserve_relations([suit(timestamp=T1)], truths).unspecified == (0,)


def test_declared_inverses_say_the_same_the_other_way_round():
    index = RelationIndex(
        [suit(version="v1"), says("Acme", "merged with", "Initech")],
        inverses={"Sued": "was sued by", "merged with": "merged with"},
    )
    assert found(says("Globex", "was sued by", "Acme", version="v1"), index) == []
    assert found(says("Acme", "was sued by", "Globex"), index) == [("relation_mismatch", "inverted")]
    assert found(says("Initech", "merged with", "Acme"), index) == []
    other_way = RelationIndex([says("Globex", "was sued by", "Acme")], inverses={"sued": "was sued by"})
    assert found(suit(), other_way) == []


def test_a_truth_that_is_none_grounds_nothing():
    brokens = [{"subject": "Acme", "object": "Globex"}, says(" ", "sued", "Globex"), "suit", None]
    assert [broken for broken in brokens if found(suit(), [broken]) != [("missing_source",)]] == []


def test_a_claim_that_is_none_is_a_violation_and_no_error():
    assert [
        broken
        for broken in [{}, {"subject": None}, "claim", None, 7]
        if found(broken, [suit(), {}]) != [("missing_source",)]
    ] == []


def test_each_claim_can_have_a_ground_truth_of_its_own():
    truth, other = RelationIndex([suit(version="v1")]), RelationIndex([suit(version="v2")])
    preservation = preserve_each([(suit(version="v1"), truth), (suit(version="v1"), other)])
    assert [one.as_dict() for one in preservation.violations] == [
        {"index": 1, "reason": "version_mismatch", "expected_version": "v2"}
    ]


# the rule, against its plain form

NAMES, VERSIONS, MOMENTS = (
    st.sampled_from("ab"), st.sampled_from(["", "v1", "v2", "v3"]), st.sampled_from([None, T1, T2, T3]),
)  # fmt: skip
RELATIONS = st.builds(
    lambda s, r, o, v, t: says(s, r, o, version=v or None, timestamp=t),
    NAMES,
    st.sampled_from("pq"),
    NAMES,
    VERSIONS,
    MOMENTS,
)


def in_force(truth, truths):
    line = [
        one for one in truths if all(one[part] == truth[part] for part in ("subject", "relation", "object"))
    ]
    if all(one["timestamp"] for one in line):
        return truth["timestamp"] == max(one["timestamp"] for one in line)
    if all(one["version"] for one in line):
        return truth["version"] == max(one["version"] for one in line)
    return True


def holds(claim, truths):
    return any(
        all(truth[part] == claim[part] for part in ("subject", "relation", "object"))
        and (None in (truth["version"], claim["version"]) or truth["version"] == claim["version"])
        and (
            truth["timestamp"] == claim["timestamp"]
            if claim["timestamp"] and truth["timestamp"]
            else in_force(truth, truths)
        )
        for truth in truths
    )


@given(RELATIONS, st.lists(RELATIONS, max_size=8))
@example(
    says("a", "p", "b", version="v1", timestamp=T1),
    [says("a", "p", "b", version=v, timestamp=None) for v in ("v1", "v2")],
)
def test_a_claim_holds_exactly_where_a_statement_in_force_agrees_with_it(claim, truths):
    assert (found(claim, truths) == []) is holds(claim, truths)


@given(st.lists(RELATIONS, max_size=6), st.lists(RELATIONS, max_size=6), st.booleans(), st.booleans())
def test_stricter_rules_and_fewer_truths_never_let_more_pass(claims, truths, strict, qualified):
    plain = preserve_relations(claims, truths)
    rules = preserve_relations(claims, truths, strict_versions=strict, require_qualifiers=qualified)
    failed = {one.index for one in plain.violations}
    assert failed <= {one.index for one in rules.violations}
    assert plain.grounded_claims + len(failed) == plain.claim_count == len(claims)
    assert not failed & set(plain.unspecified) or all(claims[n]["version"] is None for n in plain.unspecified)


@given(
    st.text(),
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_odd_text_and_values_raise_nothing_and_a_source_supports_itself(name, version, value):
    claim = says("x" + name, "y" + name, "z" + name, version=version, qualifiers={"q": value})
    other = says("x" + name, "y" + name, "z" + name, version="another", qualifiers={"q": "other"})
    assert found(claim, [claim], require_qualifiers=True) == []
    preserve_relations([claim], [other, claim, other], require_qualifiers=True)


# what is reported


def test_report_and_event_carry_places_and_reasons_and_no_names():
    claims = [suit(version="v1"), suit()]
    preservation = preserve_relations(claims, [says("Globex", "sued", "Acme", version="v2")])
    assert preservation.as_report([{"hop": 1}]) == {
        "violations": [
            {"index": 0, "reason": "version_mismatch", "expected_version": "v2"},
            {"index": 0, "reason": "relation_mismatch", "detail": "inverted"},
            {"index": 1, "reason": "relation_mismatch", "detail": "inverted"},
        ],
        "grounded_claims": 0,
        "hop_evidence": [{"hop": 1}],
    }
    (event,) = preservation.events("acme")
    assert event.name == "knowledge.rp.violation"
    assert event.payload == {
        "violations": [
            {"index": 0, "reason": "version_mismatch", "expected_version": "v2"},
            {"index": 0, "reason": "relation_mismatch"},
            {"index": 1, "reason": "relation_mismatch"},
        ],
        "claim_count": 2,
        "tenant_id": "acme",
    }


def test_the_event_stays_bounded_and_says_what_it_leaves_out():
    def check(long):
        claims = [suit(version="x" * long)] * 1000
        truth = suit(version="y" * long, qualifiers={"q" * long: 1})
        (event,) = preserve_relations(claims, [truth], require_qualifiers=True).events("acme")
        assert len(json.dumps(event.payload)) < 35_000
        assert len(event.payload["violations"]) + event.payload["truncated"] == 2000
        assert "q" not in {key for one in event.payload["violations"] for key in one}

    assert failing(check, [1, 100_000]) == []


@pytest.mark.slow
def test_time_grows_in_proportion_to_claims_and_truths():
    """S3-28."""

    def several(n):
        return suit(version=f"v{n}", qualifiers={"q": n})

    shapes = {
        "all of other things": lambda n: says(f"s{n}", "sued", f"o{n}", version="v1"),
        "all of two things": several,
        "versions of one statement": lambda n: suit(version=f"v{n}"),
        "moments of one statement": lambda n: suit(timestamp=datetime.fromtimestamp(n, UTC)),
        "relations of two things": lambda n: says("a", f"r{n}", "b"),
        "no order": lambda n: suit(version=f"x-{n}-y"),
    }
    ruleses = [{}, {"strict_versions": True, "require_qualifiers": True}]

    def check(rules, hit, shape):
        def run(count):
            truths = [shape(n) for n in range(count)]
            claims = (
                truths if hit else [{**truth, "version": "none such", "qualifiers": {}} for truth in truths]
            )
            return lambda: preserve_relations(claims, truths, **rules)

        growth.assert_tenfold(run, 200)

    assert failing(check, product(ruleses, [True, False], shapes.values())) == []


# incidents


def test_a_recorded_incident_brings_the_same_violations_again():
    """S3-33."""

    def check(path):
        incident = json.loads(path.read_text("utf-8"))
        given_, expected = incident["response"], incident["expected"]
        entities = ground_entities(given_["entities"], given_["corpus_index"])
        relations = preserve_relations(given_["claims"], given_["relations"])
        assert entities.as_report() == expected["entities"]
        assert relations.as_report(given_["hop_results"]) == expected["relations"]
        assert list(relations.unspecified) == expected["unspecified"]
        conflicts = version_conflicts(given_["chunks"])
        events = [
            event for part in (entities, relations, conflicts) for event in part.events(given_["tenant_id"])
        ]
        assert [event.name for event in events] == expected["events"]

    assert failing(check, INCIDENTS) == []


def test_there_are_incidents():
    assert INCIDENTS
