"""What a claim says, in the form in which claims are compared: words, values, polarity, and its frame.

A claim's **content** is its words without function words, values and what denies, by their stems; a pair of opposites
is one word. What is before its verb is what the claim is **about**. **Values** are numbers, units, parts of dates and
the sides of opposites, in one spelling. A claim about a property of which a thing can have but one has a **frame**
(what it is about, verb, preposition), and the words that fill it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from groundwire.checks.dedup.notes import (
    RECENT,
    has_clause,
    is_done,
    is_heading,
    is_link,
    is_of_entry,
    label_of,
    names_one,
    stage_of,
    tallies,
    task_mark,
)
from groundwire.checks.dedup.parts import (
    amounts,
    frame_of,
    head_of,
    in_place,
    is_ordinal_name,
    repeats,
    same_stem,
)
from groundwire.text.clauses import (
    ADVERBS,
    AUXILIARIES,
    BE,
    FUNCTION_WORDS,
    WordRole,
    read_clause,
    role_of,
    stem_of,
)
from groundwire.text.lists import words_in
from groundwire.text.negation import (
    DENYING,
    FULL,
    WEAK,
    Side,
    denies,
    is_affixed,
    may_be_particle,
    may_deny,
    may_negate,
    negations,
    side_of,
    side_of_particle,
    without_affix,
)
from groundwire.text.quantities import (
    MONTHS,
    UNIT_NAMES,
    WEEKDAYS,
    clock_times,
    dates,
    dates_at,
    is_scientific,
    is_unit,
    is_year,
    may_be_time,
    may_count,
    may_date,
    quantities,
)
from groundwire.text.stems import words_of
from groundwire.text.tokens import CACHED_LENGTH, CACHED_TOKENS, PerToken, tokenize, tokenize_visible
from groundwire.text.visible import visible


class Word(NamedTuple):
    """A token of a claim; `stem` is empty for a function word, a value and what denies.

    `role` is what content is to the verb, see `groundwire.text.clauses`; a `topic` is before the verb, a `filler`
    fills the frame.
    """

    token: str
    stem: str
    role: int = 0
    topic: bool = False
    filler: bool = False


_NOT_WRITTEN: Final = Word("", "")


class ClaimForm(NamedTuple):
    words: list[Word]  # in text order; sorted where a relation says the same either way round
    full: int  # number of negations
    weak: int  # number of those of the kind of "rarely"
    values: list[tuple[str, str]]  # kind and value, sorted; `dedup.signature` names the kinds
    about: list[str]  # values that tell what it is about, sorted
    frame: str  # what can be filled but once; empty where there is no such thing
    keys: frozenset[str]  # what its content is found by; each depends on one token alone


# Each begins with the character that is looked for, which the engine finds quickly.
_SENTENCE_END: Final = re.compile(r"[\n.!?;\u2026](?:(?<=\n)|(?<!\s\w.)(?<!\b[DMS][rst].)\s)")
_NAME: Final = re.compile(r"[A-Z](?<!\w.)[\w'-]*")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_PREFIXED: Final = re.compile(r"[a-z]+-\d")
_NO_NAMES: Final = frozenset(("", "st", "nd", "rd", "th", "x", "v", "am", "pm"))
_SYMMETRIC: Final = words_in(__package__, "symmetric")
_NUMBERED: Final = re.compile(r"[a-z][a-z_.-]*\d[\w.-]*")
_BOUNDS: Final = {"before": "<", "after": ">", "until": "<=", "till": "<=", "since": ">="}
_REACH: Final = 6  # words behind a negation among which the one that it denies is looked for
_BEFORE_AMOUNT: Final = 4  # words that bound a number: "up to", "at least a"
_TRUE: Final = words_of("true false correct incorrect untrue wrong case fact")
_EMBEDDING: Final = words_of("it is was it's not isn't wasn't n't the a simply just no longer") | _TRUE
_MOST_EMBEDDING: Final = 8  # words of "it is not the case that"
_BEFORE_PREDICATE: Final = AUXILIARIES | ADVERBS | {"to"}
_LONGEST: Final = 64  # characters of an identifier that are looked through


# What a token can be, as bits: what it says then depends on the words beside it.
_UNIT: Final = 1
_COUNTS: Final = 2  # it is a number
_OPENS: Final = 4  # a unit may follow it
_DATES: Final = 8
_NEGATES: Final = 16
_SIDED: Final = 32
_PARTICLE: Final = 64  # it has a side in some places
_AMOUNT: Final = 128  # a number or a rate by itself, also "one" and "daily"
_CLOCK: Final = 256


@dataclass(frozen=True, slots=True)  # of which fields are read twice as fast as of a tuple's
class _Kind:
    blank: Word  # where it is no content
    flags: int
    stem: str  # empty: a function word, or a number without a name
    side: Side | None
    key: str  # what its content is found by: never depends on the words around it


def _kind(token: str) -> _Kind:
    function = token in FUNCTION_WORDS
    opens, negates = may_count(token), may_negate(token)
    counts = opens and not function
    side = None if function or counts else side_of(token)
    stem = "" if function else _name_in(token) if counts else _bare_stem(token)
    if negates and side is None and not (is_affixed(token) or may_deny(token)):
        stem = ""
    key = side.pair if side else stem.removeprefix("=")
    flags = {
        _UNIT: is_unit(token),
        _COUNTS: counts,
        _OPENS: opens,
        _DATES: may_date(token),
        _NEGATES: negates,
        _SIDED: side is not None,
        _PARTICLE: may_be_particle(token),
        _AMOUNT: any(quantities([token])),
        _CLOCK: may_be_time(token),
    }
    return _Kind(
        Word(token, ""),
        sum(flag for flag, holds in flags.items() if holds),
        f"={side.pair}" if side and stem else stem,
        side,
        "" if key in _NO_KEYS else key,
    )


def _bare_stem(token: str) -> str:
    return same_stem(stem_of(without_affix(token) if is_affixed(token) else token))


def _name_in(token: str) -> str:
    """Return the letters of an identifier with digits: "vm" of "vm-12", nothing of "30ms"."""
    if not any(map(str.isdigit, token)) or dates([token]) or is_scientific(token):
        return ""
    letters = "-".join(_LETTERS.findall(token[:_LONGEST]))
    measures = is_unit(letters) and not _PREFIXED.match(token)  # "30ms", not "ms-30"
    return "" if letters in _NO_NAMES or measures else letters


# What may be a unit, a part of a date or a denial, depending on its neighbours, is never looked for.
_NO_KEYS: Final = frozenset(
    side.pair if (side := side_of(word)) else _bare_stem(word)
    for word in (*MONTHS, *WEEKDAYS, *UNIT_NAMES, *DENYING, *_TRUE)
)
_KINDS: Final = PerToken(_kind)


class _Words(dict[tuple[str, int, bool], Word]):
    def __missing__(self, said: tuple[str, int, bool]) -> Word:
        token, role, leads = said
        kind = _KINDS[token]
        word = Word(token, kind.stem, role, leads) if kind.stem else kind.blank
        if len(token) <= CACHED_LENGTH:
            if len(self) >= CACHED_TOKENS:
                self.clear()
            self[said] = word
        return word


_WORDS: Final = _Words()


def read_form(text: str) -> ClaimForm:
    return _FormReader(text).form()


def _embedding_of(tokens: Sequence[str]) -> int:
    """Return how many words come before what "it is false that ..." denies, or "it is true that" affirms; mostly 0."""
    if tokens[:1] != ["it"] and tokens[:1] != ["it's"]:
        return 0
    head = tokens[:_MOST_EMBEDDING]
    end = head.index("that") if "that" in head else 0
    return end + 1 if end and _EMBEDDING.issuperset(head[:end]) and head[end - 1] in _TRUE else 0


class _FormReader:
    __slots__ = (
        "_clause", "_copula", "_dated", "_dates", "_embedding", "_entry", "_flags", "_heading", "_kinds", "_label",
        "_leads", "_names", "_naming", "_opening", "_repeats", "_sentence", "_sides", "_task", "_tokens", "_varying",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        shown = visible(text)
        tokens = tokenize_visible(shown)
        start = _embedding_of(tokens)
        self._embedding, self._tokens = tokens[:start], tokens[start:]
        first = _SENTENCE_END.split(shown, 1)[0]
        sentence = len(self._tokens) if first == shown else max(len(tokenize(first)) - start, 0)
        self._label = 0 if start else label_of(shown)
        if self._label >= len(self._tokens):
            self._label = 0
        self._task, self._heading = task_mark(shown), is_heading(shown)
        phrase = "" if start or self._label else first
        self._tokens, self._opening = in_place(self._tokens, phrase, sentence)
        self._names = frozenset(map(str.lower, _NAME.findall(shown)))
        self._copula = False
        self._entry = bool(self._label) and is_of_entry(self._tokens[: self._label])
        known = 0
        if self._label and not has_clause(self._tokens[self._label : sentence]):
            known = self._label  # "Default branch: main" reads as "default branch is main"
            self._copula = self._tokens[known] != "="
            if self._copula:
                self._tokens.insert(known, "is")
                sentence += 1
        self._sentence = sentence
        self._kinds = _KINDS.of(self._tokens)
        self._varying = [(place, kind) for place, kind in enumerate(self._kinds) if kind.flags]
        self._flags = 0
        for _, kind in self._varying:
            self._flags |= kind.flags
        self._dates = (
            dates_at(self._tokens, [place for place, kind in self._varying if kind.flags & _DATES])
            if self._flags & _DATES
            else []
        )
        self._dated = {place for _, place in self._dates}
        self._sides = (
            {
                place: kind.side
                for place, kind in self._varying
                if kind.side and not (kind.flags & _NEGATES and denies(self._tokens, place))
            }
            if self._flags & _SIDED
            else {}
        )
        self._clause = read_clause(
            self._replaced(self._dated, "0"),
            sentence,
            self._names,
            states=self._sides.keys(),
            behind=self._label,
            verb=known,
        )
        verb = self._clause.verb
        self._leads = [True] * verb + [False] * (len(self._tokens) - verb)
        for place in self._opening:  # it is written before the verb
            self._leads[place] = True
        self._repeats = False
        self._naming = self._named() if self._flags & (_COUNTS | _DATES) else set()

    def _named(self) -> set[int]:
        verb = self._clause.verb
        places = [place for place, kind in self._varying if kind.flags & _COUNTS and place not in self._dated]
        named = {place for place in places if self._leads[place] and self._is_name(place)}
        self._repeats = repeats(self._tokens, self._clause, self._dated, named)
        timed = clock_times(self._tokens) if self._flags & _CLOCK else ()
        named.update(place for place in timed if self._repeats or place + 2 < verb)
        ordinals = (
            place for place in places if is_ordinal_name(self._tokens, place, leads=self._leads[place])
        )
        named.update(place for place in ordinals if self._is_about(place))
        done, tokens = is_done(self._tokens, self._clause), self._tokens
        if done or not verb:
            named.update(place for place in places if names_one(tokens, place, done=done))
        named.update(place for place in places if place < self._label)
        named.update(
            place
            for place in places
            if (self._leads[place] or not verb or self._label) and tallies(tokens, place)
        )
        return named if not (self._entry or is_link(tokens)) else {*named, *places}

    def form(self) -> ClaimForm:
        words = list(map(_WORDS.__getitem__, zip(self._tokens, self._clause.roles, self._leads, strict=True)))
        for place, kind in self._varying if self._flags & (_UNIT | _DATES | _NEGATES) else ():
            counted = kind.flags & _UNIT and place > 0 and self._kinds[place - 1].flags & _OPENS
            denying = kind.flags & _NEGATES and denies(self._tokens, place)
            if counted or denying or place in self._dated:
                words[place] = kind.blank
        denied = [FULL] if self._embedding and len(negations(self._embedding)) % 2 else []
        if "against" in self._tokens:  # "decided against moving", as "decided not to move"
            denied += [
                FULL for word, doing in pairwise(self._tokens) if word == "against" and doing.endswith("ing")
            ]
        if self._flags & _NEGATES:
            denied += negations(self._replaced(self._sides, ""))
        # dates and names before the verb, "ticket 310", tell what the claim is about
        about = {f"{kind}{value}" for (kind, value), place in self._dates if self._is_about(place)}
        named = amounts([self._tokens[place] for place in sorted(self._naming)]) if self._naming else ()
        about.update(f"N{value}" for _, value in named)
        if self._heading:  # says nothing
            about.add(" ".join(self._tokens))
        elif self._task == "[ ]":
            about.add("todo")
        found = [part for part, place in self._dates if not self._is_about(place)]
        leading = [part for part, place in self._dates if place in self._opening and part in found]
        if self._flags & (_AMOUNT | _UNIT):
            places = [place for place, kind in self._varying if kind.flags & (_AMOUNT | _UNIT)]
            names = self._dated | self._naming
            near = range(max(places[0] - _BEFORE_AMOUNT, 0), min(places[-1] + 2, len(self._tokens)))
            found += amounts([self._tokens[place] for place in near if place not in names])
            leading += amounts([self._tokens[place] for place in self._opening if place not in names])
        values = found + [("T", kind + value) for kind, value in leading if kind != "n"]
        if self._flags & (_SIDED | _PARTICLE):
            values += self._signed()
        values += self._bounds(words)
        values += self._order(words, values)
        frame = self._frame(words, denied=bool(denied))
        if not frame and self._sides:
            frame, said = self._sided()
            values += said
        if self._copula:
            words[self._label] = _NOT_WRITTEN
        for taken, place in enumerate(self._clause.owners):
            words.append(words.pop(place - taken))  # "Mira's date of birth" as "the date of birth of Mira"
        if self._copula:
            words.remove(_NOT_WRITTEN)
        if not _SYMMETRIC.isdisjoint(self._tokens):
            words = sorted(
                (word._replace(role=WordRole.OBJECT) for word in words), key=lambda word: word.stem
            )
        return ClaimForm(
            words=[*words, *(Word(token, "") for token in self._embedding)] if self._embedding else words,
            full=denied.count(FULL),
            weak=denied.count(WEAK),
            values=sorted(set(values)),
            about=sorted(about),
            frame="\0".join((*sorted(about), frame)) if frame else "",
            keys=frozenset([kind.key for kind in self._kinds if kind.key]),
        )

    def _replaced(self, places: Collection[int], token: str) -> list[str]:
        if not places:
            return self._tokens
        return [token if place in places else own for place, own in enumerate(self._tokens)]

    def _is_said(self, place: int) -> bool:
        """Return whether a word is what the claim says of something, not a part of the name of another thing.

        "The gate is locked" says so of the gate, "the upper lake" and "internal requests" are names.
        """
        if place == self._clause.verb or place + 1 == len(self._tokens) or role_of(self._tokens[place]):
            return True
        follower = self._kinds[place + 1]
        if not follower.stem or follower.flags & _COUNTS:
            return True
        return place > 0 and self._tokens[place - 1] in _BEFORE_PREDICATE

    def _is_about(self, place: int) -> bool:
        """Return whether a value says what a claim is about, or which event it tells of.

        It does not where nothing else is before the verb: "4 May is the deadline".
        """
        if place < self._label or self._entry:
            return True
        before = self._kinds[: self._clause.verb] if place < self._clause.verb else ()
        return self._repeats or any(kind.stem and not kind.flags & _DATES for kind in before)

    def _is_name(self, place: int) -> bool:
        kind, before = self._kinds[place], self._kinds[place - 1] if place else None
        named = kind.stem or (
            before and before.stem and not before.flags & _COUNTS and not role_of(before.blank.token)
        )
        return bool(named or is_year(self._tokens[place]))

    def _signed(self) -> Iterator[tuple[str, str]]:
        verb, found = self._clause.verb, list(self._sides.items())
        if self._flags & _PARTICLE:
            found += [
                (place, side)
                for place, kind in self._varying
                if kind.flags & _PARTICLE and place > verb and (side := side_of_particle(self._tokens, place))
            ]
        count: dict[str, int] = {}
        for place, (pair, first) in found:
            number = count[pair] = count.get(pair, 0) + 1
            value = f"{pair}{'+' if first else '-'}{number}"
            if self._leads[place]:
                yield "T", value
            if place >= verb:
                yield "O" if self._is_said(place) else "A", value

    def _sided(self) -> tuple[str, list[tuple[str, str]]]:
        """Return the frame of a thing with a side, and that side: "the pool is free", "has a free pool"."""
        verb = self._clause.verb
        for place, side in self._sides.items():
            if not place > verb > 0:
                continue
            if self._is_said(place):
                states = self._tokens[verb] in BE and _BEFORE_PREDICATE.issuperset(
                    self._tokens[verb + 1 : place]
                )
                kind, head = "P", head_of(self._tokens[:verb]) if states else ""
            else:
                behind = place + 1
                while behind < len(self._tokens) and self._kinds[behind].stem:
                    behind += 1
                kind, head = "F", head_of(self._tokens[place + 1 : behind])
            if head:
                return f"{head}\0{side.pair}", [(kind, f"{side.pair}{'+' if side.first else '-'}")]
        return "", []

    def _bounds(self, words: list[Word]) -> Iterator[tuple[str, str]]:
        """Yield how the times that a claim states are bounded: "before 5:00", "since 2019"; the word is no content."""
        timed = clock_times(self._tokens) if self._flags & _CLOCK else ()
        for place in sorted({*timed, *self._dated}):
            if place and place - 1 not in self._dated and not self._is_about(place):
                word = self._tokens[place - 1]
                if word in _BOUNDS:
                    words[place - 1] = self._kinds[place - 1].blank
                yield "B", _BOUNDS.get(word, "=")

    def _order(self, words: Sequence[Word], values: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        numbers = [value for kind, value in values if kind in "NQ"]
        denied = [
            " ".join(
                next((word.stem for word in side if word.stem), "")
                for side in (words[max(place - _REACH, 0) : place][::-1], words[place + 1 : place + _REACH])
            )
            for place, kind in self._varying
            if kind.flags & _NEGATES and not words[place].stem
        ]
        if denied or len(numbers) > 1:
            yield "S", "\0".join((*numbers, *denied))

    def _frame(self, words: list[Word], *, denied: bool) -> str:
        label = self._label if self._clause.verb == self._label else 0
        frame = frame_of(self._tokens, self._clause, self._names, label, self._sentence)
        stage = frame.text == "be stage\0"
        if self._task and not stage:
            return ""
        about = {words[place].stem for place in frame.about if self._tokens[place] not in RECENT} - {""}
        if not about or (denied and not stage):
            return ""
        for place in frame.about:
            if self._tokens[place] in RECENT:
                words[place] = self._kinds[place].blank
        for place in frame.fillers:
            token, stem = self._tokens[place], words[place].stem
            if stage:
                stem = f"={stage_of(token)}"
            elif _NUMBERED.fullmatch(token):  # "S3", "gpt-5-mini"
                stem = token
            words[place] = words[place]._replace(stem=stem, filler=bool(stem), topic=False)
        return "\0".join((*sorted(about), frame.text)) if any(word.filler for word in words) else ""
