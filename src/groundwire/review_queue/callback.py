"""Calling the program that stores an approved memory."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from groundwire.review_queue.model import PendingMemory

MemoryId = str | int | UUID
StoreCallback = Callable[..., MemoryId | Awaitable[MemoryId]]


class Storing:
    """The store callback, and which of the keywords `queue_id` and `item` it has parameters for.

    Raises:
        ValueError: it is no function.
        TypeError: it cannot take what it would be called with.
    """

    def __init__(self, callback: StoreCallback) -> None:
        if not callable(callback):
            raise ValueError("store_callback: must be a function")  # noqa: TRY004 - every bad value is a ValueError
        self._callback = callback
        self._wanted = _keywords(callback)

    async def __call__(self, item: PendingMemory) -> str:
        """Store an item.

        Returns:
            The memory id, as text.

        Raises:
            TypeError: what came back is no id.
            Exception: whatever the callback raises.
        """
        offered: dict[str, Any] = {"queue_id": item.queue_id, "item": item}
        answer = self._callback(item.evidence, **{name: offered[name] for name in self._wanted})
        memory_id = await answer if inspect.isawaitable(answer) else answer
        if isinstance(memory_id, bool) or not isinstance(memory_id, (str, int, UUID)) or memory_id == "":
            raise TypeError(f"store_callback returned no memory id but {type(memory_id).__name__}")
        return str(memory_id)


def _keywords(callback: StoreCallback) -> tuple[str, ...]:
    """Return the keywords to call with: named parameters only, so that `**kwargs` get nothing they do not know."""
    try:
        signature = inspect.signature(callback)
    except (ValueError, TypeError):  # some functions written in C do not tell
        return ()
    parameters = list(signature.parameters.values())[1:]  # the first takes the evidence, whatever its name is
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    wanted = tuple(p.name for p in parameters if p.kind in by_name and p.name in ("queue_id", "item"))
    try:
        signature.bind(None, **dict.fromkeys(wanted))
    except TypeError as error:
        call = ", ".join(["evidence", *(f"{name}=..." for name in wanted)])
        raise TypeError(
            f"store_callback: would be called as store_callback({call}), and takes {signature}: {error}; it must take"
            " the evidence first, and may have parameters queue_id and item"
        ) from None
    return wanted
