"""Citations: what a text points at, where, what only looks like one, and which the claim rests on.

Requirements S0-46..S0-55, S0-57..S0-63, C-18..C-20.
"""

from itertools import chain, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.citations import FOREIGN, UNNAMED, UNSHOWN, Citation, CitationDetector
from groundwire.checks.reliance import DENIED, UNLED, denied
from groundwire.text.page import unseen
from groundwire.text.visible import visible
from tests.unit.checks.tables import differing, failing

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
    others = ["QUADR-5", "ADR-123456", "ADR-3b", "éADR-3", "ADR"]
    assert [text for text in others if labels(text) != []] == []


def test_a_commit_is_7_to_40_hex_digits_or_follows_a_cue():
    # a commit is 7 to 40 hex digits in lower case
    cases = [
        ("Fixed in commit a1b2c3d4e5", ["commit:a1b2c3d4e5"]), ("abc123", []),
        ("commit A1B2C3D4", ["commit:a1b2c3d4"]), ("提交a1b2c3d。", ["commit:a1b2c3d"]),
        ("a1b2c3d..e4f5a6b", ["commit:a1b2c3d", "commit:e4f5a6b"]),
        ("commits deadbeef, defaced and 1234567", ["commit:deadbeef", "commit:defaced", "commit:1234567"]),
        *((other, []) for other in ("550e8400-e29b", "pod-7d9f8b6c5-abcde", "hex a1b2c3d4", "&#xa1b2c3d;")),
    ]  # fmt: skip
    assert [(text, got) for text, found in cases if (got := labels(text)) != found] == []
    # words and numbers are commits only after a cue
    words = ["deadbeef", "defaced", "facaded", "fabaceae", "1234567"]
    cues = ["commit", "sha:", "rev", "fixed in", "merged as"]

    def check(word, cue):
        assert labels(f"the {word} count") == []
        assert labels(f"{cue} {word}") == [f"commit:{word}"]
        assert labels(f"{cue} of which much was said: {word}") == []

    assert failing(check, product(words, cues)) == []


def test_an_issue_is_a_number_that_is_no_colour_entity_anchor_or_part_of_a_document():
    cases = [
        ("(#12)", ["issue:12"]), ("issue #123 fill it in", ["issue:123"]), ("见#12", ["issue:12"]),
        ("the colours #123456 and #654321", []), ("&#39;", []), ("step #2", []),
    ]  # fmt: skip
    assert [(text, got) for text, found in cases if (got := labels(text)) != found] == []


def test_a_url_ends_where_the_sentence_takes_over_and_holds_no_other_citation():
    # a url ends where the sentence takes over
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
    # nothing inside a url is a citation of its own
    paths = ["commit/a1b2c3d4e5f6", "p#123", "ADR-003", "GH-4", "a?sha=deadbeef1"]
    assert [path for path in paths if labels(f"https://x.io/{path}") != [f"url:https://x.io/{path}"]] == []


def test_works_standards_flaws_files_log_entries_and_tickets_are_citations():
    detector = CitationDetector(["PLAT=https://t.example/browse/{key}"])
    cases = {
        "See doi:10.1000/XYZ-1.": "doi:10.1000/xyz-1", "(10.1000/182)": "doi:10.1000/182",
        "per arXiv:2401.01234v2": "arxiv:2401.01234v2", "PMID: 123": "pmid:123", "as RFC 7231 says": "rfc:7231",
        "cve-2021-44228 is closed": "cve:CVE-2021-44228", "Fixed in acme/api#12.": "issue:acme/api#12",
        "docs/adr/0003-postgres.md": "adr:0003-postgres.md", "see decisionLog.md#use-oak": "adr:decisionLog.md#use-oak",
        "decision-log.md (2025-04-01)": "adr:decision-log.md#2025-04-01", "PLAT-12 asks": "ticket:PLAT-12",
    }  # fmt: skip
    found = {text: [one.label for one in detector.detect(text)] for text in cases}
    assert found == {text: [label] for text, label in cases.items()}
    [ticket] = detector.detect("PLAT-12 asks")
    assert ticket.url == "https://t.example/browse/PLAT-12"
    # other words are none, nor are tickets of a project that no policy names
    others = [
        "10.5 GB of 10.1000", "10.10.10.10/24", "RFC-12x", "X-PLAT-12", "PLAT-12a", "PMIDs", "0003-postgres.md",
        "src/main.py#12a", "CVE-21-1", "decisionLog.md", "QA-12",
    ]  # fmt: skip
    assert [text for text in others if detector.detect(text)] == []
    assert labels("PLAT-12 asks") == []
    assert doubts("It is not in RFC 7231.") == {"rfc:7231": DENIED}


def test_citations_come_in_text_order_with_their_names():
    # citations come in text order and the summary has all four types
    text = "ADR-003 (see https://e.com, #12)"
    assert labels(text) == ["adr:003", "url:https://e.com", "issue:12"]
    summary = DETECTOR.summary(text)
    assert list(summary) == ["adr", "commit", "url", "issue"]
    assert [len(found) for found in summary.values()] == [1, 0, 1, 1]
    assert DETECTOR.summary("") == {"adr": [], "commit": [], "url": [], "issue": []}
    # checks and evidence name a citation in their own ways
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


def test_a_citation_stands_where_the_text_has_it_whatever_hides_it():
    # markup and invisible characters hide no citation and its place is that of the text
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
    # citations stand where the text has them whatever stands before and in them
    text = "&amp;&amp; <b>see</b> https://x.example/a \u200b<i>A\u00adDR-7</i>, GH-12"
    found = [text[one.start : one.end] for one in CitationDetector().detect(text)]
    assert found == ["https://x.example/a", "A\u00adDR-7", "GH-12"]


def doubts(text):
    return {citation.label: citation.doubt for citation in CitationDetector().detect(text)}


def test_a_citation_gives_credit_only_where_the_claim_rests_on_it():
    cases = {
        "denied, or set against": (DENIED, [
            "Unlike the decision in **ADR-7**, invoices are sent on Fridays.",
            "Despite ADR-7 invoices are sent on Fridays.", "We decided against ADR-7.",
            "Neither ADR-8 nor ADR-7 mentions invoices.", "ADR-7 doesn\u2019t mention invoices.",
            "ADR-7 says nothing about invoices.", "By ADR-7, which was rejected, invoices go by post.",
            "ADR-7 does not exist.", "ADR-7 has yet to be written.",
            "We moved away from ADR-7 to fax.", "Fax won over ADR-7.", "ADR-7 be damned, we fax.",
            "I did not read ADR-7.",
            "ADR-7 forbids fax. We fax.", "We fax, which ADR-7 prohibits.", "We fax where ADR-7 demands the post.",
            "Fun fact: ADR-7 has a typo.", "ADR-7 is about something else.", "ADR-7? We fax.",
        ]),
        "still to be written": (DENIED, ["Open: ADR-7", "TODO: write ADR-7", "We have to write ADR-7."]),
        "led to by no word": (UNLED, [
            "We outgrew ADR-7.", "Nobody cares about ADR-7, we fax.", "We prefer fax to ADR-7.",
        ]),
        "what a reader does not see hides no denial": (DENIED, [
            "Un<b>like</b> ADR-7, it ends.", "Unlike" + " \u200b" * 900 + "ADR-7, it ends.",
            "ADR-7" + " " * 9_000 + "does not exist.", "It is not&nbsp;in ADR-7.", "Un**like** ADR-7, it ends.",
        ]),
        "another thing is denied": ("", [
            "Invoices are not sent by post (ADR-7).", "Per ADR-7, nothing is sent by post.",
            "The post was superseded by ADR-7.", "ADR-7 does not allow fax.", "ADR-7 is not superseded.",
            "We checked the invoices against ADR-7.",
        ]),
        "struck out or not shown": (UNSHOWN, [
            "Invoices go by post ~~(ADR-7)~~.", "Invoices go by post <DEL>as <b>ADR-7</b> says</DEL>.",
            "Invoices go by post <span style='display: none'>per <span>the</span> ADR-7</span>.",
            "Invoices go by post <p hidden>per ADR-7", "Invoices go by <i title='per ADR-7'>post</i>.",
            "It goes by post. <img src=x alt='per ADR-7'>", "It goes by post. <input value='per ADR-7'>",
            "It goes by post. ![per ADR-7](x.png)", "It goes by post.\n\n[//]: # (per ADR-7)",
            "It goes by post.\n\n[note]: <> (per ADR-7)", "It goes by post. <![CDATA[per ADR-7]]>",
            "It goes by post. <noscript>per ADR-7</noscript>", "It goes by post. [map](x 'per ADR-7')",
            "It goes by post. <span style='color: white'>per ADR-7</span>", "It goes by post. [](per-ADR-7)",
            "It goes by post. <font color=#fff>per ADR-7</font>", "It goes by post.\n\n<!-- per ADR-7",
            "It goes by post. <b style='color:#123;background:#123'>per ADR-7</b>",
            "It goes by post. <b style='color:#fefefe'>per ADR-7</b>", "It goes. <b style='color:ivory'>per ADR-7</b>",
            "It goes by post. <b style='color:hsl(0, 0%, 99%)'>per ADR-7</b>", "<b bgcolor=black>Post, per ADR-7</b>",
            "It goes by post. <b style='color:#111;background:hsl(0,0%,9%)'>per ADR-7</b>",
            "It goes by post. <b style='position:absolute;left:-9999px'>per ADR-7</b>",
            "It goes by post. <b style='font-size:0.0em'>per ADR-7</b>", "<title>per ADR-7</title> It goes by post.",
            "It goes by post. <b style='color:rgba(1, 2, 3, 0)'>per ADR-7</b>", "It goes by post. <?x per ADR-7?>",
            "It goes by post. <b style='/**/display:none'>per ADR-7</b>", "Post. <b style='color:whit\\65'>ADR-7</b>",
            "It goes by post.\n\n<div title='per ADR-7", "```per-ADR-7\nIt goes by post.\n```",
            "It goes by post {# per ADR-7 #}", "It goes by post %%per ADR-7%%", "It goes by post /* per ADR-7 */",
            "<div hidden>\n\nIt goes by post, per ADR-7.\n\n</div>", "<del>It goes\n\nby post, per ADR-7.</del>",
        ]),
        "shown by Markdown or HTML": ("", [
            "It goes by post, per [ADR-7](x.md).", "It goes by post. <!-- a --> Per ADR-7.", "- post\n- per ADR-7",
            "> It goes by post, per ADR-7.", "It goes by post.\n\n    per ADR-7", "It goes by post[^1].\n\n[^1]: ADR-7",
            "<b style='color:white;background:black'>It goes by post, per ADR-7.</b>", "`per ADR-7`",
            "<b style='color:hsl(0, 80%, 40%)'>It goes by post, per ADR-7.</b>", "<b bgcolor=#fff3cd>Per ADR-7.</b>",
            "<img src=x> It goes by post, per ADR-7.", "| a |\n|---|\n| per ADR-7 |", "It holds that 1 < 2, per ADR-7.",
            "<div>\nIt goes by post, per ADR-7.\n</div>", "</del> It goes by post, per ADR-7.",
        ]),
        "beside struck out text": ("", [
            "~~Fax~~ Invoices go by post, per ADR-7.", "Invoices <del>never</del> go by post, per ADR-7.",
            "<p>Invoices go by post</p> <p class='hidden-print'>ADR-7</p>",
        ]),
        "beside a name, perhaps of another project": (FOREIGN, [
            "Invoices go by post (acme ADR-7).", "Invoices go by post, see Globex ADR-7.",
            "Per Initech's ADR-7 invoices go by post.", "Invoices go by post, see ADR-7 of Globex.",
            "It goes by post, per ADR-7 (Initech).", "Per globex: ADR-7, it goes by post.",
            "It goes by post, see their ADR-7.",
            "Per Initech, ADR-7, it goes by post.", "Per the competitor's ADR-7 invoices go by post.",
            "As in a vendor\u2019s ADR-7, they go by post.",
        ]),
        "beside a word that leads to it": ("", [
            "Invoices go by post (decision ADR-7).", "The team's ADR-7 asks for the post.",
            "It is ADR-7 that asks for the post.", "In ADR-7 of March the post was chosen.",
            "Invoices go by post. Perhaps ADR-7 says more.", "Our project's ADR-7 asks for the post.",
            "Since today's ADR-7 it goes by post.", "ADR-7 forbids fax.", "ADR-7 (accepted) chose the post.",
            "Thanks to ADR-7 it goes by post.",
        ]),
        "in full-width letters": ("", ["Invoices go by post, per \uff21\uff24\uff32\uff0d\uff17."]),
        "no longer name": ("", ["ADR-7/ADR-4", "ADR-7.", "ADR-7: it ends", "ADR-7's"]),
    }  # fmt: skip
    texts = [(doubt, text) for doubt, texts in cases.values() for text in texts]
    assert [(text, found) for doubt, text in texts if (found := doubts(text).get("adr:7")) != doubt] == []


def test_each_citation_of_a_text_is_judged_by_its_own_clause():
    cases = [
        ("Unlike ADR-7, ADR-8 sends them on Fridays.", {"adr:7": DENIED, "adr:8": ""}),
        ("ADR-8 replaces ADR-7.", {"adr:8": "", "adr:7": DENIED}),
        ("Not ADR-7 but ADR-8 says so.", {"adr:7": DENIED, "adr:8": ""}),
        # joined by a word they share what is denied of the first
        ("Unlike ADR-7 and ADR-8, they are sent on Fridays.", {"adr:7": DENIED, "adr:8": DENIED}),
        ("Contrary to https://x.example/a, it ends.", {"url:https://x.example/a": DENIED}),
    ]  # fmt: skip
    assert differing(doubts, cases) == []


def test_part_of_a_longer_name_is_no_citation():
    adr = "ADR-003@v2|ADR-003 v2|ADR-003_999|ADR-003/../ADR-999|globex#ADR-003|../ADR-003|docs/./ADR-003|ADR-003$x"
    sha = "globex/api@#|commit #-dirty|commit #_1|commit globex/#|commit #.patch|commit #~1|commit #^|commit #+local"
    parts = [
        *adr.split("|"),
        *sha.replace("#", SHA).split("|"),
        "FOO-GH-12",
        "issue #12-draft",
        f"commit x-{SHA}",
    ]
    assert [text for text in parts if doubts(f"By {text} it ends.") != {}] == []
    adr = "**ADR-003** ADR-003... ...ADR-003 (ADR-003) ADR-003/ADR-003 ADR-003- source=ADR-003 by/ADR-003"
    assert [text for text in adr.split() if "adr:003" not in doubts(f"By {text} it ends.")] == []
    assert "adr:003" in doubts("_see ADR-003_")
    sha = (
        "commit #.|commit:#|commit-#|commit #, so|`#`|(#)|@#|commits #..#|commit=#|rev/#|commit #:src/a.py|#-"
    )
    whole = sha.replace("#", SHA).split("|")
    assert [text for text in whole if f"commit:{SHA}" not in doubts(f"By {text} it ends.")] == []
    assert doubts("By FOO-\u200bADR-003 it ends, and by ADR-004\u2060.1 too.") == {}


def test_a_bare_number_is_an_issue_only_where_a_word_says_so():
    cases = [("Redis is the #1 store", UNNAMED), ("the #1 bug", ""), ("GH-1", ""), ("issues #2 and #1", "")]
    assert [(text, got) for text, doubt in cases if (got := doubts(text)["issue:1"]) != doubt] == []


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


@given(
    st.lists(st.sampled_from(["<del>", "</del>", "<p hidden>", "</p>", "~~", "ADR-7", " ", "<", ">", "a"]))
)
def test_nothing_is_unseen_but_in_markup(pieces):
    text = "".join(pieces)
    places = [at for at, char in enumerate(text) if char == "R"]
    assert unseen(text, places) <= set(places)
    assert unseen(text.translate({ord(char): "a" for char in "<~"}), places) == set(), (
        "without markup all is seen"
    )
