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
from groundwire.text.stems import words_of

# Each starts at the start of a word or at a sign, so that no run of letters is read more than once.
_CODE_SPAN = re.compile(r"`(\w+)`")
_CALL = re.compile(r"\.(\w+)\(")
_TYPED = re.compile(r"(?<!\w)(\w+):\s*(?:string|number|boolean)(?!\w)")
# The name is looked at, not consumed: in "the parameter field topK" the second word leads to the name.
_NAMED = re.compile(r"(?<!\w)(?:parameter|field|option)(?=\s+(?:(?:named|called)\s+)?(\w+))", re.IGNORECASE)
_NAME = re.compile(r"\w+")


_PLAIN_WORDS = words_of(
    # What follows "parameter", "field" or "option" in a sentence: to be and to do, prepositions, conjunctions
    "is are was were be been being isn aren wasn weren has have had hasn haven do does did doesn don didn can "
    "cannot could couldn may might must shall should shouldn will won would wouldn need needs needed to of for "
    "in into on onto at by with within without from as about above after against among and or nor but before "
    "behind below beneath beside besides between beyond during except if inside like near off out outside over "
    "per plus since so than that then there through throughout thus till toward towards under unless until up "
    "upon via versus when whenever where whereas wherever whether which whichever while who whom whose why how "
    "what because although though however therefore hence only also too even just still yet already always "
    "never often usually sometimes not no neither either both each every any all some most more less few many "
    "much several such same other another again once twice here now later first second third last next "
    # articles and pronouns
    "a an the this these those it its itself they them their theirs he she his her we us our you your i me my "
    "one two three none nothing something anything everything someone anyone everyone "
    # verbs that say what it does, or what is done to it
    "accept accepts accepted acts add adds added affect affects allow allows allowed appear appears apply "
    "applies applied become becomes belong belongs bring brings called cause causes causing change changes "
    "changed come comes configure configures configured configuring contain contains contained containing "
    "control controls controlled controlling convert converts corresponds corresponding covers create "
    "creates created decide decides default defaults defaulted defaulting define defines defined defining "
    "denote denotes depend depends describe describes described describing determine determines determined "
    "determining disable disables disabled disabling do done enable enables enabled enabling ensure ensures "
    "equals exist exists existed expect expects expected expose exposes exposed express expresses forces "
    "found get gets give gives given govern governs handles hold holds holding ignored include includes "
    "included including indicate indicates indicating influence influences inherits keep keeps known lead "
    "leads let lets limits limited list lists listed live lives made make makes making maps marks "
    "matches mean means mentioned modify modifies named names naming omit omitted override overrides "
    "overridden passed passes present prevent prevents produces provide provides provided providing read reads "
    "receive receives refer refers referenced remain remains removed renamed replaced replaces represent "
    "represents representing require requires required requiring reset returned returns runs said seem "
    "seems selected selects send sends sent serve serves set sets setting shown shows specified specifies "
    "specify specifying stand stands stays stores stored supplied supports supported switches "
    "take taken takes taking tell tells turned turns understands use used uses using validated varies want "
    "wants work works written "
    # nouns and adjectives that are said of parameters in general
    "parameter parameters field fields option options name value values type types available deprecated "
    "optional mandatory missing unset empty invalid valid new old own following alone together instead "
    "respectively etc e i eg ie vs description descriptions documentation section syntax"
)
# What a writer puts before a colon, with a type behind it: "Type: string", "one of: string or number"
_LABELS = words_of(
    "note notes warning caution important hint tip example examples answer question summary return returns throws "
    "todo type types default defaults accepts expects takes of is are be as either namely including include includes "
    "following follows these those g e eg ie"
)
_PATTERNS = (
    (_CODE_SPAN, frozenset[str]()),
    (_CALL, frozenset[str]()),
    (_TYPED, _LABELS),
    (_NAMED, _PLAIN_WORDS),
)


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
