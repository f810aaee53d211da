"""With what force a text says something: as a fact, or denied, attributed, supposed, asked, conditional or planned.

A word with such a force has a scope: the clause that it introduces or stands in. What a passage says in such a scope
only supports a claim of the same force; what it says outside, in the same sentence or another one, supports any.
A court, a record, a study or a manual asserts: "say", "report" and "find" have a scope only where somebody disputes it.
English only, no parser: in doubt a text asserts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from heapq import nsmallest
from typing import Final, NamedTuple

from groundwire.checks.hedges import HedgeAction, HedgeDetector, may_begin
from groundwire.checks.support.atoms import Atom, Unit
from groundwire.checks.support.evidence import Evidence
from groundwire.checks.support.score import Alignment
from groundwire.checks.values.statements import ValueStatement
from groundwire.checks.values.units import ValueToken
from groundwire.text.clauses import AUXILIARIES, BE, FUNCTION_WORDS, is_past, read_clause, stem_of
from groundwire.text.negation import FULL, denies, negated_stems, negation_of, negations
from groundwire.text.stems import words_of
from groundwire.text.work import spend


class Force(StrEnum):
    """What weakens a statement."""

    DENIED = "denied"  # "it is not true that", "denies that", "almost"
    NEGATED = "negated"  # "does not"
    OPEN = "open"  # attributed to a party, supposed, asked or conditional
    PLANNED = "planned"


class Scope(NamedTuple):
    """Tokens `first` to `last`, exclusive, of a statement are said with a weaker force.

    `condition` are the tokens on which they depend, where they do.
    """

    force: Force
    first: int
    last: int
    condition: range = range(0)


def _verbs(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, text.split()))


_CONTENDING: Final = _verbs(
    "allege claim insist maintain argue contend assert suspect believe think assume suppose speculate guess imagine "
    "fear swear surmise conjecture theorise theorize hypothesise hypothesize posit purport "
    "rumour rumor reckon presume doubt"
)
_BLAMING: Final = _verbs("accuse blame")
_DENYING: Final = _verbs("deny dispute reject refute disprove debunk dismiss disavow contest")
_ASKING: Final = _verbs("ask wonder see check know decide determine unclear unknown uncertain unsure")
_PLANNING: Final = _verbs(
    "plan intend aim propose hope want wish consider recommend advise urge promise pledge threaten seek vow mull "
    "envisage contemplate expect"
)
_SAYING: Final = _verbs("say tell state write report describe according explain testify brochure advertise")
_ATTITUDES: Final = words_of(
    "allegation allegations accusation accusations suspicion suspicions belief notion idea theory hypothesis "
    "assumption possibility speculation rumour rumours rumor rumors gossip legend tradition myth hearsay "
    "story word suggestion"
)
_SCHEDULED: Final = words_of("set scheduled slated supposed meant")
_PLANS: Final = words_of(
    "plan plans proposal proposals intention promise pledge threat recommendation bid draft"
)
_CONTESTED: Final = _verbs(
    "deny dispute reject refute contest contradict disagree unconfirmed unproven reproduce absurd"
)
_BORNE_OUT: Final = _verbs(
    "confirm prove verify indeed establish admit acknowledge bear uphold undisputed succeed"
)
_REVOKED: Final = words_of(
    "denied rejected disputed disproved disproven debunked refuted discredited withdrawn retracted struck false untrue "
    "unfounded baseless unconfirmed unproven unverified dropped abandoned cancelled canceled shelved"
)
_UNTRUE: Final = re.compile(
    r"(?:\b(?:not|hardly|never)|n't) (?:true|correct|right|so|the case)\b"
    r"|\b(?:false|untrue|wrong|incorrect|mistaken) (?=that\b|to (?:say|claim|think|believe|suppose) )"
    r"|\b(?:no|without|little|any) (?:\w+ ){0,2}(?:evidence|proof|signs?|indication|truth|basis)"
    r"(?= (?:that|of|for|to|in)\b)"
    r"|\b(?:myth|misconception|fallacy|hoax|lie|untruth)(?= (?:is )?that\b)"
)
_EXCLUDED: Final = re.compile(
    r"\b(?:cleared|acquitted|exonerated|absolved) (?:\w+ ){0,3}of\b"
    r"|(?<!not )\brul(?:es?|ed|ing) out\b|\b(?:contrary to|far from|instead of|rather than)\b"
)
_HEARSAY: Final = re.compile(
    r"\b(?:legend|tradition|folklore|rumou?rs?|gossip|word) (?:[\w']+ ){0,5}?(?:has it|have it|holds?|says?|is)\b"
    r"|\baccording to (?:[\w']+ ){0,3}?(?:legend|tradition|folklore|rumou?rs?|gossip|hearsay)\b"
    r"|\bby (?:his|her|their|(?:[\w']+ ){1,3}[\w']+'s) (?:own )?(?:account|reckoning|telling)\b"
    r"|\bunder (?:consideration|discussion)\b"
)
_CONDITIONS: Final = words_of("if unless provided providing assuming")
_INVERTED: Final = words_of("had should were")
_ENDS: Final = words_of("; : . ? ! ( ) so but although though whereas while because")
_AFTER_COMMA: Final = words_of(
    "but although though while whereas which who whose because since so however yet as where when if unless and or it "
    "he she they we this"
)
_SUBJECTS: Final = words_of(
    "the a an this that these those his her its their our my your he she it they we i you there some all no most many"
)
_NO_DENIAL: Final = words_of(
    "unless except without until before only but just merely simply necessarily than"
)
_BEFORE_NOUN: Final = words_of("the a an this that these those his her its their our my your no any some of")
_RELATIVE: Final = words_of("which who whose")
_IT: Final = words_of("it this that")
_ALMOST: Final = words_of("almost nearly")
_COUNTED: Final = words_of("doubled tripled trebled quadrupled halved")
_ASSENT: Final = words_of("yes no yeah indeed certainly absolutely sure")
_MODAL: Final = words_of(
    "if unless whether may might could can would should must perhaps maybe when whenever"
)
_COMING: Final = words_of("will 'll shall going")


def scopes(statement: ValueStatement, following: ValueStatement | None = None) -> list[Scope]:
    """Return what a statement says with a weaker force, given the one behind it in its text."""
    texts = statement.texts
    spend(_READ + _TOKEN * len(texts))
    if texts[-1:] == ["?"] and _asks(texts):
        answered = following is not None and _answers(following.texts)
        return [] if answered else [Scope(Force.OPEN, 0, len(texts))]
    found = [*_framed(texts), *_governed(statement, following), *_negated(texts), *_conditional(statement)]
    found += _hedged(statement)
    behind = [*texts, *(following.texts if following else ())]
    if found and not _BORNE_OUT.isdisjoint(map(stem_of, behind)):
        return [scope for scope in found if scope.force in {Force.DENIED, Force.NEGATED}]
    return found


_REACH: Final = 64  # tokens that a clause may have, so that long sentences cost in proportion to their length
_READ: Final = 10  # units of work that reading a sentence takes, beside those of its tokens
_TOKEN: Final = 6


def _asks(texts: Sequence[str]) -> bool:
    first = next((text for text in texts if text.isalpha() and text not in _AFTER_COMMA), "")
    return first in AUXILIARIES


def _answers(texts: Sequence[str]) -> bool:
    said = [text for text in texts[:4] if text[:1].isalpha()]
    return said[:1] != [] and (
        said[0] in _ASSENT or (said[0] in _SUBJECTS and said[1:2] != [] and said[1] in AUXILIARIES)
    )


def _end(texts: Sequence[str], place: int) -> int:
    """Return where the clause ends that stands at a place; a relative one ends at the next comma."""
    start = _start(texts, place)
    relative = start > 1 and texts[start - 1] in _RELATIVE and texts[start - 2] == ","
    for at in range(place, min(len(texts), place + _REACH)):
        behind = texts[at + 1] if at + 1 < len(texts) else ""
        if texts[at] in _ENDS or (texts[at] == "," and (relative or behind in _AFTER_COMMA)):
            return at
    return min(len(texts), place + _REACH)


def _start(texts: Sequence[str], place: int) -> int:
    """Return where the clause starts that stands at a place."""
    least = max(0, place - _REACH)
    for at in range(place - 1, least - 1, -1):
        text, behind = texts[at], texts[at + 1] if at + 1 < len(texts) else ""
        joins = text == "and" and (behind in AUXILIARIES or behind in _SUBJECTS or is_past(behind))
        if joins or text == "," or text in _ENDS or text in _RELATIVE:
            return at + 1
    return least


def _next(texts: Sequence[str], place: int, ends: Collection[str]) -> int:
    last = min(len(texts), place + _REACH)
    return next((at for at in range(place, last) if texts[at] in ends), last)


def _framed(texts: Sequence[str]) -> Iterator[Scope]:
    """Yield the scopes of fixed phrases."""
    whole = " ".join(texts)
    starts: list[int] = []
    for force, pattern in ((Force.DENIED, _UNTRUE), (Force.DENIED, _EXCLUDED), (Force.OPEN, _HEARSAY)):
        for match in pattern.finditer(whole):
            if not starts:
                at = 0
                for text in texts:
                    starts.append(at)
                    at += len(text) + 1
            first, behind = bisect_left(starts, match.start()), bisect_left(starts, match.end())
            said = match[0]
            if said.startswith(("by", "under")):
                yield Scope(force, _start(texts, first), _end(texts, behind))
            elif said.startswith(("contrary", "far", "instead", "rather")):
                yield Scope(force, behind, min(_next(texts, behind, {","}), _end(texts, behind)))
            else:
                yield Scope(force, behind, _next(texts, behind, {";", "but"}))


def _governed(statement: ValueStatement, following: ValueStatement | None) -> Iterator[Scope]:
    """Yield the scopes of verbs and nouns that take a clause."""
    texts = statement.texts
    both = {stem_of(text) for text in (*texts, *(following.texts if following else ()))}
    for place, text in enumerate(texts):
        behind = texts[place + 1] if place + 1 < len(texts) else ""
        if text in _REVOKED and not BE.isdisjoint(texts[max(0, place - 2) : place]):
            start = _start(texts, place)
            yield Scope(Force.DENIED, 0 if texts[start] in _IT else start, place)
        elif text == "would" and behind == "have":
            yield Scope(Force.OPEN, place + 2, _end(texts, place))
        elif text in _ALMOST and is_past(behind) and behind not in _COUNTED:
            yield Scope(Force.DENIED, place + 1, _end(texts, place))
        elif force := _introduces(statement, place, disputed=not _CONTESTED.isdisjoint(both)):
            yield Scope(force, place + 1, _end(texts, place + 1))


def _introduces(statement: ValueStatement, place: int, *, disputed: bool) -> Force | None:
    """Return the force of the clause that a word introduces; None where it introduces none."""
    tokens, texts = statement.tokens, statement.texts
    text, base = texts[place], stem_of(texts[place])
    before = texts[place - 1] if place else ""
    behind = texts[place + 1] if place + 1 < len(texts) else ""
    is_noun, of_doing = before in _BEFORE_NOUN, behind == "of" and _is_ing(texts, place + 2)
    is_open = (
        (text == "whether" and behind != "or" and before not in {"of", "no"})
        or (base in _CONTENDING and _takes_clause(tokens, texts, place))
        or (base in _BLAMING and not is_noun)
        or (text in _ATTITUDES and (behind == "that" or of_doing))
        or (disputed and base in _SAYING and before not in BE)
    )
    is_planned = (
        (text in _PLANS and (behind in {"that", "to"} or of_doing))
        or (base in _PLANNING and not is_noun and _takes_plan(tokens, texts, place))
        or (behind == "to" and (text in {"was", "were"} or (text in _SCHEDULED and before in BE)))
    )
    if base in _DENYING and not is_noun and before not in BE and behind:
        return Force.DENIED
    return Force.OPEN if is_open else Force.PLANNED if is_planned else None


def _is_ing(texts: Sequence[str], place: int) -> bool:
    return place < len(texts) and texts[place].endswith("ing")


def _takes_clause(tokens: Sequence[ValueToken], texts: Sequence[str], place: int) -> bool:
    """Tell whether a verb of contending is followed by what is contended: "that", or a subject and its verb."""
    if place + 2 >= len(texts):
        return False
    behind = texts[place + 1]
    if behind == "that":
        return True
    if behind == "to":
        return place > 0 and (texts[place - 1] in BE or texts[place].startswith(("claim", "purport")))
    if place and texts[place - 1] in _BEFORE_NOUN:
        return False
    if behind not in _SUBJECTS and not tokens[place + 1].written[:1].isupper():
        return False
    clause = texts[place + 1 : min(_end(texts, place + 1), place + 12)]
    return read_clause(clause, len(clause), ()).verb > 0


def _takes_plan(tokens: Sequence[ValueToken], texts: Sequence[str], place: int) -> bool:
    if place + 1 >= len(texts):
        return False
    behind = texts[place + 1]
    known = behind in {"to", "that"} or behind.endswith("ing") or behind in _SUBJECTS
    return known or tokens[place + 1].written[:1].isupper()


def _negated(texts: Sequence[str]) -> Iterator[Scope]:
    """Yield the scopes of words such as "not", where one alone denies a clause."""
    for place, text in enumerate(texts):
        full = negation_of(text) == FULL and not negated_stems(text) and text not in _NO_DENIAL
        if not (full or denies(texts, place)):
            continue
        end = _end(texts, place + 1)
        rest = texts[place + 1 : end + 1]
        if (
            _NO_DENIAL.isdisjoint(rest)
            and not negations(texts[place + 1 : end])
            and not negations(texts[_start(texts, place) : place])
        ):
            yield Scope(Force.NEGATED, place + 1, end)


def _states(texts: Sequence[str]) -> bool:
    """Tell whether a clause has a subject, other than whoever is advised, and an auxiliary."""
    return "you" not in texts and not AUXILIARIES.isdisjoint(texts[1:])


def _conditional(statement: ValueStatement) -> Iterator[Scope]:
    """Yield a condition, and what depends on it."""
    texts = statement.texts
    for place, text in enumerate(texts):
        inverted = place == 0 and text in _INVERTED
        if not (inverted or text in _CONDITIONS):
            continue
        if (
            text == "if"
            and place
            and (stem_of(texts[place - 1]) in _ASKING or (place > 1 and stem_of(texts[place - 2]) in _ASKING))
        ):
            yield Scope(Force.OPEN, place + 1, _end(texts, place + 1))
            continue
        end = _next(texts, place + 1, {",", ";", ":", "."})
        if place + 1 >= len(texts) or not (
            inverted
            or texts[place + 1] in (_SUBJECTS | {"that"})
            or statement.tokens[place + 1].written[:1].isupper()
        ):
            continue  # "if necessary"
        first, last = _start(texts, place), place
        if first == place:
            first, last = end, _end(texts, end + 1)
        if not _states(texts[first:last]):
            continue  # "if the tap drips, change the washer"
        condition = range(place + 1, end)
        yield Scope(Force.OPEN, place + 1, end, range(first, last))
        yield Scope(Force.OPEN, first, last, condition)


def _hedged(statement: ValueStatement) -> Iterator[Scope]:
    """Yield the clauses that a hedge makes uncertain."""
    text = statement.reading.text
    if not may_begin(text):
        return
    spend(_HEDGES)
    starts = [token.start for token in statement.tokens]
    for hedge in _DETECTOR.find(text):
        words = hedge.text.lower().split()
        is_doubt = hedge.action is not HedgeAction.CONTINUE and hedge.category not in _NO_DOUBT
        if is_doubt and words[0] != "to" and _HABITS.isdisjoint(words):
            place = min(bisect_left(starts, hedge.start), len(starts) - 1)
            behind = bisect_left(starts, hedge.end)
            yield Scope(Force.OPEN, _start(statement.texts, place), _end(statement.texts, max(place, behind)))


_DETECTOR: Final = HedgeDetector()
_NO_DOUBT: Final = frozenset({"approximation", "question"})
_HEDGES: Final = 60  # units of work
_HABITS: Final = words_of(
    "usually often normally generally sometimes typically mostly commonly mainly largely accounts"
)

_ENOUGH: Final = 0.6  # of a claim's weight, that one window has to hold
_PLAIN: Final = 0.75  # of what the best window holds, that another one has to assert
_WHOLE: Final = 0.7  # of a claim, that a sentence denies with "not"
_LOOKED: Final = 12  # sentences that are looked at per claim


def unasserted(atom: Atom, alignment: Alignment, evidence: Evidence) -> Force | None:
    """Return with what weaker force the evidence says what a claim asserts; None where it asserts it, or lacks it."""
    if alignment.covered < _ENOUGH or not _tells(atom):
        return None
    if _denies_told(atom, alignment, evidence):
        return Force.DENIED
    weights = [unit.weight for unit in atom.units]
    wanted = _PLAIN * alignment.covered * sum(weights)
    window = [number for number in (alignment.best, alignment.second) if number >= 0]
    forces = {scope.force for number in window for scope in _read(evidence, number)} - _own(atom)
    if not forces or _said(atom, window, alignment, evidence, forces) >= wanted:
        return None
    near = nsmallest(_LOOKED, alignment.masks, key=lambda at: (-_weight(alignment.masks[at], weights), at))
    for number in near:
        follows = number + 1 in alignment.masks and evidence.sentences[number + 1].follows
        for numbers in ([number], [number, number + 1] if follows else []):
            if _said(atom, numbers, alignment, evidence, frozenset(Force)) >= wanted:
                return None
    order = [force for force in Force if force in forces]
    enough = (force for force in order if force is not Force.NEGATED or alignment.covered >= _WHOLE)
    alone = (force for force in enough if _said(atom, window, alignment, evidence, {force}) < wanted)
    return next(alone, None if order == [Force.NEGATED] else order[-1])


def _denies_told(atom: Atom, alignment: Alignment, evidence: Evidence) -> bool:
    """Tell whether a claim calls untrue what a sentence asserts: "it is not true that", "almost"."""
    texts = atom.statement.texts
    whole = " ".join(texts)
    if not (_UNTRUE.search(whole) or not _ALMOST.isdisjoint(texts)):
        return False
    denied = [scope for scope in scopes(atom.statement) if scope.force is Force.DENIED]
    tokens = atom.statement.tokens
    starts = {tokens[place].start for scope in denied for place in range(scope.first, scope.last)}
    inside = [place for place, unit in enumerate(atom.units) if unit.start in starts]
    mask = alignment.masks.get(alignment.best, 0)
    told = bool(inside) and all(mask >> place & 1 for place in inside)
    statement = evidence.sentences[alignment.best].statement
    return told and not _read(evidence, alignment.best) and not negations(statement.texts)


def _tells(atom: Atom) -> bool:
    """Tell whether a claim has a subject and a verb: neither "rinse the rice" nor "damage by frost" states anything."""
    texts = [text for text in atom.statement.texts if text[:1].isalnum()]
    if len(texts) < 2 or not (read_clause(texts, len(texts), ()).verb or any(map(is_past, texts))):
        return False
    first, second = texts[:2]
    bare = first not in FUNCTION_WORDS and not first.endswith("s") and not is_past(first)
    return not (bare and second in _BEFORE_NOUN | {"all", "each", "every"})


def _read(evidence: Evidence, number: int) -> Sequence[Scope]:
    if number not in evidence.forces:
        following = evidence.sentences[number + 1] if number + 1 < len(evidence.sentences) else None
        behind = following.statement if following and following.follows else None
        evidence.forces[number] = scopes(evidence.sentences[number].statement, behind)
    return evidence.forces[number]


def _own(atom: Atom) -> set[Force]:
    """Return the forces that a claim has itself, with those that it need not have beside them."""
    tokens = atom.statement.tokens
    own = {scope.force for scope in scopes(atom.statement)}
    words = {token.text for token in tokens if token.written != "May"}
    if negations(atom.statement.texts) or any("number 0" in unit.keys for unit in atom.units):
        own |= {Force.NEGATED, Force.DENIED}
    texts = atom.statement.texts
    says = any(
        stem_of(text) in _SAYING and texts[place - 1] not in BE for place, text in enumerate(texts) if place
    )
    if says or not _MODAL.isdisjoint(words):
        own.add(Force.OPEN)
    if own or not (_MODAL | _COMING).isdisjoint(words):
        own.add(Force.PLANNED)
    if Force.PLANNED in own and _COMING.isdisjoint(words):
        own.add(Force.OPEN)
    return own


def _weight(mask: int, weights: Sequence[float]) -> float:
    return sum(weight for place, weight in enumerate(weights) if mask >> place & 1)


def _said(
    atom: Atom,
    window: Sequence[int],
    alignment: Alignment,
    evidence: Evidence,
    forces: frozenset[Force] | set[Force],
) -> float:
    """Return the weight of a claim that sentences say outside the scopes of some forces."""
    held = set[int]()
    for number in window:
        weak = _only_weak(evidence, number, atom, forces)
        holds = evidence.sentences[number].holds - weak
        mask = alignment.masks.get(number, 0)
        held |= {
            place
            for place, unit in enumerate(atom.units)
            if mask >> place & 1 and not unit.keys.isdisjoint(holds)
        }
    return sum(atom.units[place].weight for place in held)


def _only_weak(
    evidence: Evidence, number: int, atom: Atom, forces: frozenset[Force] | set[Force]
) -> set[str]:
    """Return the words that a sentence says in the scopes of some forces only."""
    tokens = evidence.sentences[number].statement.tokens
    inside = set[int]()
    for scope in _read(evidence, number):
        if scope.force in forces and not _keeps(scope, tokens, atom.units):
            inside |= {*range(scope.first, scope.last)}
    if not inside:
        return set()
    weak, plain = set[str](), set[str]()
    for place, token in enumerate(tokens):
        said = (*token.stems, *(token.value.covers if token.value else ()))
        (weak if place in inside else plain).update(said)
    return weak - plain


def _keeps(scope: Scope, tokens: Sequence[ValueToken], units: Sequence[Unit]) -> bool:
    """Tell whether a claim keeps what the tokens of a scope depend on, in part."""
    words = {stem for place in scope.condition if place < len(tokens) for stem in tokens[place].stems}
    words -= {stem for token in tokens[scope.first : scope.last] for stem in token.stems}
    return any(not unit.keys.isdisjoint(words) for unit in units)
