"""Checks that an architecture decision record exists as a file (S0-67, C-17)."""

import asyncio
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from groundwire.verify.results import MAX_TEXT, CitationCheck, CitationState, Clock, utc_now

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
                listing = await self._files()
                texts = await asyncio.to_thread(_texts, listing, wanted) if want_text else {}
                statuses = await asyncio.to_thread(_statuses, listing, wanted, texts)
        except TimeoutError:
            return self._all_unknown(wanted, f"timeout after {_TIMEOUT:g} s")
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return self._all_unknown(wanted, "ADR folder missing" if missing else "ADR folder not readable")
        checks = {}
        for number in wanted:
            state, detail = CitationState.NOT_FOUND, "ADR not found"
            if _canonical(number) in listing:
                status = statuses.get(number)
                state, detail = (
                    CitationState.VERIFIED,
                    "ADR file exists" + f", status: {status}" * bool(status),
                )
            checks[number] = CitationCheck(state, detail, self._clock(), texts.get(number))
        return checks

    def _all_unknown(self, numbers: list[str], detail: str) -> dict[str, CitationCheck]:
        now = self._clock()
        return {n: CitationCheck(CitationState.UNKNOWN, detail, now) for n in numbers}

    async def _files(self) -> _Listing:
        async with self._reading:  # one listing at a time, however many ask
            now = self._monotonic()
            if self._read_at is None or not 0 <= now - self._read_at < _FRESH:
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
        listing.setdefault(_canonical(match["named"] or match["leading"]) or "", []).append(path)
    return listing


def _is_own_file(path: Path, root: Path) -> bool:
    try:
        real = path.resolve(strict=True)
        return real.is_relative_to(root) and stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError):  # a dangling or circular link
        return False


def _statuses(listing: _Listing, numbers: list[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Return, of the records that say they are not in force any more or never were, which status they name."""
    found: dict[str, str] = {}
    for number in numbers:
        with suppress(OSError):  # a record that cannot be read exists all the same
            head = texts.get(number) or _read(listing.get(_canonical(number) or "", []), _HEAD)
            found[number] = status_of(head[:_HEAD])
    return found


def status_of(text: str) -> str:
    """Return `superseded`, `deprecated`, `rejected` or `withdrawn` where a record names that as its status, else ""."""
    for stated in _STATUS.finditer(text):
        if word := _NOT_IN_FORCE.search(stated["line"] or stated["section"] or ""):
            return word[1].lower().replace("superceded", "superseded")  # as adr-tools spells it
    return ""


def _texts(listing: _Listing, numbers: list[str]) -> dict[str, str]:
    keys = {n: _canonical(n) for n in numbers}
    return {n: _read(listing[key], MAX_TEXT) for n, key in keys.items() if key is not None and key in listing}


def _read(paths: list[Path], room: int) -> str:
    texts: list[str] = []
    for path in paths:
        if room <= 0:  # one number may have any number of files
            break
        with path.open(encoding="utf-8", errors="replace") as file:
            texts.append(file.read(room))
        room -= len(texts[-1]) + 1
    return "\n".join(texts)
