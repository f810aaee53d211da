"""A list leaves as a file: all of it, under its filters, and nothing of anybody else's."""

from __future__ import annotations

import codecs
import csv
import io
import json

import pytest

from tests.unit.console.rooms import approved, make_decision, search


async def rows(client, path):
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    if path.partition("?")[0].endswith(".jsonl"):
        return [json.loads(line) for line in answer.text.splitlines()]
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
async def test_all_pages_of_a_list_are_in_the_file(room, lead, form) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(450)), approved("done"))
    found = await rows(lead, f"/api/export/queue.{form}")
    assert len({row["subject_id"] for row in found}) == 450
    assert [row["subject_id"] for row in await rows(lead, f"/api/export/approved.{form}")] == ["done"]


async def test_filters_and_the_search_of_a_browser_hold_for_the_file(room, browser) -> None:
    room.add(make_decision("c-1", user_id="ben"), make_decision("c-2", "Ice is cold."), make_decision("c-3"))
    assert [row["subject_id"] for row in await rows(browser, "/api/export/queue.csv?user=ben")] == ["c-1"]
    place = await search(browser, "ice")
    found = await rows(browser, f"/api/export/queue.jsonl{place[1:]}")
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


async def test_no_cell_is_a_formula(room, lead) -> None:
    room.add(make_decision("c-1", '=HYPERLINK("https://evil.example","x")'))
    (row,) = await rows(lead, "/api/export/queue.csv")
    assert row["excerpt"].startswith("'=")


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b"])
@pytest.mark.parametrize("before", ["", "a;", "a|", "\u200b", "a; \u3164"])
async def test_no_cell_is_a_formula_behind_what_shows_nothing_or_ends_a_cell(
    room, lead, before, sign
) -> None:
    room.add(make_decision("c-1", f"{before}{sign}1+1"))
    (row,) = await rows(lead, "/api/export/queue.csv")
    assert row["excerpt"].replace("'", "") == f"{before}{sign}1+1"
    assert "'" in row["excerpt"]


@pytest.mark.parametrize("path", ["queue.xls", "nothing.csv", "dead-letters.csv"])
async def test_what_is_no_list_or_no_form_is_not_found(room, lead, path) -> None:
    assert (await lead.get(f"/api/export/{path}")).status_code == 404


async def test_a_filter_that_is_none_is_refused_by_name(room, lead) -> None:
    answer = await lead.get("/api/export/queue.csv?colour=red")
    assert (answer.status_code, "colour" in answer.json()["message"]) == (400, True)
