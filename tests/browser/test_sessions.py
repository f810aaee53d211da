"""What a person is told whose session is over, and that nothing of theirs is published then."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.items import LEAD
from tests.browser.reader import eventually

TYPED = "Corrected, at length and with care."


def _typed(reader) -> str:
    """Type an edit of an item; return its address."""
    reader.open("/?kind=claim")
    reader.go("Enter")
    reader.press("e", "Control+a")
    reader.page.keyboard.type(TYPED)
    return reader.page.url


def _is_back(reader) -> None:
    """See that what was typed stands in the form again, and send it."""
    expect(reader.page.locator("#content")).to_have_value(TYPED)
    expect(reader.page.locator("#content")).to_be_focused()
    reader.go("Control+Enter")
    reader.said("Edited and approved")


def test_who_signed_out_in_another_tab_is_told_so_and_has_what_was_typed_after_signing_in_again(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    _typed(reader)
    other = reader.page.context.new_page()
    other.goto(console.url)
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url(f"{console.url}/signin")
    reader.go("Control+Enter")
    expect(reader.page.get_by_role("heading")).to_have_text("Not signed in")
    expect(reader.page.get_by_label("The text you wrote")).to_have_value(TYPED)
    expect(reader.page.get_by_role("link", name="Sign in")).to_be_visible()
    assert console.reviews.sent == []
    reader.page.goto(console.invite(LEAD))
    reader.page.wait_for_url(f"{console.url}/items/**")
    _is_back(reader)
    consoles.stop(console)
    assert [one.content for one in console.reviews.sent] == [TYPED]


def test_a_form_of_an_older_session_is_refused_with_a_reason_and_what_was_typed_is_back_on_the_item_s_page(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    _typed(reader)
    reader.page.locator("#edit [name=csrf]").evaluate("field => { field.value = 'of another session' }")
    reader.go("Control+Enter")
    expect(reader.page.get_by_role("heading")).to_have_text("Refused")
    expect(reader.page.get_by_label("The text you wrote")).to_have_value(TYPED)
    assert console.reviews.sent == []
    reader.page.get_by_role("link", name="Open it again").click()
    _is_back(reader)
    consoles.stop(console)
    assert [one.content for one in console.reviews.sent] == [TYPED]


def test_a_page_that_is_left_keeps_what_was_typed_on_it_and_j_k_and_q_do_not_leave_an_open_form(
    consoles, people
) -> None:
    console = consoles.start()
    reader = people(console)
    address = _typed(reader)
    reader.page.locator("#title").focus()
    reader.press("j", "k", "q", "u")
    assert reader.page.url == address
    expect(reader.page.locator("#content")).to_have_value(TYPED)
    reader.go("Escape", "j")
    assert reader.page.url != address
    reader.open(address.removeprefix(console.url))
    expect(reader.page.locator("#edit > summary")).to_contain_text("unsent text")
    expect(reader.page.locator("#content")).to_have_value(TYPED)
    reader.press("e")
    reader.page.get_by_role("button", name="Discard").click()
    expect(reader.page.locator("#content")).not_to_have_value(TYPED)
    reader.page.reload()
    expect(reader.page.locator(".unsent")).to_have_count(0)


def test_a_refused_edit_is_given_back_with_the_reason_whether_the_console_refused_it_or_the_gate(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    console.reviews.refuse.append("unreadable")
    reader = people(console)
    address = _typed(reader)
    reader.page.keyboard.type(" I think so.")
    reader.go("Control+Enter")
    expect(reader.page.get_by_role("alert")).to_contain_text("speculates and cannot be approved")
    expect(reader.page.get_by_role("alert")).to_contain_text("“I think”")
    expect(reader.page.locator("#content")).to_be_focused()
    reader.press("Control+End")
    for _ in " I think so.":
        reader.press("Backspace")
    reader.go("Control+Enter")
    reader.said("Edited and approved")
    console.release()
    refused = reader.page.locator(".outcome.refused")
    expect(refused).to_contain_text("could not be read")
    refused.get_by_role("link").click()
    expect(reader.page.get_by_role("alert")).to_contain_text("Refused by the gate.")
    assert reader.page.url.startswith(address.partition("?")[0])
    expect(refused).to_have_count(0)
    _is_back(reader)


def test_nothing_that_was_typed_stays_in_the_tab_once_it_is_published_or_its_writer_signs_out(
    consoles, people
) -> None:
    kept = "Object.keys(sessionStorage).filter(name => sessionStorage.getItem(name).includes('Corrected')).length"
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    _typed(reader)
    assert reader.page.evaluate(kept) == 1
    reader.go("Control+Enter")
    reader.said("Edited and approved")
    console.release()
    expect(reader.page.locator(".outcome.held")).to_have_count(0)
    eventually(lambda: reader.page.evaluate(kept) == 0)
    _typed(reader)
    assert reader.page.evaluate(kept) == 1
    reader.page.get_by_role("button", name="Sign out").click()
    reader.page.wait_for_url(f"{console.url}/signin")
    assert reader.page.evaluate(kept) == 0


@pytest.mark.smoke
def test_a_session_that_ends_leads_to_the_sign_in_page_and_its_actions_go_nowhere(consoles, people) -> None:
    console = consoles.start(session_hours=1)
    reader = people(console)
    reader.go("Enter")
    console.clock.forward(hours=1)
    reader.go("a")
    expect(reader.page.get_by_role("heading")).to_have_text("Not signed in")
    reader.open("/")
    assert reader.page.url == f"{console.url}/signin"
    consoles.stop(console)
    assert console.reviews.sent == []


def test_while_the_console_is_away_nothing_is_sent_and_the_page_with_what_was_typed_stays(
    consoles, people
) -> None:
    console = consoles.start()
    reader = people(console)
    address = _typed(reader)
    consoles.stop(console)
    expect(reader.page.locator("#away")).to_contain_text("does not answer")
    reader.press("Control+Enter")
    reader.said("Not sent: the console does not answer.")
    assert reader.page.url == address
    expect(reader.page.locator("#content")).to_have_value(TYPED)


def test_a_sign_in_link_works_once_and_leads_to_the_page_that_was_asked_for(consoles, people) -> None:
    console = consoles.start()
    reader = people(console, None)
    reader.open("/?sort=oldest")
    assert reader.page.url == f"{console.url}/signin"
    reader.page.goto(console.link)
    reader.page.wait_for_url(f"{console.url}/?sort=oldest")
    late = people(console, None)
    late.page.goto(console.link)
    expect(late.page.locator("main")).to_contain_text("works once")
    assert console.link.partition("#")[2] not in late.page.content() + late.page.url


def test_the_secret_of_a_sign_in_link_is_in_no_request_and_not_in_the_history(consoles, people) -> None:
    console = consoles.start()
    reader = people(console, None)
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    reader.sign_in(console.link)
    secret = console.link.partition("#")[2]
    assert len(asked) > 3
    assert [url for url in asked if secret in url and "#" not in url] == []
    reader.page.go_back()
    assert secret not in reader.page.url
