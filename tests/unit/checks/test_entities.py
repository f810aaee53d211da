"""What an answer names has to stand in the corpus, at its current revision and in one version (S2-37, S3-03..S3-06).

Requirements S3-09, S3-11..S3-13, S3-28..S3-31, C-55.
"""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.entities import EntityGrounding, ground_entities, version_conflicts
from groundwire.checks.sources import check_index
from groundwire.messages.records import Chunk, Entity, IndexEntry
from tests.unit.checks.tables import differing, failing


def reasons(entities, index, **rules):
    return [(one.entity_id, one.reason) for one in ground_entities(entities, index, **rules).missing]


def test_an_entity_of_the_corpus_is_grounded_as_record_or_mapping():
    # an entity of the corpus is grounded
    grounding = ground_entities(
        [{"id": "e1"}, {"id": "e2"}], {"e1": {"confidence": 0.9}, "e2": {"confidence": 1}}
    )
    assert (grounding.missing, grounded := grounding.grounded) == ((), ("e1", "e2"))
    assert grounding.as_report() == {"missing_entities": [], "grounded_entities": list(grounded)}
    assert grounding.events("acme") == []
    # records and plain mappings are read alike
    entity, entry = Entity(id="e1", role="CFO"), IndexEntry(confidence=0.9, role="CIO")
    for entities in ([entity], [entity.model_dump()]):
        for index in ({"e1": entry}, {"e1": entry.model_dump()}):
            assert reasons(entities, index) == [("e1", "role_mismatch")]


def test_an_entity_is_missing_for_the_first_reason_that_applies():
    sure, low = {"confidence": 1}, {"confidence": 0.7}
    cases = [
        ("an invented act", {"id": "lexora-act", "name": "Lexora Act"}, {"merger-act": sure}, "not_found"),
        *(("no evidence", {"id": "e"}, index, "not_found")
          for index in ({}, {"e": {}}, {"e": 0.9}, {"e": ["confidence"]})),
        *(("no usable id", entity, {"e": sure}, "not_found")
          for entity in ({}, {"id": None}, {"id": ["e"]}, "e", None, 7)),
        *(("a confidence", {"id": "e"}, {"e": {"confidence": share}}, reason) for share, reason in (
            (0.59, "low_confidence"), (0.5999999, "low_confidence"), (0.6, None), (0.61, None), (1, None),
            (None, "low_confidence"), (True, "low_confidence"), (85, "low_confidence"), (10**400, "low_confidence"),
        )),
        ("no confidence", {"id": "e"}, {"e": {"role": "CIO"}}, "low_confidence"),
        ("the documents say CIO", {"id": "e", "role": "CFO"}, {"e": sure | {"role": "CIO"}}, "role_mismatch"),
        *(("no other role", {"id": "e", "role": role}, {"e": sure | {"role": known}}, None) for role, known in (
            ("CIO", None), ("", "CIO"), ("CIO", "  "), (" chief  Information officer\n", "Chief information\tofficer"),
            ("ＣＩＯ", "cio"),
        )),
        ("of two reasons", {"id": "e", "role": "CFO"}, {"e": {"confidence": 0.1, "role": "CIO"}}, "low_confidence"),
    ]  # fmt: skip

    def reason(entity, index, **rules):
        missing = ground_entities([entity], index, **rules).missing
        return missing[0].reason if missing else None

    wrong = [
        (case, entity, got) for case, entity, index, why in cases if (got := reason(entity, index)) != why
    ]
    assert wrong == []
    chosen = [
        (low, 0.7, None),
        (low, 0.71, "low_confidence"),
        ({"confidence": 0}, 0, None),
        (low, math.nan, "low_confidence"),
    ]
    assert (
        differing(lambda entry, least: reason({"id": "e"}, {"e": entry}, required_confidence=least), chosen)
        == []
    )
    role = {"e": sure | {"role": "CIO"}}
    assert reason({"id": "e", "role": "CFO"}, role, require_provenance=True) == "role_mismatch"
    assert ground_entities([], {}) == EntityGrounding((), ())


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
    record = {"e": IndexEntry(confidence=1.0, provenance_id="doc-1")}
    assert reasons([Entity(id="e")], record, require_provenance=True) == []


def test_the_event_carries_ids_and_reasons_bounded_and_never_text():
    # the event carries ids and reasons and never text
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

    # the event stays bounded and says what it leaves out
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


def test_an_entity_costs_one_look_at_the_index():
    class Counting(dict):
        looks = 0

        def get(self, key, default=None):
            self.looks += 1
            return super().get(key, default)

    index = Counting({f"e{n}": {"confidence": 0.9} for n in range(10_000)})
    ground_entities([{"id": f"e{n}"} for n in range(10_000)], index)
    assert index.looks == 10_000


def chunk(document, version, **more):
    return {"chunk_id": "c", "document_id": document, "version": version, **more}


def test_versions_of_a_document_are_a_conflict_where_there_are_several():
    # two versions of a document are a conflict
    found = version_conflicts(
        [chunk("reg-1", "2019"), chunk("reg-2", "1"), chunk("reg-1", "2021"), chunk("reg-1", "2019")]
    )
    (event,) = found.events("acme")
    assert (event.name, event.payload) == (
        "enrich.version_conflict",
        {"document_id": "reg-1", "versions": ["2019", "2021"], "tenant_id": "acme"},
    )
    (warning,) = found.warnings
    assert warning.as_dict() == {
        "type": "VERSION_CONFLICT",
        "message": "2 versions of document reg-1 were retrieved",
        "details": {"document_id": "reg-1", "versions": ["2019", "2021"]},
    }
    # one version each or none is no conflict
    chunks = [chunk("a", "1"), chunk("b", "2"), chunk("a", None), chunk(None, "3"), chunk(None, "4")]
    found = version_conflicts(chunks)
    assert (found.conflicts, found.warnings, found.events("acme")) == ((), (), [])
    # records are read as well
    record = Chunk(
        chunk_id="c", file="f", content="text", start_line=1, end_line=2, version="1", document_id="d"
    )
    other = record.model_copy(update={"version": "2"})
    assert version_conflicts([record, other]).conflicts[0].versions == ("1", "2")
    # events and warnings stay bounded
    chunks = [chunk("d" * 10_000 + str(d), "v" * 10_000 + str(v)) for d in range(2) for v in range(50)]
    found = version_conflicts(chunks)
    for one in [event.payload for event in found.events("t")] + [
        warning.as_dict() for warning in found.warnings
    ]:
        assert len(json.dumps(one)) < 6_000
    assert [event.payload["truncated"] for event in found.events("t")] == [30, 30]
    assert "50 versions" in found.warnings[0].message
    many = version_conflicts([chunk(f"d{d}", str(v)) for d in range(1000) for v in range(2)])
    assert (len(many.conflicts), len(many.events("t"))) == (1000, 100)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123") | st.none())))
def test_a_document_conflicts_exactly_where_its_versions_are_more_than_one(pairs):
    expected = {d for d in "ab" if len({v for e, v in pairs if e == d and v is not None}) > 1}
    found = version_conflicts([chunk(document, version) for document, version in pairs])
    assert {conflict.document_id for conflict in found.conflicts} == expected


def test_a_file_of_another_revision_is_stale_and_warned_of():
    def piece(file, revision=None):
        given = {"chunk_id": "c", "file": file, "content": "x", "start_line": 1, "end_line": 1}
        return given if revision is None else given | {"revision": revision}

    report = check_index([piece("a.py", "r1"), piece("b.py", "r2")], {"a.py": "r9", "b.py": "r2"})
    [warning] = report.warnings
    assert warning.type == "STALE_INDEX"
    assert warning.details == {"file": "a.py", "indexed": ["r1"], "current": "r9"}
    several = [piece("a.py", "r2"), piece("./a.py", "r1"), piece("a.py", "r1"), piece("a.py", "r0")]
    assert check_index(several, {"a.py": "r2"}).warnings[0].details["indexed"] == ["r1", "r0"]
    cases = [
        ([piece("a.py", "r1"), piece("b.py", "r2")], {"a.py": "r9", "b.py": "r2"}, (("a.py",), ("a.py", "b.py"))),
        # without a revision on either side
        ([piece("a.py"), piece("b.py", "r1")], {"a.py": "r1", "c.py": "r1"}, ((), ())),
        # one stale chunk makes its file stale, once
        (several, {"a.py": "r2"}, (("a.py",), ("a.py",))),
        # compared exactly
        ([piece("a.py", "abc1234"), piece("B.py", "1")], {"a.py": "abc12345", "b.py": "2"}, (("a.py",), ("a.py",))),
    ]  # fmt: skip

    def checked(chunks, revisions):
        report = check_index(chunks, revisions)
        return report.stale, report.checked

    assert differing(checked, cases) == []
