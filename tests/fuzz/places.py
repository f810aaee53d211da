"""Texts that cite, and folders of decision records that an attacker filled."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from groundwire.checks.citations import CitationDetector
from groundwire.verify.adr import AdrFolder
from groundwire.verify.results import CitationState
from tests.fuzz.inputs import ODD, TABLES, WORDS, Dice, scratched, text
from tests.fuzz.runner import entry, hold

_NUMBERS: Final = (*TABLES["adr_numbers"], "9" * 5_000)


class Folders:
    """Fills a folder and looks decision records up in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "adr"
        self._folder.mkdir()
        (folder / "secret.md").write_text("outside")

    async def __call__(self, rng: Dice) -> int:
        for path in self._folder.iterdir():
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        size = sum(self._file(rng) for _ in range(rng.randint(1, 5)))
        numbers = [rng.choice(_NUMBERS) for _ in range(3)]
        found = await AdrFolder(self._folder).check(numbers, want_text=rng.chance(0.7))
        hold(set(found) == set(numbers), "not one answer for each number")
        for number, check in found.items():
            real = number.isdigit() and number.isascii() and (number.lstrip("0") or "0") in {"0", "3", "4"}
            hold(check.state != CitationState.VERIFIED or real, f"verified: {number[:20]!r}")
            hold("outside" not in (check.text or ""), "a file outside of the folder was read")
        return size

    def _file(self, rng: Dice) -> int:
        odd = rng.choice(ODD).replace("/", "_")
        name = rng.one(
            "ADR-003.md", "adr-3-x.md", "ADR-0004-b.md", f"ADR-3-{odd}.md", f"ADR-{odd}.md", odd, "x" * 250
        )
        encoded = name.replace("\x00", "").encode("utf-8", "surrogatepass")[:250]
        path = self._folder / os.fsdecode(encoded if encoded.strip(b".") else b"plain")
        if os.path.lexists(path):  # who writes into a pipe waits for a reader
            return 0
        with suppress(OSError):
            match rng.randrange(8):
                case 0:
                    path.symlink_to(rng.one("../secret.md", "/dev/zero", path.name, "nowhere", "/etc"))
                    return 0
                case 1:
                    path.mkdir()
                    return 0
                case 2:
                    os.mkfifo(path)
                    return 0
                case _:
                    body = text(rng).encode("utf-8", "surrogatepass") * rng.one(1, 1, 1, 1_000)
                    body = scratched(rng, body) if rng.chance(0.3) else body
                    path.write_bytes(body)
                    return len(body)
        return 0


async def _cited(rng: Dice) -> int:
    pieces = [
        rng.one(*WORDS, *ODD, text(rng), "http://", "commit ", "ADR-", "#", "0" * 40)
        for _ in range(rng.randint(1, 20))
    ]
    whole = rng.one("", " ").join(pieces)
    for citation in CitationDetector().detect(whole):
        hold(0 <= citation.start < citation.end <= len(whole), "a citation outside of its text")
    return len(whole)


ENTRIES: Final = (
    entry("citations", lambda *_: _cited, 20),
    entry("folders", lambda folder, _: Folders(folder), 4),
)
