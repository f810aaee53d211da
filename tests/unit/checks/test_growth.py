"""The time of every check grows in proportion to its text, whatever the text holds."""

from collections.abc import Callable
from functools import partial

import pytest

from groundwire.checks.citations import CitationDetector
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.signature import signature
from groundwire.checks.extraction import extract_claims
from groundwire.checks.fields import FieldChecker
from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.marks import Citable
from groundwire.checks.prompts import grounded_prompt
from groundwire.checks.quote_text import comparison_form
from groundwire.checks.source_tags import check_tags
from groundwire.checks.sources import verify_sources
from groundwire.checks.values.answer import check_values
from groundwire.text.normalise import nfkc, normalise
from groundwire.text.sentences import sentences
from tests.unit.checks import growth

MARKS = "\u0301\u0323\u0334"


def chunk(content):
    return {"chunk_id": "c", "file": "f", "content": content, "start_line": 1, "end_line": 1}


def citations(text):
    CitationDetector().detect("https://x" + text)


def fields(text):
    FieldChecker().verify_fields(FieldChecker().extract_mentioned_fields("option" + text), [chunk(text)])


def sources(text):
    verify_sources([{"file": "f", "snippet": text[len(text) // 2 :] + "x"}], [chunk(text)])


def tags(text):
    check_tags(text, Citable((), 3), required=True)


def inside_a_tag(text):
    check_tags(f"It is so [source:{text}x].", Citable((), 3), required=True)


def prompt(text):
    grounded_prompt(text, [chunk(text)])


def claims(text):
    extract_claims(text, 10**6)


def fences_of_ever_shorter_length(text):
    sentences("\n".join("`" * length + " a" for length in range(int(len(text) ** 0.5), 3, -1)) + "\n" + text)


def signed(text):
    signature(read_form(text))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "unit", "up_to"),
    [
        pytest.param(check, unit, up_to, id=f"{check.__name__}-{unit[:40]!a}")
        for up_to, check, units in [
            (300_000, sentences, ["a" + 1_000 * unit for unit in (
                " ", "`", "--", "aaa:", "* * ", ". [source:", "[source:1] ", "~", "(", "1,", ".)]", "[1 e.g.]")]),
            (300_000, fields, ["a", "a:", "a: ", "`a", "`", ".a", "option ", "parameter named ", " ", "_1",
                                 "x:string ", "é:"]),
            (300_000, sources, ["a", "a ", "-", ".", "1,000", "1.", "\n", "a\n", "(", "\u200b", "\u201c", "- ",
                                  "_("]),
            (300_000, prompt, ["{query}", "<<<", "a", "[source:1]\n"]),
            (300_000, tags, ["[source:", "[source:1]", "[ ", "[source:1,", "no a found ", "not found in provided ",
                               "not find a ", "1-", "**a", "__", "sorry ", ", so i cannot answer it",
                               "the provided sources do not ", "the passages do not ", "is ", "information about "]),
            (200_000, tags, ["a. ", "?* ", "|-|\n", "```\na\n```\n", "[source:1] a."]),
            (200_000, inside_a_tag, [" ", "0", "1", "source:", "#", "-", "1 - "]),
            (200_000, sentences, ["a. ", "a.", "A\n", "\n", "``` a\n", "```\na\n```\n", "~~~~a\n", "- x\n", "1. ", "| ",
                                  "e.g. ", "A: ", "x:\n"]),
            (200_000, fences_of_ever_shorter_length, ["```x\n"]),
            (200_000, nfkc, [MARKS]),
            (200_000, normalise, [MARKS]),
            (200_000, signed, [MARKS]),
            (100_000, comparison_form, ["<a>", "<a", "<", " <", ">", "<a<b>", "<b>x", "²", "1²", "\u0344\u0316",
                                        "\u0f71\u0f72", "中", "é ", "a  "]),
            (100_000, claims, ["The API retries. ", "[source:", "**", "_a", "`", "> ", "a_", "* a", "[x](",
                               "Not found ", "word ", "\n- x is y"]),
            (100_000, citations, ["https://x", "(https://x(", "'https://x", ")", "&", "a.", "a://", "ADR ", "[",
                                  "#1 and ", "abcdef1 ", "commit ", "0123456789abcdef0123456789abcdef01234567-"]),
            (100_000, HedgeDetector().find, ["I ", "I was ", "we, just, ", "may ", "not so ", "perhaps we ",
                                             "I could be a b c ", "if I ", "I\u200b ", "around ", "_", "\u0301"]),
        ]
        for unit in units
    ],
)  # fmt: skip
def test_time_grows_in_proportion_to_the_text(check, unit, up_to):
    growth.assert_linear(check, unit, up_to=up_to)


@pytest.mark.slow
def test_values_of_an_answer_are_looked_up_in_work_in_proportion_to_it_and_its_passages_not_to_their_product():
    def many(count: int) -> Callable[[], object]:
        passages = [f"The x{n % 50} y costs {n} euros." for n in range(count)]
        answer = " ".join(f"The x{n % 50} y costs {count + n} euros." for n in range(count // 6))
        return partial(check_values, answer, passages)

    growth.assert_tenfold(many, 400)
