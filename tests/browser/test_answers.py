"""A response is judged from what its page shows: the answer beside its sources."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.items import HOSTILE, board_of, faulty_response, in_review
from tests.browser.test_hostile import NARROW, fits


def opened(consoles, people, record, **options):
    """Somebody at the page of a response."""
    decided = in_review([record])
    reader = people(consoles.start(board=board_of(decided)), **options)
    reader.open(f"/items/{decided[0].decision_id}")
    return reader


@pytest.mark.smoke
def test_by_keyboard_one_goes_from_fault_to_fault_and_sees_what_the_source_says(consoles, people) -> None:
    reader = opened(consoles, people, faulty_response())
    lit = reader.page.locator(".place.lit")
    reader.press("f")
    expect(lit).to_have_text("The pump in Lyon runs at 40 bar.")
    expect(lit).to_have_class("place lit against")
    reader.press("f")
    expect(lit).to_have_text("Visitors are not allowed in the pump hall.")
    reader.press("F")
    expect(lit).to_have_text("The pump in Lyon runs at 40 bar.")
    reader.complaints.none()


def test_a_place_under_the_pointer_shows_the_claims_that_rest_on_it(consoles, people) -> None:
    reader = opened(consoles, people, faulty_response())
    reader.page.locator(".place", has_text="serviced every 30 days").hover()
    expect(reader.page.locator("#answer .lit")).to_contain_text("It is serviced every 30 days")


def test_an_answer_and_sources_that_mean_harm_are_shown_as_text_and_fit_a_telephone(consoles, people) -> None:
    for number, text in enumerate(HOSTILE.values()):
        chunk = {"chunk_id": text[:50], "file": text[:50], "content": text, "start_line": 1, "end_line": 1}
        record = faulty_response(f"harm-{number}") | {"answer": f"{text} 7", "chunks": [chunk], "query": text}
        reader = opened(consoles, people, record, viewport=NARROW)
        assert reader.page.locator("#answer").text_content() == f"{text} 7"
        assert reader.page.locator("#question").text_content() == text
        assert reader.page.locator("#answer *:not(mark, a.claim)").count() == 0
        assert fits(reader.page)
        reader.complaints.none()
