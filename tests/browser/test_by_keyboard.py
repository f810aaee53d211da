"""The whole review of a queue by keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from groundwire.review.actions import RejectReason
from tests.browser.items import LEAD, hostile_board
from tests.browser.reader import Reader, eventually

COUNT = 40
Intent = tuple[str, str | None, str | None, str | None]
"""Action, reason, note and edited text."""


def decide(reader: Reader, turn: int) -> Intent:
    """Decide the item whose page is open in one of five ways, and return what was meant."""
    page, item = reader.page, reader.item
    way = turn % 5
    if way == 2 and page.locator("#edit").count():
        text = f"Corrected <i>by hand</i>, number {turn}."
        reader.press("e", "Control+a")
        page.keyboard.type(text)
        reader.go("Control+Enter")
        return ("edit", None, None, text)
    if way == 3:  # approve, think again, and reject: only the second thought counts
        reader.go("a")
        reader.go("u")
        assert reader.item == item
    if way in (1, 3):
        reason, note = turn % len(RejectReason), ("", "<b>no</b>")[turn % 2]
        reader.press("r", str(reason + 1), *["Tab"] * bool(note))
        page.keyboard.type(note)
        reader.go(*["Tab"] * bool(note), "Enter")
        return ("reject", list(RejectReason)[reason], note or None, None)
    reader.go("a")
    return ("approve", None, None, None)


@pytest.mark.smoke
def test_mixed_items_are_decided_by_keyboard_alone_each_as_it_was_meant_and_once(consoles, people) -> None:
    console = consoles.start(COUNT, undo_seconds=60)
    reader = people(console)
    reader.press("j", "k", "?", "Escape")
    meant: dict[str, Intent] = {}
    reader.go("Enter")
    for turn in range(COUNT):
        subject = reader.subject
        meant[subject] = decide(reader, turn)
    console.release()
    eventually(lambda: console.board.counts(console.scope).total == 0)
    reader.open("/")
    expect(reader.page.locator("main")).to_contain_text("The queue is empty.")
    consoles.stop(console)
    sent = console.reviews.sent
    assert len(sent) == len({one.subject_id for one in sent}) == COUNT
    assert {one.subject_id: (one.action, one.reason, one.note, one.content) for one in sent} == meant
    assert {one.action for one in sent} == {"approve", "reject", "edit"}
    reader.complaints.none()


@pytest.mark.smoke
def test_enter_opens_what_j_and_k_choose_and_j_and_k_go_on_from_item_to_item(consoles, people) -> None:
    reader = people(consoles.start())
    order = reader.ids()
    reader.press("j", "j")
    assert reader.selected == order[2]
    reader.press("k")
    reader.go("Enter")
    assert reader.item == order[1]
    reader.go("j")
    assert reader.item == order[2]
    reader.go("k")
    reader.go("k")
    assert reader.item == order[0]
    reader.go("q")
    assert reader.ids() == order


@pytest.mark.smoke
def test_keys_are_letters_where_somebody_types_and_the_browsers_with_control_or_alt(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.press("/")
    reader.page.keyboard.type("jkareu?x")
    assert reader.page.locator("#search").input_value() == "jkareu?x"
    reader.open(f"/items/{reader.ids()[0]}")
    before = reader.item
    reader.press("Alt+a", "Control+e", "Meta+r")
    assert (reader.item, reader.page.locator("details[open]").count()) == (before, 0)
    reader.press("r", "Tab")
    reader.page.keyboard.type("aeu?")
    assert reader.page.locator("#reject-note").input_value() == "aeu?"
    consoles.stop(console)
    assert console.reviews.sent == []


def test_selected_items_are_acted_on_and_not_the_item_that_has_the_focus(consoles, people) -> None:
    board, ids = hostile_board()
    console = consoles.start(board=board)
    reader = people(console)
    page = reader.page
    plain = page.locator('#list > [data-whole="true"]:not([data-own-page])')
    chosen = {plain.nth(0).get_attribute("data-id"), plain.nth(1).get_attribute("data-id")}
    grave = page.locator("#list > [data-own-page]").first.get_attribute("data-id")
    for item in {*chosen, grave}:
        page.locator(f'[data-id="{item}"] input').check()
    plain.nth(2).locator(".open").focus()
    reader.go("a")
    expect(page.get_by_role("heading")).to_have_text("Approve 2 items")
    expect(page.locator("#chosen .subject")).to_have_count(2)
    expect(page.locator("#left-out")).to_contain_text("decided on its own page only")
    reader.go("Enter")
    reader.said("2 items")
    for name in ("huge", "turned"):  # the list does not show them in full
        reader.open("/")
        page.locator(f'[data-id="{ids[name]}"] .open').focus()
        reader.go("a")
        assert reader.item == ids[name]
    consoles.stop(console)
    assert {ids[one.subject_id] for one in console.reviews.sent} == chosen


def checked(page: Page) -> list[int]:
    return [at for at, box in enumerate(page.locator("#list input").all()) if box.is_checked()]


def test_shift_selects_on_from_item_to_item_and_all_between_two_clicks(consoles, people) -> None:
    reader = people(consoles.start(items=12))
    page, boxes = reader.page, reader.page.locator("#list input")
    page.locator("#list .open").nth(1).focus()
    reader.press("Shift+J", "Shift+J", "Shift+J", "Shift+K")
    assert checked(page) == [1, 2, 3]
    reader.press("j", "j", "Shift+K")
    assert checked(page) == [1, 2, 3, 4, 5]
    boxes.nth(8).click()
    boxes.nth(6).click(modifiers=["Shift"])
    assert checked(page) == [1, 2, 3, 4, 5, 6, 7, 8]
    expect(page.locator("#selected-count")).to_have_text("8")
    boxes.nth(1).click()
    boxes.nth(8).click(modifiers=["Shift"])
    assert checked(page) == []


def test_a_opens_an_edit_that_was_not_sent_and_approves_nothing(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open("/?kind=claim")
    reader.go("Enter")
    item, edit, content = reader.item, reader.page.locator("#edit"), reader.page.locator("#content")
    reader.press("e")
    content.fill("Typed and not sent.")
    reader.press("Escape", "a")
    expect(edit).to_have_attribute("open", "")
    expect(reader.page.locator(".outcome.told")).to_contain_text("not sent")
    reader.open("/")
    reader.page.locator(f'[data-id="{item}"] .open').focus()
    reader.go("a")
    assert reader.item == item
    expect(edit).to_have_attribute("open", "")
    expect(content).to_have_value("Typed and not sent.")
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_key_held_down_or_meant_for_the_page_before_decides_no_second_item(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open(f"/items/{reader.ids()[0]}")
    reader.page.keyboard.press("a")
    reader.page.locator("html.ready").wait_for(state="attached")
    assert console.site.outbox.of(LEAD) == []
    subject = reader.subject
    with reader.page.expect_navigation():
        reader.page.keyboard.down("a")
    for _ in range(10):  # as a keyboard does that repeats
        reader.page.keyboard.down("a")
    reader.page.keyboard.up("a")
    reader.said("Approved")
    reader.open("/")
    consoles.stop(console)
    assert [one.subject_id for one in console.reviews.sent] == [subject]


def test_single_letter_keys_can_be_switched_off_and_on(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open(f"/items/{reader.ids()[0]}")
    keys = reader.page.get_by_role("button", name="Keys")
    keys.click()
    reader.page.locator("#letters").uncheck()
    reader.press("Escape", "a", "r")
    assert reader.page.locator("details[open]").count() == 0
    assert console.site.outbox.of(LEAD) == []
    keys.click()
    reader.page.locator("#letters").check()
    reader.press("Escape")
    reader.go("a")
    reader.said("Approved")
