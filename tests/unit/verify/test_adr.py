"""ADRs in folders, honest and hostile (S0-67, C-17)."""

import os
import threading

import pytest

from groundwire.verify import adr
from groundwire.verify.adr import AdrFolder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "adrs").mkdir()
    return tmp_path / "adrs"


async def states(folder, *numbers, **options):
    return {n: c.state.value for n, c in (await AdrFolder(folder).check(numbers, **options)).items()}


async def test_an_adr_exists_where_a_file_carries_its_number_as_an_integer_in_any_case(folder):
    number = dict.fromkeys(("3", "03", "003", "00003"), "verified")
    found, expected = {}, {}
    for name in (
        *("ADR-003-x.md", "ADR-3.md", "adr-0003-x.MD", "Adr-03-ä b.md", "adr_003_x.md", "0003-x.md"),
        *("3-x.md", "003_x.md", "0003-x.markdown", "ADR-3.adoc", "0003-2024-plan.md"),
    ):
        expected[name] = number
    for name in (  # other names are other files, and a date is no number
        *("ADR-0031.md", "ADR-30.md", "ADR-003x.md", "ADR-003.md.bak", "ADR-003.txt", "xADR-003.md"),
        *("ADR003.md", "3.md", "0003.md", "00003-x.md", "0003x.md", "0003-x.txt", "0003-.md", "x-0003-x.md"),
        "0003-01-02.md",
    ):
        expected[name] = dict.fromkeys(number, "not_found")
    for name in expected:
        (folder / name).write_text("x")
        found[name] = await states(folder, *number)
        (folder / name).unlink()
    assert found == expected
    (folder / "2024-03-01-minutes.md").write_text("x")
    (folder / "old").mkdir()
    (folder / "old" / "0003-x.md").write_text("x")
    assert await states(folder, "2024", "3") == {"2024": "not_found", "3": "not_found"}
    # what is not a number in the folder is not found
    (folder / "ADR-3.md").write_text("x")
    (folder / "ADR-000-template.md").write_text("x")
    none = ("", "3*", "../3", "٣", "³", "-3", "3\n", "9" * 10_000)
    assert await states(folder, "0", *none) == {"0": "verified", **dict.fromkeys(none, "not_found")}
    check = (await AdrFolder(folder).check(["999"]))["999"]
    assert check.detail == "ADR not found"


async def test_only_a_regular_file_of_the_folder_is_opened_and_its_text_bounded_and_read_on_request(
    folder, tmp_path
):
    """Who opens a pipe waits for its writer, and who reads a device reads without end."""
    (tmp_path / "outside.md").write_text("outside")
    os.mkfifo(folder / "ADR-0.md")
    (folder / "ADR-1.md").mkdir()
    for n, target in enumerate(["/dev/zero", "gone", "ADR-4.md", str(tmp_path), "../outside.md"], start=2):
        (folder / f"ADR-{n}.md").symlink_to(target)
    found = await states(folder, *map(str, range(7)), want_text=True)
    assert set(found.values()) == {"not_found"}
    (folder / "0007.md").write_text("x")
    (folder / "ADR-7.md").symlink_to(folder / "0007.md")
    (tmp_path / "link").symlink_to(folder)
    assert await states(tmp_path / "link", "7") == {"7": "verified"}, "a link within the folder is an ADR"
    (folder / "ADR-013-a.md").write_text("We use Postgres.")
    (folder / "ADR-014.md").write_bytes(b"\xff" + b"x" * 100_000)
    assert (await AdrFolder(folder).check(["13"]))["13"].text is None
    checks = await AdrFolder(folder).check(["13", "14", "15"], want_text=True)
    found = [checks["13"].text, len(checks["14"].text or ""), checks["15"].text]
    assert found == ["We use Postgres.", 20_000, None]


async def test_a_file_is_found_by_its_number_whatever_else_its_name_holds(folder):
    for rest in (b"-\xff\xfe", b"-\n\x1b[2J", "-\u202edm.txt".encode(), b"-" + b"x" * 200):
        path = os.fsencode(folder) + b"/ADR-3" + rest + b".md"
        with open(path, "wb") as file:  # noqa: ASYNC230, PTH123 - names that are no text
            file.write(b"\xff\xfeWe use \x00PostgreSQL")
        check = (await AdrFolder(folder).check(["3"], want_text=True))["3"]
        assert (check.state, check.detail.isprintable()) == ("verified", True), rest
        (check.text or "").encode()
        os.unlink(path)  # noqa: PTH108 - as above


async def test_a_record_that_is_not_in_force_says_so_in_the_detail(folder):
    """It stays valid, as there is a file (S0-67)."""
    by_9 = "Superceded by [9. Use Y](0009-use-y.md)"
    expected = {
        f"# 3. Use X\n\nDate: 2024-01-02\n\n## Status\n\n{by_9}\n": "superseded",
        "# 3. Use X\n\n## Status\n\nAccepted\n\nSuperseded by ADR-9\n\n## Context\n": "superseded",
        '---\nstatus: "rejected"\ndate: 2024-01-02\n---\n# Use X\n': "rejected",
        "---\nstatus: superseded by [ADR-0009](0009-y.md)\n---\n": "superseded",
        "# Use X\n\n* Status: deprecated\n* Deciders: Ann\n": "deprecated",
        "# Use X\n\n**Status:** Withdrawn\n": "withdrawn",
        "= Use X\n\n== Status\n\nRejected\n\n== Context\n": "rejected",
        "# Use X\n\nStatus\n------\n\nRejected\n": "rejected",
        "## Status\n\nAccepted\n\n## Context\n\nRejected were X and Y.\n": "",
        "Status: accepted, after the first draft was rejected\n": "",
        "Status: accepted (supersedes ADR-2)\n": "",
        "The HTTP status: rejected calls give 429.\n": "",
        "We use X. The status of the order is rejected.\n": "",
    }
    found = {}
    for text in expected:
        (folder / "0003-use-x.md").write_text(text)
        check = (await AdrFolder(folder).check(["3"]))["3"]
        assert check.state == "verified"
        found[text] = check.detail.removeprefix("ADR file exists").removeprefix(", status: ")
    assert found == expected


async def test_one_listing_serves_for_a_second_and_no_longer(folder):
    now = [100.0]
    adrs = AdrFolder(folder, monotonic=lambda: now[0])
    seen = []
    for moment in (100.0, 100.9, 101.1):
        now[0] = moment
        seen.append((await adrs.check(["1"]))["1"].state.value)
        (folder / "ADR-1.md").write_text("x")
    assert seen == ["not_found", "not_found", "verified"]


async def test_a_folder_that_is_missing_or_hangs_is_unknown_and_says_so(folder, tmp_path, monkeypatch):
    check = (await AdrFolder(tmp_path / "none").check(["1"]))["1"]
    assert (check.state, check.detail) == ("unknown", "ADR folder missing")
    ended = threading.Event()
    monkeypatch.setattr(adr, "_list", lambda _: ended.wait(60))
    monkeypatch.setattr(adr, "_TIMEOUT", 0.05)
    check = (await AdrFolder(folder).check(["1"]))["1"]
    ended.set()
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s")
