"""What a person is told whose session is over, and that nothing of theirs is published then."""

from __future__ import annotations

from playwright.sync_api import expect

TYPED = "Corrected, at length and with care."


def _typed(reader) -> None:
    reader.open("/?kind=claim")
    reader.go("Enter")
    reader.press("e", "Control+a")
    reader.page.keyboard.type(TYPED)


def _comes_back(reader) -> None:
    """Go back, and find what was typed."""
    reader.page.go_back()
    expect(reader.page.locator("#content")).to_have_value(TYPED)


def test_who_signed_out_in_another_tab_is_told_so_and_nothing_is_published(consoles, people) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    _typed(reader)
    other = reader.page.context.new_page()
    other.goto(console.url)
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url(f"{console.url}/signin")
    reader.go("Control+Enter")
    expect(reader.page.get_by_role("heading")).to_have_text("Not signed in")
    expect(reader.page.get_by_role("link", name="Sign in")).to_be_visible()
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_form_of_an_older_session_is_refused_with_a_reason_and_what_was_typed_is_kept(
    consoles, people
) -> None:
    console = consoles.start(undo_seconds=60)
    reader = people(console)
    _typed(reader)
    reader.page.locator("#edit [name=csrf]").evaluate("field => { field.value = 'of another session' }")
    reader.go("Control+Enter")
    expect(reader.page.get_by_role("heading")).to_have_text("Refused")
    expect(reader.page.locator("main")).to_contain_text("reload it")
    _comes_back(reader)
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_session_that_ends_leads_to_the_sign_in_page_and_its_actions_go_nowhere(consoles, people) -> None:
    console = consoles.start(session_hours=0.002)
    reader = people(console)
    reader.go("Enter")
    reader.page.wait_for_timeout(8_000)
    reader.go("a")
    expect(reader.page.get_by_role("heading")).to_have_text("Not signed in")
    reader.open("/")
    assert reader.page.url == f"{console.url}/signin"
    consoles.stop(console)
    assert console.reviews.sent == []


def test_a_sign_in_link_works_once_and_says_so_the_second_time(consoles, people) -> None:
    console = consoles.start()
    people(console)
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
