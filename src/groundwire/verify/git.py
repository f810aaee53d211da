"""Checks that a commit exists in a repository (S0-66, S0-73, S0-77, C-16).

One `git cat-file --batch-check` serves a whole batch. The ids go to its standard input after a strict check, so
none can be an option or a revision expression; a hostile repository can neither run a program nor reach the network.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from groundwire.verify.results import CitationCheck, CitationState, Clock, all_unknown, utc_now

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
    """One line of git's output."""

    sha: str
    kind: str
    size: int


class GitRepository:
    """One repository that commits are looked up in."""

    def __init__(self, path: Path, *, clock: Clock = utc_now, timeout: float = 5.0, git: str = "git") -> None:
        self._path = path
        self._clock = clock
        self._timeout = timeout
        self._git = git

    async def check(self, shas: Iterable[str], *, want_text: bool = False) -> dict[str, CitationCheck]:
        """Look every full or shortened id up with one git process; the messages take a second one.

        Returns:
            A result for each of `shas`; unknown where git is missing, fails or is too slow, or without a
            repository.
        """
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
