"""What an answer names has to stand in the corpus (S3-03..S3-06, S3-09, S3-11..S3-13, S3-28, S3-29, C-55)."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.entities import EntityGrounding, MissingEntity, ground_entities
from groundwire.messages.records import Entity, IndexEntry
from tests.unit.checks.tables import failing


def reasons(entities, index, **rules):
    return [(one.entity_id, one.reason) for one in ground_entities(entities, index, **rules).missing]


def test_an_entity_of_the_corpus_is_grounded():
    grounding = ground_entities(
        [{"id": "e1"}, {"id": "e2"}], {"e1": {"confidence": 0.9}, "e2": {"confidence": 1}}
    )
    assert (grounding.missing, grounded := grounding.grounded) == ((), ("e1", "e2"))
    assert grounding.as_report() == {"missing_entities": [], "grounded_entities": list(grounded)}
    assert grounding.events("acme") == []


def test_records_and_plain_mappings_are_read_alike():
    entity, entry = Entity(id="e1", role="CFO"), IndexEntry(confidence=0.9, role="CIO")
    for entities in ([entity], [entity.model_dump()]):
        for index in ({"e1": entry}, {"e1": entry.model_dump()}):
            assert reasons(entities, index) == [("e1", "role_mismatch")]


def test_an_invented_act_is_not_found():
    assert reasons([{"id": "lexora-act", "name": "Lexora Act"}], {"merger-act": {"confidence": 1.0}}) == [
        ("lexora-act", "not_found")
    ]


def test_an_entity_without_evidence_is_not_found():
    indexes = [{}, {"e1": {}}, {"e1": 0.9}, {"e1": ["confidence"]}]
    assert [index for index in indexes if reasons([{"id": "e1"}], index) != [("e1", "not_found")]] == []


def test_something_without_a_usable_id_is_missing_and_no_error():
    assert [
        entity
        for entity in [{}, {"id": None}, {"id": ["e1"]}, "e1", None, 7]
        if [reason for _, reason in reasons([entity], {"e1": {"confidence": 1.0}})] != ["not_found"]
    ] == []


def test_nothing_named_is_nothing_missing():
    assert ground_entities([], {}) == EntityGrounding((), ())


def test_the_required_confidence_itself_passes():
    cases = [(0.59, False), (0.5999999, False), (0.6, True), (0.61, True), (1, True)]
    assert [
        (confidence, got)
        for confidence, holds in cases
        if (got := reasons([{"id": "e"}], {"e": {"confidence": confidence}}) == []) is not holds
    ] == []


def test_the_required_confidence_can_be_chosen():
    index = {"e": {"confidence": 0.7}}
    assert reasons([{"id": "e"}], index, required_confidence=0.7) == []
    assert reasons([{"id": "e"}], index, required_confidence=0.71) == [("e", "low_confidence")]
    assert reasons([{"id": "e"}], {"e": {"confidence": 0}}, required_confidence=0) == []
    assert reasons([{"id": "e"}], index, required_confidence=math.nan) == [("e", "low_confidence")]


def test_a_confidence_that_is_no_share_is_too_low():
    confidences = [None, True, 85, 10**400]
    assert [
        confidence
        for confidence in confidences
        if reasons([{"id": "e"}], {"e": {"confidence": confidence}}) != [("e", "low_confidence")]
    ] == []


def test_an_entry_without_a_confidence_is_too_low():
    assert reasons([{"id": "e"}], {"e": {"role": "CIO"}}) == [("e", "low_confidence")]


def test_a_role_that_the_corpus_contradicts_is_reported():
    """Dr. Patel is the CFO, the documents say CIO."""
    index = {"patel": {"confidence": 0.9, "role": "CIO"}}
    assert reasons([{"id": "patel", "role": "CFO"}], index) == [("patel", "role_mismatch")]


def test_roles_are_compared_where_both_have_one_without_case_and_spacing():
    cases = [
        ("CIO", None), ("", "CIO"), ("CIO", "  "),
        (" chief  Information officer\n", "Chief information\tofficer"), ("ＣＩＯ", "cio"),
    ]  # fmt: skip
    assert [
        (role, known)
        for role, known in cases
        if reasons([{"id": "e", "role": role}], {"e": {"confidence": 1, "role": known}}) != []
    ] == []


def test_provenance_is_needed_once_where_it_is_required():
    cases = [
        (None, None, False), ("", " ", False), ("doc-1", None, True), (None, "doc-1", True),
        ("doc-1", "doc-1", True),
    ]  # fmt: skip

    def check(own, known, holds):
        entities, index = (
            [{"id": "e", "provenance_id": own}],
            {"e": {"confidence": 1, "provenance_id": known}},
        )
        assert reasons(entities, index) == []
        expected = [] if holds else [("e", "missing_provenance")]
        assert reasons(entities, index, require_provenance=True) == expected

    assert failing(check, cases) == []


def test_provenance_in_a_record_of_the_index_counts():
    index = {"e": IndexEntry(confidence=1.0, provenance_id="doc-1")}
    assert reasons([Entity(id="e")], index, require_provenance=True) == []


def test_of_several_reasons_the_first_is_reported():
    entity = {"id": "e", "role": "CFO"}
    low = {"confidence": 0.1, "role": "CIO"}
    assert reasons([entity], {"e": low}, require_provenance=True) == [("e", "low_confidence")]
    assert reasons([entity], {"e": low | {"confidence": 1}}, require_provenance=True) == [
        ("e", "role_mismatch")
    ]


def test_the_event_carries_ids_and_reasons_and_never_text():
    secret = "a name that is nobody's business"
    entities = [{"id": "e1", "name": secret, "role": secret}, {"id": "e2"}, {"id": "e3"}]
    index = {"e1": {"confidence": 0.9, "role": "CIO", "note": secret}, "e3": {"confidence": 0.9}}
    (event,) = ground_entities(entities, index).events("acme")
    assert event.name == "knowledge.eg.failed"
    assert event.payload == {
        "missing_entities": [
            {"entity_id": "e1", "reason": "role_mismatch"},
            {"entity_id": "e2", "reason": "not_found"},
        ],
        "required_confidence": 0.6,
        "entity_count": 3,
        "tenant_id": "acme",
    }
    assert secret not in json.dumps(event.payload)


def test_the_event_stays_bounded_and_says_what_it_leaves_out():
    def check(long):
        entities = [{"id": f"{n}" + "x" * long} for n in range(1000)]
        (event,) = ground_entities(entities, {}).events("acme")
        assert len(json.dumps(event.payload)) < 30_000
        assert (
            len(event.payload["missing_entities"]) + event.payload["truncated"]
            == event.payload["entity_count"]
            == 1000
        )

    assert failing(check, [1, 100_000]) == []


def test_the_report_names_all():
    grounding = ground_entities([{"id": str(n)} for n in range(300)], {"7": {"confidence": 1}})
    report = grounding.as_report()
    assert (len(report["missing_entities"]), report["grounded_entities"]) == (299, ["7"])
    assert report["missing_entities"][0] == {"entity_id": "0", "reason": "not_found"}


@given(
    st.lists(st.sampled_from("abcdef"), max_size=8),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1)),
    st.floats(0, 1),
)
def test_every_entity_is_either_missing_or_grounded_and_keeps_its_place(names, known, required):
    index = {name: {"confidence": confidence} for name, confidence in known.items()}
    grounding = ground_entities([{"id": name} for name in names], index, required_confidence=required)
    expected = [known.get(name, -1) >= required for name in names]
    assert [one.position for one in grounding.missing] == [n for n, holds in enumerate(expected) if not holds]
    assert list(grounding.grounded) == [name for name, holds in zip(names, expected, strict=True) if holds]
    assert grounding.entity_count == len(names)


@given(st.text(), st.text())
def test_odd_roles_raise_nothing(role, known):
    ground_entities([{"id": "e", "role": role}], {"e": {"confidence": 1, "role": known}})


def test_an_entity_costs_one_look_at_the_index():
    class Counting(dict):
        looks = 0

        def get(self, key, default=None):
            self.looks += 1
            return super().get(key, default)

    index = Counting({f"e{n}": {"confidence": 0.9} for n in range(10_000)})
    ground_entities([{"id": f"e{n}"} for n in range(10_000)], index)
    assert index.looks == 10_000


def test_a_missing_entity_is_a_plain_value():
    assert MissingEntity("e", "not_found") == MissingEntity("e", "not_found", 0)
