"""Texts that mean harm are shown as text."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.items import HOSTILE, LEAD, hostile_board
from tests.browser.reader import eventually

NARROW = {"width": 320, "height": 700}


def fits(page) -> bool:
    """Say whether the page does not scroll sideways."""
    found: bool = page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return found


def refused(reader) -> list[str]:
    """Return what the browser refused to run."""
    return [text for text in reader.complaints.errors if "Content Security Policy" in text]


def test_the_list_shows_hostile_texts_as_text_and_stays_as_wide_as_the_window(consoles, people) -> None:
    board, ids = hostile_board()
    reader = people(consoles.start(board=board), viewport=NARROW)
    assert sorted(reader.ids()) == sorted(ids.values())
    for name, item in ids.items():
        shown = reader.page.locator(f'[data-id="{item}"] .excerpt').text_content()
        assert shown[:60] == HOSTILE[name][:60]
    assert fits(reader.page)
    reader.complaints.none()


@pytest.mark.smoke
def test_the_page_of_a_hostile_text_shows_every_letter_of_it_and_runs_and_loads_nothing(
    consoles, people
) -> None:
    board, ids = hostile_board()
    console = consoles.start(board=board, undo_seconds=60)
    reader = people(console, viewport=NARROW)
    page = reader.page
    for name, text in HOSTILE.items():
        reader.open(f"/items/{ids[name]}")
        assert page.title() == f"{name} · Groundwire"
        assert page.locator("#text").text_content() == text
        assert page.locator("#text *:not(mark)").count() == 0
        assert fits(page), name
        reader.press("e")
        assert page.locator("#content").input_value() == text
        assert fits(page), name
        page.keyboard.press("Control+End")
        page.keyboard.type("!")
        reader.go("Control+Enter")
    consoles.stop(console)
    sent = {one.subject_id: one.content for one in console.reviews.sent}
    assert sent == {name: f"{text}!" for name, text in HOSTILE.items()}
    reader.complaints.none()


def test_nothing_of_a_hostile_text_can_be_followed(consoles, people) -> None:
    board, ids = hostile_board()
    reader = people(consoles.start(board=board))
    for item in ids.values():
        reader.open(f"/items/{item}")
        addresses = reader.page.locator("a").evaluate_all("all => all.map(a => a.href)")
        assert [one for one in addresses if not one.startswith(reader.console.url)] == []
    reader.complaints.none()


def test_what_cannot_be_seen_in_a_text_is_named_and_what_turns_it_ends_with_it(consoles, people) -> None:
    board, ids = hostile_board()
    reader = people(consoles.start(board=board))
    reader.open(f"/items/{ids['turned']}")
    named = reader.page.locator("#text .m-hidden").evaluate_all("all => all.map(one => one.title)")
    assert named == ["U+202E", "U+202C", "U+2066", "U+2069", "U+200B", "U+0007"]
    expect(reader.page.locator("#text")).to_have_css("unicode-bidi", "isolate")
    reader.open("/")
    expect(reader.page.locator(f'[data-id="{ids["turned"]}"] .excerpt')).to_have_css(
        "unicode-bidi", "isolate"
    )


def test_no_page_scrolls_sideways_on_a_telephone(consoles, people) -> None:
    reader = people(consoles.start_full(), viewport=NARROW)
    for path in (
        "/",
        "/responses",
        "/approved",
        "/blocked",
        "/dead-letters",
        "/status",
    ):
        reader.open(path)
        assert fits(reader.page), path
    reader.press("?")
    assert fits(reader.page)
    reader.complaints.none()


@pytest.mark.smoke
def test_the_browser_itself_would_refuse_a_script_that_got_into_a_page(consoles, people) -> None:
    reader = people(consoles.start())
    reader.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.ran = 2'; document.body.append(s)"
    )
    # what a page says is heard while it is asked for something
    eventually(lambda: reader.page.evaluate("1") and len(refused(reader)) == 2)
    assert reader.page.evaluate("window.ran ?? null") is None


def test_on_a_telephone_what_decides_stays_in_view_and_is_large_enough_for_a_thumb(consoles, people) -> None:
    console = consoles.start_full()
    for width in (320, 390):
        reader = people(console, console.invite(LEAD), viewport={"width": width, "height": 640})
        reader.open("/?reason=conflicting_near_duplicate&sort=newest")
        reader.page.locator("a.open").filter(has_text="400 entries").click()
        approve = reader.page.locator("#approve button")
        for place in (0, 300, 10_000):
            reader.page.evaluate("top => scrollTo(0, top)", place)
            box = approve.bounding_box()
            assert 0 <= box["y"] <= 640 - box["height"]
        assert fits(reader.page)


SMALL = """() => [...document.querySelectorAll("button, summary, select, label.choice, .retract, .exports a, textarea")]
  .filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 43.9).map(one => one.outerHTML)"""
"""What is lower than a thumb needs."""


def test_on_a_telephone_no_target_is_lower_than_44_pixels_and_undo_is_within_the_window(
    consoles, people
) -> None:
    reader = people(consoles.start_full(undo_seconds=60), viewport=NARROW)
    reader.open("/?kind=claim&sort=oldest")
    reader.go("Enter")
    reader.press("e", "Control+End")
    reader.page.keyboard.type(" More.")
    reader.go("Control+Enter")
    undo = reader.page.locator(".outcome.held button").bounding_box()
    assert undo["x"] + undo["width"] <= NARROW["width"]
    small = {"/item": reader.page.evaluate(SMALL)}
    for path in ("/?kind=response", "/approved", "/status"):
        reader.open(path)
        small[path] = reader.page.evaluate(SMALL)
    assert {path: found for path, found in small.items() if found} == {}
