"""Print what the gate makes of what a model knows: `python -m bench.quality.oracle FILE [--errors 0 0.1 0.2]`.

The model is an oracle: it says of each statement that it is asked about what the labels say, .98 or .02, and of a share
of them the opposite. FILE holds answers with passages and the spans that these do not support, as RAGTruth has them, or
records with `expect`: `approve` or `hold`; of what is to be held, every statement is wrong. Held: of the answers that
are not supported, those that the whole gate does not approve. Kept: of the others, those that it approves.

`as scored`: support is the model's score; `calibrated`: head and threshold are chosen on other sources, five parts in
turn, so that of held and kept the smaller share is largest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from groundwire.epistemic.entailment import Entailed, EntailmentModel, Pair
from groundwire.gate.lookups import Assessor
from groundwire.gate.response_checks import evidence_of, plan_claims
from groundwire.library.calibrate import choose, fit_head
from groundwire.library.check import Checker, LineError
from groundwire.library.evaluate import Counted, Judged, Labelled, counted, folds, judge
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier

_NAME = "oracle@0000000000000000"
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # of supported answers that may be held


@dataclass(frozen=True)
class Answer:
    record: dict[str, Any]
    group: str
    supported: bool
    spans: tuple[tuple[int, int], ...] | None  # of what is wrong; None: all of it, where it is not supported


class Oracle(EntailmentModel):
    """Knows the labels of one answer; its errors are the same in every run."""

    def __init__(self, answer: Answer, errors: float) -> None:
        super().__init__(_NAME)
        response = LlmResponse.model_validate(answer.record)
        plan = plan_claims(response, evidence_of(response) or {}, Policy().verification)
        self._wrong = {claim.text for claim in plan.claims if _is_wrong(answer, claim.start, claim.end)}
        self._seed, self._errors = answer.record["response_id"], errors

    def run(self, pairs: Sequence[Pair]) -> list[Entailed]:
        found = []
        for _, claim in pairs:
            drawn = blake2b(f"{self._seed}\0{claim}".encode(), digest_size=4).digest()
            errs = int.from_bytes(drawn) < self._errors * 2**32
            found.append(Entailed(0.02 if (claim in self._wrong) != errs else 0.98))
        return found


def _is_wrong(answer: Answer, start: int, end: int) -> bool:
    if answer.spans is None:
        return not answer.supported
    return any(first < end and start < last for first, last in answer.spans)


def read_answers(path: Path) -> Iterator[Answer]:
    for number, line in enumerate(path.read_text("utf-8").splitlines()):
        row = json.loads(line)
        record = {"response_id": f"row-{number}", "user_id": "bench"}
        if "passages" in row:
            chunks = [
                {"chunk_id": str(n), "file": f"evidence/{n}", "content": text, "start_line": 1, "end_line": 1}
                for n, text in enumerate(row["passages"], start=1)
            ]
            record |= {"answer": row["answer"], "query": row["question"], "chunks": chunks}
            spans = tuple((span["start"], span["end"]) for span in row["spans"])
            yield Answer(record, row["source_id"], not row["hallucinated"], spans)
        elif row.get("set", "meaning") == "meaning" and "answer" in row["records"][-1]:
            record = row["records"][-1] | record
            yield Answer(record, str(number), row["expect"] == "approve", None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--errors", type=float, nargs="+", default=[0.0, 0.1, 0.2])
    args = parser.parse_args()
    answers = list(read_answers(args.file))
    print("| statements told wrongly | may clear, head | asked | held | kept |")
    print("|---|---|---|---|---|")
    rules = [Policy()] * len(answers)
    print(f"| rules alone | | 0 | {' | '.join(asyncio.run(_shares(answers, rules, None)))} |")
    for errors in args.errors:
        oracles = [Oracle(answer, errors) for answer in answers]
        policy = _policy(clears=True)
        rows = [
            judge(_labelled(answer), oracle, policy) for answer, oracle in zip(answers, oracles, strict=True)
        ]
        asked = sum(len(row.scored) for row in rows) / len(rows)
        chosen = {
            "no, as scored": [_policy(clears=False)] * len(rows),
            "yes, as scored": [policy] * len(rows),
            "yes, calibrated": list(_calibrated(rows, policy)),
        }
        for head, policies in chosen.items():
            shares = " | ".join(asyncio.run(_shares(answers, policies, oracles)))
            print(f"| {errors:.0%} | {head} | {asked:.1f} | {shares} |", flush=True)


def _policy(*, clears: bool, **keys: object) -> Policy:
    keys |= {"entailment_model": _NAME, "model_may_clear": clears}
    # what a model may clear, the check of values beside it may not hold
    return Policy.model_validate({"verification": keys, "check_values": not clears})


def _labelled(answer: Answer) -> Labelled:
    evidence = evidence_of(LlmResponse.model_validate(answer.record)) or {}
    text, query = answer.record["answer"], answer.record.get("query") or ""
    return Labelled(0, text, False, evidence, answer.supported, answer.group, query)  # noqa: FBT003 - a row


def _calibrated(rows: Sequence[Judged], policy: Policy) -> Iterator[Policy]:
    config, fold = policy.verification, folds(row.group for row in rows)
    chosen = {}
    for number in set(fold.values()):
        others = [row for row in rows if fold[row.group] != number]
        head = fit_head(others)
        weighed = [row.under(head) for row in others]
        thresholds = {choose(weighed, share, config) for share in _SHARES}
        best = max(thresholds, key=lambda one: _right(counted(weighed, one, config.operating_point)))
        chosen[number] = _policy(clears=True, entailment_head=head, support_threshold=best)
    for row in rows:
        yield chosen[fold[row.group]]


def _right(count: Counted) -> float:
    return min(1 - count.false_alarms / count.supported, 1 - count.missed / count.unsupported)


async def _shares(
    answers: Sequence[Answer], policies: Sequence[Policy], oracles: Sequence[Oracle] | None
) -> list[str]:
    verifier = CitationVerifier({}, network=False)
    right: dict[bool, list[bool]] = {False: [], True: []}
    for place, (answer, policy) in enumerate(zip(answers, policies, strict=True)):
        assessor = Assessor(oracles[place]) if oracles else None
        checker = Checker(policy, verifier, now=datetime(2026, 1, 1, tzinfo=UTC), assessor=assessor)
        async for result in checker.check([json.dumps(answer.record).encode()]):
            if isinstance(result, LineError):
                raise RuntimeError(f"{answer.record['response_id']}: {result.error.message}")  # noqa: TRY004 - the row's
            right[answer.supported].append(answer.supported == (result.verdict == "approved"))
    await verifier.close()
    return [f"{sum(of) / len(of):.2f}" for of in (right[False], right[True])]


if __name__ == "__main__":
    main()
