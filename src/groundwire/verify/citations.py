"""Verifies citations of many claims at once: local ones together, network ones with a budget.

Whatever breaks, the answer is a state and never `verified` (S0-70): an error can take credit, not give it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from groundwire.checks.citations import Citation
from groundwire.verify.cache import CitationCache, MemoryCache, cache_key
from groundwire.verify.issues import NOT_CONFIGURED, IssueTracker
from groundwire.verify.local import LocalLookup, Sources
from groundwire.verify.pacing import NotAskedError, Pacer
from groundwire.verify.results import CitationCheck, CitationState, Clock, OnResult, utc_now
from groundwire.verify.urls import BUDGET, UrlChecker

DEFAULT_TENANT = "*"
NETWORK = frozenset({"url", "issue"})
_GRACE = 0.5  # seconds
PATIENCE = 30.0  # seconds that a batch waits for its turn at busy hosts

Request = tuple[str, Citation]
"""A tenant and what it cites."""
Answers = dict[tuple[str, str], CitationCheck]
"""(tenant, label of the citation) -> answer."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One question to the network, asked once for all who cite the same."""

    key: str
    kind: str
    value: str
    tracker: IssueTracker | None


class CitationVerifier:
    """Says of citations whether they exist. Belongs to one event loop.

    Args:
        sources: Per tenant; the key "*" serves every tenant that is not named.
        network: Whether URLs and issues may be asked at all.
        cache: Answers of the network; within the process by default.
        urls: Asks URLs; by default the public internet only.
        pacer: Limits requests per host, for issue trackers and (unless `urls` is given) URLs.
        clock: Gives `checked_at`.
        monotonic: Seconds, for durations and deadlines; the pacer's clock must be the same.
        on_result: Told type, state and seconds of every answer that was looked up.
    """

    def __init__(
        self,
        sources: Mapping[str, Sources],
        *,
        network: bool = True,
        cache: CitationCache | None = None,
        urls: UrlChecker | None = None,
        pacer: Pacer | None = None,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        on_result: OnResult | None = None,
    ) -> None:
        self._sources = dict(sources)
        self._network = network
        self._cache = cache or MemoryCache(monotonic)
        self._pacer = pacer or Pacer(clock=monotonic)
        self._urls = urls
        self._clock = clock
        self._monotonic = monotonic
        self._on_result = on_result
        self._local = LocalLookup(clock=clock, monotonic=monotonic, on_result=on_result)

    async def local(
        self, tenant: str, citations: Iterable[Citation], *, want_text: bool = False
    ) -> dict[str, CitationCheck]:
        """Look up ADRs and commits of one tenant, the whole batch at once.

        Args:
            tenant: Whose sources to look in.
            citations: URLs and issues among them are passed over.
            want_text: Read the sources' text as well, for relevance.

        Returns:
            Label -> answer; it does not raise.
        """
        return await self._local.check(self._of(tenant), citations, want_text=want_text)

    async def cached(self, requests: Iterable[Request], *, want_text: bool = False) -> Answers:
        """Return what can be said of URLs and issues without asking anyone: one round trip to the cache.

        Args:
            requests: ADRs and commits among them are passed over.
            want_text: Leave out verified answers, since their text is not cached: they are to be asked again.

        Returns:
            The known answers, among them `unknown` where the network is off or no tracker is configured. What
            is missing must be asked with `remote`.
        """
        answers, tasks = self._sort(requests)
        known = await self._cache_get([t.key for t in tasks.values()])
        for request, task in tasks.items():
            check = known.get(task.key)
            if check is not None and not (want_text and check.valid):
                answers[request] = check
        return answers

    async def remote(
        self,
        requests: Iterable[Request],
        *,
        budget: float = BUDGET,
        patience: float = PATIENCE,
        want_text: bool = False,
    ) -> Answers:
        """Ask the network about URLs and issues, each once, whoever cites it.

        Args:
            requests: ADRs and commits among them are passed over.
            budget: Seconds on the network for one citation, redirects included.
            patience: Seconds that the call waits for places at busy hosts; it takes `patience + budget` at
                most.
            want_text: Read the sources' text as well, for relevance.

        Returns:
            An answer for every URL and issue; it does not raise.
        """
        answers, tasks = self._sort(requests)
        deadline = self._monotonic() + patience
        unique = {t.key: t for t in tasks.values()}
        checks = await asyncio.gather(
            *(self._ask(t, budget, deadline, want_text=want_text) for t in unique.values())
        )
        by_key = dict(zip(unique, checks, strict=True))
        return answers | {request: by_key[task.key] for request, task in tasks.items()}

    async def verify(
        self, tenant: str, citations: Iterable[Citation], *, want_text: bool = False
    ) -> dict[str, CitationCheck]:
        """Answer every citation of one tenant: locally, from the cache, else from the network.

        Returns:
            Label -> answer; it does not raise.
        """
        cited = list(citations)
        requests = [(tenant, c) for c in cited]
        answers = await self.cached(requests, want_text=want_text)
        missing = [r for r in requests if (tenant, r[1].label) not in answers]
        answers |= await self.remote(missing, want_text=want_text)
        local = await self.local(tenant, cited, want_text=want_text)
        known = local | {label: check for (_, label), check in answers.items()}
        return {c.label: known.get(c.label) or self._unknown("unknown citation type") for c in cited}

    async def close(self) -> None:
        """Close connections, the trackers' too."""
        if self._urls is not None:
            await self._urls.close()
        for tracker in {id(s.tracker): s.tracker for s in self._sources.values()}.values():
            if tracker is not None:
                await tracker.close()

    def _of(self, tenant: str) -> Sources:
        return self._sources.get(tenant) or self._sources.get(DEFAULT_TENANT) or Sources()

    def _sort(self, requests: Iterable[Request]) -> tuple[Answers, dict[tuple[str, str], _Task]]:
        """Split network citations into those that nobody can be asked about and those that somebody can."""
        answers: Answers = {}
        tasks: dict[tuple[str, str], _Task] = {}
        for tenant, citation in requests:
            at = (tenant, citation.label)
            tracker = self._of(tenant).tracker if citation.type == "issue" else None
            if citation.type not in NETWORK or at in answers or at in tasks:
                continue
            if not self._network:
                answers[at] = self._unknown("network disabled")
            elif citation.type == "issue" and tracker is None:
                answers[at] = self._unknown(NOT_CONFIGURED)
            else:
                key = cache_key(citation.type, tracker.identity if tracker else "", citation.value)
                tasks[at] = _Task(key, citation.type, citation.value, tracker)
        return answers, tasks

    async def _cache_get(self, keys: list[str]) -> dict[str, CitationCheck]:
        unique = list(dict.fromkeys(keys))
        try:
            return await self._cache.get_many(unique) if unique else {}
        except Exception:  # noqa: BLE001 - a cache that breaks is an empty one
            return {}

    async def _cache_put(self, key: str, check: CitationCheck) -> None:
        with contextlib.suppress(Exception):  # the answer holds whether or not it is remembered
            await self._cache.put(key, check)

    async def _ask(self, task: _Task, budget: float, deadline: float, *, want_text: bool) -> CitationCheck:
        started = self._monotonic()
        try:
            check = await self._answer(task, budget, deadline, want_text=want_text)
            await self._cache_put(task.key, check)
        except NotAskedError as error:  # says nothing about the citation: not cached
            check = self._unknown(error.detail)
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citation is unknown
            check = self._unknown(type(error).__name__)
        self._report(task.kind, check, self._monotonic() - started)
        return check

    async def _answer(self, task: _Task, budget: float, deadline: float, *, want_text: bool) -> CitationCheck:
        if task.tracker is None:
            urls = self._url_checker()
            return await urls.check(task.value, budget=budget, deadline=deadline, want_text=want_text)
        async with self._pacer.visit(task.tracker.host, deadline) as visit:
            try:
                async with asyncio.timeout(budget + _GRACE):  # for a tracker that does not keep its budget
                    check = await task.tracker.exists(task.value, budget=budget, want_text=want_text)
            except TimeoutError:
                return self._unknown(f"timeout after {budget:g} s")
            visit.ok = check.state is not CitationState.UNKNOWN
            return check

    def _url_checker(self) -> UrlChecker:
        # When first needed: it reads the trusted certificates, 30 ms. A worker passes one made at its start.
        if self._urls is None:
            self._urls = UrlChecker(pacer=self._pacer, clock=self._clock, monotonic=self._monotonic)
        return self._urls

    def _unknown(self, detail: str) -> CitationCheck:
        return CitationCheck(CitationState.UNKNOWN, detail, self._clock())

    def _report(self, kind: str, check: CitationCheck, seconds: float) -> None:
        if self._on_result is not None:
            self._on_result(kind, check.state.value, seconds)
