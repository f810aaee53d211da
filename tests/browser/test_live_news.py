"""An open page learns what happens, at its own window or another's, and does not move under its reader."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from groundwire.console.queue import subject_of
from tests.browser.site import LEAD, OWNER, eventually, more, put

LIVE = re.compile("/api/(live|actions)$")


def look(page, *, hidden: bool) -> None:
    """Say to a page that it is hidden, or looked at: a headless browser never does."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def has_streams(reader, count: int) -> None:
    """Wait until the console serves so many streams."""
    live = reader.console.site.live
    eventually(lambda: reader.page.evaluate("1") and sum(live._streams.values()) == count)


@pytest.mark.smoke
def test_new_items_are_counted_and_shown_only_when_the_reader_asks(consoles, people) -> None:
    console = consoles.start(0)
    reader = people(console)
    page, main = reader.page, reader.page.locator("main")
    news = page.get_by_role("button", name="new")
    expect(main).to_contain_text("All done")
    put(console.board, *more(0, 8))
    expect(news).to_have_text("8 new: show")
    expect(main).not_to_contain_text("All done")
    news.click()
    expect(page.locator("#list > .item")).to_have_count(8)
    expect(news).to_be_hidden()
    reader.press("j")
    before, selected, place = reader.ids(), reader.selected, page.locator("#list").bounding_box()
    put(console.board, *more(8, 12))
    expect(news).to_be_visible()
    expect(page.locator("#total")).to_have_text("12")
    assert (reader.ids(), reader.selected) == (before, selected)
    assert page.locator("#list").bounding_box() == place
    expect(page.locator('[data-gauge="tenant-acme"] .number')).to_contain_text("12 of")


def test_a_page_says_at_once_that_the_console_does_not_answer_and_learns_later_what_happened_meanwhile(
    consoles, people
) -> None:
    secret = "a secret that outlives a console, 32 characters"
    console = consoles.start(8, secret=secret)
    reader = people(console)
    has_streams(reader, 1)
    consoles.stop(console)
    away = reader.page.locator("#away")
    expect(away).to_contain_text("does not answer")
    port, shared = urlsplit(console.url).port, console.site.shared
    again = consoles.start(board=console.board, port=port, secret=secret, shared=shared)
    put(again.board, *more(8, 12))
    news = reader.page.get_by_role("button", name="new")
    expect(news).to_have_text("4 new: show")
    expect(away).to_be_hidden()
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


def test_every_visible_tab_learns_what_happens_and_a_hidden_one_asks_once_it_is_looked_at_again(
    consoles, people
) -> None:
    console = consoles.start(8)
    reader = people(console)
    other = reader.page.context.new_page()
    other.goto(f"{console.url}/")
    put(console.board, *more(8, 12))
    for tab in (reader.page, other):
        expect(tab.get_by_role("button", name="new")).to_have_text("4 new: show")
    other.close()
    put(console.board, *more(12, 13))  # a stream that its reader left is noticed when something is sent
    news = reader.page.get_by_role("button", name="new")
    expect(news).to_have_text("5 new: show")
    has_streams(reader, 1)
    look(reader.page, hidden=True)
    put(console.board, *more(13, 14))
    has_streams(reader, 0)
    assert news.text_content() == "5 new: show"
    look(reader.page, hidden=False)
    expect(news).to_have_text("6 new: show")


def test_a_502_of_a_proxy_signs_nobody_out_and_is_asked_again(consoles, people) -> None:
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


def test_a_signed_out_page_says_so_and_works_again_once_signed_in_elsewhere(consoles, people) -> None:
    reader = people(consoles.start(8))
    page, away = reader.page, reader.page.locator("#away")

    def answering(**answer):
        return lambda route: route.fulfill(**answer)

    for answer in ({"status": 401}, {"status": 302, "headers": {"location": "/signin"}}):
        page.route(LIVE, answering(**answer))
        page.reload()
        expect(away).to_contain_text("signed out")
        page.unroute(LIVE)
        look(page, hidden=True)
        look(page, hidden=False)
        expect(away).to_be_hidden()


def test_what_is_held_shows_its_seconds_not_struck_out_and_once_they_are_over_no_way_to_undo_it(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    first = reader.ids()[0]
    reader.go("Enter")
    reader.go("a")
    reader.said("Approved")
    reader.go("u")
    reader.said("Undone")
    assert reader.item == first
    reader.go("r", "1", "Enter")
    expect(reader.page.locator(".outcome.held .left")).to_contain_text("can be undone for")
    reader.open("/")
    row = reader.page.locator(f'[data-id="{first}"]')
    expect(row).to_contain_text("rejected by lead@acme.example; can be undone for")
    expect(row.locator(".excerpt")).to_have_css("text-decoration-line", "none")
    before = int(row.locator(".left").inner_text().split()[-2])
    eventually(lambda: int(row.locator(".left").inner_text().split()[-2]) < before)
    console.release()
    expect(reader.page.locator(".outcome.held, .outcome form")).to_have_count(0)
    eventually(lambda: console.reviews.sent)
    reader.press("u")
    reader.said("Too late to undo")


def test_the_list_of_one_reviewer_shows_who_looks_at_an_item_and_does_not_move_when_it_is_decided(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=0)
    lead, owner = people(console), people(console, console.invite(OWNER))
    below = owner.page.locator("#list > .item").nth(3)
    lead.go("Enter")
    row = owner.page.locator(f'[data-id="{lead.item}"]')
    expect(row).to_contain_text("lead@acme.example has it open")
    before = below.bounding_box()
    lead.go("r", "1", "Enter")
    expect(row).to_contain_class("gone")
    assert below.bounding_box() == before


@pytest.mark.smoke
def test_who_acts_second_has_the_focus_at_what_changed_on_the_page_of_the_item(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    lead, late = people(console), people(console, console.invite(OWNER))
    page, problem = late.page, late.page.get_by_role("alert")
    lead.go("Enter")
    subject, item = lead.subject, lead.item
    late.open(f"/items/{item}")
    lead.go("a")
    console.release()
    eventually(lambda: console.board.item(console.scope, item).current.revision == 2)
    late.go("r", "1", "Enter")
    expect(problem).to_contain_text("This item has changed.")
    expect(problem.locator("del").first).to_be_visible()
    expect(problem).to_contain_text("approved")
    assert late.focused == "problem"
    assert page.url.startswith(f"{console.url}/items/")
    assert "/actions" not in page.url
    page.reload()
    expect(problem).to_contain_text("This item has changed.")
    consoles.stop(console)
    sent = [(one.subject_id, one.action, one.reviewer) for one in console.reviews.sent]
    assert sent == [(subject, "approve", "lead@acme.example")]


def test_all_that_match_are_chosen_while_all_shown_are_and_rejected_and_undone_by_keyboard(
    consoles, people
) -> None:
    console = consoles.start(items=90, undo_seconds=60)
    reader = people(console)
    reader.open("/?kind=claim")
    page, rows = reader.page, len(reader.ids())
    together, count = page.locator("#all-match"), page.locator("#selected-count")
    reader.press("*")
    expect(together).to_be_checked()
    page.locator("#list input").nth(3).uncheck()
    expect(together).not_to_be_checked()
    expect(count).to_have_text(str(rows - 1))
    together.check()
    expect(page.locator("#list input:not(:checked)")).to_have_count(0)
    expect(count).to_have_text(together.get_attribute("data-count"))
    page.locator("#list .open").first.focus()
    reader.press("x")
    expect(together).not_to_be_checked()
    reader.press("*")
    assert int(count.inner_text()) > 50
    reader.go("r")
    expect(page.locator("#left-out")).to_contain_text("open it to decide")
    asked = page.locator("#typed").get_attribute("pattern")
    assert page.locator("#chosen > li").count() == int(asked)
    page.locator("#typed").fill(asked)
    page.locator("fieldset input").first.focus()
    reader.press("1")
    reader.go("Enter")
    reader.said(f"{asked} items")
    assert any(console.site.outbox.on(item) for item in reader.ids())
    reader.go("u")
    reader.said("Undone")
    assert not any(console.site.outbox.on(item) for item in reader.ids())


def test_an_action_that_a_killed_console_never_published_is_told_on_the_open_page_and_on_the_list(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    reader.open_first()
    reader.go("a")
    reader.said("Approved")
    entry = console.site.outbox.of(LEAD)[0]
    eventually(lambda: entry.order.action_id in reader.page.evaluate("JSON.stringify({...sessionStorage})"))
    reader.page.goto("about:blank")  # the open page may tell it first, and then no other does
    console.site.outbox._entries.clear()  # as after a restart
    console.site.outbox._open.clear()
    reader.open("/")
    reader.said("Not published: the console restarted")


def test_a_key_that_came_too_early_and_a_limit_of_requests_are_told(consoles, people) -> None:
    reader = people(consoles.start())
    reader.open_first()
    reader.page.evaluate("document.documentElement.classList.remove('ready')")
    reader.page.keyboard.press("a")
    reader.said("Too early")
    assert not reader.console.reviews.sent
    reader.page.route("**/api/actions", lambda route: route.fulfill(status=429, body="{}"))
    look(reader.page, hidden=True)
    look(reader.page, hidden=False)
    reader.said("Too many requests")


def test_a_row_that_was_decided_elsewhere_is_settled_however_long_the_list_is(consoles, people) -> None:
    console = consoles.start(70)
    reader = people(console)
    reader.open("/?sort=newest")
    gone = reader.ids()[3]
    item = console.board.item(console.scope, gone)
    console.board.apply_statuses({subject_of(item.current): None})
    row = reader.page.locator(f'#list > [data-id="{gone}"]')
    expect(row).to_have_class(re.compile("gone"))
    assert reader.page.locator("#list > .gone").count() == 1
    reader.page.locator("#list > .item .open").last.focus()
    reader.go("j")
    assert "cursor=" in reader.page.url
