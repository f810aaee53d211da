"""An open page learns what happens, and does not move under its reader."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import expect

from groundwire.console.rows import subject_of
from groundwire.review.people import Scope
from tests.browser.items import more, put
from tests.browser.site import LEAD, OWNER

SECRET = "a secret that outlives a console, 32 characters"


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
    again = consoles.start(board=console.board, port=urlsplit(console.url).port, secret=SECRET)
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
    expect(reader.page.locator("main")).to_contain_text("Nothing waits")
    put(console.board, *more(0, 4))
    expect(reader.page.locator("#news")).to_have_text("4 new: show")
    expect(reader.page.locator("main")).not_to_contain_text("Nothing waits")


def test_an_open_item_that_was_decided_elsewhere_says_so_and_keeps_what_is_typed(consoles, people) -> None:
    console = consoles.start(8)
    reader, other = people(console), people(console, console.invite(LEAD))
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
    reader = people(console)
    first = reader.ids()[0]
    row = reader.page.locator(f"#list > .item[data-id='{first}']")
    row.locator(".meta").evaluate(
        """meta => {
          const said = document.createElement("span");
          said.className = "doing-text";
          said.dataset.text = "approved by ana; waiting for the gate false";
          said.textContent = "approved by ana; waiting for the gate";
          meta.append(said);
        }"""
    )
    item = console.board.item(Scope("lead@acme.example", frozenset({"acme"}), frozenset()), first)
    console.board.settle({subject_of(item.current): None})
    expect(row).to_contain_class("gone")
    expect(row.locator(".doing-text")).to_have_text("approved by ana")
