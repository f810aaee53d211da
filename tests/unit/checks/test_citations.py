"""Citations: what a text points at, where, and what only looks like a citation.

Requirements S0-46..S0-55, S0-57..S0-63, C-18..C-20.
"""

from itertools import chain, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.citations import Citation, CitationDetector
from groundwire.text.visible import visible
from tests.unit.checks.tables import failing

DETECTOR = CitationDetector()
UUID = "550e8400-e29b-41d4-a716-446655440000"
SHA = "0123456789abcdef0123456789abcdef01234567"

PIECES = [
    "ADR", "-", " ", "003", "[", "]", "(", ")", "#", "12", "123456", "GH-4", "a1b2c3d", "deadbeef",
    "1234567", "commit",
    "colour", "https://x.io", "HTTP://", "/a", ".", ",", "&#39;", "&gt;", "'", "`", "\u200b", "—", "é",
    "根据", SHA, UUID,
    "sha256:", "and", "ſ",
]  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(PIECES)).map("".join)


def labels(text):
    return [citation.label for citation in DETECTOR.detect(text)]


def raw(text):
    return [text[citation.start : citation.end] for citation in DETECTOR.detect(text)]


def test_an_adr_is_found_in_every_spelling_with_its_digits_as_written():
    cases = [
        ("see [ADR-003] on", "[ADR-003]"), ("Per ADR-003, we", "ADR-003"), ("adr-003", "adr-003"),
        ("ADR003", "ADR003"), ("ADR #003", "ADR #003"), ("docs/adrs/ADR-003-use-x.md", "ADR-003"),
        ("根据ADR-003，", "ADR-003"), ("ADR\u2011003", "ADR\u2011003"),
    ]  # fmt: skip

    def check(text, match):
        assert labels(text) == ["adr:003"]
        assert raw(text) == [match]

    assert failing(check, cases) == []


def test_what_only_contains_adr_is_none():
    texts = ["QUADR-5", "ADR-123456", "ADR-3b", "éADR-3", "ADR"]
    assert [text for text in texts if labels(text) != []] == []


def test_a_commit_is_7_to_40_hex_digits_in_lower_case():
    cases = [
        ("Fixed in commit a1b2c3d4e5", ["commit:a1b2c3d4e5"]), ("abc123", []),
        ("commit A1B2C3D4", ["commit:a1b2c3d4"]), ("提交a1b2c3d。", ["commit:a1b2c3d"]),
        ("a1b2c3d..e4f5a6b", ["commit:a1b2c3d", "commit:e4f5a6b"]),
    ]  # fmt: skip
    assert [(text, got) for text, found in cases if (got := labels(text)) != found] == []


def test_words_and_numbers_are_commits_only_after_a_cue():
    words = ["deadbeef", "defaced", "facaded", "fabaceae", "1234567"]
    cues = ["commit", "sha:", "rev", "fixed in", "merged as"]

    def check(word, cue):
        assert labels(f"the {word} count") == []
        assert labels(f"{cue} {word}") == [f"commit:{word}"]
        assert labels(f"{cue} of which much was said: {word}") == []

    assert failing(check, product(words, cues)) == []


def test_a_cue_holds_for_a_list_of_commits():
    assert labels("commits deadbeef, defaced and 1234567") == [
        "commit:deadbeef",
        "commit:defaced",
        "commit:1234567",
    ]


def test_hex_digits_of_another_kind_are_no_citation():
    texts = ["550e8400-e29b", "pod-7d9f8b6c5-abcde", "hex a1b2c3d4", "&#xa1b2c3d;"]
    assert [text for text in texts if labels(text) != []] == []


def test_an_issue_is_a_number_that_is_no_colour_entity_anchor_or_part_of_a_document():
    cases = [
        ("(#12)", ["issue:12"]), ("issue #123 fill it in", ["issue:123"]), ("见#12", ["issue:12"]),
        ("the colours #123456 and #654321", []), ("&#39;", []), ("step #2", []),
    ]  # fmt: skip
    assert [(text, got) for text, found in cases if (got := labels(text)) != found] == []


def test_a_url_ends_where_the_sentence_takes_over():
    cases = [
        ("(see https://x.io/a), b", ["https://x.io/a"]),
        ('<https://x.io> "https://y.io" `https://z.io`', ["https://x.io", "https://y.io", "https://z.io"]),
        ("https://x.io/a}]) “https://y.io”", ["https://x.io/a", "https://y.io"]),
        ("&lt;https://x.io?a=1&b=2&gt;", ["https://x.io?a=1&b=2"]),
    ]  # fmt: skip

    def check(text, urls):
        assert [citation.value for citation in DETECTOR.detect(text)] == urls
        assert raw(text) == urls

    assert failing(check, cases) == []


def test_nothing_inside_a_url_is_a_citation_of_its_own():
    paths = ["commit/a1b2c3d4e5f6", "p#123", "ADR-003", "GH-4", "a?sha=deadbeef1"]
    assert [path for path in paths if labels(f"https://x.io/{path}") != [f"url:https://x.io/{path}"]] == []


def test_citations_come_in_text_order_and_the_summary_has_all_four_types():
    text = "ADR-003 (see https://e.com, #12)"
    assert labels(text) == ["adr:003", "url:https://e.com", "issue:12"]
    summary = DETECTOR.summary(text)
    assert list(summary) == ["adr", "commit", "url", "issue"]
    assert [len(found) for found in summary.values()] == [1, 0, 1, 1]
    assert DETECTOR.summary("") == {"adr": [], "commit": [], "url": [], "issue": []}


def test_checks_and_evidence_name_a_citation_in_their_own_ways():
    cases = [
        (Citation("adr", "003", 0, 7), "adr:003", "ADR-003"),
        (Citation("commit", SHA, 0, 40), f"commit:{SHA}", "commit:0123456"),
        (Citation("url", "https://e.com", 0, 13), "url:https://e.com", "https://e.com"),
        (Citation("issue", "123", 0, 4), "issue:123", "issue:123"),
    ]  # fmt: skip
    assert [
        (citation, label, source_id)
        for citation, label, source_id in cases
        if (citation.label, citation.source_id) != (label, source_id)
    ] == []


@given(ANY_TEXT | st.text(alphabet="adrgh-03fF# "))
def test_a_glance_for_what_every_citation_has_hides_none(text):
    found = DETECTOR.detect(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.checks.citations._may_cite", lambda _: True)
        assert DETECTOR.detect(text) == found


@given(ANY_TEXT)
def test_every_citation_is_a_slice_of_the_text_without_overlaps(text):
    citations = DETECTOR.detect(text)
    for citation in citations:
        match = text[citation.start : citation.end]
        assert match
        if visible(text) != text:
            continue
        assert citation.value in (match.lower() if citation.type == "commit" else match)
        if citation.type == "url":
            assert citation.value == match
    assert all(before.end <= after.start for before, after in pairwise(citations))
    summary = DETECTOR.summary(text)
    assert sorted(chain(*summary.values()), key=lambda citation: citation.start) == citations


@given(st.sampled_from(["ADR-003", "#12", "GH-7", "https://x.io/a", "commit 1234567"]), ANY_TEXT)
def test_a_citation_after_white_space_is_found_whatever_stands_before(citation, before):
    assert labels(citation)[0] in labels(f"{before.replace('olo', '')} ; {citation}")


def test_markup_and_invisible_characters_hide_no_citation_and_its_place_is_that_of_the_text():
    cases = [
        ("see <b>ADR</b>-003", "adr:003", "ADR</b>-003"), ("see ADR-0&#48;3.", "adr:003", "ADR-0&#48;3"),
        ("see AD\u200bR-00\u00ad3", "adr:003", "AD\u200bR-00\u00ad3"),
        ("see issue #\u206012", "issue:12", "#\u206012"),
        ("see https://x.io/a&amp;b.", "url:https://x.io/a&b", "https://x.io/a&amp;b"),
    ]  # fmt: skip

    def check(text, label, written):
        [citation] = DETECTOR.detect(text)
        assert (citation.label, text[citation.start : citation.end]) == (label, written)

    assert failing(check, cases) == []
