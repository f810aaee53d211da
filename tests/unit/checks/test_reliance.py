"""A citation gives credit only where the claim rests on it."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.citations import FOREIGN, UNNAMED, CitationDetector
from groundwire.checks.reliance import DENIED, UNSHOWN, denied, tags_of, unshown


def doubts(text):
    return {citation.label: citation.doubt for citation in CitationDetector().detect(text)}


def test_a_citation_that_is_denied_or_set_against_gives_no_credit():
    texts = [
        "Unlike the decision in **ADR-7**, invoices are sent on Fridays.",
        "Despite ADR-7 invoices are sent on Fridays.", "We decided against ADR-7.",
        "Neither ADR-8 nor ADR-7 mentions invoices.", "ADR-7 doesn\u2019t mention invoices.",
        "ADR-7 says nothing about invoices.", "By ADR-7, which was rejected, invoices go by post.",
        "ADR-7 does not exist.", "ADR-7 has yet to be written.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text)["adr:7"] != DENIED] == []


def test_a_claim_that_denies_something_else_still_rests_on_what_it_cites():
    texts = [
        "Invoices are not sent by post (ADR-7).", "Per ADR-7, nothing is sent by post.",
        "The post was superseded by ADR-7.", "ADR-7 does not allow fax.", "ADR-7 is not superseded.",
        "We checked the invoices against ADR-7.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text)["adr:7"] != ""] == []


def test_each_citation_of_a_text_is_judged_by_its_own_clause():
    assert doubts("Unlike ADR-7, ADR-8 sends them on Fridays.") == {"adr:7": DENIED, "adr:8": ""}
    assert doubts("ADR-8 replaces ADR-7.") == {"adr:8": "", "adr:7": DENIED}
    assert doubts("Not ADR-7 but ADR-8 says so.") == {"adr:7": DENIED, "adr:8": ""}


def test_citations_that_are_joined_by_a_word_share_what_is_denied_of_the_first():
    assert doubts("Unlike ADR-7 and ADR-8, they are sent on Fridays.") == {"adr:7": DENIED, "adr:8": DENIED}


def test_a_page_is_denied_as_a_decision_is():
    assert doubts("Contrary to https://x.example/a, it ends.") == {"url:https://x.example/a": DENIED}


def test_part_of_a_longer_name_is_no_citation():
    texts = ["ADR-003@v2", "ADR-003 v2", "FOO-GH-12", "issue #12-draft"]
    assert [text for text in texts if doubts(f"By {text} it ends.") != {}] == []


def test_file_names_lists_and_punctuation_make_no_longer_name():
    texts = ["ADR-003/ADR-004", "ADR-003.", "ADR-003: it ends", "ADR-003's"]
    assert [text for text in texts if doubts(text)["adr:003"] != ""] == []


def test_a_bare_number_is_an_issue_only_where_a_word_says_so():
    cases = [("Redis is the #1 store", UNNAMED), ("the #1 bug", ""), ("GH-1", ""), ("issues #2 and #1", "")]
    assert [(text, got) for text, doubt in cases if (got := doubts(text)["issue:1"]) != doubt] == []


def test_what_a_reader_does_not_see_hides_no_denial():
    texts = [
        "Un<b>like</b> ADR-7, it ends.", "Unlike" + " \u200b" * 900 + "ADR-7, it ends.",
        "ADR-7" + " " * 9_000 + "does not exist.", "It is not&nbsp;in ADR-7.", "Un**like** ADR-7, it ends.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text)["adr:7"] != DENIED] == []


def test_a_longer_name_is_one_whatever_invisible_characters_stand_in_it():
    assert doubts("By FOO-\u200bADR-003 it ends, and by ADR-004\u2060.1 too.") == {}


def test_citations_stand_where_the_text_has_them_whatever_stands_before_and_in_them():
    text = "&amp;&amp; <b>see</b> https://x.example/a \u200b<i>A\u00adDR-7</i>, GH-12"
    found = [text[one.start : one.end] for one in CitationDetector().detect(text)]
    assert found == ["https://x.example/a", "A\u00adDR-7", "GH-12"]


WORDS = st.sampled_from(
    ["unlike", "no", "not", "in", "says", "never", ",", "(", "Redis", "is", "\n\n", "'", "**", "é"]
)


@given(st.lists(WORDS, max_size=30), st.lists(WORDS, max_size=30))
def test_any_words_around_a_citation_are_read_and_those_beyond_its_clause_do_not_count(before, behind):
    cited = " ".join([*before, "ADR-7", *behind])
    start = cited.index("ADR-7")
    found = denied(cited, start, start + 5)
    framed = f"Unlike ADR-7. {cited}. ADR-7 does not exist."
    assert denied(framed, start + 14, start + 19) == found


def test_what_is_struck_out_or_not_shown_is_listed_and_gives_no_credit():
    texts = [
        "Invoices go by post ~~(ADR-7)~~.", "Invoices go by post <DEL>as <b>ADR-7</b> says</DEL>.",
        "Invoices go by post <span style='display: none'>per <span>the</span> ADR-7</span>.",
        "Invoices go by post <p hidden>per ADR-7", "Invoices go by <i title='per ADR-7'>post</i>.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text) != {"adr:7": UNSHOWN}] == []


def test_what_stands_beside_struck_out_text_gives_credit():
    texts = [
        "~~Fax~~ Invoices go by post, per ADR-7.", "Invoices <del>never</del> go by post, per ADR-7.",
        "<p>Invoices go by post</p> <p class='hidden-print'>ADR-7</p>",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text) != {"adr:7": ""}] == []


def test_full_width_letters_and_digits_are_read_as_their_plain_ones():
    assert doubts("Invoices go by post, per \uff21\uff24\uff32\uff0d\uff17.") == {"adr:7": ""}


def test_an_adr_beside_a_name_may_be_that_of_another_project():
    texts = [
        "Invoices go by post (acme ADR-7).", "Invoices go by post, see Globex ADR-7.",
        "Per Initech's ADR-7 invoices go by post.", "Invoices go by post, see ADR-7 of Globex.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text) != {"adr:7": FOREIGN}] == []


def test_a_word_that_leads_to_an_adr_is_no_name():
    texts = [
        "Invoices go by post (decision ADR-7).", "The team's ADR-7 asks for the post.",
        "It is ADR-7 that asks for the post.", "In ADR-7 of March the post was chosen.",
        "Invoices go by post. Perhaps ADR-7 says more.",
    ]  # fmt: skip
    assert [text for text in texts if doubts(text) != {"adr:7": ""}] == []


@given(
    st.lists(st.sampled_from(["<del>", "</del>", "<p hidden>", "</p>", "~~", "ADR-7", " ", "<", ">", "a"]))
)
def test_parts_that_are_not_shown_lie_within_the_text(pieces):
    text = "".join(pieces)
    assert all(0 <= start <= end <= len(text) for start, end in unshown(text))
    assert all(text[start] == "<" for start, _ in tags_of(text))
