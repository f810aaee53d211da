"""What shows nothing is told by one set, wherever a person decides by what they see."""

from __future__ import annotations

import re

from groundwire.console.words import hidden_marks
from groundwire.review.actions import is_blank
from groundwire.text.visible import INVISIBLE
from tests.unit.console.rooms import make_decision

UNSEEN = re.findall(f"[{INVISIBLE}]", "".join(map(chr, range(0x110000))))


async def test_a_row_with_any_character_that_shows_nothing_is_not_approved_from_the_list(room, lead) -> None:
    some = UNSEEN[:: len(UNSEEN) // 40]
    room.add(*(make_decision(f"c-{n}", f"The limit is {char} five.") for n, char in enumerate(some)))
    items = (await lead.get("/api/queue")).json()["items"]
    shown = {item["subject_id"] for item in items if item["whole"]}
    assert (len(items), shown) == (len(some), set())


def test_each_character_that_shows_nothing_is_marked_and_makes_no_text() -> None:
    assert [char for char in UNSEEN if not hidden_marks(f"a{char}b")] == []
    assert [char for char in UNSEEN if not is_blank(f" {char} ")] == []


async def test_a_selector_behind_an_emoji_shows_and_one_behind_a_letter_does_not(room, lead) -> None:
    room.add(make_decision("heart", "We \u2764\ufe0f tea."), make_decision("letter", "We a\ufe0f tea."))
    items = (await lead.get("/api/queue")).json()["items"]
    assert {item["subject_id"]: item["whole"] for item in items} == {"heart": True, "letter": False}
    assert hidden_marks("\u2764\ufe0f") == []
