"""An action is published once, and only when its time for undoing is over."""

from __future__ import annotations

from tests.browser.reader import eventually


def test_what_is_undone_in_time_is_never_published_and_what_is_done_again_is_published_once(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    reader.go("Enter")
    first, subject = reader.item, reader.subject
    reader.go("a")
    reader.said("Approved")
    assert reader.item != first
    reader.go("u")
    reader.said("Undone")
    assert reader.item == first
    assert console.reviews.sent == []
    reader.go("a")
    reader.said("Approved")
    consoles.stop(console)
    assert [(one.subject_id, one.action) for one in console.reviews.sent] == [(subject, "approve")]


def test_after_the_seconds_an_action_is_published_and_the_page_says_so_without_being_reloaded(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=1)
    reader = people(console)
    reader.go("Enter")
    subject = reader.subject
    reader.go("a")
    assert reader.page.locator(".outcome.held").count() == 1
    reader.page.locator(".outcome.applied").wait_for()
    assert reader.page.locator(".outcome form").count() == 0
    eventually(lambda: [one.subject_id for one in console.reviews.sent] == [subject])
