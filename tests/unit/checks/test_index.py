"""Files of another revision (S2-37), and several versions of a document (S3-29..S3-31), among what was retrieved."""

import json

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.index import check_index, version_conflicts
from groundwire.messages.records import Chunk


def chunk(document, version, **more):
    return {"chunk_id": "c", "document_id": document, "version": version, **more}


def test_two_versions_of_a_document_are_a_conflict():
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


def test_one_version_each_or_none_is_no_conflict():
    chunks = [chunk("a", "1"), chunk("b", "2"), chunk("a", None), chunk(None, "3"), chunk(None, "4")]
    found = version_conflicts(chunks)
    assert (found.conflicts, found.warnings, found.events("acme")) == ((), (), [])


def test_records_are_read_as_well():
    record = Chunk(
        chunk_id="c", file="f", content="text", start_line=1, end_line=2, version="1", document_id="d"
    )
    other = record.model_copy(update={"version": "2"})
    assert version_conflicts([record, other]).conflicts[0].versions == ("1", "2")


def test_events_and_warnings_stay_bounded():
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


def piece(file, revision=None):
    given = {"chunk_id": "c", "file": file, "content": "x", "start_line": 1, "end_line": 1}
    return given if revision is None else given | {"revision": revision}


def test_a_file_of_another_revision_is_stale_and_warned_of():
    report = check_index([piece("a.py", "r1"), piece("b.py", "r2")], {"a.py": "r9", "b.py": "r2"})
    assert report.stale == ("a.py",)
    assert report.checked == ("a.py", "b.py")
    [warning] = report.warnings
    assert warning.type == "STALE_INDEX"
    assert warning.details == {"file": "a.py", "indexed": ["r1"], "current": "r9"}


def test_what_has_no_revision_on_either_side_is_not_checked():
    report = check_index([piece("a.py"), piece("b.py", "r1")], {"a.py": "r1", "c.py": "r1"})
    assert (report.stale, report.checked, report.warnings) == ((), (), ())


def test_one_stale_chunk_makes_its_file_stale_once():
    chunks = [piece("a.py", "r2"), piece("./a.py", "r1"), piece("a.py", "r1"), piece("a.py", "r0")]
    report = check_index(chunks, {"a.py": "r2"})
    assert (report.stale, report.checked) == (("a.py",), ("a.py",))
    assert report.warnings[0].details["indexed"] == ["r1", "r0"]


def test_revisions_are_compared_exactly():
    report = check_index([piece("a.py", "abc1234"), piece("B.py", "1")], {"a.py": "abc12345", "b.py": "2"})
    assert report.stale == ("a.py",)
    assert report.checked == ("a.py",)
