"""The pages of the documentation, taken apart into the blocks of code that they show.

A comment on the line before a block says what it is: `<!-- run -->` is run in a folder that the page's blocks share,
`<!-- run: 1 -->` ends with status 1, `<!-- needs: kafka -->` needs something that a unit test does not have and is held
against the real argument parsers only. A block of `text` right after one that is run is what it prints; `...` stands
for anything, and alone on a line for any lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n+)?(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$(?P<gap>\s*)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code; `shown` is what the page says that it prints, or None."""

    where: str
    language: str
    mark: str
    text: str
    shown: str | None

    @property
    def runs(self) -> bool:
        return self.mark.partition(":")[0] == "run"

    @property
    def status(self) -> int:
        return int(self.mark.partition(":")[2] or 0)


def name(page: Path) -> str:
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    text = page.read_text("utf-8")
    found = list(_BLOCK.finditer(text))
    for match, after in zip_longest(found, found[1:]):
        adjacent = after and after.start() == match.end() and after["language"] == "text"
        line = text.count("\n", 0, match.start("fence")) + 1
        shown = after["text"] if adjacent else None
        yield Block(f"{name(page)}:{line}", match["language"], match["mark"] or "", match["text"], shown)


def agrees(shown: str | None, printed: str) -> bool:
    """Whether what a page shows, if anything, is what was printed; `...` stands for anything."""
    if shown is None:
        return True
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
        for line in shown.strip("\n").split("\n")
    ]
    return re.fullmatch("".join(lines), printed.strip("\n") + "\n") is not None
