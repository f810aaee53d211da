"""The whole gate on cases of several records: by set and class, how many to hold and to pass it judged right.

A case is a JSON line `{set, class, records, expect}`: its records are sent in order, the last one is judged. Rules are
developed on one half of the cases, which a hash chooses; of the other half only totals are printed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from groundwire.library.check import Checker
from groundwire.library.evaluate import BadRow
from groundwire.library.verdicts import EXPECTED, LabelledOutcome, LabelledRecord, judge_records
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier, Sources

_WANTED: Final = {**EXPECTED, "not_blocked": frozenset(LabelledOutcome) - {LabelledOutcome.BLOCKED}}


class Case(NamedTuple):
    group: str  # the set
    kind: str
    expect: str
    outcome: LabelledOutcome
    said: str  # the texts, in one line
    reason: str
    kept: bool  # of the half that no rule was written with in view

    @property
    def passes(self) -> bool:
        """Whether it is to be approved: the others are to be held."""
        return LabelledOutcome.APPROVED in _WANTED[self.expect]

    @property
    def right(self) -> bool:
        return self.outcome in _WANTED[self.expect]


def read_cases(path: Path, adr_dir: Path | None) -> list[Case]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return asyncio.run(_judged(rows, adr_dir))


async def _judged(rows: Sequence[dict[str, object]], adr_dir: Path | None) -> list[Case]:
    verifier = CitationVerifier({"*": Sources(adr_dir=adr_dir)}, network=False)
    checker = Checker(Policy(), verifier, now=datetime(2026, 1, 1, tzinfo=UTC))
    sent = [_sent(number, row) for number, row in enumerate(rows, 1)]
    cases = []
    async for one in judge_records(sent, checker):
        if isinstance(one, BadRow):
            raise SystemExit(f"line {one.line}: {one.error.message}")
        row = rows[one.row.line - 1]
        kept = bool(blake2b(one.row.text.encode(), digest_size=4).digest()[0] % 2)
        group, kind, expect = (str(row[name]) for name in ("set", "class", "expect"))
        cases.append(Case(group, kind, expect, one.outcome, one.row.text, one.reason, kept))
    await verifier.close()
    return cases


def _sent(number: int, row: dict[str, object]) -> LabelledRecord:
    """Return a case as a labelled row; its user is its own, whoever it names."""
    records = row["records"]
    if not isinstance(records, list):
        raise SystemExit(f"line {number}: records must be a list")
    values = []
    for place, record in enumerate(records, 1):
        name = "claim_id" if "content" in record else "response_id"
        values.append(json.dumps(record | {"user_id": f"case {number}", name: f"{number}.{place}"}).encode())
    text = " / ".join(str(record.get("content", record.get("answer"))) for record in records)
    return LabelledRecord(number, str(row["class"]), "approve", text, tuple(values))


def case_table(cases: Sequence[Case], *, wrong: bool = False) -> Iterator[str]:
    """Yield a line for each set, half and class; with `wrong`, what was judged wrongly in the half to develop on."""
    yield "| set | class | half | wrong held | right kept | conflicts found | false conflicts |"
    yield f"|{'---|' * 7}"
    halves: defaultdict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        half = "kept" if case.kept else "open"
        halves[case.group, "all", half].append(case)
        if not case.kept:
            halves[case.group, case.kind, half].append(case)
    for (group, kind, half), members in sorted(
        halves.items(), key=lambda item: (item[0][0], item[0][1] != "all")
    ):
        yield f"| {group} | {kind} | {half} | {' | '.join(_figures(members))} |"
        if wrong and kind != "all":
            yield from (
                f"  {one.expect} {one.outcome} {one.reason}: {one.said}" for one in members if not one.right
            )


def _figures(cases: Sequence[Case]) -> Iterator[str]:
    conflicts = Counter(case.right for case in cases if case.expect == "conflict")
    others = Counter(
        case.outcome is LabelledOutcome.CONFLICT for case in cases if case.expect == "no_conflict"
    )
    for passes in (False, True):
        yield _share(Counter(case.right for case in cases if case.passes is passes))
    yield _share(conflicts)
    yield _share(others)


def _share(of: Counter[bool]) -> str:
    return f"{of[True]} of {of.total()}" if of else "-"
