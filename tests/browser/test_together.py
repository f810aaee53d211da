"""Several people, or one at several windows: they see each other, and nobody overwrites anybody."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.items import OWNER
from tests.browser.reader import eventually


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


def test_an_action_the_gate_refuses_is_told_and_the_item_can_be_decided_again(consoles, people) -> None:
    console = consoles.start(undo_seconds=0)
    console.reviews.refuse.append("state_unavailable")
    reader = people(console)
    reader.go("Enter")
    item = reader.item
    reader.go("a")
    reader.said("Refused by the gate")
    reader.open(f"/items/{item}")
    reader.go("a")
    eventually(lambda: len(console.reviews.sent) == 2)
    reader.said("Approved")


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
