"""With what force a text says something: as a fact, or as denied, attributed, supposed, asked, conditional, planned.

A word with such a force has a scope: the clause that it introduces or is part of. What a passage says in such a scope
supports only a claim of the same force; what it says outside supports any. A speaker without a stake (a court, a
record, a study) asserts: "find" has no scope, "say" only beside a dispute. English only; in doubt a text asserts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from groundwire.checks.hedges import built_in, is_month, may_begin
from groundwire.checks.reading.adjuncts import (
    AFTER_COMMA,
    CLAUSE_ENDS,
    CONDITIONS,
    SUBJECTS,
    clause_end,
    clause_start,
    first_of,
)
from groundwire.checks.reading.statements import Statement
from groundwire.text.clauses import AUXILIARIES, BE, FUNCTION_WORDS, is_past, read_clause, stem_of
from groundwire.text.lists import words_in
from groundwire.text.negation import FULL, denies, negated_stems, negation_of, negations
from groundwire.text.stems import words_of
from groundwire.text.work import spend


class Force(StrEnum):
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
_IT: Final = words_of("it this that")
_ALMOST: Final = words_of("almost nearly")
_COUNTED: Final = words_of("doubled tripled trebled quadrupled halved")
_ASSENT: Final = words_of("yes no yeah indeed certainly absolutely sure")
_MODAL: Final = words_in(__package__, "modal")
_NORM: Final = words_of("default normally usually generally ordinarily")
_NO_VERB: Final = _BEFORE_NOUN | {"as", "in"}
_PAST: Final = words_of("has had was were did went came")
_UNDONE: Final = BE | _BEFORE_NOUN | words_of("will can could may might shall should would must to")
_COMING: Final = words_of("will 'll shall going")


def scopes(statement: Statement, following: Statement | None = None) -> list[Scope]:
    texts = statement.texts
    spend(_READ + _TOKEN * len(texts))
    first = next((text for text in texts if text.isalpha() and text not in AFTER_COMMA), "")
    if texts[-1:] == ["?"] and first in AUXILIARIES:
        answer = [text for text in following.texts[:4] if text[:1].isalpha()] if following else []
        says = answer[1:] and answer[0] in SUBJECTS and answer[1] in AUXILIARIES
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
_COMMA: Final = frozenset((",",))
_LINK_ENDS: Final = CLAUSE_ENDS | _COMMA
_SENTENCE_ENDS: Final = words_of("; : but")
_ADVERBIAL: Final = 5  # words behind a verb, among which is the link of its clause
_NEAR: Final = 12  # words behind a verb, among which is that of its clause
_READ: Final = 10  # units of work that reading a sentence takes, beside those of its tokens
_TOKEN: Final = 8


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
                yield Scope(force, clause_start(texts, first), clause_end(texts, behind))
            elif force is Force.DENIED and said.startswith(("contrary", "far", "instead", "rather")):
                comma = first_of(texts, behind, _COMMA)
                yield Scope(force, behind, min(comma, clause_end(texts, behind)))
            else:
                yield Scope(force, behind, first_of(texts, behind, _SENTENCE_ENDS))


def _governed(statement: Statement, following: Statement | None) -> Iterator[Scope]:
    texts = statement.texts
    others = [*texts, *(following.texts if following else ())]
    disputed = not _CONTESTED.isdisjoint(map(stem_of, others))
    for place, text in enumerate(texts):
        base = stem_of(text)
        if not (base in _GOVERNING or text in _GOVERNING):  # as most
            continue
        doubts = base in _DENYING or base == _DOUBT
        if doubts and negations(texts[clause_start(texts, place) : place]):
            continue  # "nobody disputes that"
        before = texts[max(0, place - 2) : place]
        if text in _REVOKED and not BE.isdisjoint(before) and not negations(before):
            start = clause_start(texts, place)
            yield Scope(Force.DENIED, 0 if texts[start] in _IT else start, place)
        elif force := _force_of(statement, place, disputed=disputed):
            yield Scope(force, place + 1, clause_end(texts, place + 1))


def _force_of(statement: Statement, place: int, *, disputed: bool) -> Force | None:
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
    return behind not in _BEFORE_NOUN and _PURPOSES.isdisjoint(texts[clause_start(texts, place) : place])


def _leads_to(texts: Sequence[str], place: int, link: str) -> bool:
    """Return whether a clause begins with its link behind a verb, or behind when, where or to whom it was said."""
    between = texts[place + 1 : place + 1 + _ADVERBIAL]
    return link in between and _LINK_ENDS.isdisjoint(between[: between.index(link)])


def _is_ing(texts: Sequence[str], place: int) -> bool:
    return place < len(texts) and texts[place].endswith("ing")


def _contends(statement: Statement, place: int) -> bool:
    texts = statement.texts
    if stem_of(texts[place]) not in _CONTENDING or place + 2 >= len(texts):
        return False
    behind = texts[place + 1]
    if _leads_to(texts, place, "that"):
        return True
    if behind in {"that", "to"}:
        told = place > 0 and texts[place - 1] in BE
        return behind == "that" or told or texts[place].startswith(("claim", "purport"))
    clause = texts[place + 1 : min(clause_end(texts, place + 1), place + _NEAR)]
    return _begins(statement, place + 1) and read_clause(clause, len(clause), ()).verb > 0


def _begins(statement: Statement, place: int) -> bool:
    return statement.texts[place] in SUBJECTS or statement.tokens[place].written[:1].isupper()


def _negated(texts: Sequence[str]) -> Iterator[Scope]:
    for place, text in enumerate(texts):
        full = negation_of(text) == FULL and not negated_stems(text) and text not in _NO_DENIAL
        if not (full or denies(texts, place)):
            continue
        end = clause_end(texts, place + 1)
        rest = texts[place + 1 : end + 1]
        disputed = any(stem_of(word) in _DENYING or stem_of(word) == _DOUBT for word in rest)
        if (
            not disputed
            and _NO_DENIAL.isdisjoint(rest)
            and not negations(texts[place + 1 : end])
            and not negations(texts[clause_start(texts, place) : place])
        ):
            yield Scope(Force.NEGATED, place + 1, end)


def _states(texts: Sequence[str]) -> bool:
    if "you" in texts or len(texts) < 2:
        return False
    advises = texts[0] not in SUBJECTS and texts[1] in _BEFORE_NOUN
    finite = not AUXILIARIES.isdisjoint(texts[1:]) or texts[0] in SUBJECTS
    return not advises and (finite or read_clause(texts, len(texts), ()).verb > 0)


def _conditional(statement: Statement) -> Iterator[Scope]:
    texts = statement.texts
    for kind, link, words, main in statement.adjuncts:
        if kind not in CONDITIONS:
            continue
        if texts[link] == "if" and not _ASKING.isdisjoint(map(stem_of, texts[max(0, link - 2) : link])):
            yield Scope(Force.OPEN, words.start, clause_end(texts, words.start))
        elif _states(texts[main.start : main.stop]):  # not "if the tap drips, change the washer"
            yield Scope(Force.OPEN, words.start, words.stop, main)
            yield Scope(Force.OPEN, main.start, main.stop, words)


def _hedged(statement: Statement) -> Iterator[Scope]:
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
            end = clause_end(statement.texts, max(place, behind))
            yield Scope(Force.OPEN, clause_start(statement.texts, place), end)


_HEDGES: Final = 60
_HEDGED_TOKEN: Final = 10
_HABITS: Final = words_in(__package__, "habits")


def own_forces(statement: Statement) -> set[Force]:
    """Return the forces of what may support a claim of this force, beside what is asserted."""
    texts = statement.texts
    own = {scope.force for scope in scopes(statement)}
    says = any(_attributes(texts, place) for place in range(1, len(texts)))
    modal = any(token.text in _MODAL and token.written != "May" for token in statement.tokens)
    if says or modal or not _NORM.isdisjoint(texts) or not own.isdisjoint({Force.OPEN, Force.PLANNED}):
        own |= {Force.OPEN, Force.PLANNED}
    denies = bool(negations(texts))
    if denies or not _COMING.isdisjoint(texts):  # what was planned did not happen
        own.add(Force.PLANNED)
    if denies or Force.DENIED in own or any("number 0" in value.keys for value in statement.given):
        own |= {Force.NEGATED, Force.DENIED}
    return own


def denied_by_frame(statement: Statement) -> Sequence[Scope]:
    """Return what a statement denies as "it is not true that" and "almost" do."""
    texts = statement.texts
    if _ALMOST.isdisjoint(texts) and not _UNTRUE.search(" ".join(texts)):
        return ()
    return [scope for scope in scopes(statement) if scope.force is Force.DENIED]


def is_done(texts: Sequence[str]) -> bool:
    """Return whether a verb is in the past or the perfect."""
    return any(
        text in _PAST or (place and is_past(text) and _UNDONE.isdisjoint(texts[max(0, place - 3) : place]))
        for place, text in enumerate(texts)
    )


def _attributes(texts: Sequence[str], place: int) -> bool:
    base, before = stem_of(texts[place]), texts[place - 1]
    if base in _SAYING:
        return before not in BE or texts[place] == "told"
    if base not in _ATTRIBUTING or before in _NO_VERB or negations(texts[clause_start(texts, place) : place]):
        return False
    expected = base in _PLANNING and before in BE
    return expected or any(_leads_to(texts, place, link) for link in ("that", "to"))


def tells(statement: Statement) -> bool:
    """Return whether a statement is a sentence that says something: it has a verb, asks nothing and orders nothing."""
    texts = [text for text in statement.texts if text[:1].isalnum()]
    if len(texts) < 2 or statement.texts[-1] == "?":
        return False
    # "vaccines cause autism"
    plural = texts[0].endswith("s") and len(texts) > 2 and texts[1] not in FUNCTION_WORDS
    if not (plural or read_clause(texts, len(texts), ()).verb or any(map(is_past, texts))):
        return False
    first, second = texts[:2]
    bare = first not in FUNCTION_WORDS and not first.endswith("s") and not is_past(first)
    return not (bare and second in _BEFORE_NOUN | {"all", "each", "every"})
