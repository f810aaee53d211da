"""Without JavaScript everything is done by links and forms."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.items import OWNER


def sign_in(page: Page, link: str) -> None:
    """Type the code, as the page asks for it."""
    address, _, secret = link.partition("#")
    page.goto(address)
    page.get_by_label("One-time code").fill(secret)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.smoke
def test_one_item_is_found_edited_undone_and_rejected_without_javascript(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console, None, java_script_enabled=False)
    page = reader.page
    sign_in(page, console.link)
    page.get_by_label("Search the texts").fill("mail")
    page.get_by_role("button", name="Search").click()
    page.locator("#list .open").first.click()
    item, subject = reader.item, reader.subject
    page.locator("summary", has_text="Edit").click()
    page.get_by_label("The text as it should be remembered").fill("Better.")
    page.get_by_role("button", name="Approve the edited text").click()
    page.get_by_role("button", name="Undo").click()
    assert reader.item == item
    page.locator("summary", has_text="Reject").click()
    page.get_by_label("Outdated").check()
    page.locator("#reject-note").fill("Of last year.")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.locator("#outcomes")).to_contain_text("Rejected")
    consoles.stop(console)
    assert [(one.subject_id, one.action, one.reason, one.note) for one in console.reviews.sent] == [
        (subject, "reject", "outdated", "Of last year.")
    ]


def test_several_are_selected_and_rejected_at_once_without_javascript(consoles, people) -> None:
    console = consoles.start(100, undo_seconds=60)
    reader = people(console, None, java_script_enabled=False)
    page = reader.page
    sign_in(page, console.link)
    page.goto(f"{console.url}/?sort=newest")
    for box in page.locator("#list > :not([data-own-page]) input").all()[:22]:
        box.check()
    page.get_by_role("button", name="Reject selected…").click()
    expect(page.get_by_role("heading")).to_have_text("Reject 22 items")
    page.get_by_label("Duplicate").check()
    page.get_by_role("button", name="Reject 22").click()
    assert page.get_by_label("Type the number of items").evaluate("e => e.validity.valueMissing")
    page.get_by_label("Type the number of items").fill("22")
    page.get_by_role("button", name="Reject 22").click()
    consoles.stop(console)
    sent = console.reviews.sent
    assert {(one.action, one.reason) for one in sent} == {("reject", "duplicate")}
    assert len({one.subject_id for one in sent}) == len(sent) == 22


def test_filters_and_order_are_links_that_can_be_shared(consoles, people) -> None:
    console = consoles.start(24)
    reader = people(console, None, java_script_enabled=False)
    page = reader.page
    sign_in(page, console.link)
    page.locator("#filters > summary").click()
    page.get_by_label("Kind").select_option("response")
    page.get_by_label("Order").select_option("newest")
    page.get_by_role("button", name="Show").click()
    found = reader.ids()
    assert len(found) == 6
    other = people(console, console.invite(OWNER))
    other.page.goto(page.url)
    assert other.ids() == found
