"""Print how many claims a model is asked about, and what that changes: `python -m bench.quality.scope FILE`.

FILE holds answers with passages and the spans that these do not support, as RAGTruth has them. The model is a stub that
answers by the labels: what a model could do that is never wrong. One that errs does less.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from groundwire.checks.support.score import ClaimCheck, SupportVerdict
from groundwire.epistemic.claims import ModelOpinion, claims_to_ask
from groundwire.epistemic.plan import Plan, VerifierFacts, plan_response, report_of
from groundwire.epistemic.types import VerificationConfig

_RULES = VerificationConfig(mode="full", max_claims_per_response=100)
_HEAD = (
    "| operating point | `model_scope` | may clear | claims asked | over-review | leak |",
    "|---|---|---|---|---|---|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    rows = [json.loads(line) for line in parser.parse_args().file.read_text("utf-8").splitlines()]
    plans = [_plan(row) for row in rows]
    print("\n".join(_HEAD))
    for point in ("strict", "balanced", "lenient"):
        for scope, clears in (
            ("", False),
            *((scope, flag) for scope in ("doubtful", "all") for flag in (False, True)),
        ):
            chosen = {
                "operating_point": point,
                "model_may_clear": clears,
                **({"model_scope": scope} if scope else {}),
            }
            cells = _cells(rows, plans, _RULES.model_copy(update=chosen), ask=bool(scope))
            print(
                f"| `{point}` | {scope or 'no model'} | {'yes' if clears else 'no'} | {' | '.join(cells)} |"
            )


def _plan(row: dict[str, Any]) -> Plan:
    passages = {str(number): text for number, text in enumerate(row["passages"], start=1)}
    return plan_response(row["answer"], passages, _RULES, ask=False, question=row["question"])


def _cells(
    rows: Sequence[dict[str, Any]], plans: Sequence[Plan], config: VerificationConfig, *, ask: bool
) -> Iterator[str]:
    asked, seen = 0, Counter[tuple[bool, bool]]()
    for row, plan in zip(rows, plans, strict=True):
        due = claims_to_ask(plan.claims, config)[0] if ask else []
        asked += len(due)
        facts = VerifierFacts(model="labels", opinions=[_opinion(claim, row["spans"]) for claim in due])
        seen[row["hallucinated"], report_of(plan, facts if due else None, config).is_flagged] += 1
    yield f"{asked / sum(len(plan.claims) for plan in plans):.0%}"
    yield f"{seen[False, True] / (seen[False, True] + seen[False, False]):.1%}"
    yield f"{seen[True, False] / (seen[True, True] + seen[True, False]):.1%}"


def _opinion(claim: ClaimCheck, spans: Sequence[dict[str, Any]]) -> ModelOpinion:
    wrong = any(span["start"] < claim.end and claim.start < span["end"] for span in spans)
    support, verdict = (0.02, SupportVerdict.UNSUPPORTED) if wrong else (0.98, SupportVerdict.SUPPORTED)
    return ModelOpinion(claim_id=claim.claim_id, support=support, verdict=verdict)


if __name__ == "__main__":
    main()
