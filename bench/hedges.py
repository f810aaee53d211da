"""Print how well hedges distinguish speculative sentences, on BioScope: `python -m bench.hedges abstracts.xml`.

A sentence counts as speculative where the corpus marks a cue of speculation in it. The lexicon was written with one
half of the abstracts in view, picked by a hash of the document; "kept back" is the other half. Files of the corpus
that nobody looked at, such as its full papers, are named with `--unseen`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from groundwire.checks.hedges import HedgeDetector, hedge_lexicon


class Sentence(NamedTuple):
    """A sentence with its label."""

    text: str
    speculative: bool
    seen: bool


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file of the corpus."""
    for document in ET.parse(path).iter("Document"):  # noqa: S314 - a corpus that its user names, nothing that was sent
        name = (document.findtext("DocID") or "").encode()
        seen = int.from_bytes(blake2b(name, digest_size=4).digest()) % 100 < 50
        for sentence in document.iter("sentence"):
            cues = any(cue.get("type") == "speculation" for cue in sentence.iter("cue"))
            yield Sentence(" ".join("".join(sentence.itertext()).split()), cues, seen)


def f1(rows: list[Sentence], detector: HedgeDetector, words: frozenset[str] = frozenset()) -> str:
    """Return precision, recall and F1; with words given, only hedges that are among them count."""
    table = [[0, 0], [0, 0]]  # [speculative][found]
    for row in rows:
        found = [hedge for hedge in detector.find(row.text) if not words or hedge.text.lower() in words]
        table[row.speculative][bool(found)] += 1
    (_, false), (missed, true) = table
    precision, recall = true / max(1, true + false), true / max(1, true + missed)
    return (
        f"{len(rows)} | {precision:.3f} | {recall:.3f} | {2 * true / max(1, 2 * true + false + missed):.3f}"
    )


def main() -> None:
    """Measure the built-in rules, and the scientific lexicon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("abstracts", type=Path)
    parser.add_argument("--unseen", type=Path, action="append", default=[])
    args = parser.parse_args()
    rows = list(sentences(args.abstracts))
    parts = {
        "in view": [row for row in rows if row.seen],
        "kept back": [row for row in rows if not row.seen],
    }
    if args.unseen:
        parts["unseen"] = list(chain.from_iterable(map(sentences, args.unseen)))
    lexicon = hedge_lexicon("scientific")
    methods = {
        "built in": (HedgeDetector(), frozenset[str]()),
        "built in and scientific": (HedgeDetector(review=lexicon), frozenset[str]()),
        "scientific alone": (HedgeDetector(review=lexicon), frozenset(lexicon)),
    }
    print("| part | hedges | sentences | precision | recall | F1 |\n|---|---|---|---|---|---|")
    for name, part in parts.items():
        for method, (detector, words) in methods.items():
            print(f"| {name} | {method} | {f1(part, detector, words)} |", flush=True)


if __name__ == "__main__":
    main()
