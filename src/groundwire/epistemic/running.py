"""Runs coroutines for plain functions, in one event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Runner:
    """The loop: made when it is first needed, and kept, as connections and limits of clients belong to a loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_on, args=(self._loop,), name="groundwire-verifier", daemon=True
                )
                thread.start()
            return self._loop


def _run_on(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop for ever: what would end it belongs to the caller that asked for it."""
    while True:
        with suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()


_runner = _Runner()


def _start_afresh() -> None:
    global _runner  # noqa: PLW0603 - a child process has the parent's loop, but not its thread
    _runner = _Runner()


os.register_at_fork(after_in_child=_start_afresh)


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, and wait for it.

    So a plain function may ask a model wherever it is called, inside a running loop too.

    Raises:
        RuntimeError: called by what itself runs there: it would wait for itself.
    """
    loop = _runner.loop()
    if _running() is loop:
        coroutine.close()
        raise RuntimeError("a client of a verification must not wait for another verification: await it")
    job = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return job.result()
    except BaseException:
        job.cancel()  # the caller was interrupted: nobody waits any more
        raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
