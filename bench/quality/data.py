"""Reads labelled answers: the public sets by name.

A row is an answer with its evidence and whether the evidence supports all of it. The sets are read where they
lie and never copied. Rows of one source text always fall into the same split, which a hash of the source picks:
methods are compared on `train` and `validation`, thresholds chosen there too, figures published from `test`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from bench.quality.edits import edits

SPLITS: Final = ("train", "validation", "test")
_SHARES: Final = (40, 60)  # of a hundred sources: below the first train, below the second validation


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled answer.

    Args:
        key: names the row within its set.
        group: the source text that it rests on; rows of one group are never split.
        answer: what is judged.
        evidence: what it may rest on.
        supported: the label: the evidence supports all of the answer.
        question: what was asked, or empty.
        kind: of the error, where the set names it.
        pair: rows of one pair differ in the error alone; empty where the set has no pairs.
    """

    key: str
    group: str
    answer: str
    evidence: tuple[str, ...]
    supported: bool
    question: str = ""
    kind: str = ""
    pair: str = ""

    @property
    def split(self) -> str:
        """Return `train`, `validation` or `test`, by the group alone."""
        place = int.from_bytes(blake2b(self.group.encode(), digest_size=4).digest()) % 100
        return SPLITS[sum(place >= share for share in _SHARES)]


def _begin(part: str) -> Callable[[Path], Iterator[Row]]:
    def read(folder: Path) -> Iterator[Row]:
        with (folder / "begin" / f"begin_dev_{part}.tsv").open(encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)):
                knowledge, label = line["knowledge"], line["begin_label"].strip()
                evidence, response = (knowledge,), line["response"]
                yield Row(
                    str(number), knowledge, response, evidence, label == "Fully attributable", kind=label
                )

    return read


def _wice(folder: Path) -> Iterator[Row]:
    for number, line in enumerate((folder / "wice" / "claim_dev.jsonl").read_text("utf-8").splitlines()):
        row = json.loads(line)
        evidence = tuple(row["evidence"])
        supported = row["label"] == "supported"
        yield Row(str(number), "\n".join(evidence), row["claim"], evidence, supported, kind=row["label"])


def _bump(folder: Path) -> Iterator[Row]:
    rows = json.loads((folder / "bump" / "pairs_dev.json").read_text("utf-8"))
    for number, row in enumerate(rows):
        group, evidence, kind = str(row["article_id"]), (row["article"],), row["error_type"]
        for name, supported in (("reference_summary", True), ("edited_summary", False)):
            key = f"{number}-{name}"
            yield Row(key, group, row[name], evidence, supported, kind=kind, pair=str(number))


def _halueval(folder: Path) -> Iterator[Row]:
    for number, line in enumerate((folder / "halueval_qa" / "qa.jsonl").read_text("utf-8").splitlines()):
        row = json.loads(line)
        for name, supported in (("right_answer", True), ("hallucinated_answer", False)):
            evidence, group = (row["knowledge"],), row["knowledge"]
            yield Row(f"{number}-{name}", group, row[name], evidence, supported, row["question"])


def _ragtruth(folder: Path) -> Iterator[Row]:
    for line in (folder / "ragtruth_qa" / "dev.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        kind = "/".join(sorted({span["label_type"] for span in row["spans"]}))
        evidence, supported = tuple(row["passages"]), not row["hallucinated"]
        yield Row(row["id"], row["source_id"], row["answer"], evidence, supported, row["question"], kind=kind)


def _attribution(folder: Path) -> Iterator[Row]:
    for line in (folder / "attributionbench" / "dev.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        evidence, supported = tuple(row["references"]), row["attribution_label"] == "attributable"
        group, kind = row["question"] or "\n".join(evidence), row["src_dataset"]
        yield Row(row["id"], group, row["claim"], evidence, supported, row["question"] or "", kind=kind)


def _edits(folder: Path) -> Iterator[Row]:
    passages = {
        text
        for read in (*map(_begin, ("wow", "tc", "cmu")), _bump)
        for row in read(folder)
        for text in row.evidence
    }
    for number, edit in enumerate(edits(passages)):
        for name, supported in (("quote", True), ("edited", False)):
            answer = edit.quote if supported else edit.edited
            key, evidence = f"{number}-{name}", (edit.passage,)
            yield Row(key, edit.passage, answer, evidence, supported, kind=edit.kind, pair=str(number))


SETS: Final[dict[str, Callable[[Path], Iterator[Row]]]] = {
    "begin-wow": _begin("wow"),
    "begin-tc": _begin("tc"),
    "begin-cmu": _begin("cmu"),
    "wice": _wice,
    "bump": _bump,
    "halueval-qa": _halueval,
    "ragtruth-qa": _ragtruth,
    "attributionbench": _attribution,
    "edits": _edits,
}
"""Public sets by name, and `edits`, seeded edits of sentences of their evidence."""
