"""A person at a browser: signs in, presses keys, and remembers what the browser complained of."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Dialog, Page, Request, expect

from tests.browser.site import Running


@dataclass
class Complaints:
    """What a page did that a page of the console never does.

    Attributes:
        dialogs: texts of dialogs that opened.
        elsewhere: addresses outside the console that were asked for.
        errors: what the browser's console said, errors of scripts among it.
    """

    origin: str = ""
    dialogs: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def begin(self, origin: str) -> None:
        """Forget those of before; `origin` is the console that is looked at from now on."""
        self.origin = origin
        for found in (self.dialogs, self.elsewhere, self.errors):
            found.clear()

    def watch(self, page: Page) -> None:
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.elsewhere.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        self.errors.append(message.text)

    def none(self) -> None:
        """Assert that there were none."""
        assert (self.dialogs, self.elsewhere, self.errors) == ([], [], [])


@dataclass
class Reader:
    """One person at one browser window."""

    page: Page
    console: Running
    complaints: Complaints

    def sign_in(self, link: str) -> None:
        """Sign in as people do, by the link."""
        self.page.goto(link)
        self.page.wait_for_url(f"{self.console.url}/")

    def arrive(self, link: str) -> None:
        """Sign in with the secret of a link, without looking at the pages between, and look at the queue."""
        address, _, secret = link.partition("#")
        form = self.page.request.get(address).text()
        token = re.search(r'data-csrf="([^"]+)"', form)
        assert token is not None
        self.page.request.post(f"{address}/link", form={"csrf": token[1], "secret": secret}, max_redirects=0)
        self.open("/")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.console.url}{path}")

    def press(self, *keys: str) -> None:
        for key in keys:
            if key in (
                "a",
                "r",
                "p",
                "Enter",
                "Control+Enter",
            ):  # which wait until the page was there for a moment
                self.page.locator("html.ready").wait_for(state="attached")
            self.page.keyboard.press(key)

    def go(self, *keys: str) -> None:
        """Press keys of which the last one leads to another page."""
        self.press(*keys[:-1])
        with self.page.expect_navigation():
            self.press(keys[-1])

    @property
    def item(self) -> str | None:
        """The id of the item whose page is open."""
        return self.page.locator("#item").get_attribute("data-id")

    @property
    def subject(self) -> str:
        """The id of the claim or response whose page is open."""
        return self.page.locator("#title").inner_text()

    @property
    def focused(self) -> str:
        """What has the focus: its id, else its name, else its class, else its tag."""
        found: str = self.page.evaluate(
            "(() => { const e = document.activeElement; return e.id || e.name || e.className || e.tagName })()"
        )
        return found

    @property
    def selected(self) -> str | None:
        """The id of the item that has the focus in a list."""
        found: str | None = self.page.evaluate(
            "document.activeElement.closest('#list > .item')?.dataset.id ?? null"
        )
        return found

    def ids(self) -> list[str]:
        """The ids of the items of the list, in its order."""
        found: list[str] = self.page.locator("#list > .item").evaluate_all(
            "all => all.map(i => i.dataset.id)"
        )
        return found

    def said(self, text: str) -> None:
        """Wait until an outcome says a text."""
        expect(self.page.locator("#outcomes")).to_contain_text(text)


def eventually(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.05)
