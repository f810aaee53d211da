"""Checks the arguments that programs give the library: an error names the argument, and never its value.

Without it None would raise from somewhere within, or worse, pass for an empty or a false value.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from types import UnionType
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_MISSING: Final = object()


async def settled(answer: Awaitable[R] | R) -> R:
    """Return what a caller's function gave, awaited where the function is asynchronous."""
    return await answer if inspect.isawaitable(answer) else answer


def takes(**types: type | UnionType) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function check the types of arguments, by name, before it runs. It raises TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = [*inspect.signature(function).parameters]
        wanted = [(names.index(name), name, kind) for name, kind in types.items()]

        def check(args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
            for position, name, kind in wanted:
                given = args[position] if position < len(args) else kwargs.get(name, _MISSING)
                if given is not _MISSING and not isinstance(given, kind):
                    words = kind.__name__ if isinstance(kind, type) else str(kind)
                    words = words.replace("collections.abc.", "")
                    raise TypeError(f"{name}: must be {words}, got {type(given).__name__}")

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            check(args, kwargs)
            return function(*args, **kwargs)

        @wraps(function)
        async def checked_later(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - what it awaits
            check(args, kwargs)
            return await cast("Any", function)(*args, **kwargs)

        return cast("Callable[P, R]", checked_later) if inspect.iscoroutinefunction(function) else checked

    return decorate
