"""A sitting: mixed answers, some with a planted fault, judged by keyboard alone from what their pages show."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from playwright.sync_api import expect

from tests.browser.items import OWNER, TENANT, board_of, in_review
from tests.browser.reader import Reader, eventually


class Sitting(NamedTuple):
    """An answer beside its sources; `shows` is what its page has to name of the fault, None: there is no fault."""

    name: str
    question: str
    source: str
    answer: str
    shows: str | None
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed


SITTING: Final = (
    Sitting(
        "kiln-number",
        "How hot does the kiln get?",
        "The kiln reaches 1240 degrees after six hours.",
        "The kiln reaches 1420 degrees after six hours.",
        "1240",
    ),
    Sitting(
        "valve-negation",
        "May the valve be opened by hand?",
        "The relief valve must not be opened by hand while the boiler is under pressure.",
        "The relief valve must be opened by hand while the boiler is under pressure.",
        "must not be opened",
    ),
    Sitting(
        "roof-whole",
        "Who repaired the roof?",
        "The roof of the chapel was repaired by Brandt and Sons in 2011. The work took nine weeks.",
        "The roof of the chapel was repaired by Brandt and Sons in 2011.",
        None,
    ),
    Sitting(
        "owl-roles",
        "What hunts what?",
        "Owls hunt polecats.",
        "Polecats hunt owls.",
        "Owls hunt polecats",
    ),
    Sitting(
        "mill-invented",
        "What does the mill make?",
        "The mill grinds rye for three bakeries in the valley.",
        "The mill grinds rye for three bakeries in the valley. Its miller won a medal for saffron bread in Vienna.",
        "saffron",
    ),
    Sitting(
        "crane-quote",
        "What did the driver say?",
        "The crane stood still for a day.",
        "The crane stood still for a day.",
        "eleven",
        {
            "transcript": "Driver: We stopped the crane at seven because of the wind.",
            "evidence": {"safety": ["We stopped the crane at eleven because of the wind."]},
        },
    ),
    Sitting(
        "bridge-file",
        "Where is the limit set?",
        "The weight limit of the bridge is set by the county.",
        "The weight limit of the bridge is set by the county, see config/bridge_limits.yaml.",
        "bridge_limits.yaml",
        {"sources": [{"file": "notes.md"}, {"file": "config/bridge_limits.yaml"}]},
    ),
    Sitting(
        "lamp-entity",
        "Which lamp is it?",
        "The lamp in the tower is a Fresnel lamp.",
        "The lamp in the tower is a Fresnel lamp.",
        "phantom-lamp",
        {"entities": [{"id": "phantom-lamp"}], "corpus_index": {"tower-lamp": {"confidence": 0.9}}},
    ),
)


def record(one: Sitting) -> dict[str, Any]:
    chunk = {"chunk_id": "c1", "file": "notes.md", "content": one.source, "start_line": 1, "end_line": 2}
    base = {"tenant_id": TENANT, "user_id": OWNER.name, "response_id": one.name, "confidence": 0.9}
    asked = {
        "query": one.question,
        "answer": one.answer,
        "chunks": [chunk],
        "sources": [{"file": "notes.md"}],
    }
    return {**base, **asked, **one.more}


def wrong_in(reader: Reader) -> str:
    """What an answer's page says is wrong or doubtful, in the words that stand there; empty where it says nothing."""
    parts = reader.page.locator(
        "#faults li, #quotes li, #entities tr:has(.badge), #why .check.failed, .warnings li"
    )
    return " ".join(text for one in parts.all() if (text := one.inner_text()))


def test_each_answer_is_judged_as_its_planted_fault_demands_by_keyboard_from_what_its_page_shows(
    consoles, people
) -> None:
    console = consoles.start(board=board_of(in_review([record(one) for one in SITTING])), undo_seconds=0)
    reader = people(console)
    planted = {one.name: one.shows for one in SITTING}
    judged: dict[str, str] = {}
    reader.open("/?sort=oldest")
    reader.go("Enter")
    while len(judged) < len(SITTING):
        name, wrong = reader.subject, wrong_in(reader)
        assert name not in judged, "it was decided already"
        expected = planted[name]
        assert expected is None or expected in wrong, (
            f"{name}: the page does not show {expected!r}: {wrong!r}"
        )
        judged[name] = "reject" if wrong else "approve"
        reader.go(*(("r", "1", "Enter") if wrong else ("a",)))
    expect(reader.page.locator("#total")).to_have_text("0")
    eventually(lambda: len(console.reviews.sent) == len(SITTING))
    sent = {one.subject_id: one.action for one in console.reviews.sent}
    assert sent == {name: "reject" if shows else "approve" for name, shows in planted.items()}
    reader.complaints.none()
