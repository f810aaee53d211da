"""Every page can be read and used by everybody, as far as axe can tell."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.resources import files
from typing import Final

import pytest
from prometheus_client import start_http_server

from tests.browser.site import Reader, hostile_board
from tests.unit.console.rooms import NOBODYS, worker_metrics

PAGES: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("/",),
    "an empty queue": ("/?user=nobody",),
    "a claim": ("/?kind=claim", "go Enter"),
    "a response": ("/?kind=response", "go Enter"),
    "an answer with faults": ("/?kind=response", "open The pump in Lyon", "see #faults", "press f"),
    "a conflict": (
        "/?reason=conflicting_near_duplicate&sort=newest",
        *("open 400 entries", "see #replace", "press p"),
    ),
    "edit form": ("/?kind=claim", "go Enter", "press e"),
    "reject form": ("/?kind=claim", "go Enter", "press r"),
    "an edit that speculates": (
        "/?kind=claim",
        *("go Enter", "press e", "press Control+a", "type I think so.", "go Control+Enter"),
    ),
    "what nothing matches": ("/?search=nothing+says+this",),
    "what comes after an action": ("/", "go Enter", "press r", "press 1", "go Enter", "see .outcome.held"),
    "responses": ("/responses",),
    "approved list": ("/approved",),
    "blocked list": ("/blocked",),
    "dead letters": ("/dead-letters",),
    "status": ("/status",),
    "bulk confirmation": ("/", "check 21", "see #chosen"),
    "help": ("/", "press ?"),
    "no such item": (f"/items/{NOBODYS}",),
    "an action that was refused": ("/?kind=response", "go Enter", "go a", "release", "see .outcome.refused"),
}
"""The path of a page and what to do there: one step is a verb and what it is done to."""


def visit(reader: Reader, name: str) -> None:
    page, (path, *steps) = reader.page, PAGES[name]
    reader.console.reviews.refuse = ["state_unavailable"] * 50 if name == "an action that was refused" else []
    reader.open(path)
    for step in steps:
        verb, _, what = step.partition(" ")
        if verb == "go":
            reader.go(what)
        elif verb == "press":
            reader.press(what)
        elif verb == "type":
            page.keyboard.type(what)
        elif verb == "open":
            page.locator("a.open").filter(has_text=what).first.click()
        elif verb == "check":
            for box in page.locator("#list > :not([data-own-page]) input:enabled").all()[: int(what)]:
                box.check()
            page.get_by_role("button", name="Reject selected…").click()
        elif verb == "release":
            reader.console.release()
        else:
            page.locator(what).first.wait_for()


def violations(reader):
    """Return what axe finds against WCAG 2.2 AA in light and in dark, each with the element at fault."""
    page = reader.page
    page.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text("utf-8"))
    run = "([type, values]) => axe.run(document, { runOnly: { type, values } })"
    problems = []
    for scheme, kind, values, least in (
        ("light", "tag", ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], 10),
        ("dark", "rule", ["color-contrast", "link-in-text-block"], 1),  # what can differ
    ):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate(run, [kind, values])
        assert len(found["passes"]) >= least, "axe has not looked at the page"
        wrong = [(one["id"], node["html"][:200]) for one in found["violations"] for node in one["nodes"]]
        problems += [(scheme, *one) for one in wrong]
    return problems


@contextmanager
def waiting_worker():
    """Serve the metrics of a worker that waits for something."""
    registry = worker_metrics(
        "claims",
        lag_records={"claims": 1_200},
        commit_age_seconds={"claims": 3.4},
        partitions=6,
        waiting_claims=4,
        paused={"state": 1},
        tenant_most={"places": 4, "bytes": 64e6, "requests": 3},
        tenant_limit={"places": 2_000, "bytes": 64e6, "requests": 16},
        tenants_at_limit={"places": 0, "bytes": 1, "requests": 0},
    )
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_axe_finds_no_violation_of_wcag_2_2_aa_on_any_page_in_light_and_in_dark(consoles, people) -> None:
    with waiting_worker() as address:
        workers = f"{address},127.0.0.1:1"  # nobody answers at the second
        console = consoles.start_full(undo_seconds=60, workers=workers)
        reader = people(console, None)
        reader.open("/signin")
        found = {"sign-in": violations(reader)}
        reader.sign_in(console.link)
        for name in PAGES:
            visit(reader, name)
            found[name] = violations(reader)
    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.smoke
def test_axe_finds_no_violation_on_the_pages_of_texts_that_are_long(consoles, people) -> None:
    board, ids = hostile_board()
    reader = people(consoles.start(board=board))
    for name in ("huge", "long-word", "address", "turned"):
        reader.open(f"/items/{ids[name]}")
        assert (name, violations(reader)) == (name, [])
