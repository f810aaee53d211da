"""Does an architecture decision record exist as a file (S0-67, C-17)?"""

import asyncio
import re
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from groundwire.verify.results import MAX_TEXT, CitationCheck, CitationState, Clock, utc_now

_NAME = re.compile(r"adr-([0-9]+)(?:-.*)?\.md", re.IGNORECASE | re.DOTALL)
_TIMEOUT = 5.0  # seconds: a folder on a dead network drive
_Listing = dict[str, list[Path]]


class AdrFolder:
    """A folder of files named `ADR-<digits>[-slug].md`. Belongs to one event loop.

    Args:
        path: The folder.
        clock: Gives `checked_at`.
        monotonic: Seconds, for the age of the listing.
        fresh: Seconds for which one listing serves.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        fresh: float = 1.0,
    ) -> None:
        self._path = path
        self._clock = clock
        self._monotonic = monotonic
        self._fresh = fresh
        self._listing: _Listing = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def check(self, numbers: Iterable[str], *, want_text: bool = False) -> dict[str, CitationCheck]:
        """Look each number up; 3 and 003 are the same number.

        Args:
            numbers: Digits as cited.
            want_text: Read the files' text as well.

        Returns:
            An answer for each of `numbers`; unknown where the folder cannot be read.
        """
        wanted = list(dict.fromkeys(numbers))
        try:
            async with asyncio.timeout(_TIMEOUT):
                listing = await self._files()
                texts = await asyncio.to_thread(_read_all, listing, wanted) if want_text else {}
        except TimeoutError:
            return self._all_unknown(wanted, f"timeout after {_TIMEOUT:g} s")
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return self._all_unknown(wanted, "ADR folder missing" if missing else "ADR folder not readable")
        return {n: self._answer(n, listing, texts.get(n)) for n in wanted}

    def _answer(self, number: str, listing: _Listing, text: str | None) -> CitationCheck:
        if _canonical(number) in listing:
            return CitationCheck(CitationState.VERIFIED, "ADR file exists", self._clock(), text)
        return CitationCheck(CitationState.NOT_FOUND, "ADR not found", self._clock())

    def _all_unknown(self, numbers: list[str], detail: str) -> dict[str, CitationCheck]:
        now = self._clock()
        return {n: CitationCheck(CitationState.UNKNOWN, detail, now) for n in numbers}

    async def _files(self) -> _Listing:
        async with self._reading:  # one listing at a time, however many ask
            now = self._monotonic()
            if self._read_at is None or not 0 <= now - self._read_at < self._fresh:
                self._read_at = None
                self._listing = await asyncio.to_thread(_list, self._path)
                self._read_at = now
            return self._listing


def _canonical(number: str) -> str | None:
    """Return the digits without leading zeros; text, because an int of hostile length is slow or refused."""
    return (number.lstrip("0") or "0") if number.isdigit() else None


def _list(folder: Path) -> _Listing:
    root = folder.resolve(strict=True)
    listing: _Listing = {}
    for path in sorted(root.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or not _is_own_file(path, root):
            continue
        listing.setdefault(_canonical(match[1]) or "", []).append(path)
    return listing


def _is_own_file(path: Path, root: Path) -> bool:
    """Return whether `path` is a regular file that lies in the folder even after links are followed."""
    try:
        real = path.resolve(strict=True)
        return real.is_relative_to(root) and stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError):  # a dangling or circular link
        return False


def _read_all(listing: _Listing, numbers: list[str]) -> dict[str, str]:
    return {n: _read(listing[key]) for n in numbers if (key := _canonical(n)) in listing and key is not None}


def _read(paths: list[Path]) -> str:
    texts: list[str] = []
    room = MAX_TEXT
    for path in paths:
        if room <= 0:  # a folder may hold any number of files for one record
            break
        with path.open(encoding="utf-8", errors="replace") as file:
            texts.append(file.read(room))
        room -= len(texts[-1]) + 1
    return "\n".join(texts)
