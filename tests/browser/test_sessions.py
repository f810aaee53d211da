"""Signing in and out, typed text when a session is over, addresses of searches, and pages without JavaScript."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.site import LEAD, Reader, eventually

TYPED = "Corrected, at length and with care."


def type_edit(reader: Reader) -> str:
    """Type an edit of an item; return its address."""
    reader.open_first()
    reader.press("e", "Control+a")
    reader.page.keyboard.type(TYPED)
    return reader.page.url


def send_again(reader: Reader) -> None:
    """Check that the form has the typed text again, and send it."""
    expect(reader.page.locator("#content")).to_have_value(TYPED)
    expect(reader.page.locator("#content")).to_be_focused()
    reader.go("Control+Enter")
    reader.said("Edited and approved")


@pytest.mark.smoke
def test_when_a_session_has_ended_its_actions_go_nowhere_and_what_was_typed_is_back_after_signing_in_again(
    consoles, people
) -> None:
    for ended in ("in another tab", "after its hours", "as a newer one began"):
        console = consoles.start(undo_seconds=60, session_hours=1)
        reader = people(console)
        page = reader.page
        type_edit(reader)
        if ended == "in another tab":
            other = page.context.new_page()
            other.goto(console.url)
            other.get_by_role("button", name="Sign out").click()
            other.wait_for_url(f"{console.url}/signin")
        elif ended == "after its hours":
            console.clock.forward(hours=1)
        else:
            page.locator("#edit [name=csrf]").evaluate("field => { field.value = 'of another session' }")
        reader.go("Control+Enter")
        newer = ended == "as a newer one began"
        expect(page.get_by_role("heading")).to_have_text("Refused" if newer else "Not signed in")
        expect(page.get_by_label("The text you wrote")).to_have_value(TYPED)
        assert console.reviews.sent == []
        if newer:
            page.get_by_role("link", name="Open it again").click()
        else:
            expect(page.get_by_role("link", name="Sign in")).to_be_visible()
            page.goto(console.invite(LEAD))
            page.wait_for_url(f"{console.url}/items/**")
        send_again(reader)
        consoles.stop(console)
        assert [one.content for one in console.reviews.sent] == [TYPED]


def test_a_page_keeps_what_was_typed_and_not_sent_where_a_approves_nothing_and_no_key_leaves_an_open_form(
    consoles, people
) -> None:
    console = consoles.start()
    reader = people(console)
    address, item = type_edit(reader), reader.item
    edit, content = reader.page.locator("#edit"), reader.page.locator("#content")
    reader.page.locator("#title").focus()
    reader.press("j", "k", "q", "u")
    assert reader.page.url == address
    expect(content).to_have_value(TYPED)
    reader.press("Escape", "a")
    expect(edit).to_have_attribute("open", "")
    expect(reader.page.locator(".outcome.told")).to_contain_text("not sent")
    reader.go("Escape", "j")
    reader.open("/")
    reader.page.locator(f'[data-id="{item}"] .open').focus()
    reader.go("a")
    assert reader.item == item
    expect(edit).to_have_attribute("open", "")
    expect(content).to_have_value(TYPED)
    reader.open(address.removeprefix(console.url))
    expect(reader.page.locator("#edit > summary")).to_contain_text("unsent text")
    reader.press("e")
    reader.page.get_by_role("button", name="Discard").click()
    expect(content).not_to_have_value(TYPED)
    reader.page.reload()
    expect(reader.page.locator(".unsent")).to_have_count(0)
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_refused_edit_is_given_back_with_the_reason_whether_the_console_refused_it_or_the_gate(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    console.reviews.refuse.append("unreadable")
    reader = people(console)
    address = type_edit(reader)
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
    send_again(reader)


def test_nothing_that_was_typed_stays_in_the_tab_once_it_is_published_or_its_writer_signs_out(
    consoles, people
) -> None:
    kept = "Object.keys(sessionStorage).filter(name => sessionStorage.getItem(name).includes('Corrected')).length"
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    type_edit(reader)
    assert reader.page.evaluate(kept) == 1
    reader.go("Control+Enter")
    reader.said("Edited and approved")
    console.release()
    expect(reader.page.locator(".outcome.held")).to_have_count(0)
    eventually(lambda: reader.page.evaluate(kept) == 0)
    type_edit(reader)
    assert reader.page.evaluate(kept) == 1
    reader.page.get_by_role("button", name="Sign out").click()
    reader.page.wait_for_url(f"{console.url}/signin")
    assert reader.page.evaluate(kept) == 0


def test_while_the_console_does_not_answer_nothing_is_sent_and_the_page_with_what_was_typed_stays(
    consoles, people
) -> None:
    console = consoles.start()
    reader = people(console)
    address = type_edit(reader)
    consoles.stop(console)
    expect(reader.page.locator("#away")).to_contain_text("does not answer")
    reader.press("Control+Enter")
    reader.said("Not sent: the console does not answer.")
    assert reader.page.url == address
    expect(reader.page.locator("#content")).to_have_value(TYPED)


def test_a_sign_in_link_works_once_leads_to_the_page_that_was_asked_for_and_keeps_its_secret(
    consoles, people
) -> None:
    console = consoles.start()
    reader, late, secret = people(console, None), people(console, None), console.link.partition("#")[2]
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    reader.open("/?sort=oldest")
    assert reader.page.url == f"{console.url}/signin"
    reader.page.goto(console.link)
    reader.page.wait_for_url(f"{console.url}/?sort=oldest")
    assert len(asked) > 3
    assert [url for url in asked if secret in url and "#" not in url] == []
    reader.page.go_back()
    assert secret not in reader.page.url
    late.page.goto(console.link)
    expect(late.page.locator("main")).to_contain_text("works once")
    assert secret not in late.page.content() + late.page.url


def test_a_search_lives_in_its_address_under_filters_back_forward_and_in_other_tabs(consoles, people) -> None:
    reader = people(consoles.start(items=40))
    page, matches = reader.page, reader.page.locator("#matches")

    def search(text: str) -> None:
        reader.press("/")
        page.keyboard.type(text)
        with page.expect_navigation():
            page.keyboard.press("Enter")

    whole = reader.ids()
    search("mail")
    found = reader.ids()
    assert 0 < len(found) < len(whole)
    assert "search=mail" in page.url
    search("billing")
    other = page.context.new_page()
    other.goto(reader.console.url)
    expect(other.locator("#list > .item")).to_have_count(len(whole))
    page.reload()
    expect(matches).to_contain_text("billing")
    page.go_back()
    assert reader.ids() == found
    expect(page.locator("#search")).to_have_value("mail")
    page.locator("#filter-reason").select_option(index=1)
    page.locator("#filter-reason").select_option(index=0)
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
    assert reader.complaints == []


@pytest.mark.smoke
def test_one_item_is_found_edited_undone_and_rejected_without_javascript(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console, None, java_script_enabled=False)
    page = reader.page
    address, _, secret = console.link.partition("#")
    page.goto(address)
    page.get_by_label("One-time code").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Search the texts").fill("mail")
    page.get_by_role("button", name="Search").click()
    page.locator("#filters > summary").click()
    page.get_by_label("Kind").select_option("claim")
    page.get_by_role("button", name="Show").click()
    assert "search=mail" in page.url
    assert "kind=claim" in page.url
    page.locator("#list .open").first.click()
    item, subject = reader.item, reader.subject
    page.locator("summary", has_text="Edit").click()
    page.get_by_label("The corrected text").fill("Better.")
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
    reader = people(console, java_script_enabled=False)
    page = reader.page
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
