"""How a model's reply is read: strictly. What does not parse is no pass (S4-16, S4-17)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import exp
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groundwire.checks.epistemic.score import Verdict
from groundwire.epistemic.model import Answer, Token
from groundwire.epistemic.prompts import PRIOR_VERDICTS, SUPPORT_VERDICTS, Kind, clean

_LONGEST: Final = 10_000  # characters of a reply that anyone reads
_REASON: Final = 300
_HALF: Final = 0.5

_SCORE: Final = re.compile(
    r"\s*(?:score\s*|support\s*)?(?:[:=]\s*)?(0(?:\.[0-9]{1,17})?|1(?:\.0{1,17})?)(?=\.?(?:\s|$)|[,;:](?:\s|$))",
    re.IGNORECASE,
)
_SCALED: Final = re.compile(
    r" ?[,;:]? ?(?:[-+~\u2010-\u2015/\u2044*x\u00d7]? ?\d|[/\u2044%\u2030\u066a\uff05]|"
    r"(?:out|of|in|per|percent|to|or|and)\b)",
    re.IGNORECASE,
)  # behind a number: "1 out of 10", "1 %", "0.2 to 0.9", "0.9, 0.1" say something else than it
_COUNTS: Final = re.compile(
    r" (?!(?:because|since|as|fully|completely|entirely|stated|supported|unsupported|contradicted|not?|yes|"
    r"the|it|this|that|evidence)\b)\w",
    re.IGNORECASE,
)  # behind a number without decimals: "1 part of the claim"
_LISTED: Final = re.compile(r"\s*1\.\s")  # "1. The evidence ...": an item of a list, no score
_FENCED: Final = re.compile(r"\s*```(?:json)?[^\S\n]*\n(.*)\n[^\S\n]*```\s*", re.DOTALL)
_VERDICT: Final = re.compile(r'"verdict"\s*:\s*"')


class Judgement(NamedTuple):
    """What a reply says.

    Attributes:
        support: probability that the claim holds: measured where there are log-probabilities, else as stated.
        verdict: how, where the reply says so and was asked with the evidence.
        reason: in the model's words, at most 300 characters.
    """

    support: float
    verdict: Verdict | None = None
    reason: str = ""


class _Support(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    verdict: Literal["supported", "partial_support", "over_extrapolation", "unsupported", "contradicted"]
    probability: Annotated[float, Field(ge=0, le=1)]
    reason: str = ""


class _Prior(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    verdict: Literal["true", "false"]
    probability: Annotated[float, Field(ge=0, le=1)]
    reason: str = ""


def read_reply(kind: Kind, answer: Answer) -> Judgement | None:
    """Return what a reply says, or None where it does not parse (S4-17).

    It is one JSON object with nothing around it (a code fence will do), with the keys that were asked for, each once;
    or it begins with a number from 0 to 1. A verdict other than "supported" never gives more than 0.5, whichever way
    the model meant its probability.
    """
    if len(answer.text) > _LONGEST:
        return None
    if (score := parse_score(answer.text)) is not None:
        found = cast("re.Match[str]", _SCORE.match(answer.text))
        return Judgement(score, None, _short(answer.text[found.end() :].lstrip(" \t\n,;:.")))
    said = _object(kind, answer.text)
    if said is None:
        return None
    words = SUPPORT_VERDICTS if kind == "support" else PRIOR_VERDICTS
    verdict = Verdict(said.verdict) if kind == "support" else None
    return Judgement(_support(said, words, answer), verdict, _short(said.reason))


def parse_score(reply: object) -> float | None:
    """Return the number with which a reply begins, or None where it begins with none (S4-16).

    A number on another scale, one of several, or one that counts something is none.

    Example:
        >>> parse_score("0.85 because it is stated"), parse_score("85%"), parse_score("1 out of 10")
        (0.85, None, None)
    """
    if not isinstance(reply, str) or _LISTED.match(reply):
        return None
    found = _SCORE.match(reply)
    if found is None:
        return None
    line = reply[found.end() :].partition("\n")[0]
    behind = " " * line[:1].isspace() + " ".join(line.split())
    counts = "." not in found[1] and _COUNTS.match(behind)
    return None if counts or _SCALED.match(behind) else float(found[1])


def together(judgements: Sequence[Judgement]) -> Judgement:
    """Return what several answers to the same question agree on: the mean, and the verdict most of them give.

    Of verdicts given as often, the worse one.
    """
    verdicts = [one.verdict for one in judgements if one.verdict is not None]
    order = [Verdict(name) for name in SUPPORT_VERDICTS]
    verdict = max(verdicts, key=lambda one: (verdicts.count(one), order.index(one)), default=None)
    reason = next((one.reason for one in judgements if one.verdict is verdict), "")
    return Judgement(sum(one.support for one in judgements) / len(judgements), verdict, reason)


def _support(said: _Support | _Prior, words: Sequence[str], answer: Answer) -> float:
    measured = _measured(answer, words)
    if said.verdict != words[0]:
        sure = said.probability if measured is None else measured
        return min(sure, 1 - sure)
    return said.probability if measured is None or said.probability < _HALF else measured


def _object(kind: Kind, text: str) -> _Support | _Prior | None:
    fenced = _FENCED.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text, object_pairs_hook=_once, parse_constant=_refuse)
        return (_Support if kind == "support" else _Prior).model_validate(found)
    except (ValueError, ValidationError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _short(reason: str) -> str:
    return clean(reason)[:_REASON].strip()


def _measured(answer: Answer, words: Sequence[str]) -> float | None:
    """Return the probability that the model gave to the first of the verdicts at the place where its own begins."""
    found = _VERDICT.search(answer.text)
    if not found or "".join(token.text for token in answer.tokens) != answer.text:
        return None
    end = 0
    for token in answer.tokens:
        start, end = end, end + len(token.text)
        if end > found.end():
            return _share(token, token.text[: found.end() - start], words)
    return None


def _share(token: Token, before: str, words: Sequence[str]) -> float | None:
    masses = dict.fromkeys(words, 0.0)
    for text, logprob in {**token.others, token.text: token.logprob}.items():
        begun = text[len(before) :]
        fitting = [word for word in words if word.startswith(begun) or begun.startswith(word)]
        if text.startswith(before) and begun and len(fitting) == 1:
            masses[fitting[0]] += exp(min(logprob, 0.0))
    total = sum(masses.values())
    return min(1.0, masses[words[0]] / total) if total > _HALF else None
