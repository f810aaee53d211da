"""Fields that an answer mentions, and whether what was retrieved holds them (S2-09 to S2-18).

A field is named in one of four ways: in a code span, before a type, after "parameter", "field" or "option",
or in a method call. In the second and third a plain word may stand where a name would ("the option to", "a
field is", "Note: string"); such words are no fields (C-50).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from groundwire.arguments import takes
from groundwire.messages.records import Chunk
from groundwire.text.lists import words_in

# Each starts at the start of a word or at a sign, so that no run of letters is read more than once.
_CODE_SPAN = re.compile(r"`(\w+)`")
_CALL = re.compile(r"\.(\w+)\(")
_TYPED = re.compile(r"(?<!\w)(\w+):\s*(?:string|number|boolean)(?!\w)")
# The name is looked at, not consumed: in "the parameter field topK" the second word leads to the name.
_NAMED = re.compile(r"(?<!\w)(?:parameter|field|option)(?=\s+(?:(?:named|called)\s+)?(\w+))", re.IGNORECASE)
_NAME = re.compile(r"\w+")


_PLAIN_WORDS = words_in(__package__, "plain_words")
# What a writer puts before a colon, with a type behind it: "Type: string", "one of: string or number"
_LABELS = words_in(__package__, "labels")
_PATTERNS = (
    (_CODE_SPAN, frozenset[str]()), (_CALL, frozenset[str]()), (_TYPED, _LABELS), (_NAMED, _PLAIN_WORDS),
)  # fmt: skip


class FieldCheckResult(NamedTuple):
    """Which fields stand in what was retrieved.

    Attributes:
        verified: names that a chunk holds, in the order given, each once.
        unverified: names that no chunk holds: invented, as far as can be seen.
        confidence: verified ÷ all, from 0 to 1; 1.0 where no field was mentioned (S2-14).
    """

    verified: list[str]
    unverified: list[str]
    confidence: float

    @property
    def message(self) -> str:
        """The text of the warning UNVERIFIED_FIELDS (S2-16)."""
        return f"Unverified fields: [{', '.join(self.unverified)}]"


class FieldChecker:
    """Finds the fields of an answer and looks for them in chunks. It holds no state: one instance serves all."""

    @takes(answer=str)
    def extract_mentioned_fields(self, answer: str) -> list[str]:
        """Return the fields that an answer mentions: first mention first, each once, exact case.

        Args:
            answer: any text; all fields are returned, however many (S2-18).
        """
        return list(dict.fromkeys(name for _, name in sorted(_mentions(answer))))

    @takes(fields=Iterable, chunks=Iterable)
    def verify_fields(
        self, fields: Iterable[str], chunks: Iterable[Chunk | Mapping[str, Any]]
    ) -> FieldCheckResult:
        """Look for fields in the contents of chunks, as whole names in exact case (S2-13).

        Args:
            fields: names; a repeated one counts once.
            chunks: what was retrieved, as models or as mappings of the contract's shape.

        Raises:
            TypeError: a single name instead of several.
            pydantic.ValidationError: for a mapping that is no chunk.
        """
        if isinstance(fields, str):
            raise TypeError("fields: a list of names, not one name")
        names = list(dict.fromkeys(fields))
        known: set[str] = set()
        for chunk in map(Chunk.model_validate, chunks) if names else ():
            known.update(found[0] for found in _NAME.finditer(chunk.content))
        verified = [name for name in names if name in known]
        unverified = [name for name in names if name not in known]
        return FieldCheckResult(verified, unverified, len(verified) / len(names) if names else 1.0)


def _mentions(answer: str) -> Iterator[tuple[int, str]]:
    for pattern, stopped in _PATTERNS:
        for found in pattern.finditer(answer):
            # "option 2" counts options; a plain word is none in any case ("Option To"), "toName" is a name.
            if not (stopped and (found[1].isdecimal() or found[1].lower() in stopped)):
                yield found.start(1), found[1]
