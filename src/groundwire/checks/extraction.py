"""The claims that an answer makes: its declarative sentences, as they stand, without markup (X-15)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from groundwire.checks.claim_sentences import is_claim, says_nothing
from groundwire.checks.sentences import sentences

MAX_CHARACTERS: Final = 1_000
"""Longer sentences are no claims that a person could judge; they are left out."""

_TAG = re.compile(r"\s?\[\s{0,3}sources?\s{0,3}[:\uff1a][^\[\]]{0,100}\]", re.IGNORECASE)
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^()\s]{1,500}\)")
_EMPHASIS = re.compile(r"(\*\*|__|\*)(?=\S)([^*_\n]{1,300})(?<=\S)\1")
_SPACE_BEFORE = re.compile(r"\s+(?=[.,;!?])")
_POINTER = re.compile(r"\W*(?:it|they|this|that|these|those|he|she|which|both)\b", re.IGNORECASE)
_TABLE = "|"


def extract_claims(answer: str, limit: int) -> list[str]:
    """Return the claims of an answer, in its order, each once, at most `limit`.

    Left out is what a reader of the claim alone could not judge or need not: questions, headings, lead-ins,
    refusals, talk about the answer, code blocks, rows of tables, fragments, and sentences that begin with a
    pronoun, whose meaning stands in the sentence before. Hedged sentences stay: the claim gate reviews them
    (S2-22).

    Args:
        answer: text, with Markdown and `[source:N]` tags or without; both are taken out of the claims.
        limit: most claims that are returned.
    """
    claims: dict[str, None] = {}
    for text in _statements(answer):
        if len(claims) >= limit:
            break
        claims.setdefault(text)
    return list(claims)


def _statements(answer: str) -> Iterator[str]:
    for span in sentences(answer):
        if span.code or len(span.text) > 2 * MAX_CHARACTERS or span.text.lstrip().startswith((_TABLE, ">")):
            continue
        if not is_claim(_TAG.sub("", span.text)) or _POINTER.match(span.text):
            continue
        text = _plain(span.text)
        if len(text) <= MAX_CHARACTERS and not says_nothing(text):
            yield text


def _plain(sentence: str) -> str:
    """Take tags, links and emphasis out of a sentence, and white space together."""
    text = _LINK.sub(r"\1", _TAG.sub("", sentence))
    text = _EMPHASIS.sub(r"\2", text)
    return _SPACE_BEFORE.sub("", " ".join(text.split()))
