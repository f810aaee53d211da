"""Checks that an ADR exists as a file (S0-67, C-17) or in a log, and a commit in a repository (S0-66, S0-73, C-16).

One `git cat-file --batch-check` serves a whole batch. The ids go to its standard input after a strict check, so
none can be an option or a revision expression; a hostile repository can neither run a program nor reach the network
(S0-77).
"""

import asyncio
import contextlib
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

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

    The first is the seed's form (S0-67), the second that of adr-tools and MADR; `_` may replace each `-`, and
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
        """Look each number up, 3 as 003; unknown where the folder cannot be read."""
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
            if _files(listing, number):
                status = statuses.get(number)
                state = CitationState.VERIFIED
                detail = "ADR file exists" + f", status: {status}" * bool(status)
            checks[number] = CitationCheck(state, detail, self._clock(), texts.get(number))
        return checks


def _canonical(number: str) -> str | None:
    """Return the digits without leading zeros; text, because an int of hostile length is slow or refused."""
    return (number.lstrip("0") or "0") if number.isdigit() else None


def _files(listing: _Listing, cited: str) -> list[Path]:
    """Return the files of a number, or that of a name, `0003-postgres.md`."""
    if cited.isdigit():
        return listing.get(_canonical(cited) or "", [])
    leading = re.match(r"[0-9]{1,4}(?=[-_])", cited)
    named = listing.get(_canonical(leading[0]) or "", []) if leading else []
    return [path for path in named if path.name.lower() == cited.lower()]


def _list(folder: Path) -> _Listing:
    root = folder.resolve(strict=True)
    listing: _Listing = {}
    for path in sorted(root.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        with contextlib.suppress(OSError, RuntimeError):  # a dangling or circular link
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
        paths = _files(listing, number)
        if want_text and paths:
            texts[number] = _read(paths, MAX_TEXT)
        with contextlib.suppress(OSError):  # a record that cannot be read exists all the same
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


_ENTRY = re.compile(r"^(?:#{1,6}[ \t]+(?P<heading>.+)|\W{0,6}(?P<day>\d{4}-\d\d-\d\d).*)$", re.MULTILINE)
_ENTRY_NUMBER = re.compile(
    r"(?:ADR[- #]?|decision[ #]*)?0*(?P<number>[0-9]{1,4})(?=[\s.:)\u2013-])", re.IGNORECASE
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MAX_LOG = 1_048_576  # characters of a decision log that are read


class DecisionLog:
    """Decisions in one file, each under a heading or a date: `## ADR-3: Use Redis`, `[2025-04-01 20:22] - Use Redis`.

    An entry is cited by its number, as an ADR, or by its heading's anchor or day behind the file's name.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now) -> None:
        self._path = path
        self._clock = clock

    async def check(self, cited: Iterable[str], *, want_text: bool = False) -> dict[str, CitationCheck]:
        wanted = list(dict.fromkeys(cited))
        try:
            async with asyncio.timeout(_TIMEOUT):
                entries = await asyncio.to_thread(self._read)
        except TimeoutError:
            return all_unknown(wanted, f"timeout after {_TIMEOUT:g} s", self._clock())
        except OSError:
            return all_unknown(wanted, "decision log not readable", self._clock())
        checks = {}
        for one in wanted:
            name, _, entry = one.lower().rpartition("#")
            found = (
                []
                if name not in {"", self._path.name.lower()}
                else entries.get(_canonical(entry) or entry, [])
            )
            state, detail = CitationState.NOT_FOUND, "Decision not found"
            if found:
                status = status_of(found[0][:_HEAD])
                state, detail = (
                    CitationState.VERIFIED,
                    "Decision logged" + f", status: {status}" * bool(status),
                )
            text = "\n".join(found) if want_text and found else None
            checks[one] = CitationCheck(state, detail, self._clock(), text)
        return checks

    def _read(self) -> dict[str, list[str]]:
        """Return the texts of the entries by number, anchor and day."""
        with self._path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_LOG)
        marks = list(_ENTRY.finditer(text))
        entries: dict[str, list[str]] = {}
        for mark, end in zip(marks, [*(one.start() for one in marks[1:]), len(text)], strict=True):
            heading = (mark["heading"] or "").strip()
            keys = {day[0] for day in _DAY.finditer(mark[0])}
            if heading:
                keys.add("".join(re.findall(r"[\w -]", heading.lower())).replace(" ", "-"))
                number = _ENTRY_NUMBER.match(heading)
                keys.update([_canonical(number["number"]) or ""] if number else [])
            for key in keys:
                entries.setdefault(key, []).append(text[mark.start() : end])
        return entries


_SHA = re.compile(r"[0-9a-f]{7,40}")
_MAX_MESSAGES = 4_194_304  # bytes of commit objects that one batch reads for their messages
_INHERITED = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")
_SETTINGS = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # a replacement would make one id answer for another
    # Older gits fetch missing objects of a partial clone all the same. Unlike `protocol.*.allow`, this
    # overrides the repository's own configuration.
    "GIT_ALLOW_PROTOCOL": "none",
}
_OPTIONS = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "protocol.allow=never",
    "core.disambiguate=none",  # an id that is short for a commit and for a blob is ambiguous
    "core.pager=cat",
    f"core.sshCommand={os.devnull}",
    "credential.helper=",
)


class _GitError(Exception):
    """Git could not be asked; the message is the detail."""


class _Found(NamedTuple):
    sha: str
    kind: str
    size: int


class GitRepository:
    def __init__(self, path: Path, *, clock: Clock = utc_now, timeout: float = 5.0, git: str = "git") -> None:
        self._path = path
        self._clock = clock
        self._timeout = timeout
        self._git = git

    async def check(self, shas: Iterable[str], *, want_text: bool = False) -> dict[str, CitationCheck]:
        """Look every id up with one git process, and messages with a second; unknown where git cannot be asked."""
        cited = list(dict.fromkeys(shas))
        asked = [s for s in cited if _SHA.fullmatch(s)]
        found: dict[str, _Found] = {}
        messages: dict[str, str] = {}
        try:
            async with asyncio.timeout(self._timeout):
                if asked:
                    shape = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
                    lines = (await self._run(shape, asked)).decode("ascii", errors="replace").splitlines()
                    found = {sha: _parse(line) for sha, line in zip(asked, lines, strict=True)}
                if want_text:
                    messages = await self._messages(found)
        except TimeoutError:
            return all_unknown(cited, f"timeout after {self._timeout:g} s", self._clock())
        except (_GitError, OSError, ValueError) as error:  # ValueError: an answer that cannot be read
            detail = str(error) if isinstance(error, _GitError) else "git failed"
            return all_unknown(cited, detail, self._clock())
        now, checks = self._clock(), {}
        for sha in cited:
            one = found.get(sha)
            # `kind` is also "missing" or "ambiguous"; another id comes back where a branch is called like an id.
            if one is None or one.kind != "commit" or not one.sha.startswith(sha):
                checks[sha] = CitationCheck(CitationState.NOT_FOUND, "Unknown commit", now)
            else:
                message = messages.get(one.sha)
                checks[sha] = CitationCheck(CitationState.VERIFIED, "Commit exists", now, message)
        return checks

    async def _messages(self, found: dict[str, _Found]) -> dict[str, str]:
        sizes = {f.sha: f.size for f in found.values() if f.kind == "commit"}
        shas: list[str] = []
        room = _MAX_MESSAGES
        for sha in sorted(sizes, key=sizes.__getitem__):  # a giant must not displace the rest
            room -= sizes[sha]
            if room >= 0:
                shas.append(sha)
        output = await self._run("--batch", shas) if shas else b""
        # a header line, the object, a line feed, for each object
        messages: dict[str, str] = {}
        at = 0
        while at < len(output):
            end = output.index(b"\n", at)
            one = _parse(output[at:end].decode("ascii", errors="replace"))
            body = output[end + 1 : end + 1 + one.size]
            messages[one.sha] = body.partition(b"\n\n")[2].decode("utf-8", errors="replace")
            at = end + 1 + one.size + 1
        return messages

    async def _run(self, shape: str, shas: list[str]) -> bytes:
        root = await asyncio.to_thread(self._path.resolve)
        options = [part for option in (*_OPTIONS, f"safe.directory={root}") for part in ("-c", option)]
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        start = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                self._git,
                *("-C", str(root), "--no-pager", *options, "cat-file", shape),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=kept | _SETTINGS | {"GIT_CEILING_DIRECTORIES": str(root.parent)},
                start_new_session=True,  # so that its children can be killed with it
            )
        )
        try:
            process = await asyncio.shield(start)
        except FileNotFoundError:
            raise _GitError("git not found") from None
        except asyncio.CancelledError:
            # asyncio would kill the program alone and wait for its children, which hold the pipes.
            with contextlib.suppress(OSError):
                await _end(await start)
            raise
        try:
            output, _ = await process.communicate("".join(f"{s}\n" for s in shas).encode("ascii"))
        finally:
            await _end(process)
        if process.returncode != 0:
            raise _GitError("not a readable git repository")
        return output


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        await process.wait()


def _parse(line: str) -> _Found:
    name, kind, *size = line.split(" ")
    return _Found(name, kind, int(size[0]) if size else 0)


def find_repository(start: Path) -> Path | None:
    here = start.resolve()
    return next((d for d in (here, *here.parents) if (d / ".git").exists()), None)
