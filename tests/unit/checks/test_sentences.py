"""Sentences: where one ends, and that nothing of a text is lost."""

import re

from hypothesis import given
from hypothesis import strategies as st

from groundwire.text.sentences import sentences
from tests.unit.checks.tables import differing


def test_a_full_stop_ends_a_sentence_and_a_point_does_not():
    cases = [
        ("One is 1. Two is 2! Three? Four", ["One is 1.", "Two is 2!", "Three?", "Four"]),
        ("By J. Doe. Lists etc. are one.", ["By J. Doe.", "Lists etc. are one."]),
        ("Wait... and see. Wait... And see", ["Wait... and see.", "Wait...", "And see"]), (" \n\t ", []),
    ]  # fmt: skip
    assert differing(lambda text: [span.text for span in sentences(text)], cases) == []


def test_no_sentence_crosses_what_the_page_divides():
    long = "a line as long as it can be is broken for want of room before\nKafka"
    cases = [
        ("# Head\nText here\n\nmore", ["# Head", "Text here", "more"]),
        ("the number is\n5. Then", ["the number is\n5.", "Then"]),
        ("The timeout is 30 s\nThe retries are 5", ["The timeout is 30 s", "The retries are 5"]),
        (long, [long]),
    ]  # fmt: skip
    assert differing(lambda text: [span.text for span in sentences(text)], cases) == []


def test_a_closed_code_block_is_one_span_and_an_open_one_is_prose():
    cases = [
        ("A.\n```py\nx. Y\n```\nB.", [("A.", False), ("```py\nx. Y\n```", True), ("B.", False)]),
        ("````\n```\na\n```\n````\nB", [("````\n```\na\n```\n````", True), ("B", False)]),
        ("````\na\n```\nb. C", [("````\na\n```\nb.", False), ("C", False)]),
        ("```a\n```b\n```", [("```a\n```b\n```", True)]),
    ]  # fmt: skip
    assert differing(lambda text: [(span.text, span.code) for span in sentences(text)], cases) == []


PIECES = [
    "A b",
    "a",
    ". ",
    ".",
    "! ",
    "e.g. ",
    "[source:1]",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "```",
    "```\n",
    "`",
    "~~~\n",
]


@given(
    st.lists(
        st.sampled_from([*PIECES, "# ", "| ", "5", ") ", "\u3002", "\u2026 ", "\t", "\r\n", "Dr. "]),
        max_size=20,
    )
)
def test_spans_are_exact_in_order_and_lose_no_letter(pieces):
    text = "".join(pieces)
    spans = sentences(text)
    last = 0
    for span in spans:
        assert last <= span.start < span.end
        assert text[span.start : span.end] == span.text == span.text.strip()
        lost = re.sub(r"\(?[A-Za-z]\)", "", text[last : span.start])  # the marker of a list item
        assert not any(char.isalpha() for char in lost), lost
        last = span.end
    assert not any(char.isalnum() for char in text[last:])
