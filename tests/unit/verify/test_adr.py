"""ADRs in folders, honest and hostile (S0-67, C-17)."""

import os
import time

import pytest

from groundwire.verify import adr
from groundwire.verify.adr import AdrFolder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "adrs"
    path.mkdir()
    return path


async def states(folder, *numbers, **options):
    return {n: c.state.value for n, c in (await AdrFolder(folder).check(numbers, **options)).items()}


async def test_an_adr_exists_where_a_file_carries_its_number(folder):
    (folder / "ADR-003-use-postgres.md").write_text("x")
    checks = await AdrFolder(folder).check(["003", "999"])
    assert (checks["003"].state, checks["003"].detail) == ("verified", "ADR file exists")
    assert (checks["999"].state, checks["999"].detail) == ("not_found", "ADR not found")


@pytest.mark.parametrize(
    "name",
    [
        "ADR-003-x.md", "ADR-3.md", "adr-0003-x.MD", "Adr-03-ä b.md", "adr_003_x.md", "0003-x.md", "3-x.md",
        "003_x.md", "0003-x.markdown", "ADR-3.adoc", "0003-2024-plan.md",
    ],
)  # fmt: skip
@pytest.mark.parametrize("cited", ["3", "03", "003", "00003"])
async def test_numbers_are_compared_as_integers_and_names_without_case(folder, name, cited):
    (folder / name).write_text("x")
    assert await states(folder, cited) == {cited: "verified"}


@pytest.mark.parametrize(
    "name",
    [
        "ADR-0031.md", "ADR-30.md", "ADR-003x.md", "ADR-003.md.bak", "ADR-003.txt", "xADR-003.md",
        "ADR003.md", "3.md", "0003.md", "00003-x.md", "0003x.md", "0003-x.txt", "0003-.md", "x-0003-x.md",
        "0003-01-02.md",
    ],
)  # fmt: skip
async def test_other_names_are_other_files(folder, name):
    (folder / name).write_text("x")
    assert await states(folder, "3") == {"3": "not_found"}


@pytest.mark.parametrize("number", ["", "3*", "../3", "٣", "³", "-3", "3\n", "9" * 10_000])
async def test_what_is_not_a_number_in_the_folder_is_not_found(folder, number):
    (folder / "ADR-3.md").write_text("x")
    assert await states(folder, number) == {number: "not_found"}


async def test_zero_is_a_number_and_nothing_is_not(folder):
    (folder / "ADR-000-template.md").write_text("x")
    assert await states(folder, "0", "") == {"0": "verified", "": "not_found"}


async def test_what_is_no_regular_file_of_the_folder_is_neither_a_record_nor_opened(folder, tmp_path):
    """Who opens a pipe waits for its writer, and who reads a device reads without end."""
    (tmp_path / "outside.md").write_text("outside")
    os.mkfifo(folder / "ADR-0.md")
    (folder / "ADR-1.md").mkdir()
    for n, target in enumerate(["/dev/zero", "gone", "ADR-4.md", str(tmp_path), "../outside.md"], start=2):
        (folder / f"ADR-{n}.md").symlink_to(target)
    found = await states(folder, *map(str, range(7)), want_text=True)
    assert set(found.values()) == {"not_found"}


async def test_a_link_within_the_folder_is_an_adr(folder, tmp_path):
    (folder / "0007.md").write_text("x")
    (folder / "ADR-7.md").symlink_to(folder / "0007.md")
    (tmp_path / "link").symlink_to(folder)
    assert await states(tmp_path / "link", "7") == {"7": "verified"}


@pytest.mark.parametrize("rest", [b"-\xff\xfe", b"-\n\x1b[2J", "-\u202edm.txt".encode(), b"-" + b"x" * 200])
async def test_a_file_is_found_by_its_number_whatever_else_its_name_holds(folder, rest):
    with open(os.fsencode(folder) + b"/ADR-3" + rest + b".md", "wb") as file:  # noqa: ASYNC230, PTH123 - names that are no text
        file.write(b"\xff\xfeWe use \x00PostgreSQL")
    check = (await AdrFolder(folder).check(["3"], want_text=True))["3"]
    assert check.state == "verified"
    assert check.detail.isprintable()
    (check.text or "").encode()


async def test_a_name_that_begins_with_a_date_is_no_record(folder):
    (folder / "2024-03-01-minutes.md").write_text("x")
    assert await states(folder, "2024") == {"2024": "not_found"}


async def test_folders_within_the_folder_are_not_looked_at(folder):
    (folder / "old").mkdir()
    (folder / "old" / "0003-x.md").write_text("x")
    assert await states(folder, "3") == {"3": "not_found"}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (
            "# 3. Use X\n\nDate: 2024-01-02\n\n## Status\n\nSuperceded by [9. Use Y](0009-use-y.md)\n",
            "superseded",
        ),
        ("# 3. Use X\n\n## Status\n\nAccepted\n\nSuperseded by ADR-9\n\n## Context\n", "superseded"),
        ('---\nstatus: "rejected"\ndate: 2024-01-02\n---\n# Use X\n', "rejected"),
        ("---\nstatus: superseded by [ADR-0009](0009-y.md)\n---\n", "superseded"),
        ("# Use X\n\n* Status: deprecated\n* Deciders: Ann\n", "deprecated"),
        ("# Use X\n\n**Status:** Withdrawn\n", "withdrawn"),
        ("= Use X\n\n== Status\n\nRejected\n\n== Context\n", "rejected"),
        ("# Use X\n\nStatus\n------\n\nRejected\n", "rejected"),
        ("## Status\n\nAccepted\n\n## Context\n\nRejected were X and Y.\n", ""),
        ("Status: accepted, after the first draft was rejected\n", ""),
        ("Status: accepted (supersedes ADR-2)\n", ""),
        ("The HTTP status: rejected calls give 429.\n", ""),
        ("We use X. The status of the order is rejected.\n", ""),
    ],
)
async def test_a_record_that_is_not_in_force_says_so_in_the_detail(folder, text, status):
    (folder / "0003-use-x.md").write_text(text)
    check = (await AdrFolder(folder).check(["3"]))["3"]
    assert check.state == "verified"  # S0-67: valid where there is a file
    assert check.detail == "ADR file exists" + (f", status: {status}" if status else "")


async def test_a_missing_folder_is_unknown_and_says_so(tmp_path):
    check = (await AdrFolder(tmp_path / "none").check(["1"]))["1"]
    assert (check.state, check.detail) == ("unknown", "ADR folder missing")


async def test_one_listing_serves_for_a_second_and_no_longer(folder):
    now = [100.0]
    adrs = AdrFolder(folder, monotonic=lambda: now[0])
    seen = []
    for moment in (100.0, 100.9, 101.1):
        now[0] = moment
        seen.append((await adrs.check(["1"]))["1"].state.value)
        (folder / "ADR-1.md").write_text("x")
    assert seen == ["not_found", "not_found", "verified"]


async def test_a_folder_that_hangs_is_unknown(folder, monkeypatch):
    monkeypatch.setattr(adr, "_list", lambda _: time.sleep(0.3))
    monkeypatch.setattr(adr, "_TIMEOUT", 0.05)
    check = (await AdrFolder(folder).check(["1"]))["1"]
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s")


async def test_text_is_read_only_on_request_and_bounded(folder):
    (folder / "ADR-003-a.md").write_text("We use Postgres.")
    (folder / "ADR-004.md").write_bytes(b"\xff" + b"x" * 100_000)
    assert (await AdrFolder(folder).check(["3"]))["3"].text is None
    checks = await AdrFolder(folder).check(["3", "4", "5"], want_text=True)
    assert [checks["3"].text, len(checks["4"].text or ""), checks["5"].text] == [
        "We use Postgres.",
        20_000,
        None,
    ]
