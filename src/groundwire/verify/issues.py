"""Does an issue exist in the tracker (S0-68)?

The tracker is configured by the operator, so it may stand on a private network; what is cited is only a
number.
"""

import asyncio
import hashlib
import json
import re
from typing import Protocol
from urllib.parse import quote

import httpx

from groundwire.verify.results import CitationCheck, CitationState, Clock, utc_now
from groundwire.verify.urls import BUDGET, describe

NOT_CONFIGURED = "issue tracker not configured"
_NUMBER = re.compile(r"[0-9]{1,12}")
_GONE = frozenset({404, 410})
_MOVED = frozenset({301, 302, 307, 308})
_MAX_MOVES = 3
_MAX_BODY = 1_048_576  # bytes; a larger issue is verified without its text


class IssueTracker(Protocol):
    """What can say whether an issue exists."""

    @property
    def identity(self) -> str:
        """Tells this tracker, seen with these rights, from any other; part of the cache key, never shown."""

    @property
    def host(self) -> str:
        """Where requests go, for pacing."""

    async def exists(self, number: str, *, budget: float = BUDGET, want_text: bool = False) -> CitationCheck:
        """Look one issue up.

        Args:
            number: Digits as cited.
            budget: Seconds at most.
            want_text: Read title and body as well.

        Returns:
            Verified, not found, or unknown with the reason; it does not raise.
        """

    async def close(self) -> None:
        """Close every connection."""


class _RestTracker:
    """What the trackers share: one GET for one issue, with the token in a header."""

    _name = ""
    _body_field = ""

    def __init__(
        self,
        base_url: str,
        project: str,
        token: str | None,
        *,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None,
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
            # `exists` keeps the time; two that end at the same moment cancel each other's cleaning up
            timeout=None,  # noqa: S113
            trust_env=False,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._base)!r}, {self._project!r})"  # never the token

    @property
    def identity(self) -> str:
        """Tracker, project and a digest of the token: other rights see other issues."""
        return json.dumps([self._name, str(self._base), self._project, self._rights])

    @property
    def host(self) -> str:
        """Host of the tracker's interface."""
        return self._base.host

    async def exists(self, number: str, *, budget: float = BUDGET, want_text: bool = False) -> CitationCheck:
        """Look one issue up; see `IssueTracker.exists`."""
        text: str | None = None
        try:
            if not _NUMBER.fullmatch(number):
                state, detail = CitationState.NOT_FOUND, "Issue not found"
            else:
                async with asyncio.timeout(budget):
                    state, detail, text = await self._ask(
                        f"{self._base}{self._path(int(number))}", want_text=want_text
                    )
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the issue is unknown
            state, detail = CitationState.UNKNOWN, describe(error, budget)
        return CitationCheck(state, detail, self._clock(), text)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    def _headers(self, token: str | None) -> dict[str, str]:
        raise NotImplementedError

    def _path(self, number: int) -> str:
        raise NotImplementedError

    async def _ask(self, url: str, *, want_text: bool) -> tuple[CitationState, str, str | None]:
        target = httpx.URL(url)
        for _ in range(_MAX_MOVES + 1):
            async with self._client.stream("GET", target) as response:
                status = response.status_code
                if status == 200:
                    text = self._text(await _read(response)) if want_text else None
                    return CitationState.VERIFIED, "Issue exists", text
                moved = target.join(response.headers.get("location", "")) if status in _MOVED else target
            if moved == target or not _same_origin(moved, target):  # the token must not leave the host
                break
            target = moved
        if status in _GONE:
            return CitationState.NOT_FOUND, "Issue not found", None
        return CitationState.UNKNOWN, f"HTTP {status}", None

    def _text(self, body: bytes | None) -> str | None:
        try:
            issue = json.loads(body) if body else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(issue, dict):
            return None
        return "\n".join(str(issue[k]) for k in ("title", self._body_field) if issue.get(k))


class GitHubTracker(_RestTracker):
    """Issues (and pull requests) of one GitHub repository.

    Args:
        base_url: Of the interface, e.g. `https://api.github.com`.
        repository: `owner/name`.
        token: Sent as a bearer token to that origin only; never logged.
        clock: Gives `checked_at`.
        transport: How requests are sent; replaced in tests.

    Raises:
        ValueError: If `repository` is not `owner/name`.
    """

    _name = "github"
    _body_field = "body"

    def __init__(
        self,
        base_url: str,
        repository: str,
        token: str | None = None,
        *,
        clock: Clock = utc_now,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
            raise ValueError("repository: expected owner/name")
        super().__init__(base_url, repository, token, clock=clock, transport=transport)

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _path(self, number: int) -> str:
        return f"/repos/{self._project}/issues/{number}"


class GitLabTracker(_RestTracker):
    """Issues of one GitLab project.

    Args:
        base_url: Of the server, e.g. `https://gitlab.com`.
        project: Its path (`group/name`) or number.
        token: Sent as `PRIVATE-TOKEN` to that origin only; never logged.
        clock: Gives `checked_at`.
        transport: How requests are sent; replaced in tests.
    """

    _name = "gitlab"
    _body_field = "description"

    def __init__(
        self,
        base_url: str,
        project: str,
        token: str | None = None,
        *,
        clock: Clock = utc_now,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(base_url, project, token, clock=clock, transport=transport)

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"PRIVATE-TOKEN": token} if token else {}

    def _path(self, number: int) -> str:
        return f"/api/v4/projects/{quote(self._project, safe='')}/issues/{number}"


def _same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    return (one.scheme, one.host, one.port, one.userinfo) == (
        other.scheme,
        other.host,
        other.port,
        other.userinfo,
    )


async def _read(response: httpx.Response) -> bytes | None:
    """Return the body as sent, or None if it is too large or compressed although nobody asked for that."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > _MAX_BODY:
            return None
    return bytes(body)
