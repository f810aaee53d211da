"""Where anybody can look up works, standards, vulnerabilities and issues by their ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from groundwire.checks.citations import Citation
from groundwire.errors import UsageError
from groundwire.messages.base import comma_separated
from groundwire.verify.results import CitationCheck, CitationState

if TYPE_CHECKING:
    from groundwire.config import Settings

RESOLVERS: Final[Mapping[str, str]] = {
    "doi": "https://doi.org/api/handles/{id}",
    "arxiv": "https://arxiv.org/abs/{id}",
    "pmid": "https://pubmed.ncbi.nlm.nih.gov/{id}/",
    "rfc": "https://www.rfc-editor.org/info/rfc{id}",
    "cve": "https://cveawg.mitre.org/api/cve/{id}",
    "issue": "https://api.github.com/repos/{id}",
}
"""Type of a citation -> what to ask; `{id}` is the id, of `owner/repo#4` `owner/repo/issues/4`."""

JSON: Final = frozenset({"cve", "issue"})
"""Types whose answer says more than that there is one: an id that was rejected, an issue nobody acts on."""


def load_resolvers(settings: Settings) -> dict[str, str]:
    """Return the resolvers, with those that the settings replace, `doi=https://x.org/{id}`. Raises: UsageError."""
    found = dict(RESOLVERS)
    for setting in comma_separated(settings.resolvers):
        kind, _, url = setting.partition("=")
        if kind not in RESOLVERS or not url.startswith(("http://", "https://")) or "{id}" not in url:
            kinds = ", ".join(RESOLVERS)
            raise UsageError(
                f"GROUNDWIRE_RESOLVERS: {setting!r:.100} is not TYPE=URL with {{id}}; types: {kinds}"
            )
        found[kind] = url
    return found


def url_of(citation: Citation, resolvers: Mapping[str, str]) -> str:
    """Return what to ask about a citation; empty for one of the tenant's own tracker."""
    if citation.type in {"url", "ticket"}:
        return citation.url or citation.value
    if citation.type == "issue" and "/" not in citation.value:
        return ""
    named = citation.value.replace("#", "/issues/") if citation.type == "issue" else citation.value
    return resolvers[citation.type].replace("{id}", quote(named, safe="/.:;()-_"))


# In JSON a quotation mark inside a text is escaped: no text can pass for a key. A long answer is cut at its end.
_STATE: Final = re.compile(r'"state"\s?:\s?"(\w{1,40})"')
_REASON: Final = re.compile(r'"state_reason"\s?:\s?(?:"(\w{1,40})"|null)')


def judged(kind: str, check: CitationCheck) -> CitationCheck:
    """Return an answer with what its body says: a rejected CVE and an issue closed as not planned count for nothing."""
    if not check.valid:
        return check
    state = _STATE.search(check.text or "")
    reason = _REASON.search(check.text or "")
    if state is None or (kind == "issue" and state[1] == "closed" and reason is None):
        return CitationCheck(CitationState.UNKNOWN, "answer not readable", check.checked_at)
    if kind == "cve" and state[1].lower() == "rejected":
        return CitationCheck(CitationState.NOT_FOUND, "CVE rejected", check.checked_at)
    closed = reason[1] if kind == "issue" and reason and state[1] == "closed" else None
    if closed in {"not_planned", "duplicate"}:
        detail = f"Issue closed as {closed.replace('_', ' ')}"
        return CitationCheck(CitationState.NOT_FOUND, detail, check.checked_at)
    return check
