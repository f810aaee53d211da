"""The whole review of a queue by keyboard alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, expect

from groundwire.messages.records import ReviewDecision
from groundwire.review.actions import RejectReason
from tests.browser.items import LEAD, hostile_board
from tests.browser.reader import Reader, eventually

COUNT = 100
NOTES = ("", "Seen before.", "<b>no</b>")
Intent = tuple[str, str | None, str | None, str | None]
"""Action, reason, note and edited text."""


@dataclass
class Keyboard:
    """A reviewer who decides each item in one of several ways, and writes down what was meant."""

    reader: Reader
    intended: dict[str, Intent] = field(default_factory=dict)

    def work(self) -> None:
        """Decide everything: several at once, some from the list, the others one after the other on their pages."""
        self.reader.press("j", "k", "?", "Escape")
        self._several("a", 8, lambda row: row.get_attribute("data-whole") == "true")
        self._several("r", 21, lambda _row: True)
        self._to_queue()
        for turn in range(2 * COUNT):  # what is too long for the list takes two turns
            if len(self.intended) == COUNT:
                return
            if self.reader.page.locator("#item").count() == 0:
                self._from_list()
            else:
                self._decide(turn)

    def _to_queue(self) -> None:
        """Go back to the queue once nothing is held any more: what is held still stands in it."""
        console = self.reader.console
        console.release()
        eventually(lambda: console.board.counts(console.scope).total == COUNT - len(self.intended))
        self.reader.go("q")

    def _several(self, key: str, count: int, wanted: Callable[[Locator], bool]) -> None:
        """Select so many in the list and decide them together; above twenty their number is typed.

        What is decided on its own page only is left alone.
        """
        reader, page = self.reader, self.reader.page
        reader.open("/?sort=newest")
        chosen = []
        rows = page.locator("#list > .item").count()
        reader.press(*["k"] * rows)
        for _ in range(rows):
            row = page.locator(f'[data-id="{reader.selected}"]')
            own_page = row.get_attribute("data-own-page") is not None
            if (
                wanted(row)
                and not own_page
                and "doing" not in row.get_attribute("class")
                and len(chosen) < count
            ):
                reader.press("x")
                chosen.append(_subject(row))
            reader.press("j")
        reader.go(key)
        assert sorted(page.locator("#chosen .subject").all_inner_texts()) == sorted(chosen)
        if key == "r":
            reader.press("3", "Tab", "Tab")
            page.keyboard.type(str(len(chosen)))
        reader.go("Enter")
        intent = ("approve", None, None, None) if key == "a" else ("reject", "not_verifiable", None, None)
        self.intended |= dict.fromkeys(chosen, intent)

    def _from_list(self) -> None:
        """Approve what the list shows in full, and open what it does not: the key is the same."""
        page = self.reader.page
        row = page.locator(f'[data-id="{self.reader.selected}"]')
        subject = _subject(row)
        if len(self.intended) % 2:
            self.reader.go("Enter")
            return
        self.reader.go("a")
        if page.locator("#item").count() == 0:
            self.intended[subject] = ("approve", None, None, None)

    def _decide(self, turn: int) -> None:
        subject = self.reader.subject
        ways = [self._approve, self._reject, self._edit, self._undo, self._reject]
        self.intended[subject] = ways[turn % len(ways)](turn)
        if turn % 11 == 10:
            self._to_queue()

    def _approve(self, turn: int) -> Intent:  # noqa: ARG002 - as the others
        self.reader.go("a")
        return ("approve", None, None, None)

    def _reject(self, turn: int) -> Intent:
        reason = turn % len(RejectReason)
        note = NOTES[turn % len(NOTES)]
        self.reader.press("r", str(reason + 1))
        if note:
            self.reader.press("Tab")
            self.reader.page.keyboard.type(note)
            self.reader.go("Tab", "Enter")
        else:
            self.reader.go("Enter")
        return ("reject", list(RejectReason)[reason], note or None, None)

    def _edit(self, turn: int) -> Intent:
        page = self.reader.page
        if page.locator("#edit").count() == 0:  # a response has no text that could be edited
            return self._approve(turn)
        text = f"Corrected <i>by hand</i>, number {turn}."
        self.reader.press("e", "Control+a")
        page.keyboard.type(text)
        self.reader.go("Control+Enter")
        return ("edit", None, None, text)

    def _undo(self, turn: int) -> Intent:
        """Approve, think again, and reject: only the second thought counts."""
        item = self.reader.item
        self.reader.go("a")
        self.reader.go("u")
        assert self.reader.item == item
        return self._reject(turn)


def _subject(row: Locator) -> str:
    return row.get_by_role("checkbox").get_attribute("aria-label").removeprefix("Select ")


def meant(action: ReviewDecision) -> Intent:
    return (action.action, action.reason, action.note, action.content)


@pytest.mark.slow
def test_a_hundred_mixed_items_are_decided_by_keyboard_alone_each_as_it_was_meant_and_once(
    consoles, people, record_property
) -> None:
    # as long as a console holds anything: whoever undoes here is never too late
    console = consoles.start(COUNT, undo_seconds=60)
    reader = people(console)
    keyboard = Keyboard(reader)
    began = time.monotonic()
    keyboard.work()
    took = time.monotonic() - began
    console.release()
    eventually(lambda: console.board.counts(console.scope).total == 0)
    reader.open("/")
    expect(reader.page.locator("main")).to_contain_text("The queue is empty.")
    consoles.stop(console)
    sent = console.reviews.sent
    assert len(sent) == len({one.subject_id for one in sent}) == COUNT
    assert {one.subject_id: meant(one) for one in sent} == keyboard.intended
    assert {one.action for one in sent} == {"approve", "reject", "edit"}
    asked = "status of 409"  # several at once are asked about first
    assert [one for one in reader.complaints.errors if asked not in one] == []
    assert reader.complaints.dialogs == reader.complaints.elsewhere == []
    each = took / COUNT * 1000
    record_property("told", f"{COUNT} items decided by keyboard in {took:.1f} s, {each:.0f} ms each")


@pytest.mark.smoke
def test_enter_opens_what_j_and_k_choose_and_j_and_k_go_on_from_item_to_item(consoles, people) -> None:
    reader = people(consoles.start())
    order = reader.ids()
    reader.press("j", "j")
    assert reader.selected == order[2]
    reader.press("k")
    assert reader.selected == order[1]
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
def test_a_key_pressed_while_somebody_types_is_a_letter_and_not_an_action(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.press("/")
    reader.page.keyboard.type("jkareu?x")
    assert reader.page.locator("#search").input_value() == "jkareu?x"
    reader.open(f"/items/{reader.ids()[0]}")
    reader.press("r", "Tab")
    reader.page.keyboard.type("aeu?")
    assert reader.page.locator("#reject-note").input_value() == "aeu?"
    consoles.stop(console)
    assert console.reviews.sent == []


def test_keys_held_with_control_or_alt_belong_to_the_browser(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.go("Enter")
    before = reader.item
    reader.press("Alt+a", "Control+e", "Meta+r")
    assert reader.item == before
    assert reader.page.locator("details[open]").count() == 0
    consoles.stop(console)
    assert console.reviews.sent == []


def test_what_is_selected_is_acted_on_and_not_the_item_that_has_the_focus(consoles, people) -> None:
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
    consoles.stop(console)
    assert {ids[one.subject_id] for one in console.reviews.sent} == chosen


def test_shift_selects_on_from_item_to_item_and_all_between_two_clicks(consoles, people) -> None:
    console = consoles.start(items=12)
    reader = people(console)
    page, boxes = reader.page, reader.page.locator("#list input")

    def chosen() -> list[int]:
        return [at for at, box in enumerate(boxes.all()) if box.is_checked()]

    page.locator("#list .open").nth(1).focus()
    reader.press("Shift+J", "Shift+J", "Shift+J", "Shift+K")
    assert chosen() == [1, 2, 3]
    reader.press("j", "j", "Shift+K")
    assert chosen() == [1, 2, 3, 4, 5]
    expect(page.locator("#selected-count")).to_have_text("5")
    boxes.nth(8).click()
    boxes.nth(6).click(modifiers=["Shift"])
    assert chosen() == [1, 2, 3, 4, 5, 6, 7, 8]
    expect(page.locator("#selected-count")).to_have_text("8")
    boxes.nth(1).click()
    boxes.nth(8).click(modifiers=["Shift"])
    assert chosen() == []
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_opens_an_edit_that_was_not_sent_and_approves_nothing(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open("/?kind=claim")
    reader.go("Enter")
    item = reader.item
    reader.press("e")
    reader.page.locator("#content").fill("Typed and not sent.")
    reader.press("Escape", "a")
    expect(reader.page.locator("#edit")).to_have_attribute("open", "")
    expect(reader.page.locator(".outcome.told")).to_contain_text("not sent")
    reader.open("/")
    reader.page.locator(f'[data-id="{item}"] .open').focus()
    reader.go("a")
    assert reader.item == item
    expect(reader.page.locator("#edit")).to_have_attribute("open", "")
    expect(reader.page.locator("#content")).to_have_value("Typed and not sent.")
    reader.page.locator("html.ready").wait_for(state="attached")
    reader.page.locator("#approve button").click()
    reader.said("Approved")
    reader.press("u")
    expect(reader.page.locator("#content")).to_have_value("Typed and not sent.")
    expect(reader.page.locator("#edit")).to_have_attribute("open", "")
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_key_held_down_decides_one_item_and_not_the_next_ones_too(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.go("Enter")
    subject = reader.subject
    reader.page.locator("html.ready").wait_for(state="attached")
    with reader.page.expect_navigation():
        reader.page.keyboard.down("a")
    for _ in range(10):  # as a keyboard does that repeats
        reader.page.keyboard.down("a")
    reader.page.keyboard.up("a")
    reader.said("Approved")
    reader.open("/")
    consoles.stop(console)
    assert [one.subject_id for one in console.reviews.sent] == [subject]


def test_what_the_list_does_not_show_in_full_is_opened_and_not_approved_from_there(consoles, people) -> None:
    board, ids = hostile_board()
    console = consoles.start(board=board)
    reader = people(console)
    for name in ("huge", "turned"):
        reader.open("/")
        reader.page.locator(f'[data-id="{ids[name]}"] .open').focus()
        reader.go("a")
        assert reader.item == ids[name]
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_key_that_was_meant_for_the_page_before_decides_nothing(consoles, people) -> None:
    console = consoles.start()
    reader = people(console)
    reader.open(f"/items/{reader.ids()[0]}")
    reader.page.keyboard.press("a")
    reader.page.locator("html.ready").wait_for(state="attached")
    assert console.site.outbox.of(LEAD) == []
    reader.go("a")
    reader.said("Approved")


def test_keys_of_single_letters_can_be_switched_off_and_on(consoles, people) -> None:
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
