"""How well the evidence supports a claim, 0..1: what its missing, loose and conflicting parts cost.

A word of the claim is bound as firmly as the evidence window (a sentence, or two in a row) that holds most of the
claim's weight together with it. The sum of costs is divided by the root of the claim's weight, as a long claim may miss
a little more; an invented name or number, a denial and the opposite are not divided. The constants are set by hand on
labelled sets (`bench/quality`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice, pairwise
from math import sqrt
from operator import itemgetter
from typing import Final, NamedTuple

from groundwire.checks.reading.adjuncts import EXCEPTIONS, PHRASE_ENDS
from groundwire.checks.reading.force import Force
from groundwire.checks.reading.statements import Statement
from groundwire.checks.reading.units import ValueToken
from groundwire.checks.support.atoms import LITTLE, NEAR, OPPOSITES, SPEAKER, STRONG, WEAK, Atom, Unit
from groundwire.checks.support.evidence import Evidence, Sentence
from groundwire.checks.values.answer import SOURCES_DIFFER, UnsupportedValue
from groundwire.checks.values.negation import NOT_IN_SOURCES, OPPOSITE
from groundwire.text.negation import negations
from groundwire.text.stems import stem
from groundwire.text.work import spend

_LOOKED: Final = 1_024  # places of words that are looked at per claim, those of the rarest words first
_CANDIDATES: Final = 256  # sentences in which a word is looked for beyond that
_ALIGNED: Final = (
    60  # units of work that scoring a claim takes, beside those of each sentence that holds a word of it
)
_WINDOW: Final = 5


class Alignment(NamedTuple):
    """Where the evidence holds a claim."""

    bound: Sequence[float]  # how firmly each unit is bound, 0 (absent) to 1 (with all others in one sentence)
    best: int  # number of the sentence that holds most of the claim, or -1
    second: int  # number of the sentence beside it that belongs to the window, or -1
    covered: float  # share of the claim's weight that the best window holds
    holders: tuple[int, ...]  # numbers of the sentences that bind its words, the best one first
    passages: tuple[str, ...]  # ids of theirs, in that order
    masks: Mapping[int, int]  # number of a sentence -> the units that it holds, as bits


def align(atom: Atom, evidence: Evidence) -> Alignment:
    units = atom.units
    total = sum(unit.weight for unit in units)
    weights = [unit.weight / total for unit in units]
    masks = _masks(units, evidence)
    spend(_ALIGNED + _WINDOW * len(masks))
    free = (1 << len(units)) - 1  # units that no window looked at so far binds
    if whole := [number for number, mask in masks.items() if mask == free]:  # no other window holds as much
        share = sum(weights)
        windows = [(share, share, -min(whole), -1, free)]
    else:
        windows = sorted(_windows(masks, weights, evidence.sentences), reverse=True)
    bound = [0.0] * len(units)
    holders: dict[int, None] = {}
    for share, _, behind, _, mask in windows:
        if mask & free:
            holders[-behind] = None
            for place in _places(mask & free):
                bound[place] = share
            free &= ~mask
            if not free:
                break
    for place in _places(free):
        if not units[place].keys.isdisjoint(evidence.postings):  # it occurs, far from all the rest
            bound[place] = weights[place]
    covered, _, behind, second, _ = windows[0] if windows else _NONE
    passages = dict.fromkeys(evidence.sentences[number].passage for number in holders)
    return Alignment(bound, -behind, second, covered, tuple(holders), tuple(passages), masks)


def passages_of(atom: Atom, evidence: Evidence) -> tuple[str, ...]:
    """Return the passages of `align` for a claim that one of them says word by word."""
    sentences, postings = evidence.sentences, evidence.postings
    if atom.units and len(sentences) <= _CANDIDATES:  # none of them is left out of the postings
        spend(_ALIGNED)
        rarest = min(
            (
                [*chain.from_iterable(postings[key] for key in unit.keys if key in postings)]
                for unit in atom.units
            ),
            key=len,
        )
        for number in sorted(rarest):
            holds = sentences[number].holds
            if not any(unit.keys.isdisjoint(holds) for unit in atom.units):
                return (sentences[number].passage,)
    return align(atom, evidence).passages


_Window = tuple[float, float, int, int, int]
"""A sentence, with or without the one beside it; in order: the worst first.

Its share of the claim's weight; the same, of the sentence alone; its number, negative: of those that hold the same, the
first one counts; the number of the sentence beside it, or -1; the units that the sentence binds, as bits.
"""
_NONE: Final = (0.0, 0.0, 1, -1, 0)


def _windows(
    masks: Mapping[int, int], weights: Sequence[float], sentences: Sequence[Sentence]
) -> Iterator[_Window]:
    shares = {mask: sum([weights[place] for place in _places(mask)]) for mask in {*masks.values()}}
    seen: set[int | tuple[int, int]] = set()
    for number in sorted(masks):
        mask = masks[number]
        alone = shares[mask]
        if mask not in seen:
            seen.add(mask)
            yield alone, alone, -number, -1, mask
        for other in (number - 1, number + 1):
            beside = masks.get(other, 0)
            both = mask | beside
            if both in (mask, beside) or (mask, both) in seen:
                continue
            if sentences[max(number, other)].follows:
                seen.add((mask, both))
                if both not in shares:
                    shares[both] = sum([weights[place] for place in _places(both)])
                yield shares[both], alone, -number, other, mask


def _masks(units: Sequence[Unit], evidence: Evidence) -> dict[int, int]:
    masks: dict[int, int] = defaultdict(int)
    looked = 0
    postings = evidence.postings
    found: list[tuple[int, int, list[list[int]]]] = []
    for place, unit in enumerate(units):
        lists = [postings[key] for key in unit.keys if key in postings]
        found.append((sum(map(len, lists)), place, lists))
    for holding, place, lists in sorted(found, key=itemgetter(0)):
        looked += holding
        if looked <= _LOOKED or not masks:
            bit = 1 << place
            for number in chain.from_iterable(lists):
                masks[number] |= bit
            spend(1 + holding // 2)
            continue
        spend(min(len(masks), _CANDIDATES) // 4)
        for number in islice(masks, _CANDIDATES):  # a common word is looked for where the rarer ones are
            if not units[place].keys.isdisjoint(evidence.sentences[number].holds):
                masks[number] |= 1 << place
    return dict(masks)


@lru_cache(1 << 12)
def _places(mask: int) -> Sequence[int]:
    places = []
    while mask:
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return places


_SAME: Final = 6  # words around it that are the same, at least one on each side
_SIDE: Final = 5  # words on a side that count
_EDGE: Final = ("",) * 3
"""The start and the end of a sentence count as three words."""
_PLACES: Final = 8  # between the same two words, that are looked at
_BESIDE: Final = 3  # words in front of one that may be part of it
_HE: Final = frozenset(("he", "she"))
_ALIKE: Final = 4  # letters at the start of two words that are forms, or spellings, of one


def replaced(atom: Atom, window: Sequence[Sentence]) -> float:
    """Return what it costs that a word of a claim replaces one of its window, between the same words."""
    said = _words(atom.statement)
    for sentence in window:
        strange = {unit.start for unit in atom.units if unit.stem and unit.keys.isdisjoint(sentence.holds)}
        if strange and _is_replaced(said, strange, _words(sentence.statement)):
            return _REPLACED
    return 0.0


def _is_replaced(said: Sequence[ValueToken], strange: set[int], there: Sequence[ValueToken]) -> bool:
    spend(len(said) + len(there))
    texts, others = _texts(said), _texts(there)
    between: dict[tuple[str, str], list[int]] = {}
    for place in range(len(_EDGE), len(others) - len(_EDGE)):
        known = between.setdefault((others[place - 1], others[place + 1]), [])
        if len(known) < _PLACES:
            known.append(place)
    return any(
        (_run(texts, place, others, at, -1) + _run(texts, place, others, at, 1)) >= _SAME
        and _is_another(token, there[at - len(_EDGE)])
        and [there[at - len(_EDGE)].text, "of"]
        != texts[place - _BESIDE : place - 1]  # "a sample of the resin"
        for place, token in enumerate(said, start=len(_EDGE))
        if token.start in strange
        for at in between.get((texts[place - 1], texts[place + 1]), ())
    )


def _is_another(token: ValueToken, other: ValueToken) -> bool:
    """Return whether a word is no form of another; a name that a pronoun stands for replaces nothing."""
    named = other.text in _HE and token.written[:1].isupper()
    return not (named or other.value or other.text[:_ALIKE] == token.text[:_ALIKE])


def _run(one: Sequence[str], place: int, other: Sequence[str], at: int, step: int) -> int:
    for count in range(_SIDE):
        place, at = place + step, at + step
        inside = 0 <= place < len(one) and 0 <= at < len(other)
        if not inside or one[place] != other[at]:
            return count
    return _SIDE


def _words(statement: Statement) -> list[ValueToken]:
    return [token for token in statement.tokens if not token.mark]


def _texts(words: Sequence[ValueToken]) -> list[str]:
    return [*_EDGE, *(token.text for token in words), *_EDGE]


ENOUGH: Final = 0.7
"""Support at which a claim counts as held by the evidence (S4-27)."""

# Divided by the root of the claim's weight:
_FUNCTION: Final = 0.3  # a function word, or a yes, that no passage holds
_SPEAKER: Final = 1.5  # a word about who speaks, the same
# As much in a long claim as in a short one:
_INVENTED: Final = 0.8  # a value that no passage holds, and a name, however many
_DENIED: Final = 1.0  # a denial that no passage makes
_OPPOSED: Final = 3.0  # the evidence says the opposite, as far as it speaks of the same
_DIFFERS: Final = 2.0  # the evidence gives another value, the same
_REPLACED: Final = 3.5  # a word put for another in what is otherwise a quotation
_STRONGER: Final = 1.0  # "must" where the evidence says "should"; a superlative that it lacks
_UNIVERSAL: Final = 1.0  # beside that, "all" where it says "some"
_SHARE: Final = 1.5  # the square of the share that no passage holds: half of a short claim is much
TOLERATED: Final = 1.1
"""Cost at which support is `ENOUGH`.

From 0.9 to 1.3 verdicts are about as often right, as the mean over the sets of `bench/quality` and both labels: what is
tolerated more takes away as many true alarms as false ones.
"""

_UNIVERSALS: Final = frozenset(
    ("all", "every", "always", "never", "everyone", "everybody", "everything", "only")
)
_SHORTEST: Final = 5  # letters of a superlative; of shorter words in "-est" most are none
_BEST: Final = frozenset(("best",))
_NO_SUPERLATIVES: Final = (
    "interest", "request", "forest", "harvest", "protest", "contest", "manifest", "invest", "digest", "suggest",
    "arrest", "honest", "modest", "conquest", "attest", "detest", "ingest", "infest", "congest", "tempest", "inquest",
    "earnest", "everest", "budapest", "northwest", "southwest", "midwest", "behest", "bequest", "priest",
)  # fmt: skip
_NEAR: Final = 0.6  # of a claim, that a sentence must hold to be about the same thing


class SupportVerdict(StrEnum):
    """Whether the evidence states a claim, from the best to the worst (S4-11)."""

    SUPPORTED = "supported"
    PARTIAL = "partial_support"
    EXTRAPOLATED = "over_extrapolation"
    UNSUPPORTED = "unsupported"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A word or value of the answer that the evidence does not hold; `text` is `answer[start:end]`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What the rules find of one claim, `answer[start:end]`."""

    text: str
    start: int
    end: int
    support: float
    cost: float  # of its parts that the evidence does not give; 0 is full support
    verdict: SupportVerdict
    # the passages that bind its words, the best first; if declared, those it cites
    evidence_ids: tuple[str, ...]
    held: float  # share of the claim that the evidence holds, 0..1, in one place or several
    lacking: float = 0.0  # weight of its words that neither evidence nor question holds
    uncovered: tuple[Uncovered, ...] = ()  # in text order
    faults: tuple[UnsupportedValue, ...] = ()
    misplaced: bool = False  # it says of one what the evidence says of another
    invented: bool = False  # it gives a name that neither evidence nor question holds
    force: Force | None = None  # of the evidence, where that is weaker than the claim's
    size: int = 0  # its characters, less those of marks of citation
    quoted: bool = False  # a passage asserts it in the same words
    places: tuple[
        tuple[str, int, int], ...
    ] = ()  # passage, start and end of the sentences that bind its words
    claim_id: str = ""  # `<response id>#<n>`; empty until it is part of a report
    phantom: bool = False  # it cites something that does not exist
    critical: bool = False  # its author calls it critical
    declared: bool = False  # it was given as one claim, and is no part of an answer

    @property
    def hard(self) -> bool:
        """Whether one of its faults flags the answer, whatever the rest of it says."""
        return bool(self.misplaced or self.invented or self.force) or any(fault.hard for fault in self.faults)


def support_of(cost: float) -> float:
    """Return the support that a cost leaves: 1 at 0, `ENOUGH` at what is tolerated, towards 0 from there."""
    excess = cost / TOLERATED
    return 1 / (1 + (1 / ENOUGH - 1) * excess * excess)


def score(
    answer: str, atom: Atom, alignment: Alignment, evidence: Evidence, faults: tuple[UnsupportedValue, ...]
) -> ClaimCheck:
    bound = [
        0.0 if unit.value and any(_denies(atom, unit, fault) for fault in faults) else share
        for unit, share in zip(atom.units, alignment.bound, strict=True)
    ]
    window = [evidence.sentences[number] for number in (alignment.best, alignment.second) if number >= 0]
    unbound = [
        unit for unit, share in zip(atom.units, bound, strict=True) if not (share or evidence.asks_of(unit))
    ]
    weight = sum(unit.weight for unit in atom.units)
    rest = (weight - 1) / weight if weight > 1 else 0  # but for the word that is opposed
    opposed = _opposed(atom, window) + _turns(atom, window) if alignment.covered >= _NEAR * rest else 0
    denials = sum(fault.kind == "negation" and fault.why == OPPOSITE for fault in faults)
    stronger = (_is_stronger(atom, window) and alignment.covered >= _NEAR) or _exaggerates(atom, unbound)
    denied = any(fault.kind == "negation" and fault.why != OPPOSITE for fault in faults)
    differs = any(fault.why == SOURCES_DIFFER for fault in faults)
    held = sum(unit.weight for unit, share in zip(atom.units, bound, strict=True) if share)
    held = held / weight if weight else 0.0
    # cells and keys have no verbs
    word = LITTLE if window and all(sentence.is_data for sentence in window) else 1.0
    cost = sum(
        _lack(unit, share, evidence) * (1.0 if share or unit.value or unit.name else word)
        for unit, share in zip(atom.units, bound, strict=True)
    )
    cost += sum(
        _SPEAKER if word in SPEAKER else _FUNCTION for word in atom.function if word not in evidence.words
    )
    cost /= sqrt(max(1.0, weight))
    kinds = any(unit.value for unit in unbound) + any(unit.name for unit in unbound)
    cost += _INVENTED * kinds + _DENIED * denied + _SHARE * (1 - held) ** 2
    unrestricted = alignment.covered >= _NEAR and (
        _drops_restriction(atom, window) or _drops_exception(atom, window)
    )
    stronger = stronger or unrestricted
    universal = stronger and not _UNIVERSALS.isdisjoint(atom.statement.texts)
    cost += _OPPOSED * opposed + _STRONGER * stronger + _UNIVERSAL * universal
    cost += (_OPPOSED * denials + _DIFFERS * differs) * alignment.covered**2
    if alignment.covered >= _NEAR:
        cost += replaced(atom, window)
    support = support_of(cost)
    missing = [unit for unit, share in zip(atom.units, bound, strict=True) if not share]
    spans = dict.fromkeys(atom.statement.span(unit.start, unit.end) for unit in missing)
    if support >= ENOUGH:
        verdict = SupportVerdict.SUPPORTED
    elif opposed or denials or differs:
        verdict = SupportVerdict.CONTRADICTED
    elif stronger:
        verdict = SupportVerdict.EXTRAPOLATED
    else:
        verdict = SupportVerdict.PARTIAL if held >= 0.5 else SupportVerdict.UNSUPPORTED
    return ClaimCheck(
        answer[atom.start : atom.end],
        atom.start,
        atom.end,
        support,
        cost,
        verdict,
        alignment.passages,
        held,
        sum(lacking(unit, evidence) for unit in missing),
        tuple(Uncovered(answer[start:end], start, end) for start, end in spans),
        faults,
        places=tuple(evidence.sentences[number].place for number in alignment.holders),
    )


def lacking(unit: Unit, evidence: Evidence) -> float:
    """Return what a unit weighs that no passage holds: little where the question does."""
    return LITTLE * unit.weight if evidence.asks_of(unit) else unit.weight


def _lack(unit: Unit, share: float, evidence: Evidence) -> float:
    if share:
        # the eighth root: a claim drawn from several sentences keeps most of its credit
        return unit.weight * (1 - sqrt(sqrt(sqrt(share))))
    return lacking(unit, evidence)


def _denies(atom: Atom, unit: Unit, fault: UnsupportedValue) -> bool:
    """Return whether a fault takes a unit's value away: no passage holds it. Another value given counts for itself."""
    start, end = atom.statement.span(unit.start, unit.end)
    absent = fault.kind != "negation" and fault.why == NOT_IN_SOURCES
    return absent and fault.start < end and start < fault.end


def _opposed(atom: Atom, window: Sequence[Sentence]) -> int:
    own = {*atom.function, *(unit.stem for unit in atom.units if not unit.value)}
    asked = own & OPPOSITES.keys() - {"before", "after"}  # `joins` compares the order
    if any(len(negations(sentence.statement.texts)) % 2 for sentence in window):
        asked -= {"with", "without"}  # "no longer ships with" is "ships without"
    if not asked:
        return 0
    said = frozenset[str]().union(*(sentence.markers | sentence.holds for sentence in window))
    turned = _converse(atom, window)
    return sum(
        NEAR.get(word, frozenset((word,))).isdisjoint(said)
        and word not in said
        and not OPPOSITES[word].isdisjoint(said - own - turned)
        for word in asked
    )


_CONVERSE: Final = tuple(
    frozenset(map(stem, words.split()))
    for words in (
        "buy bought purchase acquire sell sold",
        "lend lent borrow",
        "import export",
        "arrive depart leave left",
    )
)


def _converse(atom: Atom, window: Sequence[Sentence]) -> frozenset[str]:
    """Return verbs that say the same of the other side: who sold "to" somebody was bought "from"."""
    ends = [
        frozenset(("from", "to", "by")).intersection(texts)
        for texts in (atom.statement.texts, *(sentence.statement.texts for sentence in window))
    ]
    turned = "from" in ends[0] and any("to" in end for end in ends[1:])
    turned = turned or ("to" in ends[0] and any("from" in end for end in ends[1:]))
    return frozenset[str]().union(*_CONVERSE) if turned else frozenset()


def _turns(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Return whether a claim has the other prefix or particle: "out-of-network", "is off"."""
    texts = atom.statement.texts
    own = {_prefixed(text) for text in texts} | _particles(texts)
    if own <= {("", "")} or not window:
        return False
    theirs = {_prefixed(text) for text in window[0].statement.texts} | _particles(window[0].statement.texts)
    return any(
        (prefix, other) in theirs and (one, other) not in theirs
        for one, other in own
        for prefix in _TURNED.get(one, ())
    )


def _prefixed(text: str) -> tuple[str, str]:
    prefix = next((prefix for prefix in _TURNED if text.startswith(f"{prefix}-")), "")
    return prefix, text[len(prefix) + 1 :] if prefix else ""


def _particles(texts: Sequence[str]) -> set[tuple[str, str]]:
    return {
        (text, "")
        for place, text in enumerate(texts)
        if text in {"on", "off"} and texts[place + 1 : place + 2] in ([], ["."], [","], [";"], ["and"])
    }


_TURNED: Final[dict[str, tuple[str, ...]]] = {
    one: tuple(others)
    for pair in ("in/out-of/out", "on/off", "pre/post", "over/under", "inter/intra", "up/down", "full/part")
    for one in pair.split("/")
    for others in ([other for other in pair.split("/") if other != one],)
}


def _exaggerates(atom: Atom, unbound: Sequence[Unit]) -> bool:
    missing = {unit.start for unit in unbound}
    tokens = atom.statement.tokens
    return bool(missing) and any(
        token.start in missing
        and (
            (
                token.text.endswith("est")
                and (
                    token.text in _BEST
                    or (len(token.text) > _SHORTEST and not token.text.endswith(_NO_SUPERLATIVES))
                )
            )
            or [before.text for before in tokens[max(0, at - 2) : at]] == ["the", "most"]
        )
        for at, token in enumerate(tokens)
    )


def _drops_restriction(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Return whether a claim says of all what its evidence says of some: "all children", of "children under six"."""
    texts, tokens = atom.statement.texts, atom.statement.tokens
    at = next((place for place, text in enumerate(texts) if text in _EVERY), len(texts))
    noun = next((token for token in tokens[at + 1 : at + 3] if token.stems), None)
    if noun is None or not window:
        return False
    there = window[0].statement.tokens
    place = next((place for place, token in enumerate(there) if token.stems == noun.stems), len(there))
    restricted = [token.text for token in there[place + 1 : place + 2]]
    dropped = [stem for token in there[place + 2 : place + 3] for stem in token.stems or (token.text,)]
    said = {*texts, *(unit.stem for unit in atom.units)}
    return (
        restricted != []
        and restricted[0] in _RESTRICTING
        and said.isdisjoint(dropped)
        and _EVERY.isdisjoint(window[0].statement.texts)
    )


def _drops_exception(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Return whether a claim says of all what its evidence says of all but some: "every page", of "except the last"."""
    texts, tokens = atom.statement.texts, atom.statement.tokens
    at = next((place for place, text in enumerate(texts) if text in _EVERYTHING), len(texts))
    noun = next((token.stems for token in tokens[at + 1 : at + 4] if token.stems), ())
    if not (noun and window) or any(one.kind in EXCEPTIONS for one in atom.statement.adjuncts):
        return False
    statement = window[0].statement
    said = statement.texts
    place = next((place for place, token in enumerate(statement.tokens) if token.stems == noun), -1)
    if place < 0:
        return False
    links = [one.link for one in statement.adjuncts if one.kind in EXCEPTIONS]
    behind = next((link for link in links if link >= place), 0)
    clause = said[place : behind - (said[behind - 1] == "," and said[behind] != "but")]
    within = behind > 0 and PHRASE_ENDS.isdisjoint(clause)
    not_all = [*pairwise(said[:place])]
    last = not_all.index(("not", "all")) + 2 if ("not", "all") in not_all else place + 1
    in_front = links[:1] != [] and links[0] < _FRONT
    return within or in_front or (last <= place and _OF.issuperset(said[last:place]))


_FRONT: Final = 2  # tokens, among which an exception of the whole sentence begins
_OF: Final = frozenset((",", "of", "the"))
_EVERY: Final = frozenset(("all", "every", "any", "each"))
_EVERYTHING: Final = _EVERY | {"everything", "everyone", "everybody"}
_RESTRICTING: Final = frozenset(
    ("under", "over", "aged", "who", "that", "with", "without", "whose", "above", "below", "born")
)


def _is_stronger(atom: Atom, window: Sequence[Sentence]) -> bool:
    strong = STRONG.intersection(atom.function)
    if not strong or not window:
        return False
    said = frozenset[str]().union(*(sentence.markers for sentence in window))
    return strong.isdisjoint(said) and not (WEAK & said).issubset(atom.function)
