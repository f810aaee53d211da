"""The whole review of a queue by keyboard alone: keys, the focus, and that nothing is decided by accident."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from groundwire.review.actions import RejectReason
from tests.browser.site import LEAD, Reader, claim, eventually, faulty_response, hostile_board, in_review, put


@pytest.mark.smoke
def test_mixed_items_are_decided_by_keyboard_alone_each_as_it_was_meant_and_once(consoles, people) -> None:
    count = 40
    console = consoles.start(count, undo_seconds=60)
    reader = people(console)
    page, meant = reader.page, {}
    reader.press("j", "k", "?", "Escape")
    reader.go("Enter")
    for turn in range(count):
        subject, item, way = reader.subject, reader.item, turn % 5
        if way == 2 and page.locator("#edit").count():
            text = f"Corrected <i>by hand</i>, number {turn}."
            reader.press("e", "Control+a")
            page.keyboard.type(text)
            reader.go("Control+Enter")
            meant[subject] = ("edit", None, None, text)
            continue
        if way == 3:  # approve, think again, and reject: only the second thought counts
            reader.go("a")
            reader.go("u")
            assert reader.item == item
        if way in (1, 3):
            reason, note = turn % len(RejectReason), ("", "<b>no</b>")[turn % 2]
            reader.press("r", str(reason + 1), *["Tab"] * bool(note))
            page.keyboard.type(note)
            reader.go(*["Tab"] * bool(note), "Enter")
            meant[subject] = ("reject", list(RejectReason)[reason], note or None, None)
        else:
            reader.go("a")
            meant[subject] = ("approve", None, None, None)
    console.release()
    eventually(lambda: console.board.counts(console.scope).total == 0)
    reader.open("/")
    expect(page.locator("main")).to_contain_text("All done")
    consoles.stop(console)
    sent = console.reviews.sent
    assert len(sent) == len({one.subject_id for one in sent}) == count
    assert {one.subject_id: (one.action, one.reason, one.note, one.content) for one in sent} == meant
    assert {one.action for one in sent} == {"approve", "reject", "edit"}
    assert reader.complaints == []


@pytest.mark.smoke
def test_j_k_and_enter_go_on_from_item_to_item_and_the_focus_comes_back_to_the_place_that_was_left(
    consoles, people
) -> None:
    reader = people(consoles.start(undo_seconds=60))
    order = reader.ids()
    assert reader.selected == order[0]
    reader.press("j", "j", "k")
    reader.go("Enter")
    assert (reader.item, reader.focused) == (order[1], "title")
    reader.go("q")
    assert reader.selected == order[1]
    reader.go("Enter")
    reader.page.go_back()
    assert reader.selected == order[1]
    reader.go("Enter")
    for key, item in (("j", order[2]), ("k", order[1]), ("k", order[0])):
        reader.go(key)
        assert reader.item == item
    for keys in (("a",), ("r", "1", "Enter"), ("u",)):
        reader.go(*keys)
        assert reader.focused == "title"
    reader.go("q")
    assert reader.ids() == order
    quick = reader.page.locator('#list > .item[data-whole="true"]:not([data-own-page]):not(.doing)').first
    quick.locator(".open").focus()
    approved = reader.selected
    reader.go("a")
    assert reader.selected == order[order.index(approved) + 1]
    expect(reader.page.locator(f'[data-id="{approved}"]')).to_contain_class("doing")


@pytest.mark.smoke
def test_keys_are_letters_where_somebody_types_and_the_browsers_with_control_or_alt(consoles, people) -> None:
    """And in a form that was opened by mouse, wherever one clicks meanwhile."""
    console = consoles.start()
    reader = people(console)
    reader.press("/")
    reader.page.keyboard.type("jkareu?x")
    assert reader.page.locator("#search").input_value() == "jkareu?x"
    reader.open("/?kind=claim")
    reader.open(f"/items/{reader.ids()[0]}")
    before = reader.item
    reader.press("Alt+a", "Control+e", "Meta+r")
    assert (reader.item, reader.page.locator("details[open]").count()) == (before, 0)
    for action in ("edit", "reject"):
        reader.page.locator(f"#{action} > summary").click()
        expect(reader.page.locator(f"#{action} :focus")).to_have_count(1)
        reader.page.locator("#title").click()
        reader.press("a", "j", "e")
        assert reader.item == before
        reader.page.locator(f"#{action} > summary").click()
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
    expect(page.locator("#left-out")).to_contain_text("open it to decide")
    reader.go("Enter")
    reader.said("2 items")
    for name in ("huge", "turned"):  # the list does not show them in full
        reader.open("/")
        page.locator(f'[data-id="{ids[name]}"] .open').focus()
        reader.go("a")
        assert reader.item == ids[name]
    consoles.stop(console)
    assert {ids[one.subject_id] for one in console.reviews.sent} == chosen


def test_shift_selects_on_from_item_to_item_and_all_between_two_clicks(consoles, people) -> None:
    reader = people(consoles.start(items=12))
    page, boxes = reader.page, reader.page.locator("#list input")

    def checked() -> list[int]:
        return [at for at, box in enumerate(boxes.all()) if box.is_checked()]

    page.locator("#list .open").nth(1).focus()
    reader.press("Shift+J", "Shift+J", "Shift+J", "Shift+K")
    assert checked() == [1, 2, 3]
    reader.press("j", "j", "Shift+K")
    assert checked() == [1, 2, 3, 4, 5]
    boxes.nth(8).click()
    boxes.nth(6).click(modifiers=["Shift"])
    assert checked() == [1, 2, 3, 4, 5, 6, 7, 8]
    expect(page.locator("#selected-count")).to_have_text("8")
    boxes.nth(1).click()
    boxes.nth(8).click(modifiers=["Shift"])
    assert checked() == []


def test_a_key_held_down_decides_no_second_item_and_what_was_done_can_be_taken_back_at_once(
    consoles, people
) -> None:
    reader = people(consoles.start(undo_seconds=60))
    reader.open(f"/items/{reader.ids()[0]}")
    reader.ready()
    subject, item = reader.subject, reader.item
    with reader.page.expect_navigation():
        reader.page.keyboard.down("a")
    reader.ready()
    for _ in range(10):  # as a keyboard does that repeats
        reader.page.keyboard.down("a")
    reader.page.keyboard.up("a")
    reader.said("Approved")
    assert decided(reader) == [subject]
    hold_back(reader)
    reader.page.reload()
    with reader.page.expect_navigation():
        reader.page.keyboard.press("u")
    assert reader.item == item
    assert reader.page.locator("html.ready").count() == 0


def test_single_letter_keys_can_be_switched_off_and_on(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open(f"/items/{reader.ids()[0]}")
    keys = reader.page.get_by_role("button", name="Keys")
    keys.click()
    reader.page.locator("#letters").uncheck()
    reader.press("Escape", "a", "r")
    assert reader.page.locator("#actions details[open]").count() == 0
    assert console.site.outbox.of(LEAD) == []
    keys.click()
    reader.page.locator("#letters").check()
    reader.press("Escape")
    reader.go("a")
    reader.said("Approved")


def test_a_form_that_opens_takes_the_focus_and_escape_gives_it_back(consoles, people) -> None:
    reader = people(consoles.start())
    reader.open_first()
    reader.press("r")
    assert reader.focused == "reason"
    expect(reader.page.locator("#reject input:checked")).to_have_count(0)
    reader.press("Enter")
    expect(reader.page.get_by_role("alert")).to_have_text("Choose a reason first.")
    assert reader.focused == "reason"
    reader.press("3")
    expect(reader.page.get_by_role("alert")).to_have_count(0)
    assert reader.page.evaluate("document.activeElement.value") == "not_verifiable"
    reader.press("Escape")
    expect(reader.page.locator("#reject > summary")).to_be_focused()
    expect(reader.page.locator("#reject")).not_to_have_attribute("open", "")
    reader.press("e")
    assert reader.focused == "content"
    reader.press("Escape")
    expect(reader.page.locator("#edit > summary")).to_be_focused()


def test_help_keeps_the_focus_inside_and_gives_it_back(consoles, people) -> None:
    reader = people(consoles.start())
    reader.press("j")
    before, page = reader.selected, reader.page
    reader.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    for _ in range(6):
        inside = page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('#help')"
        )
        assert inside
        reader.press("Tab")
    reader.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert reader.selected == before
    reader.press("?", "j", "a", "Escape")
    assert reader.selected == before


def test_the_first_tab_reaches_the_skip_link_past_the_navigation_and_what_has_the_focus_shows_it(
    consoles, people
) -> None:
    reader = people(consoles.start(), reduced_motion="reduce")
    page, unmarked = reader.page, []
    reader.open("/status")
    reader.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    reader.press("Enter")
    assert reader.focused == "main"
    reader.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")
    reader.open_first()
    for _ in range(20):
        reader.press("Tab")
        shown = page.evaluate(
            "(() => { const s = getComputedStyle(document.activeElement);"
            " return document.activeElement === document.body"
            " || (s.outlineStyle !== 'none' && s.outlineWidth !== '0px') })()"
        )
        if not shown:
            unmarked.append(reader.focused)
    assert unmarked == []


def test_who_asks_for_less_motion_gets_none(consoles, people) -> None:
    reader = people(consoles.start(), reduced_motion="reduce")
    moving = (
        "[...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e);"
        " return parseFloat(s.transitionDuration) > 0 || s.animationName !== 'none' || s.scrollBehavior === 'smooth' })"
        ".map(e => e.tagName)"
    )
    assert reader.page.evaluate(moving) == []
    reader.go("Enter")
    assert reader.page.evaluate(moving) == []
    reader.page.emulate_media(reduced_motion="no-preference")
    assert "BUTTON" in reader.page.evaluate(moving)


def hold_back(reader: Reader) -> None:
    """Let pages that appear from now on stay as they are in their first 400 ms, however slow the machine is."""

    def longer(route) -> None:
        answer = route.fetch()
        text = answer.text()
        assert "WAIT = 400;" in text
        headers = answer.headers | {"cache-control": "no-store"}
        route.fulfill(status=200, headers=headers, body=text.replace("WAIT = 400;", "WAIT = 600_000;"))

    reader.page.route("**/guard.js", longer)


def decided(reader: Reader) -> list[str]:
    """Return what its person decided, the first first."""
    return [entry.order.record.subject_id for entry in reversed(reader.console.site.outbox.of(LEAD))]


def test_what_comes_right_after_a_decision_does_not_decide_the_item_that_appears(consoles, people) -> None:
    console = consoles.start(16, undo_seconds=60)
    reader = people(console, has_touch=True)
    page, approve = reader.page, reader.page.locator("#approve button")

    def decide(way: str) -> None:
        box = approve.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        if way == "a click":
            page.mouse.click(*middle)
        elif way == "a tap":
            page.touchscreen.tap(*middle)
        elif way == "its key":
            page.keyboard.press("a")
        else:
            approve.press(way)

    reader.open_first()
    for way in ("a click", "a tap", "Enter", " ", "its key"):
        before, first = decided(reader), reader.subject
        reader.ready()
        hold_back(reader)
        with page.expect_navigation():
            decide(way)
        second = reader.subject
        decide(way)
        assert (way, page.evaluate("1"), decided(reader)) == (way, 1, [*before, first])
        reader.said("Too early")
        page.unroute_all()
        page.reload()
        reader.ready()
        with page.expect_navigation():
            decide(way)
        assert decided(reader) == [*before, first, second]


def test_enter_pressed_twice_or_held_down_on_the_list_answers_no_question(consoles, people) -> None:
    reader = people(consoles.start(items=20, undo_seconds=60))
    page, keyboard = reader.page, reader.page.keyboard

    def ask_for_two() -> None:
        reader.open("/?sort=newest")
        for box in page.locator('#list > [data-whole="true"]:not([data-own-page]) input').all()[:2]:
            box.check()
        page.get_by_role("button", name="Approve selected…").focus()

    ask_for_two()
    hold_back(reader)
    reader.go("Enter")
    keyboard.press("Enter")
    expect(page.locator("#chosen")).to_have_count(1)
    assert decided(reader) == []
    page.unroute_all()
    ask_for_two()
    with page.expect_navigation():
        keyboard.down("Enter")
    reader.ready()
    for _ in range(10):  # as a keyboard does that repeats
        keyboard.down("Enter")
    assert (page.evaluate("1"), decided(reader)) == (1, [])
    keyboard.up("Enter")
    reader.go("Enter")
    assert len(decided(reader)) == 2


def test_control_enter_held_down_sends_one_edit(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    reader.open_first()
    subject = reader.subject
    reader.press("e")
    reader.page.locator("#content").fill("The kettle holds two litres.\n")
    keyboard = reader.page.keyboard
    keyboard.down("Enter")
    keyboard.down("Enter")  # a line break may repeat
    keyboard.up("Enter")
    assert reader.page.locator("#content").input_value().endswith("litres.\n\n\n")
    reader.ready()
    keyboard.down("Control")
    with reader.page.expect_navigation():
        keyboard.down("Enter")
    reader.ready()
    reader.page.locator("#edit > summary").click()
    reader.page.locator("#content").focus()
    for _ in range(5):
        keyboard.down("Enter")
    keyboard.up("Enter")
    keyboard.up("Control")
    assert decided(reader) == [subject]


def test_a_long_text_is_approved_by_a_key_only_once_read_to_its_end_and_f_goes_to_a_tag_of_no_source(
    consoles, people
) -> None:
    console = consoles.start()
    tagged = faulty_response("tagged") | {"answer": "The pump in Lyon runs at 40 bar [source:7]."}
    long, answer = put(console.board, *in_review([claim("long-1", "The kiln is hot. " * 900), tagged]))
    reader = people(console)
    reader.open(f"/items/{long}")
    presses = 0
    while not presses or reader.page.locator(".told").count():
        reader.press("a")
        reader.said("Read the text to its end first")
        presses += 1
        text = "document.querySelector('#text')"
        if reader.page.evaluate(f"{text}.scrollTop + {text}.clientHeight >= {text}.scrollHeight - 4"):
            break
    assert presses > 3
    reader.go("a")
    reader.open(f"/items/{answer}")
    reader.press("f")
    assert "[source:7]" in reader.page.evaluate("document.activeElement.textContent")
