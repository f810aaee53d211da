"""Folders of decision records and repositories whose contents mean harm."""

from __future__ import annotations

import os

import pytest

from groundwire.verify.adr import AdrFolder
from groundwire.verify.git import GitRepository


async def test_what_is_no_regular_file_is_neither_a_record_nor_opened(tmp_path):
    """Who opens a pipe waits for its writer, and who reads a device reads without end."""
    folder = tmp_path / "adr"
    folder.mkdir()
    os.mkfifo(folder / "ADR-1.md")
    (folder / "ADR-2.md").symlink_to("/dev/zero")
    (folder / "ADR-3.md").symlink_to("ADR-3.md")
    (folder / "ADR-4.md").mkdir()
    (folder / "ADR-5.md").symlink_to(tmp_path)
    (tmp_path / "outside.md").write_text("outside")
    (folder / "ADR-6.md").symlink_to("../outside.md")
    found = await AdrFolder(folder).check([str(n) for n in range(1, 7)], want_text=True)
    assert {check.state for check in found.values()} == {"not_found"}


@pytest.mark.parametrize(
    "name",
    [
        b"ADR-3-\xff\xfe.md",
        b"ADR-3-\n\x1b[2J.md",
        "ADR-3-\u202edm.txt.md".encode(),
        b"ADR-3-" + b"x" * 200 + b".md",
    ],
)
async def test_a_file_is_found_by_its_number_whatever_else_its_name_holds(tmp_path, name):
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:  # noqa: ASYNC230, PTH118, PTH123 - names that are no text
        file.write(b"\xff\xfeWe use \x00PostgreSQL")
    check = (await AdrFolder(tmp_path).check(["3"], want_text=True))["3"]
    assert check.state == "verified"
    assert check.detail.isprintable()
    (check.text or "").encode()


@pytest.mark.parametrize(
    "config",
    [
        "[include]\n\tpath = {mark}.d\n",
        '[includeIf "gitdir:/"]\n\tpath = {mark}.d\n',
        '[core]\n\tworktree = /\n\tfsmonitor = "touch {mark}"\n',
        "[extensions]\n\tworktreeConfig = true\n[core]\n\trepositoryFormatVersion = 1\n",
        "[trace2]\n\tnormalTarget = {mark}\n\teventTarget = {mark}\n\tperfTarget = {mark}\n",
        '[core]\n\talternateRefsCommand = "touch {mark}"\n\tgitProxy = "touch {mark}"\n',
        '[uploadpack]\n\tpackObjectsHook = "touch {mark}"\n[maintenance]\n\tauto = true\n[gc]\n\tauto = 1\n',
    ],
)
async def test_no_setting_of_a_repository_runs_a_program_or_writes_a_file(git, tmp_path, config):
    git("commit", "-q", "--allow-empty", "-m", "Use Postgres")
    commit = git("rev-parse", "HEAD")
    repo, mark = tmp_path / "repo", tmp_path / "mark"
    (tmp_path / "mark.d").write_text(f'[core]\n\tfsmonitor = "touch {mark}"\n\tpager = "touch {mark}"\n')
    (repo / ".git/config.worktree").write_text(f'[core]\n\tfsmonitor = "touch {mark}"\n')
    with (repo / ".git/config").open("a") as file:
        file.write(config.format(mark=mark))
    checks = await GitRepository(repo, timeout=60).check([commit, "deadbeef"], want_text=True)
    assert [checks[commit].state, checks["deadbeef"].state] == ["verified", "not_found"]
    assert not mark.exists()


@pytest.mark.parametrize("alternate", ["/dev/zero", "../../../../../..", "\x00", '"\\ud800"', "/"])
async def test_a_repository_that_borrows_from_elsewhere_vouches_for_no_more(git, tmp_path, alternate):
    git("commit", "-q", "--allow-empty", "-m", "Use Postgres")
    commit = git("rev-parse", "HEAD")
    repo = tmp_path / "repo"
    (repo / ".git/objects/info").mkdir(exist_ok=True)
    (repo / ".git/objects/info/alternates").write_text(f"{alternate}\n")
    checks = await GitRepository(repo, timeout=20).check([commit, "deadbeef"])
    assert checks["deadbeef"].state != "verified"
    assert checks[commit].state in {"verified", "unknown"}
