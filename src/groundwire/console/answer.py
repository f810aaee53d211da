"""An answer beside its sources, with faults marked: a decision repeats no text, so the checks run again."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, Final, NamedTuple

from cachetools import LRUCache
from rapidfuzz import process

from groundwire import __version__
from groundwire.checks.entities import comparable, part
from groundwire.checks.marks import marks
from groundwire.checks.quotes import QuoteGrounding, validate_evidence_schema
from groundwire.checks.reading.statements import read_statements
from groundwire.checks.sources import canonical_file
from groundwire.checks.support.score import ClaimCheck
from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.answer import UnsupportedValue
from groundwire.checks.values.negation import OPPOSITE
from groundwire.console.words import (
    Places,
    TextMark,
    TextPlace,
    hidden_marks,
    label,
    marked_parts,
    quote_marks,
    segments,
    word_diff,
)
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
from groundwire.messages.decisions import Facts, Kind, ReasonCode
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.review.model import Row
from groundwire.review.originals import (
    AWAY,
    Original,
    OriginalState,
    RecordReader,
    has_original,
    read_original,
)
from groundwire.review.records import in_one_line
from groundwire.text.negation import negation_places

_MOST: Final = 200  # entries of a list that are shown; the others are counted
_LONG: Final = 700
_EDGE: Final = 200
"""Of a text in which nothing is marked, so many characters are shown at both ends where it is longer than `_LONG`."""
_NEAR: Final = 3  # ids of the corpus that are shown beside one that it does not hold
_LIKE: Final = 60  # of 100, from which on they are alike
_INSTRUCTING: Final = frozenset(
    (
        "add",
        "call",
        "check",
        "choose",
        "click",
        "make",
        "note",
        "open",
        "pass",
        "run",
        "see",
        "set",
        "try",
        "use",
    )
)
_NAME: Final = 40  # characters of what stands in a source instead of a name
_TRANSCRIPT: Final = 20_000  # characters of a transcript that are shown
_TRUTHS: Final = 5  # statements of the ground truth that are shown of one pair
_GONE: Final = {
    OriginalState.GONE: "The record is not on its topic any more, so its answer cannot be shown. Below is what the"
    " checks found when it was decided.",
    OriginalState.DIFFERS: "The record at its offset is not the one that was decided: the hash or the name differs."
    " It is not shown. Below is what the checks found when it was decided.",
    OriginalState.AWAY: "The topic cannot be read at the moment, so the answer is not shown; load the page again.",
}
_UNREADABLE: Final = "The record cannot be worked through, so its answer is not shown; the log says why."
View = dict[str, Any]
"""What is shown of a response, as JSON values; `state` says whether it could be read back."""


async def show_original(
    read: RecordReader | None, decision: Mapping[str, Any], policy: Policy
) -> View | None:
    """Read back what a decision is about and check it again, in a thread; None where the decision repeats it itself.

    A record on which the checks fail is shown as one that cannot be read: the rest of its page still works.
    """
    if not has_original(decision):
        return None
    original = await read_original(read, decision) if read else AWAY
    try:
        return await asyncio.to_thread(answer_view, original, decision, policy)
    except Exception as exc:  # noqa: BLE001 - whatever it is, the rest of the page can be looked at
        report_fault("answer.unreadable", exc)
        return {"state": "unreadable", "note": _UNREADABLE}


def answer_view(original: Original, decision: Mapping[str, Any], policy: Policy) -> View:
    """Return what page, API and terminal show of a response; `policy` is the one that checks it again."""
    if original.response is None:
        return {"state": str(original.state), "note": _GONE[original.state]}
    note, other_policy = None, decision["policy"]["sha256"] != policy.sha256
    if other_policy or decision["engine"] != __version__:
        by = "another policy" if other_policy else f"version {decision['engine']}"
        note = f"It was decided by {by}: what is marked is what this console finds now."
    judged = _Judged(original.response, Facts.model_validate(decision["facts"]), policy)
    runs = judged.runs()
    return {
        "state": str(original.state),
        "note": note,
        "question": judged.response.query,
        "answer": runs,
        "blocks": judged.blocks(runs) if runs else None,
        "legend": sorted({kind for run in runs or () for part in run["segments"] for kind in part["kinds"]}),
        "faults": [judged.row(fault) for fault in judged.faults[:_MOST]],
        "faults_left": max(0, len(judged.faults) - _MOST),
        "passages": judged.passages(),
        "cited": judged.cited(),
        "stale": judged.stale(),
        **judged.quotes(),
        "transcript": (judged.response.transcript or "")[:_TRANSCRIPT],
        "entities": judged.entities(),
        "relations": judged.relations(),
    }


class AnswerFault(NamedTuple):
    start: int  # of the characters; -1 of a step or a source, which no text of the answer holds
    end: int
    hard: bool  # it is wrong by the sources; else it is a doubt
    why: str
    text: str
    where: TextPlace | None = None  # the place of the sources to compare it with
    instead: tuple[str, ...] = ()  # the values or names that stand there
    note: str = ""  # what is wrong, where its code does not say all


class _Judged:
    """A response that was checked again, with the places of its sources that its claims rest on."""

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
        tags = result_of(self.reading.source_tags)
        self.phantom_tags = [mark for mark in marks(self.answer, citable) if mark.missing] if tags else []
        self.untagged, self.given = tags.missing if tags else (), citable.count
        self.rests = [self.nearest(claim.text, claim.evidence_ids) for claim in self.claims]

        claims, values = result_of(self.reading.claims), result_of(self.reading.values)
        verified = claims.report.claims if claims else []
        self.flagged_steps = [claim for claim in verified if _is_step(claim) and claim.is_flagged]
        self.flags = {
            (claim.start, claim.end): claim for claim in verified if claim.is_flagged and not _is_step(claim)
        }
        of_claims = chain.from_iterable(claim.faults for claim in self.claims) if verified else ()
        found = {(one.start, one.end): one for one in (*of_claims, *(values.unsupported if values else ()))}
        self.values = [found[place] for place in sorted(found)]

        fields, sources = result_of(self.reading.fields), result_of(self.reading.sources)
        unverified = frozenset(fields.unverified if fields else ())
        self.fields = [one.span() for one in re.finditer(r"\w+", self.answer) if one[0] in unverified]
        phantoms = (sources.phantom_files if sources else ())[:_MOST]
        self.phantoms = {name: self.places_of_file(name) for name in phantoms}

    @cached_property
    def faults(self) -> list[AnswerFault]:
        """Faults in text order, then those of steps and of the list of sources."""
        values = [self.value_fault(value) for value in self.values]
        tags = [self.tag_fault(mark.start, mark.end, mark.missing) for mark in self.phantom_tags]
        claims = [
            self.claim_fault(flag, claim, where)
            for claim, where in zip(self.claims, self.rests, strict=True)
            if (flag := self.flags.get((claim.start, claim.end)))
            and not any(claim.start <= value.start < claim.end for value in values)
            and not (flag.flag_reason == "phantom_citation" and self.only_tag(claim))
        ]
        bare = [
            AnswerFault(start, end, False, "source_tags_missing", self.answer[start:end])  # noqa: FBT003
            for start, end in self.untagged[:_MOST]
        ]
        steps = [
            AnswerFault(
                *(-1, -1, claim.severity == "hard", claim.flag_reason or "", claim.claim_text),
                self.nearest(claim.claim_text, claim.evidence_ids),
            )
            for claim in self.flagged_steps
        ]
        fields: dict[str, AnswerFault] = {}
        for start, end in self.fields:
            name, claim = self.answer[start:end], self.claim_at(start)
            if name not in fields:
                place = self.nearest(claim.text, claim.evidence_ids) if claim else None
                fields[name] = AnswerFault(start, end, False, "unverified_field", name, place)  # noqa: FBT003
        files = [
            AnswerFault(
                *next(iter(places), (-1, -1)), hard=True, why=str(ReasonCode.PHANTOM_SOURCE), text=name
            )
            for name, places in self.phantoms.items()
        ]
        found = sorted(
            [*values, *tags, *claims, *bare, *fields.values(), *files], key=lambda fault: fault.start
        )
        return [*(one for one in found if one.start >= 0), *steps, *(one for one in found if one.start < 0)]

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

    def places_of_file(self, name: str) -> list[tuple[int, int]]:
        """Return where the answer names a file, letter for letter, and not as a part of another name."""
        if not name.strip():
            return []
        whole = rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])"
        return [one.span() for one in re.finditer(whole, self.answer)]

    def value_fault(self, value: UnsupportedValue) -> AnswerFault:
        claim = self.claim_at(value.start)
        said = claim.text if claim else self.answer[max(0, value.start - _EDGE) : value.end]
        where = self.nearest(said, claim.evidence_ids if claim else ())
        instead: list[str] = []
        if where and value.kind != "negation":
            # the values there that could stand for it: of its kind, and not said by the claim itself
            own = {written for _, written in _values(said)}
            found = [(kind, written) for kind, written in _values(self.text_at(where)) if written not in own]
            alike = [written for kind, written in found if kind == value.kind]
            instead = list(dict.fromkeys(alike or [written for _, written in found]))
        flag = self.flags.get((claim.start, claim.end)) if claim else None
        # the opposite of what the sources say, or of a statement that is wrong, is no mere doubt
        hard = value.hard or value.why == OPPOSITE
        hard = hard or (value.kind == "negation" and flag is not None and flag.severity == "hard")
        return AnswerFault(value.start, value.end, hard, value.why, value.text, where, tuple(instead))

    def tag_fault(self, start: int, end: int, missing: Sequence[int | str]) -> AnswerFault:
        number = next((one for one in missing if isinstance(one, int)), None)
        given = f"only {self.given} {'was' if self.given == 1 else 'were'} given"
        note = f"cites source {number}, but {given}" if number else f"cites {missing[0]}, which was not given"
        return AnswerFault(start, end, True, "phantom_citation", self.answer[start:end], note=note)  # noqa: FBT003

    def only_tag(self, claim: ClaimCheck) -> bool:
        """Say whether all that is wrong with a claim is its mark of citation, which is listed by itself."""
        tagged = any(claim.start <= mark.start < claim.end for mark in self.phantom_tags)
        return tagged and not (claim.invented or claim.misplaced or claim.force)

    def claim_fault(self, flag: ClaimVerification, claim: ClaimCheck, where: TextPlace | None) -> AnswerFault:
        """Return what is wrong with a claim; the names that its source gives instead of its own, as for values."""
        why, instead = flag.flag_reason or "", []
        if where:
            changes = word_diff(self.text_at(where), claim.text)
            instead = [
                old["text"].strip()
                for old, new in pairwise(changes)
                if (claim.invented or claim.misplaced)
                and (old["operation"], new["operation"]) == ("delete", "insert")
                and re.search(r"\b[A-Z]", new["text"])
                and len(old["text"]) <= _NAME
            ][:_TRUTHS]
        elif why == "partial_support":
            why = "unsupported"
        if claim.misplaced:
            why = "said_of_something_else"
        elif claim.force:
            why = "weaker_in_sources"
        elif claim.invented:
            why = "other_name" if instead else "unknown_name"
        hard = flag.severity == "hard"
        return AnswerFault(claim.start, claim.end, hard, why, claim.text, where, tuple(instead))

    def runs(self) -> list[dict[str, Any]] | None:
        """Return the answer in runs: of one claim each, or of none, in segments with their marks."""
        if self.response.answer is None:
            return None
        numbers = [
            TextMark(claim.start, claim.end, "claim", str(n)) for n, claim in enumerate(self.claims, start=1)
        ]
        cut = segments(self.answer, [*numbers, *self.marks()])
        runs: list[dict[str, Any]] = []
        begun: set[int | None] = set()
        for number, parts in groupby(
            cut, key=lambda part: next((int(mark.title) for mark in part.marks if mark.kind == "claim"), None)
        ):
            place = self.rests[number - 1] if number else None
            runs.append(
                {
                    "tag": "",
                    "claim": number,
                    "at": self.shown[place] if place else None,
                    "segments": [part.shown("claim") for part in parts],
                    "first": number not in begun,
                }
            )
            begun.add(number)
        return runs

    def blocks(self, runs: Sequence[View]) -> list[View] | None:
        """Return the runs between the tags of the answer's Markdown; None where it is shown as it is written."""
        try:
            from groundwire.console.markdown import blocks  # noqa: PLC0415 - the terminal may lack its packages
        except ModuleNotFoundError:
            return None
        found = blocks(self.answer, [(mark.start, mark.end) for mark in self.marks()])
        parts = [(run, part) for run in runs for part in run["segments"]]
        starts = [*accumulate((len(part["text"]) for _, part in parts), initial=0)]
        shown: list[View] = []
        begun: set[int | None] = set()
        for block in found or ():
            if block.tag is not None:
                shown.append({"tag": block.tag})
            for n in range(bisect_right(starts, block.start) - 1, bisect_left(starts, block.end)):
                run, part = parts[n]
                text = part["text"][max(0, block.start - starts[n]) : block.end - starts[n]]
                claim = run["claim"] if text.strip() else None  # a link has a text
                first = claim is not None and claim not in begun
                begun.add(claim)
                shown.append(run | {"claim": claim, "first": first, "segments": [part | {"text": text}]})
        return shown or None

    def instructs(self, start: int, end: int) -> bool:
        """Say whether a word tells the reader what to do: no source has to hold it."""
        before = self.answer[:start].rstrip()
        begins = (
            not before or before[-1] in ".:;,!?-*\n" or self.claim_at(start) is not self.claim_at(start - 1)
        )
        return begins and self.answer[start:end].lower() in _INSTRUCTING

    def marks(self) -> Iterator[TextMark]:
        for claim in self.claims:
            if flag := self.flags.get((claim.start, claim.end)):
                yield TextMark(claim.start, claim.end, flag.severity or "soft", label(flag.flag_reason))
            for word in claim.uncovered:
                if self.instructs(word.start, word.end):
                    continue
                yield TextMark(word.start, word.end, "uncovered", "not in the sources")
        for value in self.values:
            yield TextMark(value.start, value.end, "value" if value.hard else "soft", label(value.why))
        for start, end in self.fields:
            yield TextMark(start, end, "name", label("unverified_field"))
        for mark in self.phantom_tags:
            note = self.tag_fault(mark.start, mark.end, mark.missing).note
            yield TextMark(mark.start, mark.end, "hard", note)
        for start, end in self.untagged:
            yield TextMark(start, end, "soft", label("source_tags_missing"))
        for start, end in chain.from_iterable(self.phantoms.values()):
            yield TextMark(start, end, "hard", label(ReasonCode.PHANTOM_SOURCE))
        yield from hidden_marks(self.answer)

    def row(self, fault: AnswerFault) -> dict[str, Any]:
        where, claim = fault.where, self.claim_at(fault.start)
        return {
            "hard": fault.hard,
            "why": fault.why,
            "text": fault.text,
            "start": fault.start if fault.start >= 0 else None,
            "claim": self.claims.index(claim) + 1 if claim else None,
            "source": self.names[where.text] if where else None,
            "says": self.text_at(where) if where else None,
            "instead": list(fault.instead),
            "note": fault.note,
            "at": self.shown[where] if where else None,
        }

    def passages(self) -> list[dict[str, Any]]:
        """Return the sources, those on which something rests or breaks first, each in parts.

        Of a part `at` names a place, and `cut` counts the characters that are shown on demand.
        """
        chunks = {chunk.chunk_id: chunk for chunk in self.response.chunks or ()}
        rows = []
        for number, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            places = {self.shown[place]: place for place in self.shown if place.text == number}
            parts: list[tuple[str, str | None, int | None]] = []
            for one in segments(text, [TextMark(p.start, p.end, at, "") for at, p in places.items()]):
                if one.kinds or len(one.text) <= _LONG:
                    parts.append((one.text, one.kinds[0] if one.kinds else None, None))
                else:
                    middle = one.text[_EDGE:-_EDGE]
                    parts += [(one.text[:_EDGE], None, None), (middle, None, len(middle))]
                    parts.append((one.text[-_EDGE:], None, None))
            chunk = chunks.get(name)
            rows.append(
                {
                    "name": name,
                    "where": f"{chunk.file}, lines {chunk.start_line} to {chunk.end_line}" if chunk else None,
                    "characters": len(text),
                    "pointed": len(places),
                    "parts": [{"text": piece, "at": at, "cut": cut} for piece, at, cut in parts],
                }
            )
        return sorted(rows, key=lambda row: not row["pointed"])

    def quotes(self) -> dict[str, Any]:
        grounding, transcript = result_of(self.reading.quotes), self.response.transcript
        if grounding is None or transcript is None:
            return {"quotes": [], "quotes_found": None, "quotes_left": 0}
        evidence = validate_evidence_schema(self.response.evidence or {})
        kept = {(domain, quote) for domain, quotes in grounding.validated.items() for quote in quotes}
        rejected = [
            (d, quote) for d, quotes in evidence.items() for quote in quotes if (d, quote) not in kept
        ]
        places, rows = Places([transcript]), []
        for (domain, quote), one in zip(rejected[:_MOST], grounding.rejected, strict=False):
            place = places.nearest(quote)
            nearest = transcript[place.start : place.end] if place else None
            changes = [] if nearest is None else word_diff(nearest, quote)
            rows.append(
                {
                    "domain": domain,
                    "quote": quote,
                    "why": one.why,
                    "nearest": nearest,
                    "changes": changes,
                    "segments": [],
                }
            )
        found, left = grounding.stats.validated_count, max(0, len(rejected) - _MOST)
        negated = self.negated_quotes(grounding, places)
        return {"quotes": [*negated, *rows], "quotes_found": found, "quotes_left": left}

    def negated_quotes(self, grounding: QuoteGrounding, places: Places) -> list[dict[str, Any]]:
        """Return the quotes that stand behind a negation, each in its sentence with the negation marked."""
        transcript, rows = self.response.transcript or "", []
        for note in grounding.polarity[:_MOST]:
            quote = grounding.validated[note.domain][note.index]
            place = places.holding(0, transcript.find(quote)) or places.nearest(quote)
            said = transcript[place.start : place.end] if place else ""
            cut = [TextMark(*span, "hard", "negation") for span in negation_places(said)]
            cut += quote_marks(said, [quote.strip()])
            row = {"domain": note.domain, "quote": quote, "why": "quote_polarity", "nearest": said}
            rows.append({**row, "changes": [], "segments": marked_parts(said, cut)})
        return rows

    def cited(self) -> list[dict[str, Any]]:
        """Return the cited passages that are not where the answer says, each beside the nearest one of its file."""
        report, rows = result_of(self.reading.sources), []
        for source, (_, result) in zip(
            self.response.sources or (), report.results if report else (), strict=False
        ):
            if not result.exists or False not in (result.snippet_valid, result.lines_match):
                continue
            file = canonical_file(source.file)
            chunks = [one for one in self.response.chunks or () if canonical_file(one.file) == file]
            texts = [one.content for one in chunks]
            place = Places(texts).nearest(source.snippet) if source.snippet else None
            nearest = texts[place.text][place.start : place.end] if place else None
            ends = source.start_line or source.end_line, source.end_line or source.start_line
            rows.append(
                {
                    "file": source.file,
                    "snippet": source.snippet,
                    "lines": _lines(*ends),
                    "given": [_lines(one.start_line, one.end_line) for one in chunks[:_TRUTHS]],
                    "nearest": nearest,
                    "changes": word_diff(nearest, source.snippet or "") if nearest else [],
                }
            )
        return rows[:_MOST]

    def stale(self) -> list[dict[str, str]]:
        """Return the files that have changed since they were indexed, with both revisions."""
        report = result_of(self.reading.index)
        found = [warning.details or {} for warning in report.warnings] if report else []
        return [
            {"file": one["file"], "indexed": ", ".join(one["indexed"]), "current": one["current"]}
            for one in found[:_MOST]
        ]

    def entities(self) -> list[dict[str, Any]]:
        """Return what the answer names, each with what the corpus holds of it; what is missing comes first."""
        grounding, given = result_of(self.reading.entities), self.response.entities
        if grounding is None or given is None:
            return []
        index: Mapping[str, Any] = self.facts.entities or self.response.corpus_index or {}
        missing = {one.position: str(one.reason) for one in grounding.missing}
        rows = []
        for position, entity in enumerate(given):
            entry, holds = index.get(entity.id), None
            if entry is not None:
                role, confidence = part(entry, "role"), f"confidence {part(entry, 'confidence')}"
                holds = f"role {role}, {confidence}" if role else confidence
            why = missing.get(position)
            if entry is None and index:
                near = [
                    name for name, *_ in process.extract(entity.id, [*index], limit=_NEAR, score_cutoff=_LIKE)
                ]
                holds = f"nothing of it; nearest: {', '.join(near)}" if near else None
            rows.append(
                {"id": entity.id, "name": entity.name, "role": entity.role, "why": why, "holds": holds}
            )
        return sorted(rows, key=lambda row: row["why"] is None)[:_MOST]

    def relations(self) -> list[dict[str, Any]]:
        """Return the relations that the answer states, each with what is stated of the two; wrong ones come first."""
        result, given = result_of(self.reading.relations), self.response.claims
        if result is None or given is None:
            return []
        truths = self.facts.relations or self.response.relations
        stated: dict[frozenset[str], list[str]] = {}
        for truth in truths or ():
            pair = _pair(truth)
            for ends in dict.fromkeys((pair, *(frozenset((end,)) for end in pair))):
                stated.setdefault(ends, []).append(_relation(truth))
        wrong: dict[int, list[str]] = {}
        for violation in result.violations:
            wrong.setdefault(violation.index, []).append(str(violation.reason))
        rows = [
            {
                "says": _relation(claim),
                "why": wrong.get(n, []),
                "holds": next(
                    (held for ends in _ends(claim) if (held := stated.get(ends, [])[:_TRUTHS])), []
                ),  # of the two, else of one of them
            }
            for n, claim in enumerate(given)
        ]
        return sorted(rows, key=lambda row: not row["why"])[:_MOST]


def _is_step(claim: ClaimVerification) -> bool:
    return claim.claim_id.rpartition("/")[2].startswith("step#")


def _values(text: str) -> Iterator[tuple[str, str]]:
    for statement in read_statements(text):
        for one in statement.values:
            if not one.value.implied:
                yield one.value.kind, text[one.start : one.end]


def _pair(relation: object) -> frozenset[str]:
    return frozenset((comparable(part(relation, "subject")), comparable(part(relation, "object"))))


def _ends(relation: object) -> tuple[frozenset[str], ...]:
    ends = (frozenset((comparable(part(relation, name)),)) for name in ("subject", "object"))
    return (_pair(relation), *ends)


def _lines(start: int | None, end: int | None) -> str:
    return f"lines {start} to {end}" if start is not None else ""


def _relation(relation: object) -> str:
    said = " ".join(str(part(relation, name)) for name in ("subject", "relation", "object"))
    beside = [
        str(format_time(value) if isinstance(value, datetime) else f"{name} {value}")
        for name in ("version", "timestamp")
        if (value := part(relation, name)) is not None
    ]
    return f"{said} ({', '.join(beside)})" if beside else said


class Excerpts:
    """The beginnings of answers by decision id, kept in memory alone; None: it cannot be read back.

    A list waits `patience` seconds for what is not known yet; it shows the reason code of an answer that takes longer.
    """

    _KEPT: Final = 5_000
    _AT_ONCE: Final = 5  # records that are read at the same time: each over a connection of its own
    _AT_MOST: Final = 25  # records that one list asks for; the next look at it asks for more

    def __init__(self, read: RecordReader | None, patience: float = 1.0) -> None:
        self._read, self._patience = read, patience
        self._known: LRUCache[str, str | None] = LRUCache(self._KEPT)
        self._room = asyncio.Semaphore(self._AT_ONCE)

    def missing(self, rows: Sequence[Row]) -> list[Row]:
        asked = (row for row in rows if row.kind == Kind.RESPONSE and row.decision_id not in self._known)
        return list(asked)[: self._AT_MOST] if self._read else []

    async def fetch(self, decisions: Sequence[Mapping[str, Any]]) -> None:

        async def one(read: RecordReader, decision: Mapping[str, Any]) -> None:
            async with self._room:
                original = await read_original(read, decision)
            if original.state is not OriginalState.AWAY:
                answer = original.response.answer if original.response else None
                self._known[decision["decision_id"]] = in_one_line(answer) if answer else None

        tasks = [asyncio.create_task(one(self._read, decision)) for decision in decisions if self._read]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._patience)
            for task in late:
                task.cancel()

    def of(self, row: Row) -> str:
        return self._known.get(row.decision_id) or row.excerpt
