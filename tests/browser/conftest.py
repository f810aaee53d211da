"""A Chromium without a window, consoles to look at with it, and people who do."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from groundwire.review.board import Board
from tests.browser.site import Reader, Running, board_of, full_board, running, waiting

PATIENCE = 120_000
"""Milliseconds until a browser gives up on something that must come: how fast a machine is decides nothing."""
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count what drives a browser among the slow tests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def chromium():
    """Debian's Chromium; where there is none, skip, and in CI, where it must be, fail."""
    path = shutil.which("chromium")
    if path is None:
        missing = "there is no chromium here; on Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    # a sandbox needs rights that root in a container does not hand on
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    # of a module, not of the session: while it is open, this thread has an event loop that no other test may meet
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


class Consoles:
    """Starts consoles and stops them; a stopped one has published what it held."""

    def __init__(self) -> None:
        self._running = {}

    def start(self, items: int = 8, board: Board | None = None, **settings: Any) -> Running:
        settings = {"rate_identity": 1_000_000, "rate_address": 1_000_000} | settings
        manager = running(board or board_of(waiting(items)), **settings)
        console = manager.__enter__()
        self._running[console.url] = manager
        return console

    def start_full(self, **settings: Any) -> Running:
        return self.start(board=full_board(), **settings)

    def stop(self, *consoles: Running) -> None:
        for url in [one.url for one in consoles] or list(self._running):
            self._running.pop(url).__exit__(None, None, None)


@pytest.fixture
def consoles(chromium):
    """Consoles to look at; those that still run at the end are stopped."""
    found = Consoles()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def windows(chromium):
    """Free windows by their options, which stay open for a module: to open one takes longer than most tests."""
    free = defaultdict(list)
    yield free
    for reader in (one for several in free.values() for one in several):
        reader.page.context.close()


@pytest.fixture
def people(chromium, windows):
    """Return people at browsers of their own; each has signed in unless a link of None is given."""
    used = []

    def arrive(console: Running, link: str | None = "", **options: Any) -> Reader:
        kind = repr(sorted(options.items()))
        if not windows[kind]:
            context = chromium.new_context(**options)
            context.set_default_timeout(PATIENCE)
            windows[kind].append(Reader(context.new_page(), console))
        reader = windows[kind].pop()
        reader.console = console
        reader.complaints.clear()
        used.append((kind, reader, options.get("reduced_motion", "null")))
        if link is not None:
            reader.arrive(link or console.link)
        return reader

    yield arrive
    for kind, reader, motion in used:  # what a test left in a window is taken out
        page = reader.page
        for other in page.context.pages:
            if other is not page:
                other.close()
        page.goto("about:blank")
        page.unroute_all(behavior="ignoreErrors")
        page.emulate_media(color_scheme="null", reduced_motion=motion)
        page.context.clear_cookies()
        windows[kind].append(reader)
