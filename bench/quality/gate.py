"""The whole gate on labelled answers: how many that are not supported it approves, and how many that are it does not.

Each answer is a response with its evidence as chunks, decided as `groundwire check` decides it: no service, no
network, no model, the policy's defaults. Nothing is chosen on any row.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from bench.quality.data import Row
from groundwire.library.check import Checker, LineError
from groundwire.library.evaluate import wilson
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier

HEAD = ("| set | kind | answers | leak | over-block | review |", "|---|---|---|---|---|---|")


def gate_table(sets: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield the lines of the table: a set, then its unsupported answers by kind of error."""
    yield from HEAD
    for name, rows in sets.items():
        verdicts = asyncio.run(decide(rows))
        yield _line(name, "all", rows, verdicts)
        for kind in sorted({row.kind for row in rows if row.kind and not row.supported}):
            chosen = [place for place, row in enumerate(rows) if row.kind == kind and not row.supported]
            yield _line("", kind, [rows[place] for place in chosen], [verdicts[place] for place in chosen])


async def decide(rows: Sequence[Row], policy: Policy | None = None) -> list[str]:
    """Return the gate's verdict on each row, by default under the default policy.

    Raises:
        RuntimeError: a row could not be decided: what was not measured is no figure.
    """
    verifier = CitationVerifier({}, network=False)
    checker = Checker(policy or Policy(), verifier, now=datetime(2026, 1, 1, tzinfo=UTC))
    lines = [response(row, f"row-{number}") for number, row in enumerate(rows)]
    verdicts = []
    async for result in checker.check(lines):
        if isinstance(result, LineError):
            raise RuntimeError(f"row {result.line}: {result.error.message}")  # noqa: TRY004 - the row's fault
        verdicts.append(str(result.verdict))
    await verifier.close()
    return verdicts


def response(row: Row, name: str) -> bytes:
    chunks = [
        {
            "chunk_id": str(number),
            "file": f"evidence/{number}",
            "content": text,
            "start_line": 1,
            "end_line": text.count("\n") + 1,
        }
        for number, text in enumerate(row.evidence, start=1)
    ]
    record = {"response_id": name, "user_id": "bench", "answer": row.answer, "chunks": chunks}
    return json.dumps(record | ({"query": row.question} if row.question else {})).encode()


def _line(name: str, kind: str, rows: Sequence[Row], verdicts: Sequence[str]) -> str:
    counts = Counter(zip((row.supported for row in rows), verdicts, strict=True))
    total = {supported: sum(row.supported is supported for row in rows) for supported in (True, False)}
    cells = (
        _share(counts[False, "approved"], total[False]),
        _share(total[True] - counts[True, "approved"], total[True]),
        _share(counts[True, "review"] + counts[False, "review"], len(rows)),
    )
    return f"| {name} | {kind} | {len(rows)} | {' | '.join(cells)} |"


def _share(found: int, total: int) -> str:
    if not total:
        return "-"
    share, low, high = wilson(found, total)
    return f"{found} of {total}: {100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
