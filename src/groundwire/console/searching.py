"""What somebody searches the texts for: it never stands in a URL, so a browser's session keeps it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from groundwire.console.call import Call
from groundwire.console.sessions import MAX_SEARCH

QUEUE: Final = "queue"


class SearchFields(BaseModel):
    """A search as it is posted; `back` is the query of the list's address."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: Annotated[str, Field(max_length=MAX_SEARCH)] = ""
    back: Annotated[str, Field(max_length=2000)] = ""


def search_of(call: Call, listed: str = QUEUE) -> str:
    """Return what this browser searches a list for; a token searches for nothing that it does not send."""
    session = call.request.session
    if not call.identity.ambient or session.get("searched", QUEUE) != listed:
        return ""
    return str(session.get("search", ""))


def keep_search(call: Call, text: str, listed: str = QUEUE) -> None:
    """Keep what a browser searches a list for, in place of any other search: a cookie does not hold many."""
    if call.identity.ambient:
        call.request.session.update(search=text, searched=listed)


def clear_search(call: Call, listed: str = QUEUE) -> None:
    """Forget what this browser searches a list for, where its address says so."""
    if "all" in call.request.query_params and search_of(call, listed):
        keep_search(call, "", listed)
