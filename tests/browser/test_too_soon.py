"""Nothing is decided by accident: not on a page that was not seen yet, and not by a key that is held down."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from tests.browser.items import LEAD
from tests.browser.reader import Reader


def hold_back(reader: Reader) -> None:
    """Let pages that appear from now on stay as they are in their first 400 ms, however slow the machine is."""

    def longer(route: Route) -> None:
        answer = route.fetch()
        text = answer.text()
        assert "WAIT = 400;" in text
        headers = answer.headers | {"cache-control": "no-store"}
        route.fulfill(status=200, headers=headers, body=text.replace("WAIT = 400;", "WAIT = 600_000;"))

    reader.page.route("**/guard.js", longer)


def go_on(reader: Reader) -> None:
    """Look at the same page again, for as long as one likes."""
    reader.page.unroute_all()
    reader.page.reload()
    reader.page.locator("html.ready").wait_for(state="attached")


def decided(reader: Reader) -> list[str]:
    return [entry.order.record.subject_id for entry in reader.console.site.outbox.of(LEAD)]


def point(reader: Reader) -> tuple[float, float]:
    """The middle of the button that approves."""
    box = reader.page.locator("#approve button").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


WAYS: dict[str, Callable[[Reader], None]] = {
    "a click": lambda reader: reader.page.mouse.click(*point(reader)),
    "a tap": lambda reader: reader.page.touchscreen.tap(*point(reader)),
    "Enter": lambda reader: reader.page.locator("#approve button").press("Enter"),
    "a space": lambda reader: reader.page.locator("#approve button").press(" "),
    "its key": lambda reader: reader.page.keyboard.press("a"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_right_after_a_decision_does_not_decide_the_item_that_appears(
    consoles, people, way
) -> None:
    reader = people(consoles.start(undo_seconds=60), has_touch=True)
    reader.open("/?kind=claim")
    reader.go("Enter")
    first = reader.subject
    reader.page.locator("html.ready").wait_for(state="attached")
    hold_back(reader)
    with reader.page.expect_navigation():
        WAYS[way](reader)
    assert reader.subject != first
    WAYS[way](reader)
    assert (reader.page.evaluate("1"), decided(reader)) == (1, [first])
    assert reader.page.locator("[role=alert], .outcome.told").count() == 0, "nobody is told of it"
    go_on(reader)
    second = reader.subject
    with reader.page.expect_navigation():
        WAYS[way](reader)
    assert sorted(decided(reader)) == sorted([first, second])


def ask_for_two(reader: Reader) -> None:
    """Select two items of the list, and stand on the button that asks about them."""
    reader.open("/?sort=newest")
    for box in reader.page.locator('#list > [data-whole="true"]:not([data-own-page]) input').all()[:2]:
        box.check()
    reader.page.get_by_role("button", name="Approve selected…").focus()


def test_enter_pressed_twice_or_held_down_on_the_list_answers_no_question(consoles, people) -> None:
    reader = people(consoles.start(items=20, undo_seconds=60))
    ask_for_two(reader)
    hold_back(reader)
    reader.go("Enter")
    reader.page.keyboard.press("Enter")
    expect(reader.page.locator("#chosen")).to_have_count(1)
    assert decided(reader) == []
    reader.page.unroute_all()
    ask_for_two(reader)
    keyboard = reader.page.keyboard
    with reader.page.expect_navigation():
        keyboard.down("Enter")
    reader.page.locator("html.ready").wait_for(state="attached")
    for _ in range(10):  # as a keyboard does that repeats
        keyboard.down("Enter")
    assert (reader.page.evaluate("1"), decided(reader)) == (1, [])
    keyboard.up("Enter")
    reader.go("Enter")
    assert len(decided(reader)) == 2


def test_control_enter_held_down_sends_one_edit(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    reader.open("/?kind=claim")
    reader.go("Enter")
    subject = reader.subject
    reader.press("e")
    reader.page.locator("#content").fill("The kettle holds two litres.\n")
    keyboard = reader.page.keyboard
    keyboard.down("Enter")
    keyboard.down("Enter")  # a line break may repeat
    keyboard.up("Enter")
    assert reader.page.locator("#content").input_value().endswith("litres.\n\n\n")
    reader.page.locator("html.ready").wait_for(state="attached")
    keyboard.down("Control")
    with reader.page.expect_navigation():
        keyboard.down("Enter")
    reader.page.locator("html.ready").wait_for(state="attached")
    reader.page.locator("#edit > summary").click()
    reader.page.locator("#content").focus()
    for _ in range(5):
        keyboard.down("Enter")
    keyboard.up("Enter")
    keyboard.up("Control")
    assert decided(reader) == [subject]


def test_what_was_done_can_be_taken_back_at_once(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    reader.go("Enter")
    item = reader.item
    reader.go("a")
    hold_back(reader)
    reader.page.reload()
    with reader.page.expect_navigation():
        reader.page.keyboard.press("u")
    assert reader.item == item
    assert reader.page.locator("html.ready").count() == 0
