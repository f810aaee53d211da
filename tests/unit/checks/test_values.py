"""The value check: what an answer's numbers, dates, amounts and negations are bound to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groundwire.checks import WarningType
from groundwire.checks.reading.statements import scan
from groundwire.checks.reading.units import _TOKEN, cut
from groundwire.checks.values import answer
from groundwire.checks.values.answer import check_values
from tests.unit.checks.tables import differing, failing

YAML = "api:\n  timeout: 30s\nworker:\n  timeout: 10s\n"


def unsupported(answer, *passages):
    return [value.text for value in check_values(answer, passages).unsupported]


CHUNKS = (
    "In", "May", "may", "mar", "Sept.", "3", "2024", "of", "version", "ver.", "v2", "USD", "$", "5", "%",
    "°C", "C", "[1]", "[source: 2]", "retry.py:12", "#7", "a/b", "don't", "mid-5", "(see", "end).", "--",
    "-5", "pm", "a.m.", "o'clock", "",
)  # fmt: skip


@given(st.lists(st.sampled_from(CHUNKS), max_size=12))
def test_words_are_cut_the_same_whether_looked_up_or_matched(chunks):
    text = " ".join(chunks)
    found = cut(text)
    matched = [match for match in _TOKEN.finditer(found.text) if match.lastgroup != "skip"]
    assert [(token.written, token.start, token.end) for token in found.tokens] == [
        (match[0], *match.span()) for match in matched
    ]


def test_a_month_with_a_long_s_and_numbers_of_circled_digits_break_nothing():
    answers = ["It opened in augu\u017ft 2024.", "It has \u2460\u2461 items and \u2460 doors."]
    assert [answer for answer in answers if check_values(answer, [answer]).unsupported != ()] == []
    assert [token.text for token in scan("about 3①")] == ["about", "3①"]


def keys(text):
    return [token.value.keys for token in scan(text) if token.value and not token.value.implied]


def test_a_value_said_of_the_same_thing_is_supported_however_it_is_put():
    row = "It serves 5, 10 and 20 users."
    cases = [
        ("The worker times out after 10 seconds.", YAML),
        ("Each call waits 3 seconds (`delay`).", "def call(n=1):\n    delay = 3  # seconds\n"),
        ("**Timeout**: `30 s`\n- retries: **5**", "The timeout is 30 s. It retries 5 times."),
        ("There are zero retries.", "No retries are made."),
        ("It opens at 12 o\u2019clock.", "It opens at noon."), ("It opens at 9 o'clock.", "It opens at 9:00 am."),
        # a negation that the sources hold, or that says nothing of them
        ("The API does not retry.", "API:\n  retries: 0"),
        ("The API retries on 5xx.", "The API does not retry on 4xx but retries on 5xx."),
        ("No more than 5 retries are made.", "At most 5 retries are made"),
        ("The provided sources do not mention a limit.", "Something."),
        # values of one row in any order, and each by itself
        ("It serves 20, 10 and 5 users.", row), ("It serves 10 users.", row),
        ("It retries 3 or 5 times.", "It retries 5 or 3 times."),
        ("Ports 80 and 443 are open.", "Ports 443 and 80 are open."),
        # rounded, or a bound close to what is given
        ("It is more than 60 metres long.", FLEET), ("About 5 % of it is scrap.", FLEET),
        ("The yard built nearly 50 ferries.", FLEET), ("The yard built over 300 lifeboats.", FLEET),
        ("The yard sold more than 1500 anchors.", FLEET),  # a year otherwise
        # a good answer about a page
        *((answer, PAGE) for answer in (
            "The service listens on port 8443 [source:1]. Its calls time out after 15 seconds, with three repeats.",
            "Clients get 100 labels per minute, for parcels of at most 20 kg.",
            "In the south there are six depots with 40 vans, while the north has 2 depots.",
            "The service has existed since March 2021, for roughly $1.2M.",
            "Addresses aren't stored. You cannot use labels after 90 days.",
        )),
        # numbers and money in words
        ("It has three hundred and ten berths.", "It has 310 berths."), ("The fee is ten pounds.", "The fee is £10."),
        ("From two hundred and five hundred metres.", "From 200 and 500 metres."),
        # units of one kind
        ("The dose is 0.5 mg.", "The dose is 500 µg."), ("The can holds 0.2 l.", "The can holds 20 cl."),
        ("The gas is at 5 kPa.", "The gas is at 50 hPa."), ("The line has 5 kV.", "The line has 5,000 V."),
        # what is repeated as it is
        *((text + " [Source:1, 2]", text) for text in (
            "In 2023 revenue was 5. In 2024 revenue was 7.", "Version 2 waits 5 s. Version 3 waits 7 s.",
            "It holds 10\u2079 records on 5 m\u00b2.",
        )),
    ]  # fmt: skip
    assert [(answer, passage) for answer, passage in cases if unsupported(answer, passage) != []] == []


def test_the_same_number_said_of_something_else_supports_nothing():
    table = "| name | timeout (s) | retries |\n|---|---|---|\n| read | 30 | 5 |\n| connect | 5 | 4 |\n"
    connect, read, idle = "Connect timeout: 30 s", "Read timeout: 5 s", "The idle server's timeout is 30 s."
    limited = "Workers and readers are limited to {} and {} respectively."
    cases = [
        ("The read timeout is 5 s.", table, ["5 s"]), ("The worker timeout is 30 s.", YAML, ["30 s"]),
        ("The size went from 10 to 5 MB.", "Size was raised from 5 to 10 MB.", ["10", "5 MB"]),
        ("A and B are 9 and 3.", "A and B are 3 and 9.", ["9", "3"]),
        ("It serves 5, 10 and 30 users.", "It serves 20, 10 and 5 users.", ["30"]),
        (limited.format(5, 10), limited.format(5, 10), []), (limited.format(10, 5), limited.format(5, 10), ["10", "5"]),
        # no support of another passage where one says more nearly something else
        ("The read timeout is 30 s.", connect, read, ["30 s"]), ("The read timeout is 5 s.", connect, read, []),
        ("The timeout is 30 s.", "The timeout is 5 s.", idle, ["30 s"]),
        ("The timeout is 30 s and it does not retry.", ["30 s", "not"]),
        # another unit, year, version or power
        ("It holds 120 gallons.", "It holds 120 litres.", ["120 gallons"]),
        ("In 2024 it made $5 million.", "In 2023 it made $5 million. In 2024 it made $7 million.", ["$5 million"]),
        ("Version 3 waits 5 s.", "Version 2 waits 5 s. Version 3 waits 7 s.", ["5 s"]),
        ("It holds 109 records.", "It holds 10\u2079 records.", ["109"]),
        ("Use 11/2 cups.", "Use 1\u00bd cups.", ["11/2"]),
        # what a page says, mixed up
        ("Calls time out after 3 seconds and are repeated 15 times.", PAGE, ["3 seconds", "15 times"]),
        ("The north runs 6 depots while the south runs 2.", PAGE, ["6", "2"]),
        ("Clients get 100 labels per second.", PAGE, ["100"]),
        ("The backoff starts at 15 seconds.", PAGE, ["15 seconds"]),
        ("Labels can be used after 90 days.", PAGE, ["Labels can be used after 90 days"]),
    ]  # fmt: skip
    assert differing(unsupported, cases) == []


PAGE = """# Shipping service

The shipping service offers a REST API on port 8443. Calls time out after 15 seconds, and failed calls are repeated up
to 3 times, with a backoff that starts at 200 ms.

## Limits

- Largest parcel: 20 kg
- Quota: 100 labels per minute and client

It was introduced in March 2021 and cost about $1.2 million. Addresses are not stored. Labels cannot be used after 90
days.

| region | depots | vans |
|---|---|---|
| north | 2 | 50 |
| south | 6 | 40 |
"""


def test_a_value_is_the_same_in_every_form():
    formses = [
        ("205°C", "205 °C", "205 ° C", "205 degrees C", "205 deg C", "205 degrees Celsius", "205ºC", "205 C"),
        ("15 Jul 2019", "15-Jul-19", "July 15, 2019", "the 15th of July 2019", "15/07/19", "2019-07-15"),
        ("1.2 M", "1.2M", "1.2 million", "1,200,000"), ("No. 5", "no. 5", "5"),
    ]  # fmt: skip

    def check(forms):
        for one in forms:
            for other in forms:
                assert (
                    unsupported(f"There the thing is {one} now.", f"There the thing is {other} now.") == []
                ), (one, other)

    assert failing(check, [(forms,) for forms in formses]) == []
    # what says the same is equal
    cases = [
        ("50%", "fifty percent"), ("2024-05-03", "3 May 2024"), ("2 hundred", "200"),
        ("-5 °C", "\u22125°C"), ("\uff15\uff10 users", "50 users"),
        ("100 req/s", "100 requests per second"), ("5-10 s", "5 s to 10 s"),
    ]  # fmt: skip

    def check(one, other):
        answer, passage = (f"The thing is {text} now." for text in (one, other))
        assert keys(answer)
        assert unsupported(answer, passage) == []

    assert failing(check, cases) == []
    # an amount is one however its currency is written
    writtens = ["$1.5 million", "US$1,500,000", "1.5 million dollars", "USD 1.5 million"]

    def check(written):
        assert not check_values(f"It cost {written}.", ["It cost USD 1,500,000."]).unsupported
        assert check_values(f"It cost {written}.", ["It cost EUR 1,500,000."]).unsupported
        assert check_values(f"It cost {written}.", ["It took 1,500,000 days."]).unsupported

    assert failing(check, writtens) == []
    # what says something else differs
    cases = [
        ("50 %", "50"), ("$1.2 million", "$1.2 billion"), ("$5", "€5"), ("in May 2024", "in May"),
        ("100 per minute", "100 per second"), ("one item", "two items"), ("at most 5", "at least 5"),
    ]  # fmt: skip

    def check(one, other):
        answer, passage = (f"There a thing is {text} now." for text in (one, other))
        assert len(unsupported(answer, passage)) == 1

    assert failing(check, cases) == []


def test_a_fault_is_hard_where_the_passages_say_otherwise_or_hold_nothing_of_a_value():
    cases = [
        ("The hall has 5,000 seats.", "The hall opened in 1982.", True),
        ("There are two ways to fold a quilt.", "Fold the quilt in thirds, or roll it.", False),
        ("It was signed on 2 May 2019.", "Signed May 2 in Bonn. The year was 2019.", False),
        ("The tent comes with the poles included.", "The tent weighs 2 kg. The poles are not included.", True),
    ]  # fmt: skip

    def check(answer, passage, hard):
        found = check_values(answer, [passage]).unsupported
        assert found
        assert any(value.hard for value in found) is hard

    assert failing(check, cases) == []
    # a bound that excludes what is given and a number of another noun are hard
    answers = [
        "The yard built more than 46 ferries.", "It is less than 60 metres long.",
        "About 8 % of it is scrap.", "The yard built 312 ferries.", "The yard built 46 lifeboats.",
    ]  # fmt: skip
    assert [
        answer
        for answer in answers
        if not any(value.hard for value in check_values(answer, [FLEET]).unsupported)
    ] == []
    # a value of the question is given unless a passage gives another
    asked = {"question": "How do I open the door of a 2006 Chevy?"}
    answer = "The door of a 2006 Chevy has two screws."
    assert not check_values(answer, ["The door has two screws."], **asked).faults
    assert check_values(answer, ["The door of a 2005 Chevy has two screws."], **asked).faults


def test_tags_numbering_and_identifiers_are_no_values():
    texts = [
        "It works [source:1]. And so [sources: 2, 3] does this [4].", "## 2.1 The title\nStep 3: go on",
        "`v2_client`, utf-8, sha256, retry.py:30, 1f3a9c0d, #12, ADR-003 and https://x.io/5?n=3",
        "First, open it. Here is the first one.", "550e8400-e29b-41d4-a716-446655440000",
    ]  # fmt: skip
    assert [text for text in texts if check_values(text, ["Nothing of this."]).found != 0] == []
    # numbers of passages and steps are no values
    texts = ["(Passage 2)", "According to source 4", "(Passage 1:4)", "Repeat steps 4-6"]
    assert [text for text in texts if keys(f"The door locks {text}.") != []] == []


def test_yes_where_the_sources_say_no_and_no_where_they_say_yes_is_unsupported():
    cases = [
        ("Reads are not cached.", "Reads are cached. Writes are not cached."),
        ("The API retries on 4xx.", "The API does not retry on 4xx but retries on 5xx."),
        ("The worker no longer polls the queue.", "The worker polls the queue all the time."),
        ("The shop sells no more bread.", "The shop sells bread on Fridays."),
        ("The limit is 5.", "The limit is not 5."),
    ]  # fmt: skip
    assert [
        (answer, passage)
        for answer, passage in cases
        if [(value.kind, value.why) for value in check_values(answer, [passage]).unsupported]
        != [("negation", "sources_say_the_opposite")]
    ] == []
    bounds = [
        ("It takes no longer than 5 s.", "It takes 5 s at most."),
        ("It has no more than 5 pods.", "It has 5 pods."),
    ]
    assert [pair for pair in bounds if unsupported(*pair)] == []


def test_a_report_names_each_value_with_its_place_and_why():
    # a report names each value as written with its place
    answer = "Der Wert ist gut.\nThe timeout is **30 s** and it does not retry [source:1]."
    report = check_values(answer, ["The timeout is 5 s. It retries."])
    assert [(value.text, value.kind, value.why) for value in report.unsupported] == [
        ("30 s", "duration", "not_in_sources"),
        ("not", "negation", "sources_say_the_opposite"),
    ]
    assert all(answer[value.start : value.end] == value.text for value in report.unsupported)
    assert (report.found, report.left_out) == (2, 0)
    assert [warning.type for warning in report.warnings] == [WarningType.UNSUPPORTED_VALUE] * 2
    assert report.warnings[0].message == 'No source holds "30 s".'
    assert report.warnings[0].details == {
        "kind": "duration", "why": "not_in_sources", "start": answer.index("30"), "end": answer.index("30") + 4
    }  # fmt: skip
    # a report says why: The number stands nowhere, of something else, or another stands in its place.
    why = {
        number: check_values(f"The limit is {number}.", ["The limit is 5.", "Port 7."]).unsupported
        for number in (5, 6, 7)
    }
    assert why[5] == ()
    assert [value.why for number in (6, 7) for value in why[number]] == [
        "not_in_sources",
        "said_of_something_else",
    ]
    swapped = check_values("Max 2, min 10", ["Max 10, min 2"])
    assert {value.why for value in swapped.unsupported} == {"sources_differ"}
    long = check_values("The key is " + "1" * 5_000, ["Nothing."])
    assert len(long.warnings[0].message) < 150


@pytest.mark.slow
def test_a_page_supports_itself_and_each_of_its_paragraphs():
    root = Path(__file__).parents[3]
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]

    def check(page):
        text = page.read_text(encoding="utf-8")
        assert check_values(text, [text]).unsupported == ()
        assert check_values(text, [text]).found > 0
        for paragraph in text.split("\n\n"):
            assert unsupported(paragraph, paragraph) == []

    assert failing(check, pages) == []


NOUNS = ["limit", "timeout", "queue", "worker", "retry", "page", "cache", "model", "token", "user"]
UNITS = ["", " s", " ms", " MB", " %", " users", " per minute"]
LINKS = [", the", " and the", "; the", ". The"]
FORMS = [
    "{a} {0} with {b} {1}", "from {a} to {b} {0}", "{0} {a}, {1} {b}", "{0}={a} {1}={b}", "{a} of {b} {0}",
]  # fmt: skip
PIECES = [
    *NOUNS, "the", "is", "and", "of", "not", "never", "no", "5", "30", "0", "one", "two", "1,000", "$5", "50 %",
    "5 s", "30 ms", "May 2024", "in May", "2024-05-03", "v1.2", "3.10", ".", ",", ";", ":", "|", "\n", "\n\n", "- ",
    "# ", "1. ", "{", "}", "=", "(", ")", "**", "`", "-", "to", "from", "at most", "a", "per", "second", "half",
    "```\n", "https://", "\u200b", "½", "é", "_",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=60)
numbers = st.integers(0, 10**6).map(str)


@given(texts, texts)
def test_an_answer_that_stands_in_the_passages_is_supported(text, other):
    assert check_values(text, [other, text]).unsupported == ()


@given(texts, texts)
def test_positions_are_those_of_the_answer_in_text_order(answer, passage):
    report = check_values(answer, [passage])
    assert all(answer[value.start : value.end] == value.text for value in report.unsupported)
    assert [value.start for value in report.unsupported] == sorted(
        value.start for value in report.unsupported
    )
    assert sum(value.hard for value in report.unsupported) == len(report.warnings)
    assert len(report.unsupported) <= report.found


@given(texts, texts, st.text(alphabet="bcdfgh ", max_size=30), numbers)
def test_a_passage_about_other_things_takes_no_support_away(answer, passage, words, number):
    other = " ".join(f"zz{word}" for word in words.split()) + f" zzx {number} s"
    before = check_values(answer, [passage])
    after = check_values(answer, [passage, other])
    for hard in (
        False,
        True,
    ):  # "x 5" is a doubt where a passage says "5 s", and a fault where none holds any 5
        found, known = ({v.start for v in report.unsupported if v.hard >= hard} for report in (after, before))
        assert found <= known


@given(st.permutations(NOUNS), numbers, numbers, st.sampled_from(UNITS), st.sampled_from(LINKS))
def test_two_different_numbers_that_are_swapped_are_caught(nouns, one, other, unit, link):
    assume(one != other)
    said = "The {2} {0} is {a}{u}{l} {1} is {b}{u}."
    passage = said.format(*nouns, a=one, b=other, u=unit, l=link)
    swapped = said.format(*nouns, a=other, b=one, u=unit, l=link)
    assert len(unsupported(passage, passage)) == 0
    assert len(unsupported(swapped, passage)) == 2


@given(st.permutations(NOUNS), numbers, numbers, st.sampled_from(FORMS))
def test_a_swap_is_caught_in_every_form_of_the_sentence(nouns, one, other, form):
    assume(one != other)
    passage = form.format(*nouns, a=one, b=other)
    assert unsupported(form.format(*nouns, a=other, b=one), passage) != []


def test_what_exceeds_the_bounds_is_counted_and_fails_closed(monkeypatch):
    monkeypatch.setattr(answer, "JUDGED", 1_000)
    monkeypatch.setattr(answer, "LISTED", 500)
    report = check_values("\n".join(f"- limit {n} is {n}" for n in range(800)), ["Limit: 799"])
    assert report.found == 1_600
    assert len(report.unsupported) == len(report.warnings) == 500
    assert report.left_out == 1_100  # 799 is supported, yet stands behind the first 1,000 values


FLEET = (
    "The yard built 46 ferries. The yard built 312 lifeboats. It is 63 metres long, 4.5 % of it is scrap. "
    "The yard sold 1600 anchors."
)
