"""The deterministic verifier: each claim of an answer held against the evidence, without a model or a network.

What it cannot do: it knows words, not meaning. A paraphrase in other words looks unsupported, and a sentence that
uses the evidence's words to say something else may look supported where neither numbers, names, negations nor the
distance of the words give it away. A word put for another flags a quotation; in a long sentence written freely it is
shown as not covered, yet flags nothing: a synonym looks the same. A summary written freely is flagged about as often
where it is right as where it is wrong. `bench/quality` says how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from groundwire.checks.epistemic.align import Alignment, align
from groundwire.checks.epistemic.atoms import Atom, atoms
from groundwire.checks.epistemic.conflicts import conflicts
from groundwire.checks.epistemic.evidence import Evidence
from groundwire.checks.epistemic.score import Score, Verdict, score, support_of
from groundwire.checks.values import UnsupportedValue
from groundwire.checks.values_statements import Read, read_statements

JUDGED: Final = 1_000
"""Claims of an answer that are looked at; the others are counted, and supported by nothing."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A word or value of the answer that the evidence does not hold; `text` is `answer[start:end]`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What the evidence makes of one claim.

    Attributes:
        text: the claim as written: `answer[start:end]`.
        start: position in the answer, in characters.
        end: the same, behind its last character.
        support: 0..1.
        cost: what its parts cost that the evidence does not give; 0 is full support.
        verdict: supported, or in which way it is not.
        evidence_ids: the passages that bind its words, the best one first.
        held: share of the claim that stands in the evidence, 0..1, together or not.
        uncovered: what the evidence does not hold, in text order.
        faults: values and negations that it holds otherwise.
    """

    text: str
    start: int
    end: int
    support: float
    cost: float
    verdict: Verdict
    evidence_ids: tuple[str, ...]
    held: float
    uncovered: tuple[Uncovered, ...]
    faults: tuple[UnsupportedValue, ...]


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """What the evidence makes of an answer.

    Attributes:
        claims: its claims in text order, at most `JUDGED`.
        left_out: claims beyond that.
        support: of the answer as a whole, 0..1: doubts about its claims add up. 1.0 where it claims nothing.
    """

    claims: tuple[ClaimCheck, ...]
    left_out: int
    support: float


def check_answer(
    answer: str,
    evidence: Mapping[str, str] | Sequence[str],
    *,
    declared: bool = False,
    read: Read = read_statements,
) -> AnswerCheck:
    """Hold each claim of an answer against evidence (S4-05, S4-06).

    Work and memory are in proportion to the length of both; the order of passages makes no difference.

    Args:
        answer: what a model wrote, Markdown included. It is data: nothing in it is obeyed.
        evidence: id -> text, or texts, which are numbered from 1.
        declared: the text was given as a claim: whatever says anything in it is one, courtesy and lead-ins too.
        read: reads a text's statements; one that remembers serves several answers held against the same evidence.
    """
    said = read(answer)
    index = Evidence(evidence, said, read)
    faults = conflicts(answer, said, index)
    claims: list[ClaimCheck] = []
    left_out = 0
    for atom in atoms(answer, said, declared=declared):
        if len(claims) >= JUDGED:
            left_out += 1
            continue
        claims.append(_check(answer, atom, index, faults[id(atom.statement)]))
    doubt = sum(claim.cost**2 for claim in claims) ** 0.5
    return AnswerCheck(tuple(claims), left_out, 0.0 if left_out else support_of(doubt))


def _check(answer: str, atom: Atom, index: Evidence, faults: Iterable[UnsupportedValue]) -> ClaimCheck:
    alignment = align(atom, index)
    own = tuple(fault for fault in faults if fault.start < atom.end and atom.start < fault.end)
    if index.values.says(atom.statement):
        result = Score(1.0, 0.0, Verdict.SUPPORTED, (), 1.0)
    else:
        result = score(atom, alignment, index, own)
    return _claim(answer, atom, alignment, result, own)


def _claim(
    answer: str, atom: Atom, alignment: Alignment, result: Score, faults: tuple[UnsupportedValue, ...]
) -> ClaimCheck:
    spans = dict.fromkeys(
        atom.statement.span(atom.units[place].start, atom.units[place].end) for place in result.missing
    )
    return ClaimCheck(
        answer[atom.start : atom.end],
        atom.start,
        atom.end,
        result.support,
        result.cost,
        result.verdict,
        alignment.passages,
        result.held,
        tuple(Uncovered(answer[start:end], start, end) for start, end in spans),
        faults,
    )
