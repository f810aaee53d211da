"""The focus is where a person at a keyboard expects it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect


def test_the_focus_begins_at_the_first_item_goes_to_titles_and_comes_back_to_the_place_that_was_left(
    consoles, people
) -> None:
    reader = people(consoles.start(undo_seconds=60))
    assert reader.selected == reader.ids()[0]
    reader.press("j", "j", "j")
    left = reader.selected
    reader.go("Enter")
    assert reader.focused == "title"
    reader.go("q")
    assert reader.selected == left
    reader.go("Enter")
    reader.page.go_back()
    assert reader.selected == left
    reader.go("Enter")
    for keys in (("a",), ("r", "1", "Enter"), ("u",)):
        reader.go(*keys)
        assert reader.focused == "title"


@pytest.mark.smoke
def test_after_an_approval_from_the_list_the_next_undecided_item_has_the_focus(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    quick = reader.page.locator('#list > .item[data-whole="true"]:not([data-own-page])').first
    quick.locator(".open").focus()
    approved, order = reader.selected, reader.ids()
    reader.go("a")
    assert reader.selected == order[order.index(approved) + 1]
    expect(reader.page.locator(f'[data-id="{approved}"]')).to_contain_class("doing")


def test_a_form_that_opens_takes_the_focus_and_escape_gives_it_back(consoles, people) -> None:
    reader = people(consoles.start())
    reader.open("/?kind=claim")
    reader.go("Enter")
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


def test_the_first_tab_reaches_the_skip_link_and_it_leads_past_the_navigation(consoles, people) -> None:
    reader = people(consoles.start(), reduced_motion="reduce")
    page = reader.page
    reader.open("/status")
    reader.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    reader.press("Enter")
    assert reader.focused == "main"
    reader.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")


def test_everything_that_has_the_focus_shows_it(consoles, people) -> None:
    reader = people(consoles.start())
    reader.go("Enter")
    unmarked = []
    for _ in range(20):
        reader.press("Tab")
        shown = reader.page.evaluate(
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


def test_a_form_that_is_opened_by_mouse_has_the_focus_and_letters_are_no_actions_in_it(consoles, people):
    console = consoles.start()
    reader = people(console)
    reader.open("/?kind=claim")
    reader.open(f"/items/{reader.ids()[0]}")
    for action in ("edit", "reject"):
        before = reader.item
        reader.page.locator(f"#{action} > summary").click()
        expect(reader.page.locator(f"#{action} :focus")).to_have_count(1)
        reader.page.locator("#title").click()
        reader.press("a", "j", "e")
        assert reader.item == before
        reader.page.locator(f"#{action} > summary").click()
    consoles.stop(console)
    assert console.reviews.sent == []
