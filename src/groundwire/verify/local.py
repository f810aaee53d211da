"""Looks up what needs no network: ADR files and commits, a batch at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path

from groundwire.checks.citations import Citation
from groundwire.verify.adr import AdrFolder
from groundwire.verify.git import GitRepository
from groundwire.verify.issues import IssueTracker
from groundwire.verify.results import CitationCheck, CitationState, Clock, OnResult


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a tenant's citations are looked up; what is None is unknown, "not configured".

    Attributes:
        adr_dir: Folder of architecture decision records.
        repo: Git repository.
        tracker: Issue tracker.
    """

    adr_dir: Path | None = None
    repo: Path | None = None
    tracker: IssueTracker | None = None


class LocalLookup:
    """Keeps one reader for each folder and repository. Belongs to one event loop.

    Args:
        clock: Gives `checked_at`.
        monotonic: Seconds, for durations.
        on_result: Told type, state and seconds of every answer.
    """

    def __init__(self, *, clock: Clock, monotonic: Callable[[], float], on_result: OnResult | None) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._on_result = on_result
        self._folders: dict[Path, AdrFolder] = {}
        self._repositories: dict[Path, GitRepository] = {}

    async def check(
        self, sources: Sources, citations: Iterable[Citation], *, want_text: bool
    ) -> dict[str, CitationCheck]:
        """Answer the ADRs and commits among `citations`; label -> answer. It does not raise."""
        values: dict[str, dict[str, None]] = {"adr": {}, "commit": {}}
        for citation in citations:
            if citation.type in values:
                values[citation.type][citation.value] = None
        adrs, commits = await asyncio.gather(
            self._adrs(sources.adr_dir, list(values["adr"]), want_text=want_text),
            self._commits(sources.repo, list(values["commit"]), want_text=want_text),
        )
        return {f"adr:{v}": c for v, c in adrs.items()} | {f"commit:{v}": c for v, c in commits.items()}

    async def _adrs(
        self, path: Path | None, numbers: list[str], *, want_text: bool
    ) -> dict[str, CitationCheck]:
        if path is None or not numbers:
            return dict.fromkeys(numbers, self._unknown("ADR folder not configured"))
        if path not in self._folders:
            self._folders[path] = AdrFolder(path, clock=self._clock, monotonic=self._monotonic)
        return await self._timed("adr", numbers, self._folders[path].check(numbers, want_text=want_text))

    async def _commits(
        self, path: Path | None, shas: list[str], *, want_text: bool
    ) -> dict[str, CitationCheck]:
        if path is None or not shas:
            return dict.fromkeys(shas, self._unknown("repository not configured"))
        if path not in self._repositories:
            self._repositories[path] = GitRepository(path, clock=self._clock)
        return await self._timed("commit", shas, self._repositories[path].check(shas, want_text=want_text))

    async def _timed(
        self, kind: str, values: list[str], lookup: Coroutine[None, None, dict[str, CitationCheck]]
    ) -> dict[str, CitationCheck]:
        started = self._monotonic()
        try:
            checks = await lookup
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citations are unknown
            checks = dict.fromkeys(values, self._unknown(type(error).__name__))
        for check in checks.values():
            if self._on_result is not None:
                self._on_result(kind, check.state.value, self._monotonic() - started)
        return checks

    def _unknown(self, detail: str) -> CitationCheck:
        return CitationCheck(CitationState.UNKNOWN, detail, self._clock())
