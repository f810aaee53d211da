"""A list leaves as a file: all of it, under its filters, and nothing of anybody else's."""

from __future__ import annotations

import codecs
import csv
import io
import json

from tests.unit.console.rooms import approved, make_decision


async def rows(client, path):
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    if path.partition("?")[0].endswith(".jsonl"):
        return [json.loads(line) for line in answer.text.splitlines()]
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


async def test_all_pages_of_a_list_are_in_the_file(room, lead) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(450)), approved("done"))
    for form in ("csv", "jsonl"):
        found = await rows(lead, f"/api/export/queue.{form}")
        assert len({row["subject_id"] for row in found}) == 450
        assert [row["subject_id"] for row in await rows(lead, f"/api/export/approved.{form}")] == ["done"]


async def test_filters_and_the_search_of_a_list_hold_for_the_file(room, browser) -> None:
    room.add(make_decision("c-1", user_id="ben"), make_decision("c-2", "Ice is cold."), make_decision("c-3"))
    assert [row["subject_id"] for row in await rows(browser, "/api/export/queue.csv?user=ben")] == ["c-1"]
    found = await rows(browser, "/api/export/queue.jsonl?search=ice")
    assert [row["subject_id"] for row in found] == ["c-2"]


async def test_a_file_holds_what_its_reader_sees_and_nobody_else_gets_it(room) -> None:
    room.add(make_decision("c-1"), make_decision("c-2", user_id="ben"))
    async with room.client("ana-token") as ana:
        assert [row["subject_id"] for row in await rows(ana, "/api/export/queue.jsonl")] == ["c-1"]
    async with room.client() as stranger:
        assert (await stranger.get("/api/export/queue.csv")).status_code == 401


async def test_a_spreadsheet_is_told_that_the_file_is_utf_8(room, lead) -> None:
    room.add(make_decision("c-1", "Größe 7 μm"))
    assert (await lead.get("/api/export/queue.csv")).content.startswith(codecs.BOM_UTF8 + b"id,")


async def test_a_file_of_a_response_is_the_same_whether_or_not_somebody_read_its_answer_back(
    room, lead
) -> None:
    (decision_id,) = room.add(make_decision("r-1", kind="response"))
    before = await rows(lead, "/api/export/queue.jsonl")
    room.site.excerpts._known[decision_id] = "The beginning of the answer."
    assert await rows(lead, "/api/export/queue.jsonl") == before


async def test_no_cell_is_a_formula_even_behind_signs_that_show_nothing_or_end_a_cell(room, lead) -> None:
    texts = [
        f"{before}{sign}1+1"
        for sign in ("=", "+", "-", "@", "\uff1d", "\uff0b")
        for before in ("", "a;", "a|", "\u200b", "a; \u3164")
    ]
    room.add(*(make_decision(f"c-{n}", text) for n, text in enumerate(texts)))
    cells = [row["excerpt"] for row in await rows(lead, "/api/export/queue.csv")]
    assert sorted(cell.replace("'", "") for cell in cells) == sorted(texts)
    assert [cell for cell in cells if "'" not in cell] == []
    assert [cell for cell in cells if cell.startswith("=")] == []


async def test_an_unknown_list_or_form_is_not_found(lead) -> None:
    for path in ("queue.xls", "nothing.csv", "dead-letters.csv"):
        assert (await lead.get(f"/api/export/{path}")).status_code == 404


async def test_a_filter_that_is_none_is_refused_by_name(room, lead) -> None:
    answer = await lead.get("/api/export/queue.csv?colour=red")
    assert (answer.status_code, "colour" in answer.json()["message"]) == (400, True)
