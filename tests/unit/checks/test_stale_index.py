"""The index check: which files were indexed at another revision than their current one."""

from groundwire.checks.stale_index import check_index


def chunk(file, revision=None):
    given = {"chunk_id": "c", "file": file, "content": "x", "start_line": 1, "end_line": 1}
    return given if revision is None else given | {"revision": revision}


def test_a_file_of_another_revision_is_stale_and_warned_of():
    report = check_index([chunk("a.py", "r1"), chunk("b.py", "r2")], {"a.py": "r9", "b.py": "r2"})
    assert report.stale == ("a.py",)
    assert report.checked == ("a.py", "b.py")
    [warning] = report.warnings
    assert warning.type == "STALE_INDEX"
    assert warning.details == {"file": "a.py", "indexed": ["r1"], "current": "r9"}


def test_what_has_no_revision_on_either_side_is_not_checked():
    report = check_index([chunk("a.py"), chunk("b.py", "r1")], {"a.py": "r1", "c.py": "r1"})
    assert (report.stale, report.checked, report.warnings) == ((), (), ())


def test_one_stale_chunk_makes_its_file_stale_once():
    chunks = [chunk("a.py", "r2"), chunk("./a.py", "r1"), chunk("a.py", "r1"), chunk("a.py", "r0")]
    report = check_index(chunks, {"a.py": "r2"})
    assert (report.stale, report.checked) == (("a.py",), ("a.py",))
    assert report.warnings[0].details["indexed"] == ["r1", "r0"]


def test_revisions_are_compared_exactly():
    report = check_index([chunk("a.py", "abc1234"), chunk("B.py", "1")], {"a.py": "abc12345", "b.py": "2"})
    assert report.stale == ("a.py",)
    assert report.checked == ("a.py",)
