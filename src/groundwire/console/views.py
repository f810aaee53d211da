"""Views of the queue that people saved: filters and order under a name, each person's own, at every console."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.queue import MAX_QUERY, saved_views, selected_by, views_shelf, with_query
from groundwire.console.site import Call, PageAnswer

_LASTS: Final = timedelta(days=400)
"""After which a view that was not saved again is forgotten."""
_MOST: Final = 20


def _named(value: str) -> str:
    name = " ".join(value.split())
    if not name.isprintable() or not name:
        raise ValueError("must be a name in one line")
    return name


class ViewFields(BaseModel):
    """A view to save under a name, in the place of one that has it, or with `remove` to forget."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_named)]
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""
    remove: Literal["", "yes"] = ""


async def save(call: Call) -> PageAnswer:
    """Save the filters and the order of the queue under a name, or forget what has that name."""
    fields = call.fields(ViewFields)
    query = "" if fields.remove else selected_by(fields.query).encoded(cursor=None, search=None)
    views: list[dict[str, Any]] = await saved_views(call)
    if not fields.remove and len(views) >= _MOST and fields.name not in {view["name"] for view in views}:
        raise HTTPException(409, f"There are {_MOST} views already: remove one first.")
    if not await call.site.shared.put(
        views_shelf(call), {fields.name: None if fields.remove else query}, _LASTS
    ):
        raise HTTPException(503, "Redis does not answer, so nothing was saved; try again in a moment.")
    return PageAnswer({"views": await saved_views(call)}, location=with_query("/", query))
