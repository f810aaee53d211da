"""A Chromium without a window, consoles to look at with it, and people who do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, sync_playwright

from groundwire.review.board import Board
from tests.browser.items import board_of, put, waiting
from tests.browser.reader import Complaints, Reader
from tests.browser.site import Running, filled_board, running

T = TypeVar("T")

MISSING = "there is no chromium here; on Debian: apt-get install chromium"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; where there is none, skip, and in CI, where it must be, fail."""
    path = shutil.which("chromium")
    if path is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)
    # a sandbox needs rights that root in a container does not hand on
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    # of a module, not of the session: while it is open, this thread has an event loop that no other test may meet
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


def _elsewhere(work: Callable[[], T]) -> T:
    """Do something in another thread, where no event loop runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


class Consoles:
    """Starts consoles and stops them; a stopped one has published what it held."""

    def __init__(self) -> None:
        self._running: dict[str, AbstractContextManager[Running]] = {}

    def start(self, items: int = 8, board: Board | None = None, **settings: Any) -> Running:
        """Start one over a board, or over so many mixed items."""
        unlimited = {"rate_identity": 1_000_000, "rate_address": 1_000_000}
        shown = board or _elsewhere(lambda: board_of(waiting(items)))
        manager = running(board=shown, **(unlimited | settings))
        console = _elsewhere(manager.__enter__)
        self._running[console.url] = manager
        return console

    def start_full(self, **settings: Any) -> Running:
        """Start one that has something on each of its pages: blocked claims and dead letters too."""
        board = _elsewhere(lambda: asyncio.run(filled_board(60, datetime.now(UTC))))
        put(board, *waiting(8))
        return self.start(board=board, **settings)

    def stop(self, console: Running) -> None:
        """Stop one."""
        manager = self._running.pop(console.url)
        _elsewhere(lambda: manager.__exit__(None, None, None))

    def stop_all(self) -> None:
        """Stop those that run."""
        for manager in self._running.values():
            _elsewhere(lambda manager=manager: manager.__exit__(None, None, None))


@pytest.fixture
def consoles(chromium: Browser) -> Iterator[Consoles]:
    """Consoles to look at; those that still run at the end are stopped."""
    found = Consoles()
    yield found
    found.stop_all()


@pytest.fixture
def people(chromium: Browser) -> Iterator[Callable[..., Reader]]:
    """Return people at browsers of their own; each has signed in unless a link of None is given."""
    with ExitStack() as stack:

        def arrive(console: Running, link: str | None = "", **options: Any) -> Reader:
            context = chromium.new_context(**options)
            stack.callback(context.close)
            page = context.new_page()
            complaints = Complaints(console.url)
            complaints.watch(page)
            reader = Reader(page, console, complaints)
            if link is not None:
                reader.sign_in(link or console.link)
            return reader

        yield arrive
