"""With what force a text says something: as a fact, or as denied, attributed, supposed, asked, conditional, planned.

A word with such a force has a scope: the clause that it introduces or is part of. What a passage says in such a scope
supports only a claim of the same force; what it says outside supports any. A speaker without a stake (a court, a
record, a study) asserts: "find" has no scope, "say" only beside a dispute. English only; in doubt a text asserts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final, NamedTuple

from groundwire.checks.hedges import built_in, is_month, may_begin
from groundwire.checks.support.atoms import Atom
from groundwire.checks.support.evidence import Evidence
from groundwire.checks.support.score import Alignment, Force
from groundwire.checks.values.statements import ValueStatement
from groundwire.text.clauses import AUXILIARIES, BE, FUNCTION_WORDS, is_past, read_clause, stem_of
from groundwire.text.lists import words_in
from groundwire.text.negation import FULL, denies, negated_stems, negation_of, negations
from groundwire.text.stems import words_of
from groundwire.text.work import spend


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
    "fear swear surmise charge conjecture theorise theorize hypothesise hypothesize posit "
    "purport rumour rumor reckon presume doubt"
)
_BLAMING: Final = _verbs("accuse blame")
_DOUBT: Final = stem_of("doubt")
_DENYING: Final = _verbs("deny dispute reject refute disprove debunk dismiss disavow contest")
_ASKING: Final = _verbs("ask wonder see check know decide determine unclear unknown uncertain unsure")
_PLANNING: Final = _verbs(
    "plan intend aim propose hope want wish consider recommend advise urge promise pledge threaten seek vow mull "
    "envisage contemplate expect"
)
_ASKING_OF: Final = _verbs("ask urge request order instruct invite advise remind")
_HABITUAL: Final = words_of("he she they i we and")
"""In front of "would" they tell as often what was done, or was still to come."""
_PURPOSES: Final = words_of("role purpose aim goal job task idea point function mission object duty way")
_COPULAS: Final = words_of("is are was were")
_WANTING: Final = _verbs("want wish seek propose consider")
_SAYING: Final = _verbs(
    "say tell state write report describe according explain testify brochure advertise tweet post"
)
_ATTITUDES: Final = words_in(__package__, "attitudes")
_SCHEDULED: Final = words_of("set scheduled slated supposed meant")
_PLANS: Final = words_in(__package__, "plans")
_NOUNS: Final = _ATTITUDES | _PLANS | {"whether"}
_CONTESTED: Final = _verbs(
    "deny dispute reject refute contest contradict disagree unconfirmed unproven reproduce absurd baseless invention "
    "decline"
)
_BORNE_OUT: Final = _verbs("confirm prove verify establish admit acknowledge uphold succeed")
_SETTLED: Final = words_of("indeed undisputed")
_DISCREDITED: Final = words_in(__package__, "discredited")
_WHAT_WAS_SAID: Final = words_in(__package__, "what_was_said")
_PARTIES: Final = words_in(__package__, "parties")
_DONE: Final = frozenset(
    (("took", "effect"), ("pressed", "ahead"), ("went", "ahead"), ("did", "so"), ("went", "through"))
)
_REVOKED: Final = words_in(__package__, "revoked")
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
    r"|\b(?:fell|falls?|stop(?:s|ped)) short of\b"
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
_AFTER_COMMA: Final = words_in(__package__, "after_comma")
_SUBJECTS: Final = words_in(__package__, "subjects")
_NO_DENIAL: Final = words_in(__package__, "no_denial")
_BEFORE_NOUN: Final = words_of("the a an this that these those his her its their our my your no any some of")
_ATTRIBUTING: Final = _CONTENDING | _BLAMING | _DENYING | _PLANNING | _ASKING_OF
_GOVERNING: Final = _NOUNS.union(
    _CONTENDING,
    _BLAMING,
    _DENYING,
    _PLANNING,
    _SAYING,
    _REVOKED,
    _SCHEDULED,
    _ASKING_OF,
    words_of("almost nearly would is are was were"),
)
_RELATIVE: Final = words_of("which who whose")
_IT: Final = words_of("it this that")
_SUBORDINATE: Final = words_of("although though while whereas because after when since as")
_ALMOST: Final = words_of("almost nearly")
_COUNTED: Final = words_of("doubled tripled trebled quadrupled halved")
_ASSENT: Final = words_of("yes no yeah indeed certainly absolutely sure")
_MODAL: Final = words_in(__package__, "modal")
_NORM: Final = words_of("default normally usually generally ordinarily")
_NO_VERB: Final = _BEFORE_NOUN | {"as", "in"}
_PAST: Final = words_of("has had was were did went came")
_UNDONE: Final = BE | _BEFORE_NOUN | words_of("will can could may might shall should would must to")
_COMING: Final = words_of("will 'll shall going")


def scopes(statement: ValueStatement, following: ValueStatement | None = None) -> list[Scope]:
    texts = statement.texts
    spend(_READ + _TOKEN * len(texts))
    first = next((text for text in texts if text.isalpha() and text not in _AFTER_COMMA), "")
    if texts[-1:] == ["?"] and first in AUXILIARIES:
        answer = [text for text in following.texts[:4] if text[:1].isalpha()] if following else []
        says = answer[1:] and answer[0] in _SUBJECTS and answer[1] in AUXILIARIES
        answered = says or (answer and answer[0] in _ASSENT)
        return [] if answered else [Scope(Force.OPEN, 0, len(texts))]
    if following and not _DISCREDITED.isdisjoint(following.texts) and not negations(following.texts):
        doubted = statement.words & following.words
        if doubted and not _BORNE_OUT.intersection(map(stem_of, following.texts)):
            return [Scope(Force.OPEN, 0, len(texts))]
    found = [*_framed(texts), *_governed(statement, following), *_negated(texts), *_conditional(statement)]
    found += _hedged(statement)
    behind = [*texts, *(following.texts if following else ())]
    done = any(pair in _DONE for pair in pairwise(behind))
    if found and (done or _bears_out(behind)):
        return [scope for scope in found if scope.force in {Force.DENIED, Force.NEGATED}]
    return found


def _bears_out(texts: Sequence[str]) -> bool:
    for place, text in enumerate(texts):
        if text in _SETTLED:
            return True
        if stem_of(text) not in _BORNE_OUT:
            continue
        before = texts[max(0, place - 3) : place]
        behind = texts[place + 1 : place + 3]
        told = not _WHAT_WAS_SAID.isdisjoint(behind) or (
            before[-1:] != [] and before[-1] in BE and not _WHAT_WAS_SAID.isdisjoint(before)
        )
        if told and _UNREAL.isdisjoint(before) and not negations(before):
            return True
    return False


_UNREAL: Final = words_of("to must can could may might shall should will would cannot if whether unless")
_REACH: Final = 40  # words of a clause
_COMMA: Final = frozenset((",",))
_LINK_ENDS: Final = _ENDS | _COMMA
_SENTENCE_ENDS: Final = words_of("; : but")
_CONDITION_ENDS: Final = words_of(", ; : .")
_ADVERBIAL: Final = 5  # words behind a verb, among which is the link of its clause
_NEAR: Final = 12  # words behind a verb, among which is that of its clause
_READ: Final = 10  # units of work that reading a sentence takes, beside those of its tokens
_TOKEN: Final = 8


def _end(texts: Sequence[str], place: int) -> int:
    """Return where the clause at a place ends; one that begins with its link ends at the next comma."""
    start = _start(texts, place)
    linked = start > 1 and texts[start - 1] in _RELATIVE and texts[start - 2] == ","
    linked = linked or (texts[0] in _SUBORDINATE and start <= 1)
    for at in range(place, _reach(texts, place)):
        text = texts[at]
        joins = text == "," and (linked or (at + 1 < len(texts) and texts[at + 1] in _AFTER_COMMA))
        if joins or text in _ENDS:
            return at
    return _reach(texts, place)


def _reach(texts: Sequence[str], place: int) -> int:
    return min(len(texts), place + _REACH)


def _first(texts: Sequence[str], place: int, marks: frozenset[str]) -> int:
    reach = _reach(texts, place)
    return next((at for at in range(place, reach) if texts[at] in marks), reach)


def _start(texts: Sequence[str], place: int) -> int:
    for at in range(min(place, len(texts)) - 1, max(0, place - _REACH) - 1, -1):
        text = texts[at]
        behind = texts[at + 1] if at + 1 < len(texts) else ""
        joins = text == "and" and (behind in AUXILIARIES or behind in _SUBJECTS or is_past(behind))
        if joins or text == "," or text in _ENDS or text in _RELATIVE:
            return at + 1
    return max(0, place - _REACH)


def _framed(texts: Sequence[str]) -> Iterator[Scope]:
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
            if force is Force.OPEN and said.startswith(("by", "under")):
                yield Scope(force, _start(texts, first), _end(texts, behind))
            elif force is Force.DENIED and said.startswith(("contrary", "far", "instead", "rather")):
                comma = _first(texts, behind, _COMMA)
                yield Scope(force, behind, min(comma, _end(texts, behind)))
            else:
                yield Scope(force, behind, _first(texts, behind, _SENTENCE_ENDS))


def _governed(statement: ValueStatement, following: ValueStatement | None) -> Iterator[Scope]:
    texts = statement.texts
    others = [*texts, *(following.texts if following else ())]
    disputed = not _CONTESTED.isdisjoint(map(stem_of, others))
    for place, text in enumerate(texts):
        base = stem_of(text)
        if not (base in _GOVERNING or text in _GOVERNING):  # as most
            continue
        doubts = base in _DENYING or base == _DOUBT
        if doubts and negations(texts[_start(texts, place) : place]):
            continue  # "nobody disputes that"
        before = texts[max(0, place - 2) : place]
        if text in _REVOKED and not BE.isdisjoint(before) and not negations(before):
            start = _start(texts, place)
            yield Scope(Force.DENIED, 0 if texts[start] in _IT else start, place)
        elif force := _force_of(statement, place, disputed=disputed):
            yield Scope(force, place + 1, _end(texts, place + 1))


def _force_of(statement: ValueStatement, place: int, *, disputed: bool) -> Force | None:
    texts = statement.texts
    text, base = texts[place], stem_of(texts[place])
    before = texts[place - 1] if place else ""
    behind = texts[place + 1] if place + 1 < len(texts) else ""
    takes = behind in {"that", "to"} or (behind == "of" and _is_ing(texts, place + 2))
    if not behind or (text not in _NOUNS and before in _BEFORE_NOUN):
        return None
    almost = text in _ALMOST and is_past(behind) and behind not in _COUNTED
    if almost or (base in _DENYING and before not in BE):
        return Force.DENIED
    asks = text == "whether" and behind != "or"
    attitude = text in _ATTITUDES and takes and behind != "to"
    beside = texts[place + 2 : place + 5] if text == "according" else texts[max(0, place - 3) : place]
    says = base in _SAYING and before not in BE and (disputed or not _PARTIES.isdisjoint(beside))
    unreal = text == "would" and (behind == "have" or before not in _HABITUAL)
    if asks or attitude or says or unreal or base in _BLAMING or _contends(statement, place):
        return Force.OPEN
    planned = text in _COPULAS and _states_plan(texts, place)
    coming = behind == "to" and (planned or (text in _SCHEDULED and before in BE))
    coming = coming or (base in _ASKING_OF and _leads_to(texts, place, "to"))
    plans = base in _PLANNING and (
        behind in {"that", "to"}
        or _is_ing(texts, place + 1)
        or _begins(statement, place + 1)
        or (base in _WANTING and behind in _BEFORE_NOUN and before not in BE)
    )
    return Force.PLANNED if coming or plans or (text in _PLANS and takes) else None


def _states_plan(texts: Sequence[str], place: int) -> bool:
    """Return whether "is to" leads to a verb, and says what will be done: not "is to the left", "its role is to"."""
    behind = texts[place + 2] if place + 2 < len(texts) else ""
    return behind not in _BEFORE_NOUN and _PURPOSES.isdisjoint(texts[_start(texts, place) : place])


def _leads_to(texts: Sequence[str], place: int, link: str) -> bool:
    """Return whether a clause begins with its link behind a verb, or behind when, where or to whom it was said."""
    between = texts[place + 1 : place + 1 + _ADVERBIAL]
    return link in between and _LINK_ENDS.isdisjoint(between[: between.index(link)])


def _is_ing(texts: Sequence[str], place: int) -> bool:
    return place < len(texts) and texts[place].endswith("ing")


def _contends(statement: ValueStatement, place: int) -> bool:
    texts = statement.texts
    if stem_of(texts[place]) not in _CONTENDING or place + 2 >= len(texts):
        return False
    behind = texts[place + 1]
    if _leads_to(texts, place, "that"):
        return True
    if behind in {"that", "to"}:
        told = place > 0 and texts[place - 1] in BE
        return behind == "that" or told or texts[place].startswith(("claim", "purport"))
    clause = texts[place + 1 : min(_end(texts, place + 1), place + _NEAR)]
    return _begins(statement, place + 1) and read_clause(clause, len(clause), ()).verb > 0


def _begins(statement: ValueStatement, place: int) -> bool:
    return statement.texts[place] in _SUBJECTS or statement.tokens[place].written[:1].isupper()


def _negated(texts: Sequence[str]) -> Iterator[Scope]:
    for place, text in enumerate(texts):
        full = negation_of(text) == FULL and not negated_stems(text) and text not in _NO_DENIAL
        if not (full or denies(texts, place)):
            continue
        end = _end(texts, place + 1)
        rest = texts[place + 1 : end + 1]
        disputed = any(stem_of(word) in _DENYING or stem_of(word) == _DOUBT for word in rest)
        if (
            not disputed
            and _NO_DENIAL.isdisjoint(rest)
            and not negations(texts[place + 1 : end])
            and not negations(texts[_start(texts, place) : place])
        ):
            yield Scope(Force.NEGATED, place + 1, end)


def _states(texts: Sequence[str]) -> bool:
    if "you" in texts or len(texts) < 2:
        return False
    advises = texts[0] not in _SUBJECTS and texts[1] in _BEFORE_NOUN
    finite = not AUXILIARIES.isdisjoint(texts[1:]) or texts[0] in _SUBJECTS
    return not advises and (finite or read_clause(texts, len(texts), ()).verb > 0)


def _begins_condition(texts: Sequence[str], place: int) -> bool:
    text, before = texts[place], texts[place - 1] if place else ""
    behind = texts[place + 1] if place + 1 < len(texts) else "necessary"
    if place == 0 and text in _INVERTED:
        return True
    begins = text in _CONDITIONS or (before, text) in {("in", "case"), ("only", "when")}
    return begins and behind not in _NO_CONDITION


_NO_CONDITION: Final = words_in(__package__, "no_condition")


def _conditional(statement: ValueStatement) -> Iterator[Scope]:
    texts = statement.texts
    for place, text in enumerate(texts):
        if not _begins_condition(texts, place):
            continue
        if (
            text == "if"
            and place
            and (stem_of(texts[place - 1]) in _ASKING or (place > 1 and stem_of(texts[place - 2]) in _ASKING))
        ):
            yield Scope(Force.OPEN, place + 1, _end(texts, place + 1))
            continue
        end = _first(texts, place + 1, _CONDITION_ENDS)
        begin = place - 1 if text in {"case", "when"} else place
        first, last = _start(texts, begin), begin
        if first == begin:
            first, last = end + 1, _end(texts, end + 1)
        if not _states(texts[first:last]):
            continue  # "if the tap drips, change the washer"
        condition = range(place + 1, end)
        yield Scope(Force.OPEN, place + 1, end, range(first, last))
        yield Scope(Force.OPEN, first, last, condition)


def _hedged(statement: ValueStatement) -> Iterator[Scope]:
    text = statement.reading.text
    if not may_begin(text):
        return
    spend(_HEDGES + _HEDGED_TOKEN * len(statement.tokens))
    starts = [token.start for token in statement.tokens]
    for hedge in built_in(text):
        if is_month(text, hedge.start, hedge.end):
            continue
        words = text[hedge.start : hedge.end].lower().split()
        if (
            hedge.category not in {"approximation", "question"}
            and words[0] != "to"
            and _HABITS.isdisjoint(words)
        ):
            place = min(bisect_left(starts, hedge.start), len(starts) - 1)
            behind = bisect_left(starts, hedge.end)
            yield Scope(Force.OPEN, _start(statement.texts, place), _end(statement.texts, max(place, behind)))


_HEDGES: Final = 60
_HEDGED_TOKEN: Final = 10
_HABITS: Final = words_in(__package__, "habits")

_ENOUGH: Final = 0.6  # of a claim's weight, that one window has to hold
_PLAIN: Final = 0.75  # of what the best window holds, that another one has to assert
_WHOLE: Final = 0.7  # of a claim, that a sentence denies with "not"
_MOST: Final = 0.8  # of that, which is left where a sentence does not deny a claim with "not"
_ALL: Final = frozenset(Force)
_LOOKED: Final = 12  # sentences that are looked at per claim


def unasserted(atom: Atom, alignment: Alignment, evidence: Evidence) -> Force | None:
    """Return with what weaker force the evidence says what a claim asserts; None where it asserts it, or lacks it."""
    if alignment.covered < _ENOUGH or not _tells(atom):
        return None
    if _denies_told(atom, alignment, evidence):
        return Force.DENIED
    window = [number for number in (alignment.best, alignment.second) if number >= 0]
    forces = {scope.force for number in window for scope in _read(evidence, number)}
    forces -= _own(atom) if forces else set()
    if alignment.covered < _WHOLE:
        forces.discard(Force.NEGATED)
    wanted = _PLAIN * alignment.covered * sum(unit.weight for unit in atom.units)
    least = _MOST * wanted if forces == {Force.NEGATED} else wanted
    windows = (
        [(window, forces), *((other, _ALL) for other in _others(atom, alignment, evidence))] if forces else []
    )
    if any(_said(atom, other, alignment, evidence, weak) >= least for other, weak in windows):
        return None
    alone = (force for force in Force if _said(atom, window, alignment, evidence, {force} & forces) < least)
    return next(alone, max(forces, default=None))


def _others(atom: Atom, alignment: Alignment, evidence: Evidence) -> Iterator[Sequence[int]]:
    weights = [unit.weight for unit in atom.units]
    masks = alignment.masks
    for number in sorted(
        masks,
        key=lambda number: (
            -sum(weight for place, weight in enumerate(weights) if masks[number] >> place & 1),
            number,
        ),
    )[:_LOOKED]:
        yield (number,)
        if number + 1 in masks and evidence.sentences[number + 1].follows:
            yield number, number + 1


def _denies_told(atom: Atom, alignment: Alignment, evidence: Evidence) -> bool:
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
    texts = [text for text in atom.statement.texts if text[:1].isalnum()]
    if len(texts) < 2 or atom.statement.texts[-1] == "?":
        return False
    # "vaccines cause autism"
    plural = texts[0].endswith("s") and len(texts) > 2 and texts[1] not in FUNCTION_WORDS
    if not (plural or read_clause(texts, len(texts), ()).verb or any(map(is_past, texts))):
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
    tokens, texts = atom.statement.tokens, atom.statement.texts
    own = {scope.force for scope in scopes(atom.statement)}
    says = any(_attributes(texts, place) for place in range(1, len(texts)))
    modal = any(token.text in _MODAL and token.written != "May" for token in tokens) or not _NORM.isdisjoint(
        texts
    )
    if says or modal or not own.isdisjoint({Force.OPEN, Force.PLANNED}):
        own |= {Force.OPEN, Force.PLANNED}
    if not _COMING.isdisjoint(texts) or negations(texts):  # what was planned did not happen
        own.add(Force.PLANNED)
    if Force.DENIED in own or negations(texts) or any("number 0" in unit.keys for unit in atom.units):
        own |= {Force.NEGATED, Force.DENIED}
    return own


def _is_done(texts: Sequence[str]) -> bool:
    """Return whether a verb is in the past or the perfect."""
    return any(
        text in _PAST or (place and is_past(text) and _UNDONE.isdisjoint(texts[max(0, place - 3) : place]))
        for place, text in enumerate(texts)
    )


def _attributes(texts: Sequence[str], place: int) -> bool:
    base, before = stem_of(texts[place]), texts[place - 1]
    if base in _SAYING:
        return before not in BE or texts[place] == "told"
    if base not in _ATTRIBUTING or before in _NO_VERB or negations(texts[_start(texts, place) : place]):
        return False
    expected = base in _PLANNING and before in BE
    return expected or any(_leads_to(texts, place, link) for link in ("that", "to"))


def _said(
    atom: Atom, window: Sequence[int], alignment: Alignment, evidence: Evidence, forces: AbstractSet[Force]
) -> float:
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


def _only_weak(evidence: Evidence, number: int, atom: Atom, forces: AbstractSet[Force]) -> set[str]:
    tokens = evidence.sentences[number].statement.tokens
    texts = evidence.sentences[number].statement.texts
    supposed = _is_done(atom.statement.texts) and not _is_done(texts)  # told as done
    inside = set[int]()
    for scope in _read(evidence, number):
        if scope.force not in forces:
            continue
        words = {stem for place in scope.condition if place < len(tokens) for stem in tokens[place].stems}
        words -= {stem for token in tokens[scope.first : scope.last] for stem in token.stems}
        if (scope.condition and supposed) or all(unit.keys.isdisjoint(words) for unit in atom.units):
            inside |= {*range(scope.first, scope.last)}
    if not inside:
        return set()
    weak, plain = set[str](), set[str]()
    for place, token in enumerate(tokens):
        said = (*token.stems, *(token.value.covers if token.value else ()))
        (weak if place in inside else plain).update(said)
    return weak - plain
