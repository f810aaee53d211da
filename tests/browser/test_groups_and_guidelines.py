"""What a reviewer has beside an item, and decides in one go."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from groundwire.messages.decisions import Decision
from tests.browser.site import board_of, claim, in_review
from tests.browser.test_accessible import violations


@pytest.mark.smoke
def test_g_opens_the_guidelines_of_the_tenant_and_says_where_there_are_none(
    consoles, people, tmp_path
) -> None:
    (tmp_path / "acme.md").write_text("# Prices\n\nReject every price without a list.")
    for folder in (tmp_path, None):
        reader = people(consoles.start(guidelines=folder))
        reader.open_first()
        reader.press("g")
        if folder is None:
            reader.said("no guidelines")
            continue
        expect(reader.page.locator("#guidelines")).to_have_attribute("open", "")
        expect(reader.page.get_by_role("heading", name="Prices")).to_be_visible()
        assert violations(reader) == []
        reader.press("g")
        expect(reader.page.get_by_role("heading", name="Prices")).to_be_hidden()
        assert reader.complaints == []


@pytest.mark.smoke
def test_a_group_opens_and_is_decided_by_keyboard_each_item_by_its_own_action_with_one_undo(
    consoles, people
) -> None:
    texts = {f"kiln-{n}": f"The kiln in Delft is fired every {n} days." for n in range(12)}
    decisions = in_review([claim(name, text) for name, text in texts.items()])
    values = [one.model_dump(by_alias=True) | {"reason_code": "ungrounded"} for one in decisions]
    console = consoles.start(board=board_of([Decision.model_validate(one) for one in values]))
    reader = people(console)
    row = reader.page.locator("#list > .group")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("12 alike")
    reader.press("o")
    expect(row.locator(".members a")).to_have_count(12)
    expect(row.locator(".members a").first).to_be_visible()
    assert violations(reader) == []
    reader.page.set_viewport_size({"width": 320, "height": 640})
    assert reader.fits()
    reader.page.set_viewport_size({"width": 1280, "height": 720})
    reader.press("Enter")
    expect(row.locator(".members a").first).to_be_hidden()
    reader.go("a")
    expect(reader.page.get_by_role("heading", name="Approve 12 items")).to_be_visible()
    reader.go("Enter")
    expect(reader.page.locator("#list > .item.doing")).to_have_count(12)
    reader.go("u")
    expect(row).to_have_count(1)
    reader.go("r")
    reader.press("1")
    reader.go("Enter")
    reader.said("12 items")
    consoles.stop(console)
    assert sorted(one.subject_id for one in console.reviews.sent) == sorted(texts)
    assert {one.action for one in console.reviews.sent} == {"reject"}


@pytest.mark.smoke
def test_the_tour_has_four_steps_is_closed_by_keyboard_and_does_not_come_back(consoles, people) -> None:
    reader = people(consoles.start(tour=True))
    tour = reader.page.locator("#tour")
    expect(tour).to_contain_text("1 of 4")
    assert reader.selected is not None  # it takes nobody's focus
    assert violations(reader) == []
    for step in (2, 3):
        tour.get_by_role("button", name="Next").press("Enter")
        expect(tour).to_contain_text(f"{step} of 4")
    reader.open("/approved")
    expect(tour).to_contain_text("3 of 4")
    tour.get_by_role("button", name="Next").press("Enter")
    expect(tour).to_contain_text("? lists every key")
    expect(tour.locator("li:visible")).to_have_count(1)
    assert (reader.fits(), reader.focused) == (True, "tour-close")
    reader.press("Escape")
    expect(tour).to_be_hidden()
    reader.open("/")
    expect(tour).to_be_hidden()
    reader.page.evaluate("localStorage.clear()")
    assert reader.complaints == []
