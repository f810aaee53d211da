"""The whole gate on labelled claims: what leaks and what is held that is harmless, by set and class.

Sets are files of rows as `groundwire evaluate` reads them, decided by the default policy: those of the folder `own`
beside this module and of a folder `judgement`, and the sentences of BioScope's abstracts, each the claim of a user of
its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from groundwire.cli.evaluate import share
from groundwire.library.check import Checker
from groundwire.library.evaluate import BadRow, Row
from groundwire.library.verdicts import JudgedRecord, by_class, judge_records, read_labelled_records, shares
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier, Sources

OWN: Final = Path(__file__).parent / "own"
_FIGURES: Final = ("leak", "over_hold", "conflicts_caught", "false_conflicts", "wrong_duplicates")
_LINES: Final = 40  # misses of a class that are named
TELLING: Final = 20
"""Rows of the smallest class of which a page tells a share: of fewer, the interval leaves nearly all open."""


def claim_sets(data: Path) -> dict[str, bytes]:
    files = sorted((data / "judgement").glob("*.jsonl")) + sorted(OWN.glob("*.jsonl"))
    own = {f"{'' if file.parent == OWN else 'judgement '}{file.stem}": file.read_bytes() for file in files}
    return own | {"bioscope abstracts, kept back": _bioscope(data / "bioscope" / "abstracts.xml")}


def _bioscope(path: Path) -> bytes:
    """Return the sentences of the half of the abstracts that no rule was written with in view.

    The half is chosen by a hash of the document; a sentence is speculative where the corpus marks a cue in it.
    """
    rows = []
    for document in ET.parse(path).iter("Document") if path.exists() else ():  # noqa: S314 - a corpus of the caller's
        name = (document.findtext("DocID") or "").encode()
        if int.from_bytes(blake2b(name, digest_size=4).digest()) % 100 < 50:
            continue
        for sentence in document.iter("sentence"):
            cued = any(cue.get("type") == "speculation" for cue in sentence.iter("cue"))
            text = " ".join("".join(sentence.itertext()).split())
            rows.append({"content": text, "label": "speculative" if cued else "firm"})
    return "\n".join(json.dumps(row) for row in rows).encode()


def claim_table(data: Path, adr_dir: Path | None, least: int = 1) -> Iterator[str]:
    """Yield the lines of the table: each set, then its classes, with the lines of what was judged wrongly.

    Classes of fewer rows than `least` are left out.
    """
    yield f"| set | class | rows | {' | '.join(name.replace('_', ' ') for name in _FIGURES)} | wrong lines |"
    yield f"|{'---|' * (4 + len(_FIGURES))}"
    for name, content in claim_sets(data).items():
        judged = asyncio.run(judge(content, adr_dir))
        yield _line(name, "all", judged, names=False)
        classes = {kind: rows for kind, rows in by_class(judged).items() if kind and len(rows) >= least}
        for kind, rows in classes.items():
            yield _line("", kind, rows, names=True)


async def judge(content: bytes, adr_dir: Path | None) -> list[JudgedRecord]:
    """Decide the rows of a file.

    Raises:
        RuntimeError: a row could not be read or decided: what was not measured is no figure.
    """
    verifier = CitationVerifier({"*": Sources(adr_dir=adr_dir)}, network=False)
    checker = Checker(Policy(), verifier, now=datetime(2026, 1, 1, tzinfo=UTC))
    rows = [_good(row) for row in read_labelled_records(content)]
    judged = [_good(one) async for one in judge_records(rows, checker)]
    await verifier.close()
    return judged


def _good(row: Row | BadRow) -> Row:
    if isinstance(row, BadRow):
        raise RuntimeError(f"line {row.line}: {row.error.message}")  # noqa: TRY004 - the row's fault
    return row


def _line(name: str, kind: str, judged: Sequence[JudgedRecord], *, names: bool) -> str:
    figures = shares(judged)
    conflicts = figures["conflicts_caught"].total
    cells = [
        share(figures[figure]) if place < 2 or conflicts else "-" for place, figure in enumerate(_FIGURES)
    ]
    wrong = [str(one.row.line) for one in judged if not one.right] if names else []
    told = " ".join(wrong[:_LINES]) + (f" and {len(wrong) - _LINES} more" if len(wrong) > _LINES else "")
    return f"| {name} | {kind} | {len(judged)} | {' | '.join(cells)} | {told} |"
