"""Folders of decision records and git repositories that somebody filled who means harm."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from groundwire.checks.citations import CitationDetector
from groundwire.verify.adr import AdrFolder
from groundwire.verify.git import GitRepository, find_repository
from groundwire.verify.results import CitationState
from tests.fuzz.inputs import ODD, TABLES, WORDS, scratched, text
from tests.fuzz.runner import entry, hold

_NUMBERS: Final = (*TABLES["adr_numbers"], "9" * 5_000)
_OPTIONS: Final = tuple(TABLES["git_options"])
_CONFIG: Final = tuple(TABLES["git_config"])


class Folders:
    """Fills a folder and looks decision records up in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "adr"
        self._folder.mkdir()
        (folder / "secret.md").write_text("outside")

    async def __call__(self, rng: Random) -> int:
        """Look a few numbers up in a folder with one to five files."""
        for path in self._folder.iterdir():
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        size = sum(self._file(rng) for _ in range(rng.randint(1, 5)))
        numbers = [rng.choice(_NUMBERS) for _ in range(3)]
        found = await AdrFolder(self._folder).check(numbers, want_text=rng.random() < 0.7)
        hold(set(found) == set(numbers), "not one answer for each number")
        for number, check in found.items():
            real = number.isdigit() and number.isascii() and (number.lstrip("0") or "0") in {"0", "3", "4"}
            hold(check.state != CitationState.VERIFIED or real, f"verified: {number[:20]!r}")
            hold("outside" not in (check.text or ""), "a file outside of the folder was read")
        return size

    def _file(self, rng: Random) -> int:
        odd = rng.choice(ODD).replace("/", "_")
        name = rng.choice(
            ("ADR-003.md", "adr-3-x.md", "ADR-0004-b.md", f"ADR-3-{odd}.md", f"ADR-{odd}.md", odd, "x" * 250)
        )
        encoded = name.replace("\x00", "").encode("utf-8", "surrogatepass")[:250]
        path = self._folder / os.fsdecode(encoded if encoded.strip(b".") else b"plain")
        if os.path.lexists(path):  # who writes into a pipe waits for a reader
            return 0
        with suppress(OSError):
            match rng.randrange(8):
                case 0:
                    path.symlink_to(rng.choice(("../secret.md", "/dev/zero", path.name, "nowhere", "/etc")))
                    return 0
                case 1:
                    path.mkdir()
                    return 0
                case 2:
                    os.mkfifo(path)
                    return 0
                case _:
                    body = text(rng).encode("utf-8", "surrogatepass") * rng.choice((1, 1, 1, 1_000))
                    body = scratched(rng, body) if rng.random() < 0.3 else body
                    path.write_bytes(body)
                    return len(body)
        return 0


class Repositories:
    """Breaks a copy of a repository and looks commits up in it: no program is run by it, and nothing is made up."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._whole = folder, folder / "whole"
        self._whole.mkdir()
        self._run("init", "-q", "-b", "main")
        self._run("commit", "-q", "--allow-empty", "-m", "Use Postgres")
        self._sha = self._run("rev-parse", "HEAD").strip()

    def _run(self, *arguments: str) -> str:
        who = {f"GIT_{kind}_{part}": "a@b" for kind in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **who,
        }
        done = subprocess.run(
            ["git", "-C", str(self._whole), *arguments], capture_output=True, check=True, env=environment
        )
        return done.stdout.decode()

    async def __call__(self, rng: Random) -> int:
        """Look a few ids up."""
        broken, mark = self._folder / "broken", self._folder / "mark"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(self._whole, broken)
        self._break(rng, broken, mark)
        ids = [
            rng.choice((self._sha, self._sha[:7], *_OPTIONS, text(rng)[:50], "deadbeef")) for _ in range(3)
        ]
        found = await GitRepository(broken, timeout=20.0).check(ids, want_text=rng.random() < 0.5)
        hold(set(found) == set(ids), "not one answer for each id")
        for sha, check in found.items():
            hold(
                check.state != CitationState.VERIFIED or (len(sha) >= 7 and self._sha.startswith(sha)),
                f"verified: {sha[:50]!r}",
            )
        hold(not mark.exists(), "the repository ran a program")
        find_repository(broken)
        return sum(map(len, ids))

    def _break(self, rng: Random, broken: Path, mark: Path) -> None:
        inner = broken / ".git"
        for _ in range(rng.randint(1, 3)):
            match rng.randrange(6):
                case 0 | 1:
                    line = rng.choice(_CONFIG).format(mark=mark, folder=broken)
                    with (inner / "config").open("ab") as file:
                        file.write(line.encode("latin-1"))
                case 2:
                    files = sorted(
                        path for path in inner.rglob("*") if path.is_file() and not path.is_symlink()
                    )
                    path = rng.choice(files)
                    path.chmod(0o600)
                    path.write_bytes(scratched(rng, path.read_bytes()))
                case 3:
                    (
                        inner / "refs/heads" / rng.choice(("--help", "deadbeef", "-x", self._sha[:7]))
                    ).write_text(f"{self._sha}\n")
                case 4:
                    hook = (
                        inner
                        / "hooks"
                        / rng.choice(("post-checkout", "reference-transaction", "fsmonitor-watchman"))
                    )
                    hook.parent.mkdir(exist_ok=True)
                    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
                    hook.chmod(0o700)
                case _:
                    alternates = inner / "objects/info/alternates"
                    alternates.parent.mkdir(parents=True, exist_ok=True)
                    alternates.write_text(
                        rng.choice(("/dev/zero\n", "../../../..\n", f"{text(rng)[:100]}\n", "/\n")),
                        errors="replace",
                    )


async def _cited(rng: Random) -> int:
    """Find what a text cites."""
    pieces = [
        rng.choice((*WORDS, *ODD, text(rng), "http://", "commit ", "ADR-", "#", "0" * 40))
        for _ in range(rng.randint(1, 20))
    ]
    whole = rng.choice(("", " ")).join(pieces)
    for citation in CitationDetector().detect(whole):
        hold(0 <= citation.start < citation.end <= len(whole), "a citation outside of its text")
    return len(whole)


ENTRIES: Final = (
    entry("citations", lambda *_: _cited, 20),
    entry("folders", lambda folder, _: Folders(folder), 4),
    entry("repositories", lambda folder, _: Repositories(folder), 1),
)
