"""An address holds filters, order and search: each tab has its own, and whatever one does leads back to them."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.reader import Reader


def search(reader: Reader, text: str) -> None:
    """Search as people do, from the keyboard."""
    reader.press("/")
    reader.page.keyboard.type(text)
    with reader.page.expect_navigation():
        reader.page.keyboard.press("Enter")


def test_a_search_lives_in_its_address_under_filters_back_forward_and_in_other_tabs(consoles, people) -> None:
    reader = people(consoles.start(items=40))
    page, matches = reader.page, reader.page.locator("#matches")
    whole = reader.ids()
    search(reader, "mail")
    found = reader.ids()
    assert 0 < len(found) < len(whole)
    assert "search=mail" in page.url
    search(reader, "billing")
    other = page.context.new_page()
    other.goto(reader.console.url)
    expect(other.locator("#list > .item")).to_have_count(len(whole))
    page.reload()
    expect(matches).to_contain_text("billing")
    page.go_back()
    assert reader.ids() == found
    expect(page.locator("#search")).to_have_value("mail")
    page.locator("#filter-kind").select_option("claim")
    page.locator("#sort").select_option("oldest")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(matches).to_contain_text("1 filter")
    expect(matches).to_contain_text("mail")
    filtered = reader.ids()
    page.go_back()
    assert reader.ids() == found
    page.go_forward()
    assert reader.ids() == filtered
    page.locator("#clear").click()
    expect(page.locator("#list > .item")).to_have_count(len(whole))


def test_what_is_done_to_what_a_search_found_leads_back_to_it(consoles, people) -> None:
    reader = people(consoles.start(items=40, undo_seconds=60))
    page = reader.page
    reader.open("/?sort=newest")
    search(reader, "billing")
    place, found = page.url, reader.ids()
    box = page.locator("#list > :not([data-own-page]) input").first
    box.check()
    page.get_by_role("button", name="Reject selected…").click()
    page.get_by_role("link", name="Cancel").click()
    assert page.url == place
    box.check()
    page.get_by_role("button", name="Reject selected…").click()
    page.locator("fieldset input").first.check()
    page.get_by_role("button", name="Reject 1").focus()
    reader.go("Enter")
    assert page.url == place
    reader.go("u")
    reader.go("q")
    assert page.url == place
    assert reader.ids() == found
    reader.go("Enter")
    assert page.locator("#place").inner_text() == f"1 of {len(found)}"
    reader.go("a")
    reader.go("q")
    assert page.url == place
