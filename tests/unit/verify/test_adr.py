import os
import time

import pytest

from groundwire.verify import adr as adr_module
from groundwire.verify.adr import AdrFolder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "adrs"
    path.mkdir()
    return path


async def states(folder, *numbers):
    return {n: c.state.value for n, c in (await AdrFolder(folder).check(numbers)).items()}


async def test_an_adr_exists_where_a_file_carries_its_number(folder):
    (folder / "ADR-003-use-postgres.md").write_text("x")
    checks = await AdrFolder(folder).check(["003", "999"])
    assert (checks["003"].state, checks["003"].detail) == ("verified", "ADR file exists")
    assert (checks["999"].state, checks["999"].detail) == ("not_found", "ADR not found")


@pytest.mark.parametrize("name", ["ADR-003-x.md", "ADR-3.md", "adr-0003-x.MD", "Adr-03-ä b.md"])
@pytest.mark.parametrize("cited", ["3", "03", "003", "00003"])
async def test_numbers_are_compared_as_integers_and_names_without_case(folder, name, cited):
    (folder / name).write_text("x")
    assert await states(folder, cited) == {cited: "verified"}


@pytest.mark.parametrize(
    "name",
    [
        "ADR-0031.md",
        "ADR-30.md",
        "ADR-003x.md",
        "ADR-003.md.bak",
        "ADR-003.txt",
        "xADR-003.md",
        "ADR003.md",
        "3.md",
    ],
)
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


async def test_a_folder_or_a_link_that_leaves_is_no_adr(folder, tmp_path):
    (folder / "ADR-1.md").mkdir()
    (tmp_path / "secret").write_text("x")
    (folder / "ADR-2.md").symlink_to(tmp_path / "secret")
    (folder / "ADR-3.md").symlink_to(folder / "gone")
    (folder / "ADR-4.md").symlink_to(folder / "ADR-4.md")
    os.mkfifo(folder / "ADR-5.md")
    assert set((await states(folder, "1", "2", "3", "4", "5")).values()) == {"not_found"}


async def test_a_link_within_the_folder_is_an_adr(folder, tmp_path):
    (folder / "0007.md").write_text("x")
    (folder / "ADR-7.md").symlink_to(folder / "0007.md")
    (tmp_path / "link").symlink_to(folder)
    assert await states(tmp_path / "link", "7") == {"7": "verified"}


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
    monkeypatch.setattr(adr_module, "_list", lambda _: time.sleep(0.3))
    monkeypatch.setattr(adr_module, "_TIMEOUT", 0.05)
    check = (await AdrFolder(folder).check(["1"]))["1"]
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s")


async def test_text_is_read_only_on_request_and_bounded(folder):
    (folder / "ADR-003-a.md").write_text("We use Postgres.")
    (folder / "ADR-004.md").write_bytes(b"\xff" + b"x" * 100_000)
    assert (await AdrFolder(folder).check(["3"]))["3"].text is None
    checks = await AdrFolder(folder).check(["3", "4", "5"], want_text=True)
    assert checks["3"].text == "We use Postgres."
    assert len(checks["4"].text or "") == 20_000
    assert checks["5"].text is None
