"""What a reviewer sees of a response: its answer with what the checks found, where it stands, beside its sources.

The checks are run again on the record, by the facts of its decision: a decision names places, and repeats no text.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from groundwire import __version__
from groundwire.checks.entities import comparable, part
from groundwire.checks.quotes import validate_evidence_schema
from groundwire.checks.support.verify import ClaimCheck, check_answer
from groundwire.checks.values.answer import UnsupportedValue
from groundwire.checks.values.statements import read_statements
from groundwire.console.places import Places, TextPlace
from groundwire.console.words import Segment, TextMark, hidden_marks, label, segments, word_diff
from groundwire.epistemic.types import ClaimVerification
from groundwire.gate.response_checks import (
    CheckInputs,
    citable_by,
    evidence_of,
    read_response,
    result_of,
)
from groundwire.logs import report_fault
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.review.originals import (
    AWAY,
    Original,
    OriginalState,
    RecordReader,
    has_original,
    read_original,
)

_MOST: Final = 200
"""Entries of a list that are shown; the others are counted."""
_LONG: Final = 700
_EDGE: Final = 200
"""Of a text in which nothing is marked, so many characters are shown at both ends where it is longer than `_LONG`."""
_TRUTHS: Final = 5
"""Statements of the ground truth that are shown of one pair."""
_GONE: Final = {
    OriginalState.GONE: "The record is not on its topic any more, so its answer cannot be shown. Below is what the"
    " checks found when it was decided.",
    OriginalState.DIFFERS: "What stands at its place is not the record that was decided: the hash or the name differs."
    " It is not shown. Below is what the checks found when it was decided.",
    OriginalState.AWAY: "The topic cannot be read at the moment, so the answer is not shown; load the page again.",
}


_UNREADABLE: Final = "The record cannot be worked through, so its answer is not shown; the log says why."


class AnswerFault(NamedTuple):
    """Something wrong with an answer.

    Attributes:
        start: where in the answer, in characters; -1 of a step or a source, which stand in no answer.
        hard: it is wrong by the sources; else it is a doubt.
        why: a code.
        text: the words at fault.
        where: what of the sources to hold it against.
        instead: the values that stand there.
    """

    start: int
    end: int
    hard: bool
    why: str
    text: str
    where: TextPlace | None = None
    instead: tuple[str, ...] = ()


_WORD: Final = re.compile(r"\w+")
_BEFORE: Final = re.compile(r"[\w/.-]")
_BEHIND: Final = re.compile(r"[\w/-]")
"""What beside the name of a file makes it a part of another name."""
View = dict[str, Any]
"""What is shown of a response, as JSON values; `state` says whether it could be read back."""


def answer_view(original: Original, decision: Mapping[str, Any], policy: Policy) -> View:
    """Return what page, API and terminal show of a response as it came in, as JSON values.

    Args:
        original: as it was read back.
        decision: what was decided of it.
        policy: by which the checks are run again.
    """
    if original.response is None:
        return {"state": str(original.state), "note": _GONE[original.state]}
    judged = _Judged(original.response, Facts.model_validate(decision["facts"]), policy)
    faults, runs = judged.faults, _runs(judged)
    return {
        "state": str(original.state),
        "note": _note(decision, policy),
        "question": judged.response.query,
        "answer": runs,
        "legend": sorted({kind for run in runs or () for part in run["segments"] for kind in part["kinds"]}),
        "faults": [_fault(fault, judged) for fault in faults[:_MOST]],
        "faults_left": max(0, len(faults) - _MOST),
        "passages": _passages(judged),
        **_quotes(judged),
        "entities": _entities(judged),
        "relations": _relations(judged),
    }


def _note(decision: Mapping[str, Any], policy: Policy) -> str | None:
    """Return what may make the marks differ from what was decided, None where nothing does."""
    by = decision["policy"]["sha256"] != policy.sha256
    if not by and decision["engine"] == __version__:
        return None
    what = "another policy" if by else f"version {decision['engine']}"
    return f"It was decided by {what}: what is marked is what this console finds now."


class _Judged:
    def __init__(self, response: LlmResponse, facts: Facts, policy: Policy) -> None:
        self.response, self.facts = response, facts
        self.answer = response.answer or ""
        inputs = CheckInputs(facts.entities, facts.relations, facts.verifier, facts.error)
        self.reading = read_response(response, policy, inputs)
        evidence = evidence_of(response)
        self.names, self.texts = list(evidence), list(evidence.values())
        self.places = Places(self.texts)
        question, citable = response.query or "", citable_by(response)
        self.claims = (
            check_answer(self.answer, evidence, question=question, citable=citable).claims if evidence else ()
        )
        report = result_of(self.reading.claims)
        self.verified = report.report.claims if report else []

    @cached_property
    def flags(self) -> dict[tuple[int, int], ClaimVerification]:
        own = (claim for claim in self.verified if not _is_step(claim))
        return {(claim.start, claim.end): claim for claim in own if claim.is_flagged}

    @cached_property
    def values(self) -> list[UnsupportedValue]:
        report = result_of(self.reading.values)
        of_claims = chain.from_iterable(claim.faults for claim in self.claims) if self.verified else ()
        found = {(one.start, one.end): one for one in (*of_claims, *(report.unsupported if report else ()))}
        return [found[place] for place in sorted(found)]

    @cached_property
    def rests(self) -> list[TextPlace | None]:
        """What of the sources each claim is to be held against."""
        return [self.nearest(claim.text, claim.evidence_ids) for claim in self.claims]

    @cached_property
    def faults(self) -> list[AnswerFault]:
        """All that is wrong, in text order, then what stands in steps or in the list of sources alone."""
        values = [self._value(value) for value in self.values]
        claims = [
            _fault_of(flag, claim.start, claim.end, where)
            for claim, where in zip(self.claims, self.rests, strict=True)
            if (flag := self.flags.get((claim.start, claim.end)))
            and not any(claim.start <= value.start < claim.end for value in values)
        ]
        steps = [
            _fault_of(claim, -1, -1, self.nearest(claim.claim_text, claim.evidence_ids))
            for claim in self.verified
            if _is_step(claim) and claim.is_flagged
        ]
        files = [self._file(name) for name in self.phantoms]
        found = sorted([*values, *claims, *self._fields(), *files], key=lambda fault: fault.start)
        return [*(one for one in found if one.start >= 0), *steps, *(one for one in found if one.start < 0)]

    @cached_property
    def fields(self) -> list[tuple[int, int]]:
        report = result_of(self.reading.fields)
        unverified = frozenset(report.unverified if report else ())
        return [one.span() for one in _WORD.finditer(self.answer) if one[0] in unverified]

    @cached_property
    def phantoms(self) -> dict[str, list[tuple[int, int]]]:
        """The files that are cited and were not retrieved -> where the answer names them."""
        report = result_of(self.reading.sources)
        return {
            name: _places_of(name, self.answer) for name in (report.phantom_files if report else ())[:_MOST]
        }

    @cached_property
    def shown(self) -> dict[TextPlace, str]:
        """The places of the sources that something points at -> their id on the page; those that overlap share one."""
        pointed = {place for place in (*self.rests, *(fault.where for fault in self.faults)) if place}
        names: dict[TextPlace, str] = {}
        last: TextPlace | None = None
        for place in sorted(pointed, key=lambda one: (one.text, one.start, -one.end)):
            if last is not None and last.text == place.text and place.start < last.end:
                names[place] = names[last]
                continue
            names[place] = f"p{len(set(names.values())) + 1}"
            last = place
        return names

    def nearest(self, phrase: str, ids: Iterable[str]) -> TextPlace | None:
        """Return the place of the sources nearest to a phrase: of those named, where they hold any."""
        within = {self.names.index(one) for one in ids if one in self.names}
        return (self.places.nearest(phrase, within) if within else None) or self.places.nearest(phrase)

    def claim_at(self, start: int) -> ClaimCheck | None:
        return next((claim for claim in self.claims if claim.start <= start < claim.end), None)

    def text_at(self, place: TextPlace) -> str:
        return self.texts[place.text][place.start : place.end]

    def _fields(self) -> Iterator[AnswerFault]:
        seen = set[str]()
        for start, end in self.fields:
            name = self.answer[start:end]
            if name not in seen:
                seen.add(name)
                claim = self.claim_at(start)
                where = self.nearest(claim.text, claim.evidence_ids) if claim else None
                yield AnswerFault(start, end, hard=False, why="unverified_field", text=name, where=where)

    def _file(self, name: str) -> AnswerFault:
        start, end = next(iter(self.phantoms[name]), (-1, -1))
        return AnswerFault(start, end, hard=True, why=str(ReasonCode.PHANTOM_SOURCE), text=name)

    def _value(self, value: UnsupportedValue) -> AnswerFault:
        claim = self.claim_at(value.start)
        said = claim.text if claim else self.answer[max(0, value.start - _EDGE) : value.end]
        where = self.nearest(said, claim.evidence_ids if claim else ())
        instead = _values_of(self.text_at(where), value, said) if where else ()
        return AnswerFault(value.start, value.end, value.hard, value.why, value.text, where, instead)


def _fault_of(claim: ClaimVerification, start: int, end: int, where: TextPlace | None) -> AnswerFault:
    return AnswerFault(start, end, claim.severity == "hard", claim.flag_reason or "", claim.claim_text, where)


def _places_of(name: str, text: str) -> list[tuple[int, int]]:
    """Return where a text names a file, letter for letter, and not as a part of another name."""
    places, at = [], text.find(name) if name.strip() else -1
    while at >= 0:
        end = at + len(name)
        if not (_BEFORE.match(text, at - 1) if at else None) and not _BEHIND.match(text, end):
            places.append((at, end))
        at = text.find(name, end)
    return places


def _is_step(claim: ClaimVerification) -> bool:
    return claim.claim_id.rpartition("/")[2].startswith("step#")


def _values_of(text: str, value: UnsupportedValue, said: str) -> tuple[str, ...]:
    """Return the values of a text that could stand for one: of its kind, and not said by the claim itself."""
    if value.kind == "negation":
        return ()
    own = {written for _, written in _values(said)}
    found = [(kind, written) for kind, written in _values(text) if written not in own]
    alike = [written for kind, written in found if kind == value.kind]
    return tuple(dict.fromkeys(alike or [written for _, written in found]))


def _values(text: str) -> Iterator[tuple[str, str]]:
    for statement in read_statements(text):
        for one in statement.values:
            if not one.value.implied:
                yield one.value.kind, text[one.start : one.end]


def _runs(judged: _Judged) -> list[dict[str, Any]] | None:
    """Return the answer in runs: of one claim each, or of none, in segments with their marks."""
    if judged.response.answer is None:
        return None
    numbers = [
        TextMark(claim.start, claim.end, "claim", str(n)) for n, claim in enumerate(judged.claims, start=1)
    ]
    cut = segments(judged.answer, [*numbers, *_marks(judged)])
    runs = [_run(judged, number, list(parts)) for number, parts in groupby(cut, key=_claim_of)]
    first = {run["claim"]: at for at, run in reversed(list(enumerate(runs)))}
    return [{**run, "first": first[run["claim"]] == at} for at, run in enumerate(runs)]


def _claim_of(segment: Segment) -> int | None:
    return next((int(mark.title) for mark in segment.marks if mark.kind == "claim"), None)


def _run(judged: _Judged, number: int | None, parts: Sequence[Segment]) -> dict[str, Any]:
    place = judged.rests[number - 1] if number else None
    return {
        "claim": number,
        "at": judged.shown[place] if place else None,
        "segments": [
            {
                "text": part.text,
                "kinds": [kind for kind in part.kinds if kind != "claim"],
                "title": "; ".join(dict.fromkeys(m.title for m in part.marks if m.kind != "claim")),
            }
            for part in parts
        ],
    }


def _marks(judged: _Judged) -> Iterator[TextMark]:
    for claim in judged.claims:
        if flag := judged.flags.get((claim.start, claim.end)):
            yield TextMark(claim.start, claim.end, flag.severity or "soft", label(flag.flag_reason))
        for word in claim.uncovered:
            yield TextMark(word.start, word.end, "uncovered", "not in the sources")
    for value in judged.values:
        yield TextMark(value.start, value.end, "value" if value.hard else "soft", label(value.why))
    for start, end in judged.fields:
        yield TextMark(start, end, "name", label("unverified_field"))
    for start, end in chain.from_iterable(judged.phantoms.values()):
        yield TextMark(start, end, "hard", label(ReasonCode.PHANTOM_SOURCE))
    yield from hidden_marks(judged.answer)


def _fault(fault: AnswerFault, judged: _Judged) -> dict[str, Any]:
    says = judged.text_at(fault.where) if fault.where else None
    claim = judged.claim_at(fault.start)
    return {
        "hard": fault.hard,
        "why": fault.why,
        "text": fault.text,
        "start": fault.start if fault.start >= 0 else None,
        "claim": judged.claims.index(claim) + 1 if claim else None,
        "source": judged.names[fault.where.text] if fault.where else None,
        "says": says,
        "instead": list(fault.instead),
        "at": judged.shown[fault.where] if fault.where else None,
    }


def _passages(judged: _Judged) -> list[dict[str, Any]]:
    """Return the sources, those on which something rests or breaks first, each in parts."""
    chunks = {chunk.chunk_id: chunk for chunk in judged.response.chunks or ()}
    rows = []
    for number, (name, text) in enumerate(zip(judged.names, judged.texts, strict=True)):
        places = {judged.shown[place]: place for place in judged.shown if place.text == number}
        chunk = chunks.get(name)
        where = f"{chunk.file}, lines {chunk.start_line} to {chunk.end_line}" if chunk else None
        rows.append(
            {
                "name": name,
                "where": where,
                "characters": len(text),
                "pointed": len(places),
                "parts": _parts(text, places),
            }
        )
    return sorted(rows, key=lambda row: not row["pointed"])


def _parts(text: str, places: Mapping[str, TextPlace]) -> list[dict[str, Any]]:
    """Return a text in parts; `at` names a place, `cut` counts what is shown on demand."""
    marks = [TextMark(place.start, place.end, name, "") for name, place in places.items()]
    parts: list[dict[str, Any]] = []
    for one in segments(text, marks):
        if one.kinds:
            parts.append({"text": one.text, "at": one.kinds[0], "cut": None})
        elif len(one.text) <= _LONG:
            parts.append({"text": one.text, "at": None, "cut": None})
        else:
            middle = one.text[_EDGE:-_EDGE]
            pieces = (one.text[:_EDGE], None), (middle, len(middle)), (one.text[-_EDGE:], None)
            parts += [{"text": piece, "at": None, "cut": cut} for piece, cut in pieces]
    return parts


def _quotes(judged: _Judged) -> dict[str, Any]:
    grounding, transcript = result_of(judged.reading.quotes), judged.response.transcript
    if grounding is None or transcript is None:
        return {"quotes": [], "quotes_found": None, "quotes_left": 0}
    evidence = validate_evidence_schema(judged.response.evidence or {})
    kept = {(domain, quote) for domain, quotes in grounding.validated.items() for quote in quotes}
    rejected = [(d, quote) for d, quotes in evidence.items() for quote in quotes if (d, quote) not in kept]
    places = Places([transcript])
    pairs = zip(rejected[:_MOST], grounding.rejected, strict=False)
    return {
        "quotes": [_quote(domain, quote, one.why, transcript, places) for (domain, quote), one in pairs],
        "quotes_found": grounding.stats.validated_count,
        "quotes_left": max(0, len(rejected) - _MOST),
    }


def _quote(domain: str, quote: str, why: str, transcript: str, places: Places) -> dict[str, Any]:
    place = places.nearest(quote)
    nearest = transcript[place.start : place.end] if place else None
    return {
        "domain": domain,
        "quote": quote,
        "why": why,
        "nearest": nearest,
        "changes": [] if nearest is None else changes(nearest, quote),
    }


def changes(old: str, new: str) -> list[dict[str, str]]:
    return [{"operation": change.operation, "text": change.text} for change in word_diff(old, new)]


def _entities(judged: _Judged) -> list[dict[str, Any]]:
    """Return what the answer names, each with what the corpus holds of it; what is missing comes first."""
    grounding, given = result_of(judged.reading.entities), judged.response.entities
    if grounding is None or given is None:
        return []
    index: Mapping[str, Any] = judged.facts.entities or judged.response.corpus_index or {}
    missing = {one.position: str(one.reason) for one in grounding.missing}
    rows = [
        {
            "id": entity.id,
            "name": entity.name,
            "role": entity.role,
            "why": missing.get(position),
            "holds": _entry(index.get(entity.id)),
        }
        for position, entity in enumerate(given)
    ]
    return sorted(rows, key=lambda row: row["why"] is None)[:_MOST]


def _entry(entry: object) -> str | None:
    """Return what the corpus holds of an entity in words, None where it holds nothing."""
    role, confidence = part(entry, "role"), part(entry, "confidence")
    if entry is None:
        return None
    return f"role {role}, confidence {confidence}" if role else f"confidence {confidence}"


def _relations(judged: _Judged) -> list[dict[str, Any]]:
    """Return the relations that the answer states, each with what is stated of the two; wrong ones come first."""
    result, given = result_of(judged.reading.relations), judged.response.claims
    if result is None or given is None:
        return []
    truths = judged.facts.relations or judged.response.relations
    stated: dict[frozenset[str], list[str]] = {}
    for truth in truths or ():
        stated.setdefault(_pair(truth), []).append(_relation(truth))
    wrong: dict[int, list[str]] = {}
    for violation in result.violations:
        wrong.setdefault(violation.index, []).append(str(violation.reason))
    rows = [
        {"says": _relation(claim), "why": wrong.get(n, []), "holds": stated.get(_pair(claim), [])[:_TRUTHS]}
        for n, claim in enumerate(given)
    ]
    return sorted(rows, key=lambda row: not row["why"])[:_MOST]


def _pair(relation: object) -> frozenset[str]:
    return frozenset((comparable(part(relation, "subject")), comparable(part(relation, "object"))))


def _relation(relation: object) -> str:
    said = " ".join(str(part(relation, name)) for name in ("subject", "relation", "object"))
    beside = [
        str(format_time(value) if isinstance(value, datetime) else value)
        for name in ("version", "timestamp")
        if (value := part(relation, name)) is not None
    ]
    return f"{said} ({', '.join(beside)})" if beside else said


async def show_original(
    read: RecordReader | None, decision: Mapping[str, Any], policy: Policy
) -> View | None:
    """Read back what a decision is about and check it again, in a thread; None where the decision repeats it itself.

    A record that the checks break on is told as one that cannot be shown: a page of it can still be looked at.
    """
    if not has_original(decision):
        return None
    original = await read_original(read, decision) if read else AWAY
    try:
        return await asyncio.to_thread(answer_view, original, decision, policy)
    except Exception as exc:  # noqa: BLE001 - whatever it is, the rest of the page can be looked at
        report_fault("answer.unreadable", exc)
        return {"state": "unreadable", "note": _UNREADABLE}
