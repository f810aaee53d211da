"""Checks that an issue exists in the tracker, and that it was not closed as not planned or a duplicate (S0-68).

The operator configures the tracker, so it may be on a private network; what is cited is only a number.
"""

import asyncio
import hashlib
import json
import re
from typing import Protocol
from urllib.parse import quote

import httpx

from groundwire.verify.results import BUDGET, CitationCheck, CitationState, Clock, utc_now
from groundwire.verify.url import describe

_MOVED = frozenset({301, 302, 307, 308})
_MAX_BODY = 1_048_576  # bytes; a larger issue is unknown


class IssueTracker(Protocol):
    """Looks issues up."""

    @property
    def identity(self) -> str:
        """Tracker, project and rights, as part of the cache key; never shown."""

    @property
    def host(self) -> str:
        """Where requests go, for pacing."""

    async def exists(self, number: str, *, budget: float = BUDGET, want_text: bool = False) -> CitationCheck:
        """Look one issue up, within `budget` seconds; never raises."""

    async def close(self) -> None: ...


class _RestTracker:
    """One GET for one issue, with the token in a header."""

    _name = ""
    _body_field = ""

    def __init__(
        self,
        base_url: str,
        project: str,
        token: str | None = None,
        *,
        clock: Clock = utc_now,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = httpx.URL(base_url.rstrip("/"))
        self._project = project
        self._rights = hashlib.sha256((token or "").encode()).hexdigest()
        self._clock = clock
        self._client = httpx.AsyncClient(
            headers={
                "User-Agent": "groundwire",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                **self._headers(token),
            },
            # `exists` keeps the time; two timeouts that end together cancel each other's cleaning up
            timeout=None,  # noqa: S113
            trust_env=False,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._base)!r}, {self._project!r})"  # never the token

    @property
    def identity(self) -> str:
        return json.dumps([self._name, str(self._base), self._project, self._rights])

    @property
    def host(self) -> str:
        return self._base.host

    async def exists(self, number: str, *, budget: float = BUDGET, want_text: bool = False) -> CitationCheck:
        state, detail = CitationState.NOT_FOUND, "Issue not found"
        text: str | None = None
        try:
            if re.fullmatch(r"[0-9]{1,12}", number):
                url = f"{self._base}{self._path(int(number))}"
                async with asyncio.timeout(budget):
                    state, detail, text = await self._ask(url, want_text=want_text)
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the issue is unknown
            state, detail = CitationState.UNKNOWN, describe(error, budget)
        return CitationCheck(state, detail, self._clock(), text)

    async def close(self) -> None:
        await self._client.aclose()

    def _headers(self, token: str | None) -> dict[str, str]:
        raise NotImplementedError

    def _path(self, number: int) -> str:
        raise NotImplementedError

    async def _ask(self, url: str, *, want_text: bool) -> tuple[CitationState, str, str | None]:
        target = httpx.URL(url)
        for _ in range(4):
            async with self._client.stream("GET", target) as response:
                status = response.status_code
                if status == 200:
                    issue = await self._read(response)
                    if issue is None:
                        return CitationState.UNKNOWN, "Issue not readable", None
                    if closed := self._closed_as(issue):
                        return CitationState.NOT_FOUND, f"Issue closed as {closed}", None
                    text = "\n".join(str(issue[k]) for k in ("title", self._body_field) if issue.get(k))
                    return CitationState.VERIFIED, "Issue exists", text if want_text else None
                moved = target.join(response.headers.get("location", "")) if status in _MOVED else target
            if moved == target or _origin(moved) != _origin(target):  # the token must not leave the host
                break
            target = moved
        if status in (404, 410):
            return CitationState.NOT_FOUND, "Issue not found", None
        return CitationState.UNKNOWN, f"HTTP {status}", None

    async def _read(self, response: httpx.Response) -> dict[str, object] | None:
        """Return the issue; None where the body is too large, compressed, or no object."""
        if response.headers.get("content-encoding", "identity") != "identity":
            return None
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > _MAX_BODY:
                return None
        try:
            issue = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return issue if isinstance(issue, dict) else None

    def _closed_as(self, issue: dict[str, object]) -> str:
        """Return why an issue was closed that nobody acts on, `not planned` or `duplicate`; empty for others."""
        raise NotImplementedError


class GitHubTracker(_RestTracker):
    """Issues (and pull requests) of one GitHub repository.

    Raises:
        ValueError: If `project` is not `owner/name`.
    """

    _name = "github"
    _body_field = "body"

    def _headers(self, token: str | None) -> dict[str, str]:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self._project, re.ASCII):
            raise ValueError("repository: expected owner/name")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _path(self, number: int) -> str:
        return f"/repos/{self._project}/issues/{number}"

    def _closed_as(self, issue: dict[str, object]) -> str:
        reason = issue.get("state_reason") if issue.get("state") == "closed" else None
        return {"not_planned": "not planned", "duplicate": "duplicate"}.get(str(reason), "")


class GitLabTracker(_RestTracker):
    """Issues of one GitLab project."""

    _name = "gitlab"
    _body_field = "description"

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"PRIVATE-TOKEN": token} if token else {}

    def _path(self, number: int) -> str:
        return f"/api/v4/projects/{quote(self._project, safe='')}/issues/{number}"

    def _closed_as(self, issue: dict[str, object]) -> str:
        """GitLab knows no reason but this one, by a link to the other issue."""
        links = issue.get("_links")
        return "duplicate" if isinstance(links, dict) and links.get("closed_as_duplicate_of") else ""


def _origin(url: httpx.URL) -> tuple[object, ...]:
    return url.scheme, url.host, url.port, url.userinfo
