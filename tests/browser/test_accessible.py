"""Every page can be read and used by everybody, as far as axe can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import pytest
from prometheus_client import start_http_server

from tests.browser.items import hostile_board
from tests.browser.reader import Reader
from tests.unit.console.rooms import worker_metrics as metrics_of

AXE: Final = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
LEVELS: Final = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
COLOUR: Final = ["color-contrast", "link-in-text-block"]
"""What can differ between light and dark."""
RUN: Final = "([type, values]) => axe.run(document, { runOnly: { type, values } })"
Go = Callable[[Reader], Any]


def violations(reader: Reader) -> list[str]:
    """Return what axe finds against WCAG 2.2 AA in light and in dark, each with the element at fault."""
    page = reader.page
    page.evaluate(AXE)
    problems = []
    for scheme, rules, least in (("light", ("tag", LEVELS), 10), ("dark", ("rule", COLOUR), 1)):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate(RUN, list(rules))
        assert len(found["passes"]) >= least, "axe has not looked at the page"
        problems += [
            f"{scheme}: {one['id']}: {node['html'][:200]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]
    return problems


@contextmanager
def worker_metrics() -> Iterator[str]:
    """Serve the metrics of a worker that waits for something."""
    limits = (("places", 4, 2_000, 0), ("bytes", 64e6, 64e6, 1), ("requests", 3, 16, 0))
    registry = metrics_of(
        "claims",
        lag_records={"claims": 1_200},
        commit_age_seconds={"claims": 3.4},
        partitions=6,
        waiting_claims=4,
        paused={"state": 1},
        tenant_most={name: most for name, most, _, _ in limits},
        tenant_limit={name: of for name, _, of, _ in limits},
        tenants_at_limit={name: full for name, _, _, full in limits},
    )
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _item(kind: str) -> Go:
    def go(reader: Reader) -> None:
        reader.open(f"/?kind={kind}")
        reader.go("Enter")

    return go


def _form(key: str) -> Go:
    def go(reader: Reader) -> None:
        reader.open("/?kind=claim")
        reader.go("Enter")
        reader.press(key)

    return go


def _answer(reader: Reader) -> None:
    """Open the response with something wrong for nearly every check, and go to the first fault."""
    reader.open("/?kind=response")
    reader.page.locator("a.open").filter(has_text="The pump in Lyon").first.click()
    reader.page.locator("#faults").wait_for()
    reader.press("f")


def _conflict(reader: Reader) -> None:
    """Open the claim that contradicts an approved one, and the form that puts it in its place."""
    reader.open("/?reason=conflicting_near_duplicate&sort=newest")
    reader.page.locator("a.open").filter(has_text="400 entries").click()
    reader.page.locator("#replace").wait_for()
    reader.press("p")


def _bulk(reader: Reader) -> None:
    reader.open("/")
    for box in reader.page.locator("#list > :not([data-own-page]) input:enabled").all()[:21]:
        box.check()
    reader.page.get_by_role("button", name="Reject selected…").click()
    reader.page.locator("#chosen").wait_for()


def _help(reader: Reader) -> None:
    reader.open("/")
    reader.press("?")


def _held(reader: Reader) -> None:
    reader.open("/")
    reader.go("Enter")
    reader.go("r", "1", "Enter")
    reader.said("Rejected")


def _refused(reader: Reader) -> None:
    reader.console.reviews.refuse += ["state_unavailable"] * 50
    _item("response")(reader)
    reader.go("a")
    reader.console.release()
    reader.page.locator(".outcome.refused").first.wait_for()


def _speculation(reader: Reader) -> None:
    _form("e")(reader)
    reader.press("Control+a")
    reader.page.keyboard.type("I think so.")
    reader.go("Control+Enter")


def _unmatched(reader: Reader) -> None:
    reader.open("/")
    reader.press("/")
    reader.page.keyboard.type("nothing says this")
    reader.go("Enter")


def _at(path: str) -> Go:
    return lambda reader: reader.open(path)


PAGES: Final[dict[str, Go]] = {
    "queue": _at("/"),
    "an empty queue": _at("/?user=nobody"),
    "a claim": _item("claim"),
    "a response": _item("response"),
    "an answer with faults": _answer,
    "a conflict": _conflict,
    "edit form": _form("e"),
    "reject form": _form("r"),
    "an edit that speculates": _speculation,
    "what nothing matches": _unmatched,
    "what comes after an action": _held,
    "responses": _at("/responses"),
    "approved list": _at("/approved"),
    "blocked list": _at("/blocked"),
    "dead letters": _at("/dead-letters"),
    "status": _at("/status"),
    "bulk confirmation": _bulk,
    "help": _help,
    "no such item": _at("/items/00000000-0000-4000-8000-000000000000"),
    "an action that was refused": _refused,
}


@pytest.mark.slow
def test_axe_finds_no_violation_of_wcag_2_2_aa_on_any_page_in_light_and_in_dark(consoles, people) -> None:
    with worker_metrics() as address:
        workers = f"{address},127.0.0.1:1"  # nobody answers at the second
        console = consoles.start_full(undo_seconds=60, workers=workers)
        reader = people(console, None)
        reader.open("/signin")
        found = {"sign-in": violations(reader)}
        reader.sign_in(console.link)
        for name, go in PAGES.items():
            go(reader)
            found[name] = violations(reader)
    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.smoke
def test_axe_finds_no_violation_on_the_pages_of_texts_that_are_long(consoles, people) -> None:
    board, ids = hostile_board()
    reader = people(consoles.start(board=board))
    found = {}
    for name in ("huge", "long-word", "address", "turned"):
        reader.open(f"/items/{ids[name]}")
        found[name] = violations(reader)
    assert {name: problems for name, problems in found.items() if problems} == {}
