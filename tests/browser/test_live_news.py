"""An open page learns what happens, at its own window or another's, and does not move under its reader."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from groundwire.console.queue import subject_of
from tests.browser.items import LEAD, OWNER, more, put
from tests.browser.site import eventually

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


def test_a_page_says_at_once_that_the_console_is_away_and_learns_later_what_happened_meanwhile(
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
    assert reader.complaints == []


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


@pytest.mark.parametrize("answer", [{"status": 401}, {"status": 302, "headers": {"location": "/signin"}}])
def test_who_is_signed_out_is_told_so_and_let_go_on_once_signed_in_elsewhere(
    consoles, people, answer
) -> None:
    reader = people(consoles.start(8))
    page, away = reader.page, reader.page.locator("#away")
    page.route(LIVE, lambda route: route.fulfill(**answer))
    page.reload()
    expect(away).to_contain_text("signed out")
    page.unroute(LIVE)
    look(page, hidden=True)
    look(page, hidden=False)
    expect(away).to_be_hidden()


def test_an_action_is_published_once_it_cannot_be_undone_any_more_and_never_where_it_was_undone(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    reader.go("Enter")
    first, subject = reader.item, reader.subject
    reader.go("a")
    reader.said("Approved")
    reader.go("u")
    reader.said("Undone")
    assert (reader.item, console.reviews.sent) == (first, [])
    reader.go("a")
    expect(reader.page.locator(".outcome.held .left")).to_contain_text("can be undone for")
    console.release()
    expect(reader.page.locator(".outcome.held")).to_have_count(0)
    expect(reader.page.locator(".outcome form")).to_have_count(0)
    eventually(lambda: console.reviews.sent)
    reader.press("u")
    reader.said("Can't be undone any more")
    consoles.stop(console)
    assert [(one.subject_id, one.action) for one in console.reviews.sent] == [(subject, "approve")]


def test_what_is_held_is_dimmed_with_its_seconds_and_not_struck_out(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    first = reader.ids()[0]
    reader.go("Enter")
    reader.go("r", "1", "Enter")
    reader.open("/")
    row = reader.page.locator(f'[data-id="{first}"]')
    expect(row).to_contain_text("rejected by lead@acme.example; can be undone for")
    expect(row.locator(".excerpt")).to_have_css("text-decoration-line", "none")
    before = int(row.locator(".left").inner_text().split()[-2])
    eventually(lambda: int(row.locator(".left").inner_text().split()[-2]) < before)


def test_the_second_reviewer_sees_who_looks_at_an_item_on_its_page_and_in_the_list(consoles, people) -> None:
    console = consoles.start()
    lead, owner = people(console), people(console, console.invite(OWNER))
    lead.go("Enter")
    row = owner.page.locator(f'[data-id="{lead.item}"]')
    expect(row).to_contain_text("being reviewed by lead@acme.example")
    owner.open(f"/items/{lead.item}")
    expect(owner.page.get_by_role("status")).to_contain_text("Being reviewed by lead@acme.example")
    lead.open(f"/items/{lead.item}")
    expect(lead.page.locator("#reviewing")).to_have_count(0)


@pytest.mark.smoke
def test_who_acts_second_is_told_who_was_first_and_then_what_changed(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    lead, owner, late = people(console), people(console, console.invite(OWNER)), people(console, None)
    late.arrive(console.invite(OWNER))
    lead.go("Enter")
    for reader in (owner, late):
        reader.open(f"/items/{lead.item}")
    subject, item = lead.subject, lead.item
    lead.go("a")
    owner.go("r", "1", "Enter")
    problem = owner.page.get_by_role("alert")
    expect(problem).to_contain_text("An action is on its way. lead@acme.example was first.")
    assert owner.focused == "problem"
    console.release()
    eventually(lambda: console.board.item(console.scope, item).current.revision == 2)
    late.go("r", "1", "Enter")
    problem = late.page.get_by_role("alert")
    expect(problem).to_contain_text("It has changed.")
    expect(problem.locator("del").first).to_be_visible()
    expect(problem).to_contain_text("approved")
    assert late.focused == "problem"
    assert late.page.url.startswith(f"{console.url}/items/")
    assert "/actions" not in late.page.url
    late.page.reload()
    expect(problem).to_contain_text("It has changed.")
    expect(problem).to_contain_text("UTC")
    consoles.stop(console)
    sent = [(one.subject_id, one.action, one.reviewer) for one in console.reviews.sent]
    assert sent == [(subject, "approve", "lead@acme.example")]


def test_what_one_decided_leaves_the_list_of_the_other_without_moving_it(consoles, people) -> None:
    console = consoles.start(undo_seconds=0)
    lead, owner = people(console), people(console, console.invite(OWNER))
    first = lead.ids()[0]
    below = owner.page.locator("#list > .item").nth(3)
    before = below.bounding_box()
    lead.go("Enter")
    lead.go("r", "1", "Enter")
    expect(owner.page.locator(f'[data-id="{first}"]')).to_contain_class("gone")
    assert below.bounding_box() == before


def test_all_that_match_are_rejected_and_undone_by_keyboard(consoles, people) -> None:
    console = consoles.start(items=90, undo_seconds=60)
    reader = people(console)
    reader.open("/?kind=claim")
    reader.press("*")
    count = reader.page.locator("#selected-count").inner_text()
    assert int(count) > 50
    reader.go("r")
    expect(reader.page.locator("#left-out")).to_contain_text("own page")
    asked = reader.page.locator("#typed").get_attribute("pattern")
    assert reader.page.locator("#chosen > li").count() == int(asked)
    reader.page.locator("#typed").fill(asked)
    reader.page.locator("fieldset input").first.focus()
    reader.press("1")
    reader.go("Enter")
    reader.said(f"{asked} items")
    assert sum(console.site.outbox.on(item) is not None for item in reader.ids()) > 0
    reader.go("u")
    reader.said("Undone")
    assert not any(console.site.outbox.on(item) for item in reader.ids())


def test_all_that_match_holds_only_while_all_that_is_shown_is_chosen(consoles, people) -> None:
    reader = people(consoles.start(items=90))
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
    reader.go("r")
    assert page.locator("#chosen .subject").count() + page.locator("#left-out li").count() == rows - 1
