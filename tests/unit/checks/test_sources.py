"""Sources and fields of an answer: what is the same passage, what counts as a mention, and what is found where.

Requirements S2-01..S2-14, S2-16, S2-18, S2-39, S2-44, C-50.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks import sources as sources_module
from groundwire.checks.sources import FieldChecker, SourceVerifier, verify_sources
from tests.unit.checks.tables import differing, failing

APP = """def connect(host, timeout=30):
    if host == "local":
        return Client(-1.5)
    return Client(timeout)
"""


def chunk(file, content, start=1, end=None, **more):
    end = start + len(content.removesuffix("\n").split("\n")) - 1 if end is None else end
    return {"chunk_id": "c", "file": file, "content": content, "start_line": start, "end_line": end, **more}


VERIFIER = SourceVerifier(
    [chunk("src/app.py", APP), chunk("docs/a.md", "The cache\nholds 1,000 entries.", 40)]
)


def test_parts_that_hold_are_counted_over_parts_given():
    cases = [
        ({"file": "src/app.py", "snippet": "return Server(timeout)"}, (True, False, None), 1 / 2),
        ({"file": "src/app.py", "snippet": "def connect(", "start_line": 1}, (True, True, True), 1.0),
        ({"file": "src/app.py", "snippet": "def connect(", "end_line": 9}, (True, True, False), 2 / 3),
        ({"file": "src/app.py", "snippet": "def connect(", "start_line": 2, "end_line": 4}, (True, True, False), 2 / 3),
    ]  # fmt: skip

    def check(source, held, confidence):
        result = VERIFIER.verify_source(source)
        assert (result.exists, result.snippet_valid, result.lines_match) == held
        assert result.confidence == pytest.approx(confidence)

    assert failing(check, cases) == []


def test_white_space_is_forgiven_and_numbers_names_and_signs_are_not():
    # white space curly quotes and dashes make no difference
    snippets = [
        "def connect(host, timeout=30):\n\tif host == \u201clocal\u201d:",
        'if host == "local":\r\n\r\n      return Client(\u22121.5)',
        "def connect( host,\n    timeout = 30 ):", "return\u00a0Client(timeout)\ufeff",
        "  return Client(timeout)  ",
    ]  # fmt: skip
    assert [snippet for snippet in snippets if not VERIFIER.verify_snippet("src/app.py", snippet)] == []
    # numbers names and signs are never forgiven
    snippets = ["timeout=3", "if host = = 'local'", "if host == 'local'", 'if host != "local"']
    assert [snippet for snippet in snippets if VERIFIER.verify_snippet("src/app.py", snippet)] == []
    # a number is never cut
    snippets = ["holds 1", "holds 1,00", "000 entries", "1, 000 entries", "1000 entries"]

    def check(snippet):
        assert VERIFIER.verify_snippet("docs/a.md", "holds 1,000 entries.")
        assert not VERIFIER.verify_snippet("docs/a.md", snippet)
        assert not SourceVerifier([chunk("a", "holds 1,0005")]).verify_snippet("a", "holds 1,000")

    assert failing(check, snippets) == []


def test_lines_match_where_all_of_them_were_retrieved_of_the_same_file():
    # lines match where all of them were retrieved
    cases = [(1, 4, True), (0, 2, False), (3, 2, False), (2, 5, False), (5, 5, False)]

    def check(start, end, match):
        assert VERIFIER.verify_lines("src/app.py", start, end) is match
        assert not VERIFIER.verify_lines("other.py", start, end)

    assert failing(check, cases) == []
    # only another spelling of a path is the same file
    cases = [
        ("./src/app.py", True), ("/src/app.py", False), ("../src/app.py", False),
        ("src/../src/app.py", False), ("SRC/app.py", False),
    ]  # fmt: skip
    assert differing(lambda file: VERIFIER.verify_source({"file": file}).exists, cases) == []


def test_chunks_join_only_where_they_follow_or_overlap():
    # a snippet and lines may span chunks that follow or overlap
    lines = [f"line {word}\n" for word in ("one", "two", "three", "four", "five", "six", "seven")]
    parts = [
        chunk("a", "".join(lines[4:7]), 5, revision="r"),
        chunk("a", "".join(lines[0:2]), 1, revision="r"),
        chunk("a", "".join(lines[1:4]), 2, revision="r"),
    ]
    verifier = SourceVerifier(parts)
    assert verifier.verify_snippet("a", "line two line three line four line five")
    assert verifier.verify_lines("a", 1, 7)
    spanning = {"file": "a", "snippet": "line four\nline five", "start_line": 4, "end_line": 5}
    assert verifier.verify_source(spanning).lines_match
    assert not verifier.verify_source(spanning | {"end_line": 4}).lines_match
    # chunks that do not join are no passage
    seconds = [
        chunk("a", "three\nfour", 4),  # a line is missing between them
        chunk("a", "three", 4),
        chunk("a", "2\nthree", 2),  # says something else of a line
        chunk("a", "three", 3, revision="other"),
        chunk("b", "three", 3),
    ]

    def check(second):
        verifier = SourceVerifier([chunk("a", "one\ntwo"), second])
        assert verifier.verify_snippet("a", "one two")
        assert not verifier.verify_snippet("a", "two three")

    assert failing(check, seconds) == []
    # a chunk with other lines than it says is looked at as a whole
    verifier = SourceVerifier([chunk("a", "only one line", 10, 20), chunk("a", "loose", 0, -5)])
    assert verifier.verify_source({"file": "a", "snippet": "one line", "start_line": 15}).lines_match
    assert not verifier.verify_source({"file": "a", "snippet": "one line", "start_line": 21}).lines_match
    assert verifier.verify_snippet("a", "loose")
    assert not verifier.verify_lines("a", 0, 0)


def test_what_does_not_hold_is_a_warning_that_says_why():
    # a file that was not retrieved is a phantom
    report = verify_sources(
        [{"file": "x.py", "snippet": "return Client(timeout)"}], [chunk("src/app.py", APP)]
    )
    [warning] = report.warnings
    assert warning.type == "PHANTOM_FILE"
    assert warning.details == {"file": "x.py", "failed": ["file", "snippet"], "found_in": ["src/app.py"]}
    assert (report.phantom_files, report.mismatched_files, report.confidence) == (("x.py",), (), 0.0)
    # the right snippet of another file is a mismatch that names it
    chunks = [chunk("a.py", "x = 1"), chunk("b.py", "y = 2")]
    report = verify_sources([{"file": "a.py", "snippet": "y = 2"}], chunks)
    [warning] = report.warnings
    assert warning.type == "SNIPPET_MISMATCH"
    assert warning.details["found_in"] == ["b.py"]
    assert report.mismatched_files == ("a.py",)
    assert not report.results[0][1].snippet_valid
    # wrong lines are a mismatch too
    report = verify_sources(
        [{"file": "src/app.py", "start_line": 3, "end_line": 9}], [chunk("src/app.py", APP)]
    )
    [warning] = report.warnings
    assert warning.type == "SNIPPET_MISMATCH"
    assert warning.details == {"file": "src/app.py", "failed": ["lines"], "lines": [3, 9]}
    # a near miss shows in the warning
    cited = [
        {"file": "src/app.py", "snippet": s}
        for s in ("def connect(host, timeout=60):", "class Zebra extends Q")
    ]
    near, far = (w.details["similarity"] for w in verify_sources(cited, [chunk("src/app.py", APP)]).warnings)
    assert near > 0.7
    assert far == 0


def test_confidence_is_the_mean_over_sources_and_one_without_any():
    chunks = [chunk("src/app.py", APP)]
    cited = [{"file": "src/app.py"}, {"file": "src/app.py", "snippet": "no"}, {"file": "x"}, {"file": "x"}]
    report = verify_sources(cited, chunks)
    assert report.confidence == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert [file for file, _ in report.results] == ["src/app.py", "src/app.py", "x", "x"]
    assert report.phantom_files == ("x",)
    assert verify_sources([], chunks).confidence == 1.0
    assert verify_sources(cited, []).confidence == 0.0


TOKENS = st.lists(
    st.sampled_from(["timeout", "x", "30", "3", "1.5", "=", "==", "(", ")", "-", "\u2026"]), max_size=8
)


@given(TOKENS, TOKENS, TOKENS, st.sampled_from([" ", "\t", "\n", "  \r\n "]))
def test_whole_tokens_of_a_file_are_found_whatever_the_white_space(before, snippet, behind, space):
    verifier = SourceVerifier([chunk("a", " ".join([*before, *snippet, *behind]))])
    assert verifier.verify_snippet("a", space.join(snippet)) is bool(snippet)


@given(st.lists(st.sampled_from(["a b", "b", "", "a"]), min_size=1, max_size=9), st.data())
def test_any_cut_into_overlapping_chunks_gives_the_same_file(lines, data):
    cuts = sorted([0, len(lines), *data.draw(st.lists(st.integers(0, len(lines)), max_size=4))])
    parts = []
    for start, end in pairwise(cuts):
        first = max(0, start - data.draw(st.integers(0, 2)))
        if first < end:
            parts.append(chunk("f", "\n".join(lines[first:end]), first + 1, end))
    cut = SourceVerifier(data.draw(st.permutations(parts)))
    whole = SourceVerifier([chunk("f", "\n".join(lines), 1, len(lines))])
    start = data.draw(st.integers(1, len(lines)))
    end = data.draw(st.integers(start, len(lines)))
    source = {"file": "f", "snippet": "\n".join(lines[start - 1 : end]), "start_line": start, "end_line": end}
    assert cut.verify_source(source) == whole.verify_source(source)


def test_past_the_budget_a_snippet_is_not_found_and_its_warning_says_why(monkeypatch):
    monkeypatch.setattr(sources_module._SearchBudget.__init__, "__defaults__", (3_000,))
    report = verify_sources([{"file": "src/app.py", "snippet": "timeout"}] * 9, [chunk("src/app.py", APP)])
    held = [result.snippet_valid for _, result in report.results]
    assert held == sorted(held, reverse=True)
    assert 0 < sum(held) < 9
    assert report.warnings[-1].details["not_searched"] is True


@pytest.mark.slow
def test_many_sources_over_a_long_file_cost_a_bounded_search():
    content = "a b " * 50_000
    cited = [{"file": "f", "snippet": f"a b a b {number}"} for number in range(5_000)]
    spent = []
    real = sources_module._SearchBudget.spend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sources_module._SearchBudget, "spend", lambda self, n: real(self, n) and not spent.append(n)
        )
        report = verify_sources(cited, [chunk("f", content)])
    assert sum(spent) <= sources_module.SEARCH_BUDGET
    assert len(report.warnings) == 5_000


CHECKER = FieldChecker()


def test_fields_are_named_in_four_ways_and_plain_words_are_none():
    # each of the four ways to name a field is seen
    cases = [
        ("the parameter topN", ["topN"]),
        ("the Field  topN and an OPTION\nother_one", ["topN", "other_one"]),
        ("call client.flushAll() now", ["flushAll"]), ("the parameter field topK", ["topK"]),
        # code spans and calls know no stop list; a name that begins like a plain word is one
        ("`is` and x.to(y)", ["is", "to"]), ("parameter toName, option isOpen", ["toName", "isOpen"]),
        # in the order of their first mention, once each, in exact case
        ("parameter zeta, then `alpha`, .beta(), `zeta`, `Alpha`, alpha: string", ["zeta", "alpha", "beta", "Alpha"]),
    ]  # fmt: skip
    assert differing(CHECKER.extract_mentioned_fields, cases) == []
    # plain words are no fields
    answers = [
        "There is an option to retry.",
        "An Option To Skip. The parameter THAT matters. option 2, parameter 1.",
        "Note: string values are trimmed. Type: number. One of: string, number.",
        "adoption rate, subfield x, metaparameter y", "name: stringent rules, size: numbers",
    ]  # fmt: skip
    assert [answer for answer in answers if CHECKER.extract_mentioned_fields(answer) != []] == []


def test_confidence_is_the_share_of_fields_found_as_whole_names():
    # confidence is the share of fields found
    result = CHECKER.verify_fields(["a", "b", "c", "d"], [chunk("a.ts", "a = c")])
    assert result == (["a", "c"], ["b", "d"], 0.5)
    assert result.message == "Unverified fields: [b, d]"

    # a field is a whole name in exact case wherever it stands
    def verified(content):
        return CHECKER.verify_fields(["topK"], [chunk("a.ts", "other"), chunk("a.ts", content)]).verified

    cases = [(content, []) for content in ("topKey", "TOPK", "topk", "topK2")]
    cases += [(content, ["topK"]) for content in ("topK", "{topK:3}", "$topK", "# topK\n")]
    assert differing(verified, cases) == []


@given(st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True)), st.text("abc ._-", max_size=60))
def test_every_field_is_verified_or_not_and_counted_once(names, content):
    result = CHECKER.verify_fields(names, [chunk("a.ts", content)])
    assert sorted(result.verified + result.unverified) == sorted(set(names))
    total = len(set(names))
    assert result.confidence == (len(result.verified) / total if total else 1.0)


@given(st.text("`.ab:(1 option string parameter\n", max_size=80))
def test_what_is_extracted_stands_in_the_answer(answer):
    found = CHECKER.extract_mentioned_fields(answer)
    assert all(name in answer for name in found)
    assert len(set(found)) == len(found)
