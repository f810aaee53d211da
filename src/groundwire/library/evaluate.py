"""Measures the verifier on labelled rows, beside plain baselines (S2-41, S4-64, S4-67).

A row has `claim` (one statement) or `answer` (a text that holds several), `evidence` and `label`, and may have `query`,
the question that was answered, and `group`: its source. An answer is judged as the gate judges a response with that
evidence as its context. Rows of one group are drawn and held out together, as they are not independent; without it,
rows with the same evidence are one group.

A score says how much of a row is *not* supported: higher is worse. A row is positive when it is unsupported. Each
figure takes weights (how often a row's source was drawn), so that one sort serves all draws of the bootstrap.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from math import prod
from typing import Any, Final, NamedTuple, TypeVar, get_args

from groundwire.epistemic.asking import assess
from groundwire.epistemic.claims import ScoredClaim
from groundwire.epistemic.entailment import EntailmentModel
from groundwire.epistemic.types import AS_SCORED, OperatingPoint, VerificationConfig, is_doubted, support_at
from groundwire.errors import ErrorCode, RecordError, UsageError, did_you_mean
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import NO_INPUTS, plan_claims, read_response, result_of
from groundwire.library.epistemic import run, verify_claim
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.decode import parse_json
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy

Row = TypeVar("Row")


class BadRow(NamedTuple):
    """A row that cannot be read: its line, counted from 1, and why."""

    line: int
    error: RecordError


def read_rows(data: bytes, read: Callable[[int, dict[str, Any]], Row]) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order, one JSON object a line; blank lines give none.

    `read` makes a row of a line's number and fields; it raises RecordError.
    """
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = parse_json(line.rstrip(b"\r"))
            if not isinstance(fields, dict):
                raise RecordError(ErrorCode.INVALID_RECORD, "a row must be a JSON object")  # noqa: TRY301 - a bad row, as below
            yield read(number, fields)
        except RecordError as error:
            yield BadRow(number, error)


def refuse_misspelt(given: Collection[str], known: Collection[str]) -> None:
    """See that no field is a misspelt one; unknown ones are the user's own. Raises: RecordError."""
    for name in given:
        if name not in known and (meant := did_you_mean(name, known)):
            raise bad_field(name[:40], "there is no such field" + meant)


def bad_field(field: str, message: str) -> RecordError:
    """Return the error of a row whose field is wrong."""
    return RecordError(ErrorCode.INVALID_RECORD, f"{field}: {message}", field)


LABELS: Final[Mapping[str, bool]] = {
    "supported": True,
    "true": True,
    "unsupported": False,
    "not_supported": False,
    "partially_supported": False,
    "partial_support": False,
    "contradicted": False,
    "over_extrapolation": False,
    "phantom_citation": False,
    "false": False,
}
"""What a label may be, and whether the evidence then supports all of the row."""


class Labelled(NamedTuple):
    """A labelled row: its line from 1, the claim or answer, and the evidence, id -> text.

    `declared`: it is a single claim, and all of it counts. `supported`: the label. `group`: the source that it comes
    from. `query`: the question that was answered.
    """

    line: int
    text: str
    declared: bool
    evidence: Mapping[str, str]
    supported: bool
    group: str
    query: str = ""


def read_labelled(data: bytes) -> Iterator[Labelled | BadRow]:
    """Yield the rows of a file in order; see `read_rows` for the arguments."""
    return read_rows(data, _row)


def _row(line: int, given: dict[str, Any]) -> Labelled:
    refuse_misspelt(given, ("claim", "answer", "evidence", "label", "group", "query"))
    if ("claim" in given) == ("answer" in given):
        raise bad_field("claim", "give either claim or answer")
    declared = "claim" in given
    name = "claim" if declared else "answer"
    if not isinstance(given[name], str) or not given[name].strip():
        raise bad_field(name, "must be a text that is not empty")
    evidence = _evidence(given.get("evidence"))
    group = given.get("group", "\n".join(sorted(evidence.values())))
    if not isinstance(group, str):
        raise bad_field("group", "must be a text")
    query = given.get("query") or ""
    if not isinstance(query, str):
        raise bad_field("query", "must be a text")
    label = given.get("label")
    if not isinstance(label, bool):
        if not isinstance(label, str) or label.strip().lower() not in LABELS:
            raise bad_field("label", f"must be true, false, or one of {', '.join(LABELS)}")
        label = LABELS[label.strip().lower()]
    return Labelled(line, given[name], declared, evidence, label, group, query)


def _evidence(given: object) -> dict[str, str]:
    texts: dict[str, Any]
    match given:
        case str():
            texts = {"1": given}
        case list():
            texts = {str(number): text for number, text in enumerate(given, start=1)}
        case dict():
            texts = given
        case _:
            raise bad_field("evidence", "must be a text, a list of texts, or an object of ids and texts")
    for name, text in texts.items():
        if not isinstance(text, str):
            raise bad_field(f"evidence.{name[:40]}", "must be a text")
    return texts


DRAWS: Final = 1000
FALSE_ALARMS: Final = 0.05
_Z: Final = 1.959964  # of the normal distribution: 95 % lie within so many deviations


class Estimate(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


class Scored(NamedTuple):
    """A row as it is measured: `score` is higher where less is supported; `positive`: the label is unsupported."""

    score: float
    positive: bool
    group: str


Figure = Callable[[Sequence[Scored], Sequence[int]], float]


def auroc(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return how often an unsupported row scores above a supported one, ties half; rows sorted by score."""
    below = wins = positives = 0.0
    for _, tied in groupby(zip(rows, weights, strict=True), key=lambda weighted: weighted[0].score):
        here = [0, 0]
        for row, weight in tied:
            here[row.positive] += weight
        wins += here[1] * (below + here[0] / 2)
        below += here[0]
        positives += here[1]
    return wins / (positives * below) if positives and below else float("nan")


def recall_at(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return the share of unsupported rows found where at most 5 % of the supported ones are; sorted by score."""
    flagged, best = [0, 0], 0
    total = [0, 0]
    for row, weight in zip(rows, weights, strict=True):
        total[row.positive] += weight
    for _, tied in groupby(
        zip(reversed(rows), reversed(weights), strict=True), key=lambda weighted: weighted[0].score
    ):
        for row, weight in tied:
            flagged[row.positive] += weight
        if flagged[0] > FALSE_ALARMS * total[0]:
            break
        best = flagged[1]
    return best / total[1] if total[1] else float("nan")


FIGURES: Final[Mapping[str, Figure]] = {
    "auroc": auroc,
    "recall_at_5_percent": recall_at,
}
"""Figures by name: how well scores rank rows."""

HEADINGS: Final[Mapping[str, str]] = {
    "auroc": "AUROC",
    "recall_at_5_percent": "recall at 5 %",
}
"""Their column headings."""


def estimates(rows: Sequence[Scored], *, draws: int = DRAWS, seed: int = 7) -> dict[str, Estimate]:
    """Return each figure with its 95 % bootstrap interval; whole sources are drawn, never rows alone."""
    ordered = sorted(rows)
    drawn: dict[str, list[float]] = {name: [] for name in FIGURES}
    for weights in _draws([row.group for row in ordered], draws, seed):
        for name, figure in FIGURES.items():
            drawn[name].append(figure(ordered, weights))
    found: dict[str, Estimate] = {}
    for name, figure in FIGURES.items():
        known = sorted(value for value in drawn[name] if value == value)  # noqa: PLR0124 - NaN: a draw of one class alone
        ends = [known[int(share * (len(known) - 1))] for share in (0.025, 0.975)] if known else [0.0, 1.0]
        found[name] = Estimate(figure(ordered, [1] * len(ordered)), *ends)
    return found


def wilson(found: int, total: int) -> Estimate:
    """Return a share with its 95 % Wilson interval; 0..1 where `total` is 0."""
    if not total:
        return Estimate(float("nan"), 0.0, 1.0)
    share = found / total
    centre = share + _Z * _Z / (2 * total)
    reach = _Z * ((share * (1 - share) + _Z * _Z / (4 * total)) / total) ** 0.5
    scale = 1 + _Z * _Z / total
    return Estimate(share, max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale))


def _draws(groups: Sequence[str], draws: int, seed: int) -> Iterator[list[int]]:
    """Yield, for each draw of as many groups as there are, how often each row's group was drawn."""
    number = {group: place for place, group in enumerate(sorted(set(groups)))}
    places = [number[group] for group in groups]
    rng = random.Random(seed)  # noqa: S311 - a sample that anyone can draw again
    for _ in range(draws):
        counts = [0] * len(number)
        for place in rng.choices(range(len(number)), k=len(number)):
            counts[place] += 1
        yield [counts[place] for place in places]


FOLDS: Final = 5
"""Parts of the sources that are held out in turn where a threshold has to be chosen."""

VERIFIER: Final = "verifier"
WHOLE: Final = "verifier, whole answer"


class Judged(NamedTuple):
    """A labelled row and its support, 0..1: of its weakest claim, and of the text as a `whole`.

    `hard`: something in it flags it at every operating point.
    `scored`: the claims that an entailment model scored; support is then of the others, until `under` a head.
    """

    support: float
    whole: float
    length: int
    declared: bool
    supported: bool
    group: str
    hard: bool = False
    scored: tuple[ScoredClaim, ...] = ()

    def under(self, head: Sequence[float]) -> Judged:
        """Return the row with the support that a head makes of the scores."""
        if not self.scored:
            return self
        supports = [claim.support(head) for claim in self.scored]
        support = min(self.support, *supports)
        whole = support if self.declared else self.whole * prod(supports)
        return self._replace(support=support, whole=whole, scored=())

    def flagged_at(self, point: OperatingPoint, threshold: float) -> bool:
        """Return whether it is flagged at an operating point."""
        return self.hard or is_doubted(self.support, self.whole, point, threshold)

    def support_at(self, point: OperatingPoint) -> float:
        """Return the support that an operating point holds against the threshold."""
        return support_at(point, self.support, self.whole)


class Counted(NamedTuple):
    """Verdicts at a threshold: rows flagged of those that are supported, and passed of those that are not."""

    false_alarms: int
    supported: int
    missed: int
    unsupported: int

    @property
    def false_alarm_share(self) -> Estimate:
        """Supported rows that are flagged, with a Wilson interval."""
        return wilson(self.false_alarms, self.supported)

    @property
    def missed_share(self) -> Estimate:
        """Unsupported rows that are not flagged, with a Wilson interval."""
        return wilson(self.missed, self.unsupported)


_NO_FACTS: Final = Facts(clock=datetime.min.replace(tzinfo=UTC))
_UNDOUBTED: Final = Policy(verification=VerificationConfig(support_threshold=0.0))
"""Under it no doubt flags anything: what is held all the same is held at every threshold and operating point."""
_CERTAIN: Final = (100.0, 0.0, 0.0, 0.0)
"""A head under which a model's scores take no support away."""


def judge(row: Labelled, model: EntailmentModel | None = None, policy: Policy = _UNDOUBTED) -> Judged:
    """Verify a row, an answer as the gate does; one that it approves and that claims nothing has 1.0.

    By the rules, or with a model, by what the policy lets it do.
    """
    if model is not None:
        config = policy.verification.model_copy(
            update={"support_threshold": 0.0, "entailment_model": model.name, "entailment_head": _CERTAIN}
        )
        policy = policy.model_copy(update={"verification": config})
    found = _judge_claim if row.declared else _judge_answer
    return found(row, model, policy if model is not None else _UNDOUBTED)


def _judge_claim(row: Labelled, model: EntailmentModel | None, policy: Policy) -> Judged:
    evidence, scored = list(row.evidence.values()), []
    claim = rules = verify_claim(row.text, evidence, config=_UNDOUBTED.verification)
    if model is not None:
        claim = verify_claim(row.text, evidence, client=model, config=policy.verification)
        clearing = {"entailment_head": AS_SCORED, "model_may_clear": True}
        config = policy.verification.model_copy(update=clearing)
        said = verify_claim(row.text, evidence, client=model, config=config)
        if said.method == "model":
            scored = [ScoredClaim(said.evidence_support, rules.evidence_support, rules.is_flagged)]
    support, size, hard = claim.evidence_support, len(row.text), claim.is_flagged
    return Judged(support, support, size, row.declared, row.supported, row.group, hard, (*scored,))


def _judge_answer(row: Labelled, model: EntailmentModel | None, policy: Policy) -> Judged:
    response = LlmResponse.model_construct(
        response_id="row", user_id="row", answer=row.text, context=dict(row.evidence), query=row.query
    )
    inputs, scored = NO_INPUTS, list[ScoredClaim]()
    if model is not None:
        plan = plan_claims(response, row.evidence, policy.verification, ask=True)
        facts = run(assess(plan, model, policy.verification))
        if facts is not None:
            inputs = NO_INPUTS._replace(verifier=facts.model_dump(mode="json"))
            scores = {one.claim_id: one.support for one in facts.opinions if one.support is not None}
            scored = [
                ScoredClaim(scores[claim.claim_id], claim.support, claim.hard)
                for claim in plan.claims
                if claim.claim_id in scores
            ]
    reading = read_response(response, policy, inputs)
    judged = ResponseCase(response, reading, policy, _NO_FACTS).before_queue()
    checked, hard = result_of(reading.claims), judged.code != ReasonCode.GROUNDED
    claims = checked.report.claims if checked else []
    # what was not looked at is supported by nothing
    unseen = checked is None or checked.report.unverified_claims
    support = 0.0 if unseen else min((claim.evidence_support for claim in claims), default=1.0)
    whole = checked.report.answer_support if checked else 0.0
    return Judged(support, whole, len(row.text), row.declared, row.supported, row.group, hard, (*scored,))


def figures(rows: Sequence[Judged], *, draws: int = DRAWS) -> dict[str, dict[str, Estimate]]:
    """Return method -> figure -> estimate, the baseline first; both labels must occur."""
    # higher where less is supported
    scores: dict[str, Callable[[Judged], float]] = {
        "length": lambda row: float(row.length),
        VERIFIER: lambda row: 1 - row.support,
        WHOLE: lambda row: 1 - row.whole,
    }
    if all(row.declared for row in rows):  # a claim is a whole
        del scores[WHOLE]
    return {
        method: estimates([Scored(score(row), not row.supported, row.group) for row in rows], draws=draws)
        for method, score in scores.items()
    }


def counted(rows: Sequence[Judged], threshold: float, point: OperatingPoint) -> Counted:
    """Count the verdicts at a threshold of support and an operating point."""
    good = [row.flagged_at(point, threshold) for row in rows if row.supported]
    bad = [row.flagged_at(point, threshold) for row in rows if not row.supported]
    return Counted(sum(good), len(good), len(bad) - sum(bad), len(bad))


def verdicts_by_point(rows: Sequence[Judged], threshold: float) -> dict[OperatingPoint, Counted]:
    """Count the verdicts at each operating point, by one threshold."""
    return {point: counted(rows, threshold, point) for point in get_args(OperatingPoint)}


def folds(groups: Iterable[str]) -> dict[str, int]:
    """Return group -> the part that it is held out with, whatever the order of the groups."""
    ordered = sorted(set(groups), key=lambda group: blake2b(group.encode("utf-8", "surrogatepass")).digest())
    return {group: place % FOLDS for place, group in enumerate(ordered)}


class Measured(NamedTuple):
    """Figures of labelled rows; nothing but `bad_rows` counts those that could not be read.

    `point` is the operating point in force, `points` the verdicts at each.
    """

    rows: int
    bad_rows: int
    sources: int
    support_threshold: float
    point: OperatingPoint
    points: Mapping[OperatingPoint, Counted]
    methods: Mapping[str, Mapping[str, Estimate]]

    @property
    def counted(self) -> Counted:
        """The verdicts as the gate gives them."""
        return self.points[self.point]


def measure(
    rows: Sequence[Judged], config: VerificationConfig, *, bad: int = 0, draws: int = DRAWS
) -> Measured:
    """Measure rows at the threshold in force; `bad` of the file could not be read.

    Raises:
        UsageError: only one of the two labels occurs: nothing can be told apart.
    """
    points = verdicts_by_point(rows, config.support_threshold)
    count = points[config.operating_point]
    if not (count.supported and count.unsupported):
        raise UsageError(
            f"{count.supported} supported and {count.unsupported} unsupported rows: both are needed to measure"
        )
    sources = len({row.group for row in rows})
    methods = figures(rows, draws=draws)
    return Measured(
        len(rows), bad, sources, config.support_threshold, config.operating_point, points, methods
    )
