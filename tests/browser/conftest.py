"""A Chromium without a window, consoles to look at with it, and people who do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from groundwire.review.board import Board
from tests.browser.items import board_of, full_board, waiting
from tests.browser.reader import Complaints, Reader
from tests.browser.site import Running, running

T = TypeVar("T")

PATIENCE = 120_000
"""Milliseconds until a browser gives up on something that must come: how fast a machine is decides nothing."""
expect.set_options(timeout=PATIENCE)

MISSING = "there is no chromium here; on Debian: apt-get install chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count what drives a browser among the slow tests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)


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
        """Start one that has something on each of its pages."""
        return self.start(board=_elsewhere(full_board), **settings)

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


class Window:
    """A browser window that goes from one test to the next; what a test left in it is taken out."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self._options = options
        self._context = browser.new_context(**options)
        self._context.set_default_timeout(PATIENCE)
        self._page = self._context.new_page()
        self._complaints = Complaints()
        self._complaints.watch(self._page)

    def open(self, console: Running) -> Reader:
        """Return somebody who looks at a console."""
        self._complaints.begin(console.url)
        return Reader(self._page, console, self._complaints)

    def clear(self) -> None:
        """Close what was opened beside it, and forget who was signed in."""
        for page in self._context.pages:
            if page is not self._page:
                page.close()
        self._page.goto("about:blank")
        self._page.unroute_all(behavior="ignoreErrors")
        motion = self._options.get("reduced_motion", "null")
        self._page.emulate_media(color_scheme="null", reduced_motion=motion)
        self._context.clear_cookies()

    def close(self) -> None:
        self._context.close()


class Windows:
    """Windows that stay open for a module: to open one takes longer than most tests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[str, list[Window]] = {}
        self._used: list[tuple[str, Window]] = []

    def take(self, **options: Any) -> Window:
        """Return a window with these options that nobody looks at."""
        kind = repr(sorted(options.items()))
        free = self._free.setdefault(kind, [])
        self._used.append((kind, free.pop() if free else Window(self._browser, **options)))
        return self._used[-1][1]

    def give_back(self) -> None:
        """End a test."""
        while self._used:
            kind, window = self._used.pop()
            window.clear()
            self._free[kind].append(window)

    def close(self) -> None:
        for window in (one for several in self._free.values() for one in several):
            window.close()


@pytest.fixture(scope="module")
def windows(chromium: Browser) -> Iterator[Windows]:
    """The windows of a module's tests."""
    found = Windows(chromium)
    yield found
    found.close()


@pytest.fixture
def people(windows: Windows) -> Iterator[Callable[..., Reader]]:
    """Return people at browsers of their own; each has signed in unless a link of None is given."""

    def arrive(console: Running, link: str | None = "", **options: Any) -> Reader:
        reader = windows.take(**options).open(console)
        if link is not None:
            reader.arrive(link or console.link)
        return reader

    yield arrive
    windows.give_back()
