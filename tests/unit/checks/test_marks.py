"""Marks of citation: what is one, what it refers to, and what only looks like it."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.marks import Citable, blanked, marks, without_marks
from tests.unit.checks.tables import differing, failing

SHELF = Citable(
    ["docs/Travel_Policy.pdf", "leave.pdf#page=4", "handbook.pdf", "smith_2020.pdf", "doc-9", "notes:12"],
    3,
    ["As [7] says, the desk is closed. See [the annex](annex.pdf)."],
)


def test_a_mark_of_any_usual_style_is_blanked_and_names_what_was_retrieved():
    cases = [
        ("[source:2]", [2]), ("[1]", [1]), ("\u30104:0\u2020handbook.pdf\u3011", ["handbook.pdf"]),
        ("(see handbook.pdf; docs/Travel_Policy.pdf)", ["handbook.pdf", "docs/Travel_Policy.pdf"]),
        ("<sup>1</sup>", [1]), ("[Handbook](handbook.pdf)", ["Handbook", "handbook.pdf"]),
        ("[1, p. 4]", [1]),
    ]  # fmt: skip

    def check(mark, names):
        for text in (f"Trains are booked early {mark}.", f"Trains are booked early. {mark} Taxis too."):
            found = marks(text, SHELF)
            assert [name for one in found for name in one.references] == names
            assert not any(one.missing for one in found)
            assert blanked(text, found).split() == text.replace(mark, " ").split()

    assert failing(check, cases) == []


def test_a_mark_that_names_nothing_that_was_retrieved_misses_it():
    cases = [
        ("[source:9]", (9,)), ("[4]", (4,)), ("[doc-8]", ("doc-8",)),
        ("(rates.pdf, p. 4)", ("rates.pdf, p. 4",)), ("[Rates](rates.pdf)", ("rates.pdf",)),
    ]  # fmt: skip
    assert differing(lambda mark: SHELF.missing(f"Trains are booked early {mark}."), cases) == []
    # names count without their extension only where one file has them
    shelf = Citable(["a/rules.pdf", "b/rules.md", "fees.csv"], 3)
    assert shelf.missing("It is so [source: rules] [source: fees] [source: rules.md].") == ("rules",)


def test_what_may_be_a_value_or_says_something_is_no_mark():
    texts = [
        "he wrote [sic] so", "10\u00b2 and 5 m\u00b2 and 3 feet\u00b2", "As [7] says",
        "Source: the company pays 40 days", "the office is in [handbook].",
    ]  # fmt: skip
    assert [text for text in texts if without_marks(text, SHELF) != text] == []
    code = "`x[1]` `f(1)  # [source:2]`"  # in code only what says so is a mark
    assert [name for mark in marks(code, SHELF) for name in mark.references] == [2]
    linked = without_marks("See [trains are free](handbook.pdf) now.", SHELF)
    assert " ".join(linked.split()) == "See trains are free now."
    claimed = "It is so.\n\nSources:\n1. handbook.pdf\n2. The pool is free of charge"
    assert "2. The pool is free of charge" in without_marks(claimed, SHELF)
    assert SHELF.missing("The desk [7]. See [the annex](annex.pdf).") == (), "a passage holds them itself"


def test_a_closing_list_of_sources_is_a_mark_and_gives_its_numbers_a_meaning():
    closings = [
        "Sources:\n1. handbook.pdf, p. 4\n2. docs/Travel_Policy.pdf",
        "**References**\n- handbook.pdf\n- [Travel](docs/Travel_Policy.pdf)",
        "### Sources\n[1] handbook.pdf - the rules of travel\n[2] Travel_Policy.pdf",
        "Citations: handbook.pdf, Travel_Policy.pdf", "[^1]: handbook.pdf\n[^2]: Travel_Policy.pdf",
    ]  # fmt: skip

    def check(closing):
        text = f"Trains are booked early [^1] [^2].\n\n{closing}"
        assert not SHELF.missing(text)
        assert "pdf" not in without_marks(text, SHELF)
        assert SHELF.missing(text.replace("handbook.pdf", "rates.pdf")) != ()

    assert failing(check, closings) == []


PIECES = [
    "[1]", "[", "]", "(", ")", "handbook.pdf", "p. 4", "\u3010", "\u3011", "`", "\n", "Sources:", "- ", "a",
    " ", "2", "\u00b9", ".",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join), st.sampled_from([SHELF, None]))
def test_blanking_keeps_every_position_and_marks_do_not_overlap(text, shelf):
    found = marks(text, shelf)
    shown = blanked(text, found)
    assert len(shown) == len(text)
    assert re.sub(r"\S", "", shown).count("\n") == text.count("\n")
    assert all(one.end <= other.start for one, other in pairwise(found))
