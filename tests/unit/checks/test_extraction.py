"""Extraction of claims from an answer (X-15, S2-21, S2-22, C-48)."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from groundwire.checks.extraction import extract_claims
from groundwire.checks.marks import without_marks
from tests.unit.checks.tables import differing

PIECES = [
    "The API retries failed requests", "It waits", "Redis is fast", "Users may wait 30 s", "I think so",
    ". ", "? ", ": ", "! ", "\n", "\n\n", "- ", "1. ", "# ", "> ", "| ", "**", "*", "_", "__", "`", "```\n", "~~",
    "[source:1]", " [sources: 2, 3]", "[x](https://x.io/a_b)", " ", "e.g. ", "3.5", "x_y", "\u200b", "“", "”", "(", ")",
    "Here is", "Not found in provided sources", "Timeout",
]  # fmt: skip
answers = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(
    "ab *_~`.[]>#-\n", max_size=30
).map("The x is {} it".format)
MARKUP = re.compile(r"\[\s*sources?\s*:[^\[\]]*\]|[*_~>#\s\u200b]|^\W*\d+\.|[-|]", re.IGNORECASE)


def claims(answer):
    return extract_claims(answer, 100)


@given(answers)
def test_a_claim_stands_in_the_answer_less_the_markup(answer):
    bare = MARKUP.sub("", without_marks(answer).replace("\u200b", ""))
    assert all(MARKUP.sub("", claim) in bare for claim in claims(answer))


@given(answers)
def test_claims_of_the_claims_are_the_claims(answer):
    assume(
        "```" not in answer or "](" not in answer
    )  # behind a fence that stays open a link is kept as written
    once = claims(answer)
    assert claims("\n\n".join([*once, *once])) == once


@given(answers, st.integers(-1, 5))
def test_a_limit_keeps_the_first_claims(answer, limit):
    assert extract_claims(answer, limit) == claims(answer)[: max(limit, 0)]


def test_a_claim_is_the_sentence_as_written_less_tags_markers_and_emphasis():
    cases = [
        ("The API **retries** failed requests 5 times [source:1].", "The API retries failed requests 5 times."),
        ("- *Timeouts* default to 30 s [source: 2, 3]", "Timeouts default to 30 s"),
        ("2) The worker  polls\nthe queue.", "The worker polls the queue."),
        ("> The cache is a `LRU **cache**`.", "The cache is a `LRU **cache**`."),
        ("The field user_id holds 2 * 3 items.", "The field user_id holds 2 * 3 items."),
    ]  # fmt: skip
    assert [(answer, expected) for answer, expected in cases if claims(answer) != [expected]] == []


def test_a_refusal_and_what_states_nothing_that_stands_alone_is_no_claim():
    """A hedged sentence stays, for the claim gate to judge."""
    none = [
        "Not found in provided sources.", "The provided documents do not mention a limit.",
        "I could not find the timeout in the code.", "There is no information about retries.",
        "The limit is not specified in the provided context.",
        "# The API retries requests", "```\nThe API retries requests.\n```",
        "This means requests are retried.", "A queue for workers and the jobs",
    ]  # fmt: skip
    hedged = [
        "The API may return errors under load.", "I think Redis is faster.", "Perhaps the cache is stale.",
    ]  # fmt: skip
    cases = [(answer, []) for answer in none] + [(answer, [answer]) for answer in hedged]
    assert differing(claims, cases) == []
