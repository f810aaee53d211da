"""What an answer says of two things has to be what the sources say (S3-17..S3-21, S3-24..S3-29, C-52..C-54)."""

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.checks.entities import ground_entities, version_conflicts
from groundwire.checks.relations import MAX_CANDIDATES, RelationIndex, preserve_each, preserve_relations
from groundwire.messages.records import RelationClaim
from tests.unit.checks.tables import differing, failing

T1, T2, T3, T4 = (f"20{year}-01-01T00:00:00Z" for year in (20, 22, 24, 26))


def says(subject, relation, obj, **more):
    return {"subject": subject, "relation": relation, "object": obj, **more}


def suit(**more):
    return says("Acme", "sued", "Globex", **more)


def found(claim, truths, **rules):
    violations = preserve_relations([claim], truths, **rules).violations
    return [tuple(list(one.as_dict().values())[1:]) for one in violations]


# one truth


def test_what_the_source_says_holds_as_record_or_mapping():
    # what the source says holds
    preservation = preserve_relations([suit(version="v2", timestamp=T1)], [suit(version="v2", timestamp=T1)])
    assert (preservation.violations, preservation.unspecified, preservation.grounded_claims) == ((), (), 1)
    assert preservation.events("acme") == []
    # records and plain mappings are read alike
    claim, truth = suit(version="1", timestamp=T1), suit(version="2", timestamp=T2)
    for claims in ([claim], [RelationClaim(**claim)]):
        for truths in ([truth], [RelationClaim(**truth)], RelationIndex([truth])):
            assert found(claims[0], truths) == [("version_mismatch", "2"), ("timestamp_mismatch",)]


def test_each_claim_is_compared_by_itself():
    # two things that no source connects are one violation and the next claim goes on
    claims = [says("Acme", "sued", "Initech"), suit(), says("Globex", "sued", "Initech")]
    preservation = preserve_relations(claims, [suit()])
    assert [(one.index, one.reason) for one in preservation.violations] == [
        (0, "missing_source"),
        (2, "missing_source"),
    ]
    assert preservation.grounded_claims == 1
    # one claim can have several violations
    claim = says("Acme", "owns", "Globex", version="v1", timestamp=T1, qualifiers={"court": "NY"})
    truth = suit(version="v2", timestamp=T2, qualifiers={"court": "CA"})
    assert found(claim, [truth], require_qualifiers=True) == [
        ("version_mismatch", "v2"), ("relation_mismatch",), ("timestamp_mismatch",),
        ("missing_qualifier", "court"),
    ]  # fmt: skip
    preservation = preserve_relations([claim, suit()], [truth])
    assert (len(preservation.violations), preservation.grounded_claims, preservation.claim_count) == (3, 1, 2)
    # each claim can have a ground truth of its own
    truth, other = RelationIndex([suit(version="v1")]), RelationIndex([suit(version="v2")])
    preservation = preserve_each([(suit(version="v1"), truth), (suit(version="v1"), other)])
    assert [one.as_dict() for one in preservation.violations] == [
        {"index": 1, "reason": "version_mismatch", "expected_version": "v2"}
    ]


def test_a_claim_is_compared_with_what_the_truth_says_of_the_two():
    owns, turned, cites = (
        says("Acme", "owns", "Globex"),
        says("Globex", "sued", "Acme"),
        says("a", "cites", "a"),
    )
    inverted, other = ("relation_mismatch", "inverted"), ("relation_mismatch",)
    cases = [
        ("nothing is known", suit(version="v1"), [], [("missing_source",)]),
        ("another relation of the two", owns, [suit()], [other]),
        ("plaintiff and defendant swapped", suit(), [turned], [inverted]),
        ("its own direction comes first", suit(version="v3"), [turned, suit(version="v3")], []),
        ("its own direction first", suit(version="v1"), [turned, suit(version="v3")], [("version_mismatch", "v3")]),
        ("the other direction comes before another relation", suit(), [turned, owns], [inverted]),
        ("a thing related to itself", cites, [cites], []),
        ("a version as it is written", suit(version="v1"), [suit(version="Rev. 2")], [("version_mismatch", "Rev. 2")]),
        ("a version that is a number", suit(version=1), [suit(version=2)], [("version_mismatch", "2")]),
        ("what only the claim states", suit(version="v1", timestamp=T1, qualifiers={"court": "NY"}), [suit()], []),
        ("case", says("ACME", "Sued", "globex"), [suit()], []),
        ("spacing", says(" Acme\n", "sued", "Globex"), [suit()], []),
        ("Unicode form", says("Ａｃｍｅ", "ｓｕｅｄ", "Globex"), [suit()], []),
        ("an umlaut", says("Bu\u0308ro", "cites", "STRASSE"), [says("Büro", "cites", "Straße")], []),
        *(("no claim", broken, [suit(), {}], [("missing_source",)])
          for broken in ({}, {"subject": None}, "claim", None, 7)),
    ]  # fmt: skip
    wrong = [
        (case, got) for case, claim, truths, reasons in cases if (got := found(claim, truths)) != reasons
    ]
    assert wrong == []
    assert found(suit(version="v1"), [suit()], strict_versions=True) == []


def test_a_claim_without_a_version_is_a_warning_and_under_strict_versions_a_violation():
    preservation = preserve_relations([suit(), suit(version="v2")], [suit(version="v2")])
    assert (preservation.violations, preservation.unspecified) == ((), (0,))
    strict = preserve_relations([suit(), suit(version="v2")], [suit(version="v2")], strict_versions=True)
    assert [one.as_dict() for one in strict.violations] == [
        {"index": 0, "reason": "version_mismatch", "expected_version": "v2"}
    ]
    assert strict.unspecified == ()


def test_timestamps_are_instants_and_compared_where_both_have_one():
    """What is no instant is compared as it is written."""
    truth, mismatch = suit(timestamp="2024-01-01T12:00:00Z"), [("timestamp_mismatch",)]
    cases = [
        ("2024-01-01T13:00:00.000+01:00", truth, []), (datetime(2024, 1, 1, 12, tzinfo=UTC), truth, []),
        ("2024-01-01T12:00:01Z", truth, mismatch), (None, truth, []),
    ]  # fmt: skip
    for odd in ("2024", "yesterday", 7, datetime(2024, 1, 1)):  # noqa: DTZ001
        cases += [(odd, suit(timestamp=odd), []), (odd, truth, mismatch)]
    assert differing(lambda stated, known: found(suit(timestamp=stated), [known]), cases) == []


# qualifiers


def test_a_qualifier_has_to_be_stated_where_they_are_required_with_its_value():
    # a qualifier of the source has to be stated where they are required
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

    # a qualifier may have any value
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
    deep = []
    for _ in range(5000):
        deep = [deep]
    missing = [("missing_qualifier", "q")]
    odd = [({"q": deep}, {"q": deep}, missing)]  # too deep to compare
    for none in (["EU"], "EU", 7):  # no object
        odd += [(None, none, []), (none, {"q": 1}, missing)]

    def lacking(stated, known):
        truths = [suit(qualifiers=known)] * 2
        return found(suit(qualifiers=stated), truths, require_qualifiers=True)

    assert differing(lacking, odd) == []


def test_each_qualified_statement_has_versions_of_its_own():
    eu, us = {"jurisdiction": "EU"}, {"jurisdiction": "US"}
    truths = [
        suit(version="v1", qualifiers=us), suit(version="v2", qualifiers=eu), suit(version="v1", qualifiers=eu),
    ]  # fmt: skip
    assert found(suit(version="v1", qualifiers=us), truths, require_qualifiers=True) == []
    assert found(suit(version="v1", qualifiers=eu), truths, require_qualifiers=True) != []
    assert found(suit(version="v2", qualifiers=eu), truths, require_qualifiers=True) == []
    # among many qualified statements the claims own is found
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


def test_a_claim_rests_on_what_is_in_force_or_was_at_its_moment():
    then = [suit(version="v1", timestamp=T1), suit(version="v2", timestamp=T3)]
    alike = [suit(version="v1"), suit(version="edition 2")]
    drafts = [suit(version="draft"), suit(version="final"), suit(version="v2")]
    newer = [suit(version="v9", timestamp=T1), suit(version="v1", timestamp=T3)]
    owned = [suit(version="v1"), says("Acme", "owns", "Globex", version="v2")]
    late = ("timestamp_mismatch",)

    def stale(version):
        return ("version_mismatch", version)

    cases = [
        ("its moment", suit(version="v1", timestamp=T1), then, []), ("its moment", suit(timestamp=T1), then, []),
        ("its moment", suit(version="v2", timestamp=T1), then, [stale("v1")]),
        ("its moment", suit(version="v1", timestamp=T3), then, [stale("v2")]),
        ("between two", suit(version="v1", timestamp=T2), then, [late]),
        ("between two", suit(version="v1", timestamp=T4), then, [stale("v2"), late]),
        ("before all", suit(version="v2", timestamp="2019-01-01T00:00:00Z"), then, [late]),
        ("timestamps before versions", suit(version="v1"), newer, []),
        ("timestamps before versions", suit(version="v9"), newer, [stale("v1")]),
        ("none is newer", suit(version="v1"), alike, []), ("none is newer", suit(version="edition 2"), alike, []),
        *(("none is newer", suit(version=version), drafts, []) for version in ("draft", "final", "v2")),
        ("another relation supersedes nothing", suit(version="v1"), owned, []),
        ("another relation", says("Acme", "knows", "Globex", version="v1"), owned, [("relation_mismatch",)]),
    ]  # fmt: skip
    wrong = [
        (case, got) for case, claim, truths, reasons in cases if (got := found(claim, truths)) != reasons
    ]
    assert wrong == []
    assert [reason for reason, *_ in found(suit(version="v1"), drafts)] == ["version_mismatch"]
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
    # a truth that is none grounds nothing
    brokens = [{"subject": "Acme", "object": "Globex"}, says(" ", "sued", "Globex"), "suit", None]
    assert [broken for broken in brokens if found(suit(), [broken]) != [("missing_source",)]] == []


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


@given(RELATIONS, st.lists(RELATIONS, max_size=8))
@example(
    says("a", "p", "b", version="v1", timestamp=T1),
    [says("a", "p", "b", version=v, timestamp=None) for v in ("v1", "v2")],
)
def test_a_claim_holds_exactly_where_a_statement_in_force_agrees_with_it(claim, truths):
    def in_force(truth, truths):
        line = [
            one
            for one in truths
            if all(one[part] == truth[part] for part in ("subject", "relation", "object"))
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

    # the event stays bounded and says what it leaves out
    def check(long):
        claims = [suit(version="x" * long)] * 1000
        truth = suit(version="y" * long, qualifiers={"q" * long: 1})
        (event,) = preserve_relations(claims, [truth], require_qualifiers=True).events("acme")
        assert len(json.dumps(event.payload)) < 35_000
        assert len(event.payload["violations"]) + event.payload["truncated"] == 2000
        assert "q" not in {key for one in event.payload["violations"] for key in one}

    assert failing(check, [1, 100_000]) == []


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

    incidents = sorted((Path(__file__).parent / "incidents").glob("*.json"))
    assert incidents
    assert failing(check, incidents) == []
