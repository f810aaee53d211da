"""An action is published once, and only when its time for undoing is over."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.reader import eventually


def test_an_action_is_published_once_it_cannot_be_undone_any_more_and_never_where_it_was_undone(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    reader.go("Enter")
    first, subject = reader.item, reader.subject
    reader.go("a")
    reader.said("Approved")
    reader.go("u")
    reader.said("Undone")
    assert (reader.item, console.reviews.sent) == (first, [])
    reader.go("a")
    expect(reader.page.locator(".outcome.held .left")).to_contain_text("can be undone for")
    console.release()
    expect(reader.page.locator(".outcome.held")).to_have_count(0)
    expect(reader.page.locator(".outcome form")).to_have_count(0)
    eventually(lambda: console.reviews.sent)
    reader.press("u")
    reader.said("Can't be undone any more")
    consoles.stop(console)
    assert [(one.subject_id, one.action) for one in console.reviews.sent] == [(subject, "approve")]


def test_what_is_held_is_dimmed_with_its_seconds_and_not_struck_out(consoles, people) -> None:
    reader = people(consoles.start(undo_seconds=60))
    first = reader.ids()[0]
    reader.go("Enter")
    reader.go("r", "1", "Enter")
    reader.open("/")
    row = reader.page.locator(f'[data-id="{first}"]')
    expect(row).to_contain_text("rejected by lead@acme.example; can be undone for")
    expect(row.locator(".excerpt")).to_have_css("text-decoration-line", "none")
    before = int(row.locator(".left").inner_text().split()[-2])
    eventually(lambda: int(row.locator(".left").inner_text().split()[-2]) < before)


def test_who_signs_out_is_told_that_what_is_held_is_published(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    reader.go("Enter")
    reader.go("a")
    reader.page.get_by_role("button", name="Sign out").click()
    expect(reader.page.get_by_role("status")).to_contain_text(
        "1 action that you could still undo will be published"
    )
    consoles.stop(console)
    assert len(console.reviews.sent) == 1
