"""Verifies that citations exist: local ones as a batch, network ones with a budget each (S0-69).

Whatever breaks, the answer is a state other than `verified` (S0-70).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from groundwire.arguments import takes
from groundwire.checks.citations import Citation
from groundwire.errors import UsageError
from groundwire.toml_files import parse_toml
from groundwire.verify.local import AdrFolder, DecisionLog, GitRepository, find_repository
from groundwire.verify.pacing import NotAskedError, Pacer
from groundwire.verify.resolvers import JSON, RESOLVERS, judged, url_of
from groundwire.verify.results import (
    BUDGET,
    CitationCache,
    CitationCheck,
    CitationState,
    Clock,
    MemoryCache,
    OnResult,
    VerificationResult,
    cache_key,
    utc_now,
)

if TYPE_CHECKING:  # its library reads environments, which takes long to import
    from groundwire.config import Settings

    # A check that asks no network loads no client for it: half of the time that `import groundwire` and one claim take.
    from groundwire.verify.issues import IssueTracker
    from groundwire.verify.url import UrlChecker


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a tenant's citations are looked up; what is None is unknown, "not configured"."""

    adr_dir: Path | None = None
    repo: Path | None = None
    tracker: IssueTracker | None = None
    decision_log: Path | None = None


DEFAULT_TENANT = "*"
NETWORK = frozenset({"url", "issue", "doi", "arxiv", "pmid", "rfc", "cve", "ticket"})
PATIENCE = 30.0  # seconds that a batch waits for its turn at busy hosts
_GRACE = 0.5  # seconds beyond its budget after which a tracker is cancelled

CitationRequest = tuple[str, Citation]
"""A tenant and what it cites."""
CitationAnswers = dict[tuple[str, str], CitationCheck]
"""(tenant, label of the citation) -> answer."""


class _Task(NamedTuple):
    """One request to the network, shared by all of a tenant who cite the same."""

    tenant: str
    key: str
    kind: str
    value: str  # a number for a tracker, else a URL
    tracker: IssueTracker | None


class CitationVerifier:
    """Verifies that citations exist. Belongs to one event loop.

    In `sources` the key "*" serves every tenant that is not named. `urls` requests from the public internet only, by
    default; `pacer` limits requests per host, for issue trackers and (unless `urls` is given) URLs, and has to use the
    same clock as `monotonic`. `on_result` is called for every answer that was looked up.
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
        self._folders: dict[Path | None, AdrFolder] = {}
        self._repositories: dict[Path | None, GitRepository] = {}

    async def local(
        self, tenant: str, citations: Iterable[Citation], *, want_text: bool = False
    ) -> dict[str, CitationCheck]:
        """Look up ADRs and commits of one tenant, the whole batch at once: label -> answer. Never raises."""
        cited = list(dict.fromkeys((one.type, one.value) for one in citations))
        adr, commit = ([value for kind, value in cited if kind == wanted] for wanted in ("adr", "commit"))
        sources = self._of(tenant)
        if sources.adr_dir and sources.adr_dir not in self._folders:
            adrs = AdrFolder(sources.adr_dir, clock=self._clock, monotonic=self._monotonic)
            self._folders[sources.adr_dir] = adrs
        if sources.repo and sources.repo not in self._repositories:
            self._repositories[sources.repo] = GitRepository(sources.repo, clock=self._clock)
        folder, repo = self._folders.get(sources.adr_dir), self._repositories.get(sources.repo)
        log = DecisionLog(sources.decision_log, clock=self._clock) if sources.decision_log else None
        filed, commits, logged = await asyncio.gather(
            self._check_local("adr", adr, folder, want_text=want_text),
            self._check_local("commit", commit, repo, want_text=want_text),
            self._check_local("adr", adr if log else [], log, want_text=want_text),
        )
        found = {label: check for label, check in logged.items() if check.valid or not folder}
        return filed | {label: check for label, check in found.items() if not filed[label].valid} | commits

    async def _check_local(
        self,
        kind: str,
        values: list[str],
        source: AdrFolder | DecisionLog | GitRepository | None,
        *,
        want_text: bool,
    ) -> dict[str, CitationCheck]:
        if not values:
            return {}
        if source is None:
            what = "ADR folder" if kind == "adr" else "repository"
            return {f"{kind}:{value}": self._unknown(f"{what} not configured") for value in values}
        started = self._monotonic()
        try:
            checks = await source.check(values, want_text=want_text)
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citations are unknown
            checks = dict.fromkeys(values, self._unknown(type(error).__name__))
        for check in checks.values():
            self._report(kind, check, self._monotonic() - started)
        return {f"{kind}:{value}": check for value, check in checks.items()}

    async def cached(
        self, requests: Iterable[CitationRequest], *, want_text: bool = False
    ) -> CitationAnswers:
        """Return what is known of URLs and issues without a request: one round trip to the cache.

        An answer is `unknown` where the network is off or no tracker is configured; the rest is for `remote`.
        """
        answers, tasks = self._sort(requests)
        keys = list(dict.fromkeys(t.key for t in tasks.values()))
        known: dict[str, CitationCheck] = {}
        with contextlib.suppress(Exception):  # a cache that breaks is an empty one
            known = await self._cache.get_many(keys) if keys else {}
        for request, task in tasks.items():
            check = known.get(task.key)
            if check is not None and not (want_text and check.valid):
                answers[request] = check
        return answers

    async def remote(
        self,
        requests: Iterable[CitationRequest],
        *,
        budget: float = BUDGET,
        patience: float = PATIENCE,
        want_text: bool = False,
    ) -> CitationAnswers:
        """Request URLs and issues, each once for each tenant: one that waits or is held back is no other's answer.

        Every URL and issue is answered; never raises.
        """
        answers, tasks = self._sort(requests)
        deadline = self._monotonic() + patience
        unique = {(t.tenant, t.key): t for t in tasks.values()}
        checks = await asyncio.gather(
            *(self._ask(t, budget, deadline, want_text=want_text) for t in unique.values())
        )
        by_key = dict(zip(unique, checks, strict=True))
        return answers | {request: by_key[task.tenant, task.key] for request, task in tasks.items()}

    async def verify(
        self, tenant: str, citations: Iterable[Citation], *, want_text: bool = False
    ) -> dict[str, CitationCheck]:
        """Answer every citation of one tenant: locally, from the cache, else from the network. Never raises."""
        cited = list(citations)
        requests = [(tenant, c) for c in cited]
        answers = await self.cached(requests, want_text=want_text)
        missing = [r for r in requests if (tenant, r[1].label) not in answers]
        answers |= await self.remote(missing, want_text=want_text)
        local = await self.local(tenant, cited, want_text=want_text)
        known = local | {label: check for (_, label), check in answers.items()}
        return {c.label: known.get(c.label) or self._unknown("unknown citation type") for c in cited}

    async def close(self) -> None:
        if self._urls is not None:
            await self._urls.close()
        for tracker in {id(s.tracker): s.tracker for s in self._sources.values()}.values():
            if tracker is not None:
                await tracker.close()

    def _of(self, tenant: str) -> Sources:
        return self._sources.get(tenant) or self._sources.get(DEFAULT_TENANT) or Sources()

    def _sort(
        self, requests: Iterable[CitationRequest]
    ) -> tuple[CitationAnswers, dict[tuple[str, str], _Task]]:
        answers: CitationAnswers = {}
        tasks: dict[tuple[str, str], _Task] = {}
        for tenant, citation in requests:
            at = (tenant, citation.label)
            url = (
                url_of(citation, self._urls.resolvers if self._urls else RESOLVERS)
                if citation.type in NETWORK
                else ""
            )
            tracker = self._of(tenant).tracker if not url else None
            if citation.type not in NETWORK or at in answers or at in tasks:
                continue
            if not self._network:
                answers[at] = self._unknown("network disabled")
            elif not url and tracker is None:
                answers[at] = self._unknown("issue tracker not configured")
            else:
                value = url or citation.value
                key = cache_key(citation.type, tracker.identity if tracker else "", value)
                tasks[at] = _Task(tenant, key, citation.type, value, tracker)
        return answers, tasks

    async def _ask(self, task: _Task, budget: float, deadline: float, *, want_text: bool) -> CitationCheck:
        started = self._monotonic()
        try:
            if task.tracker is None:
                if self._urls is None:
                    # Lazily: it reads the trusted certificates, 30 ms. A worker passes one made at its start.
                    from groundwire.verify.url import UrlChecker  # noqa: PLC0415 - see the imports

                    self._urls = UrlChecker(pacer=self._pacer, clock=self._clock, monotonic=self._monotonic)
                body = task.kind in JSON
                check = await self._urls.check(
                    task.value,
                    budget=budget,
                    deadline=deadline,
                    want_text=want_text or body,
                    tenant=task.tenant,
                )
                check = judged(task.kind, check) if body else check
            else:
                host = task.tracker.host
                async with self._pacer.visit(host, deadline, tenant=task.tenant) as visit:
                    try:
                        # for a tracker that does not keep its budget
                        async with asyncio.timeout(budget + _GRACE):
                            check = await task.tracker.exists(task.value, budget=budget, want_text=want_text)
                        visit.ok = not check.may_pass
                    except TimeoutError:
                        check = self._unknown(f"timeout after {budget:g} s")
            with contextlib.suppress(Exception):  # the answer holds whether or not it is remembered
                await self._cache.put(task.key, check)
        except NotAskedError as error:  # says nothing about the citation: not cached
            check = self._unknown(error.detail)
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citation is unknown
            check = self._unknown(type(error).__name__)
        self._report(task.kind, check, self._monotonic() - started)
        return check

    def _unknown(self, detail: str) -> CitationCheck:
        return CitationCheck(CitationState.UNKNOWN, detail, self._clock())

    def _report(self, kind: str, check: CitationCheck, seconds: float) -> None:
        if self._on_result is not None:
            self._on_result(kind, check.state.value, seconds)


_answers = MemoryCache()  # shared by calls without a verifier, each of which may run in its own event loop


@takes(citation=Citation)
async def verify_citation(
    citation: Citation, *, verifier: CitationVerifier | None = None, tenant: str = "default"
) -> VerificationResult:
    """Say whether a detected citation exists (S0-64). It proves existence only, not content (S0-71).

    Args:
        citation: What `CitationDetector` found.
        verifier: Where to look. Without one: `GROUNDWIRE_ADR_DIR` or `docs/adrs`, `GROUNDWIRE_REPO` or the
            git repository of the working directory, URLs of the public internet (none if
            `GROUNDWIRE_NO_NETWORK` is 1), and no issue tracker, so that an issue is not valid (S0-68).
        tenant: Whose sources of `verifier` to look in.

    Returns:
        (valid, reason), e.g. `(False, "HTTP 404")`. Timeouts, name errors, refused connections and a missing
        git are not valid and carry the reason; no exception comes out (S0-70).
    """
    if verifier is None:
        own = await asyncio.to_thread(default_verifier)
        try:
            return await verify_citation(citation, verifier=own, tenant=tenant)
        finally:
            await own.close()
    check = (await verifier.verify(tenant, [citation]))[citation.label]
    return VerificationResult(check.valid, check.detail)


def default_verifier() -> CitationVerifier:
    """Return the verifier that the environment describes; see `verify_citation`."""
    repo = os.environ.get("GROUNDWIRE_REPO")
    sources = Sources(
        adr_dir=Path(os.environ.get("GROUNDWIRE_ADR_DIR") or "docs/adrs"),
        repo=Path(repo) if repo else find_repository(Path.cwd()),
    )
    network = os.environ.get("GROUNDWIRE_NO_NETWORK") != "1"
    return CitationVerifier({DEFAULT_TENANT: sources}, network=network, cache=_answers)


class _SourcesSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Tracker(_SourcesSection):
    kind: Literal["github", "gitlab"]
    url: str
    project: str
    token_env: str | None = None  # name of the variable that holds the token: the file holds no secret


class _TenantSources(_SourcesSection):
    adr_dir: Path | None = None
    decision_log: Path | None = None
    repo: Path | None = None
    tracker: _Tracker | None = None


class _SourcesFile(_SourcesSection):
    tenants: dict[str, _TenantSources]


def load_sources(settings: Settings) -> dict[str, Sources]:
    """Return the sources of each tenant; `*` serves those that are not named.

    The file (`GROUNDWIRE_TENANTS_FILE`) has a table `[tenants."<id>"]` with `adr_dir`, `decision_log`, `repo` and
    `tracker = {kind, url, project, token_env}`; `GROUNDWIRE_ADR_DIR`, `GROUNDWIRE_DECISION_LOG` and `GROUNDWIRE_REPO`
    serve the others.
    Raises: UsageError, which names the key that is wrong.
    """
    own = Sources(adr_dir=settings.adr_dir, repo=settings.repo, decision_log=settings.decision_log)
    sources = {DEFAULT_TENANT: own}
    path = settings.tenants_file
    if path is None:
        return sources
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"GROUNDWIRE_TENANTS_FILE {path}: {exc}") from None
    file = parse_toml(_SourcesFile, data, f"GROUNDWIRE_TENANTS_FILE {path}")
    for tenant, section in file.tenants.items():
        tracker: IssueTracker | None = None
        if (named := section.tracker) is not None:
            from httpx import InvalidURL  # noqa: PLC0415 - see the imports

            from groundwire.verify.issues import GitHubTracker, GitLabTracker  # noqa: PLC0415 - see the imports

            where = f"tenants.{tenant}.tracker"
            token = os.environ.get(named.token_env) if named.token_env else None
            if named.token_env and not token:
                raise UsageError(f"{where}.token_env: the variable {named.token_env} is not set")
            try:
                kind = GitHubTracker if named.kind == "github" else GitLabTracker
                tracker = kind(named.url, named.project, token)
            except (ValueError, InvalidURL) as exc:
                raise UsageError(f"{where}: {exc}") from None
        sources[tenant] = Sources(section.adr_dir, section.repo, tracker, section.decision_log)
    return sources
