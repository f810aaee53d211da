"""What an entry is to the runner, and how its logs are listened to."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from io import StringIO
from random import Random
from typing import Any, Protocol

import structlog

from tests.fuzz.texts import CANARY


class Case(Protocol):
    """Makes one input, puts it in, and holds what comes to what is promised. Raises: what broke."""

    async def __call__(self, rng: Random) -> int:
        """Return the bytes of what was put in."""
        ...


@dataclass(frozen=True)
class Entry:
    """A way into Groundwire.

    Attributes:
        name: by which it is asked for.
        opened: gives its case; what the case needs lives as long.
        share: of the inputs of a run, relative to the others.
    """

    name: str
    opened: Callable[[], AbstractAsyncContextManager[Case]]
    share: int = 1


class Failed(AssertionError):
    """Something promised does not hold."""


def hold(promise: object, told: str) -> None:
    """Raise Failed unless a promise holds. An assertion would be silent under -O."""
    if not promise:
        raise Failed(told)


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """Take what is logged off the terminal; gives a function that returns it, and forgets it."""
    heard = StringIO()
    handler = logging.StreamHandler(heard)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers, root.level = [handler], logging.DEBUG
    settings = structlog.get_config()
    logger = structlog.PrintLoggerFactory(heard)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=logger,
        cache_logger_on_first_use=False,
    )

    def taken() -> str:
        found = heard.getvalue()
        heard.seek(0)
        heard.truncate()
        return found

    try:
        yield taken
    finally:
        root.handlers, root.level = before, level
        structlog.configure(**settings)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    hold(len(dict(pairs)) == len(pairs), "a key stands twice in what is published")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise Failed(f"{name} stands in what is published")


def read_strictly(value: bytes) -> Any:
    """Read JSON as the strictest reader does. Raises: Failed, ValueError."""
    return json.loads(value.decode(), object_pairs_hook=_once, parse_constant=_no_constant)


def quiet(logged: str, *, faults: bool = False) -> None:
    """Hold that a log tells no text, and of nothing that broke inside, unless faults may be told of."""
    hold(CANARY not in logged, "a log holds the text of a record")
    hold(CANARY.lower() not in logged.lower(), "a log holds the text of a record")
    for line in logged.splitlines():
        hold(faults or '"where":' not in line, f"something broke inside: {line[:600]}")


Opened = AsyncIterator[Any]
"""What the entries' context managers are made of."""
