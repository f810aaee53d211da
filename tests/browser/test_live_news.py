"""An open page learns what happens, and does not move under its reader."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from groundwire.console.queue import subject_of
from tests.browser.items import LEAD, OWNER, more, put
from tests.browser.reader import eventually

SECRET = "a secret that outlives a console, 32 characters"


def of(console) -> dict[str, Any]:
    """What a console takes over from one that has ended, so that who was signed in there is signed in here."""
    return {"port": urlsplit(console.url).port, "secret": SECRET, "shared": console.site.shared}


@pytest.mark.smoke
def test_new_items_are_counted_and_shown_only_when_the_reader_asks(consoles, people) -> None:
    console = consoles.start(8)
    reader = people(console)
    page, before = reader.page, reader.ids()
    reader.press("j")
    selected, place = reader.selected, page.locator("#list").bounding_box()
    news = page.get_by_role("button", name="new")
    expect(news).to_be_hidden()
    put(console.board, *more(8, 12))
    expect(news).to_be_visible()
    expect(page.locator("#total")).to_have_text("12")
    assert (reader.ids(), reader.selected) == (before, selected)
    assert page.locator("#list").bounding_box() == place
    expect(page.locator('[data-gauge="tenant-acme"] .number')).to_contain_text("12 of")
    news.click()
    page.wait_for_load_state()
    expect(page.locator("#list > .item")).to_have_count(12)
    expect(news).to_be_hidden()


def test_a_page_that_was_open_while_the_console_was_away_learns_what_happened_meanwhile(
    consoles, people
) -> None:
    console = consoles.start(8, secret=SECRET)
    reader = people(console)
    consoles.stop(console)
    again = consoles.start(board=console.board, **of(console))
    put(again.board, *more(8, 12))
    news = reader.page.get_by_role("button", name="new")
    expect(news).to_have_text("4 new: show")
    put(again.board, *more(12, 16))
    expect(news).to_have_text("8 new: show")


def test_what_happens_between_the_making_of_a_page_and_its_connection_reaches_it(consoles, people) -> None:
    console = consoles.start(8)
    reader = people(console)

    def late(route) -> None:
        put(console.board, *more(8, 12))
        route.continue_()

    reader.page.goto("about:blank")  # else it may be the page of the sign-in that connects
    reader.page.route("**/api/live", late)
    reader.open("/")
    expect(reader.page.get_by_role("button", name="new")).to_be_visible()


def test_news_of_what_somebody_may_not_see_is_no_news_to_them(consoles, people) -> None:
    console = consoles.start(8)
    owner = people(console, console.invite(OWNER))
    strange = [one.model_copy(update={"tenant_id": "globex"}) for one in more(8, 12)]
    put(console.board, *strange, *more(12, 13))
    expect(owner.page.locator("#news")).to_have_text("1 new: show")
    expect(owner.page.locator("#total")).to_have_text("9")


def test_what_comes_to_an_empty_list_does_not_stand_above_the_word_that_nothing_waits(
    consoles, people
) -> None:
    console = consoles.start(0)
    reader = people(console)
    expect(reader.page.locator("main")).to_contain_text("The queue is empty.")
    put(console.board, *more(0, 4))
    expect(reader.page.locator("#news")).to_have_text("4 new: show")
    expect(reader.page.locator("main")).not_to_contain_text("The queue is empty.")


def test_an_open_item_that_was_decided_elsewhere_says_so_and_keeps_what_is_typed(consoles, people) -> None:
    console = consoles.start(8)
    reader, other = people(console), people(console, console.invite(LEAD))
    reader.open("/?kind=claim")
    address = f"/items/{reader.ids()[0]}"
    reader.open(address)
    page = reader.page
    moved = page.locator("#moved")
    page.locator("#edit > summary").click()
    page.locator("#content").fill("Typed at length.")
    expect(moved).to_be_hidden()
    other.open(address)
    other.press("a")
    expect(moved).to_be_visible()
    expect(page.locator("#content")).to_have_value("Typed at length.")
    moved.get_by_role("link").click()
    page.wait_for_load_state()
    assert "seen=1" in page.url


def test_changing_the_filter_by_reason_raises_no_error(consoles, people) -> None:
    console = consoles.start(8)
    reader = people(console)
    if not reader.page.locator("#filter-reason").is_visible():
        reader.page.locator("#filters > summary").click()
    reader.page.locator("#filter-reason").select_option(index=1)
    reader.page.locator("#filter-reason").select_option(index=0)
    reader.complaints.none()


def test_a_row_that_was_decided_waits_for_the_gate_no_more(consoles, people) -> None:
    console = consoles.start(8)
    console.reviews.silent = True  # the gate's answer does not come: its status tells what became of the item
    reader, other = people(console), people(console, console.invite(LEAD))
    reader.open("/?kind=claim")
    first = reader.ids()[0]
    row = reader.page.locator(f"#list > .item[data-id='{first}']")
    other.open(f"/items/{first}")
    other.go("a")
    console.release()
    expect(row.locator(".doing-text")).to_have_text(f"approved by {LEAD.name}; waiting for the gate")
    item = console.board.item(console.scope, first)
    console.board.apply_statuses({subject_of(item.current): None})
    expect(row).to_contain_class("gone")
    expect(row.locator(".doing-text")).to_have_text(f"approved by {LEAD.name}")


def _streams(console) -> int:
    """How many streams the console serves."""
    return sum(console.site.live._streams.values())


def test_every_visible_tab_learns_what_happens(consoles, people) -> None:
    console = consoles.start(8)
    reader = people(console)
    other = reader.page.context.new_page()
    other.goto(f"{console.url}/")
    put(console.board, *more(8, 12))
    for tab in (reader.page, other):
        expect(tab.get_by_role("button", name="new")).to_have_text("4 new: show")


def test_a_hidden_tab_has_no_stream_and_asks_once_it_is_looked_at_again(consoles, people) -> None:
    console = consoles.start(8)
    reader = people(console)
    eventually(lambda: reader.page.evaluate("1") and _streams(console) == 1)
    _look(reader.page, hidden=True)
    put(console.board, *more(8, 10))  # a stream that its reader left is noticed when something is sent
    eventually(lambda: reader.page.evaluate("1") and _streams(console) == 0)
    expect(reader.page.get_by_role("button", name="new")).to_be_hidden()
    _look(reader.page, hidden=False)
    expect(reader.page.get_by_role("button", name="new")).to_have_text("2 new: show")


def test_a_console_that_is_away_is_said_at_once_and_taken_back_when_it_answers(consoles, people) -> None:
    console = consoles.start(8, secret=SECRET)
    reader = people(console)
    eventually(lambda: reader.page.evaluate("1") and _streams(console) == 1)
    consoles.stop(console)
    away = reader.page.locator("#away")
    expect(away).to_contain_text("does not answer")
    consoles.start(board=console.board, **of(console))
    expect(away).to_be_hidden()


LIVE = re.compile("/api/(live|actions)$")


def test_a_proxy_that_says_the_console_is_away_signs_nobody_out_and_is_asked_again(consoles, people) -> None:
    reader = people(consoles.start(8))
    page, away, asked = reader.page, reader.page.locator("#away"), []

    def refuse(route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=502, body="Bad gateway")

    page.route(LIVE, refuse)
    reader.open(f"/items/{reader.ids()[0]}")
    page.locator("#reject > summary").click()
    page.locator("#reject-note").fill("Typed at length.")
    expect(away).to_contain_text("does not answer")
    eventually(lambda: page.evaluate("1") and sum(one.endswith("live") for one in asked) >= 3)
    assert "signed out" not in away.inner_text()
    page.unroute(LIVE)
    expect(away).to_be_hidden()
    expect(page.locator("#reject-note")).to_have_value("Typed at length.")


def _forget(route) -> None:
    route.fulfill(status=401, body="{}")


def _lead_to_sign_in(route) -> None:
    route.fulfill(status=302, headers={"location": "/signin"})


@pytest.mark.parametrize("answer", [_forget, _lead_to_sign_in])
def test_who_is_signed_out_is_told_so_and_let_go_on_once_signed_in_elsewhere(
    consoles, people, answer
) -> None:
    console = consoles.start(8)
    reader = people(console)
    page, away = reader.page, reader.page.locator("#away")
    page.route(LIVE, answer)
    page.reload()
    expect(away).to_contain_text("signed out")
    page.unroute(LIVE)
    _look(page, hidden=True)
    _look(page, hidden=False)
    expect(away).to_be_hidden()


def _look(page, *, hidden: bool) -> None:
    """Say to a page that it is hidden, or looked at: a headless browser never does."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )
