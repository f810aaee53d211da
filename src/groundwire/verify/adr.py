"""Checks that an architecture decision record exists as a file (S0-67, C-17)."""

import asyncio
import re
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from groundwire.verify.results import MAX_TEXT, CitationCheck, CitationState, Clock, all_unknown, utc_now

_NAME = re.compile(
    r"(?:adr[-_](?P<named>[0-9]+)(?:[-_].*)?"
    r"|(?![0-9]{4}[-_][0-9]{2}[-_][0-9]{2})(?P<leading>[0-9]{1,4})[-_].+)"  # a date is no number
    r"\.(?:md|markdown|adoc|rst)",
    re.IGNORECASE | re.DOTALL,
)
_STATUS = re.compile(  # `status: …` of MADR and of front matter, or the section that adr-tools writes
    r"^[ \t#=*+:_-]{0,9}status[ \t*_]{0,9}(?::(?P<line>.*)|(?P<section>(?:\n(?![#=]).*){0,8}))$",
    re.IGNORECASE | re.MULTILINE,
)
_NOT_IN_FORCE = re.compile(
    r"^[^\w\n]{0,9}(superseded|superceded|deprecated|rejected|withdrawn)\b", re.IGNORECASE | re.MULTILINE
)
_HEAD = 4_000  # characters that a status is looked for in
_TIMEOUT = 5.0  # seconds: a folder on a dead network drive
_FRESH = 1.0  # seconds for which one listing serves
_Listing = dict[str, list[Path]]


class AdrFolder:
    """A folder of files named `ADR-<digits>[-slug].md` or `<1 to 4 digits>-slug.md`. Belongs to one event loop.

    The first is the seed's form (S0-67), the second that of adr-tools and MADR; `_` may stand for each `-`, and
    `.markdown`, `.adoc` or `.rst` for `.md`. A name that begins with a date is no record's, and folders within the
    folder are not looked at.
    """

    def __init__(
        self, path: Path, *, clock: Clock = utc_now, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._monotonic = monotonic
        self._listing: _Listing = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def check(self, numbers: Iterable[str], *, want_text: bool = False) -> dict[str, CitationCheck]:
        """Look each number up; 3 and 003 are the same number.

        Returns:
            A result for each of `numbers`; unknown where the folder cannot be read.
        """
        wanted = list(dict.fromkeys(numbers))
        try:
            async with asyncio.timeout(_TIMEOUT):
                async with self._reading:  # one listing at a time, however many ask
                    now = self._monotonic()
                    if self._read_at is None or not 0 <= now - self._read_at < _FRESH:
                        self._read_at = None
                        self._listing = await asyncio.to_thread(_list, self._path)
                        self._read_at = now
                    listing = self._listing
                texts, statuses = await asyncio.to_thread(_records, listing, wanted, want_text=want_text)
        except TimeoutError:
            return all_unknown(wanted, f"timeout after {_TIMEOUT:g} s", self._clock())
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            detail = "ADR folder missing" if missing else "ADR folder not readable"
            return all_unknown(wanted, detail, self._clock())
        checks = {}
        for number in wanted:
            state, detail = CitationState.NOT_FOUND, "ADR not found"
            if _canonical(number) in listing:
                status = statuses.get(number)
                state = CitationState.VERIFIED
                detail = "ADR file exists" + f", status: {status}" * bool(status)
            checks[number] = CitationCheck(state, detail, self._clock(), texts.get(number))
        return checks


def _canonical(number: str) -> str | None:
    """Return the digits without leading zeros; text, because an int of hostile length is slow or refused."""
    return (number.lstrip("0") or "0") if number.isdigit() else None


def _list(folder: Path) -> _Listing:
    root = folder.resolve(strict=True)
    listing: _Listing = {}
    for path in sorted(root.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        with suppress(OSError, RuntimeError):  # a dangling or circular link
            real = path.resolve(strict=True)
            if real.is_relative_to(root) and stat.S_ISREG(real.stat().st_mode):
                number = _canonical(match["named"] or match["leading"]) or ""
                listing.setdefault(number, []).append(path)
    return listing


def _records(
    listing: _Listing, numbers: list[str], *, want_text: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return texts where wanted, and the status of each record that is not in force any more or never was."""
    texts: dict[str, str] = {}
    statuses: dict[str, str] = {}
    for number in numbers:
        paths = listing.get(_canonical(number) or "", [])
        if want_text and paths:
            texts[number] = _read(paths, MAX_TEXT)
        with suppress(OSError):  # a record that cannot be read exists all the same
            statuses[number] = status_of((texts.get(number) or _read(paths, _HEAD))[:_HEAD])
    return texts, statuses


def status_of(text: str) -> str:
    """Return `superseded`, `deprecated`, `rejected` or `withdrawn` where a record names that as its status, else ""."""
    for stated in _STATUS.finditer(text):
        if word := _NOT_IN_FORCE.search(stated["line"] or stated["section"] or ""):
            return word[1].lower().replace("superceded", "superseded")  # as adr-tools spells it
    return ""


def _read(paths: list[Path], room: int) -> str:
    texts: list[str] = []
    for path in paths:
        if room <= 0:  # one number may have any number of files
            break
        with path.open(encoding="utf-8", errors="replace") as file:
            texts.append(file.read(room))
        room -= len(texts[-1]) + 1
    return "\n".join(texts)
