"""Commits in repositories, honest and hostile (S0-66, S0-73, S0-77, C-16)."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from groundwire.verify.git import GitRepository, find_repository

EXISTS = "verified", "Commit exists"


@pytest.fixture
def commit(git):
    git("commit", "-q", "--allow-empty", "-m", "Use Postgres for storage")
    return git("rev-parse", "HEAD")


@pytest.fixture
def repo(git, tmp_path):
    return tmp_path / "repo"


@pytest.fixture
def processes(monkeypatch):
    started, real = [], asyncio.create_subprocess_exec

    async def spawn(*arguments, **options):
        process = await real(*arguments, **options)
        started.append((process, arguments))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    return started


@pytest.fixture
def program(tmp_path):
    def make(script):
        (tmp_path / "other-git").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "other-git").chmod(0o755)
        return str(tmp_path / "other-git")

    return make


async def look_up(path, *ids, **options):
    checks = await GitRepository(path, **options).check(ids)
    return [(checks[name].state.value, checks[name].detail) for name in ids]


async def until(condition, what):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the system tells nobody
            await asyncio.sleep(0.01)
    assert condition(), what


async def test_a_commit_is_verified_by_its_full_and_short_id_and_nothing_else_is_whatever_its_name(
    git, repo, commit
):
    git("tag", "-a", "v1", "-m", "tag")
    git("branch", "abcdef1")
    git("tag", "feedface")
    blob = git("hash-object", "-w", "--stdin", stdin=b"hello")
    ids = [git("rev-parse", "HEAD^{tree}"), blob, git("rev-parse", "v1"), blob[:8], "abcdef1", "feedface"]
    git("hash-object", "-t", "tree", "-w", "--stdin")
    assert {state for state, _ in await look_up(repo, *ids)} == {"not_found"}
    replaced = git("hash-object", "-w", "--stdin", stdin=b"x")
    git("replace", "-f", replaced, git("hash-object", "-w", "--stdin", stdin=b"y"))
    (repo / ".git/refs/replace" / replaced).write_text(commit + "\n")
    assert (await look_up(repo, replaced))[0][0] == "not_found"
    found = await look_up(repo, commit, commit[:7], commit[:12], "deadbeef")
    assert found == [EXISTS, EXISTS, EXISTS, ("not_found", "Unknown commit")]


@pytest.mark.slow
async def test_an_ambiguous_short_id_is_not_found(git, repo, commit):
    who = b"author a <a@example.org> 0 +0000\ncommitter a <a@example.org> 0 +0000\n\n"
    tree = git("hash-object", "-t", "tree", "-w", "--stdin").encode()
    seen: dict[str, bytes] = {}
    for n in range(1_000_000):
        body = b"tree " + tree + b"\n" + who + str(n).encode() + b"\n"
        full = hashlib.sha1(b"commit %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
        if full[:7] in seen:
            break
        seen[full[:7]] = body
    pair = [git("hash-object", "-t", "commit", "-w", "--stdin", stdin=b) for b in (seen[full[:7]], body)]
    states = [state for state, _ in await look_up(repo, *pair, full[:7])]
    assert states == ["verified", "verified", "not_found"]


async def test_what_is_not_an_id_never_reaches_git_and_a_batch_is_one_process_and_no_shell(
    repo, commit, processes
):
    assert await GitRepository(repo).check([]) == {}
    assert processes == []
    values = (
        *("--upload-pack=touch pwned", "--batch-all-objects", "-h", "HEAD", "main", "abc123", "a" * 41, ""),
        *("abcdef1\n", "abcdef1 main", "abcdef1^{tree}", "ABCDEF1", "\x00"),
    )
    found = await look_up(repo, *values, commit, *(f"{n:07x}" for n in range(2000)))
    assert [state for state, _ in found[: len(values) + 1]] == ["not_found"] * len(values) + ["verified"]
    ((_, arguments),) = processes
    assert arguments[0] == "git"
    assert not {*values, commit} & set(map(str, arguments[1:]))


async def test_bare_repositories_and_worktrees_will_do_and_what_is_none_is_unknown(
    git, repo, commit, tmp_path
):
    git("clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    (repo / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, state in (
        *(("bare.git", EXISTS), ("tree", EXISTS)),
        *(
            (name, ("unknown", "not a readable git repository"))
            for name in ("repo/a", "file", "empty", "none")
        ),
    ):
        assert await look_up(tmp_path / name, commit) == [state], name
    assert find_repository(repo / "a" / "b") == repo.resolve()
    assert find_repository(Path("/")) is None


async def test_neither_a_missing_git_nor_nonsense_verifies_and_no_variable_leads_elsewhere(
    repo, commit, program, tmp_path, monkeypatch
):
    assert await look_up(repo, commit, git="no-such-git") == [("unknown", "git not found")]
    for script in ("exit 3", "echo nonsense", "echo a b c d e; echo", "printf '\\377\\376'"):
        found = await look_up(repo, commit, git=program(f"cat >/dev/null\n{script}"))
        assert found[0][0] != "verified", script
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    assert (await look_up(repo, commit))[0][0] == "verified"
    assert not (tmp_path / "trace").exists()


async def test_a_git_that_is_slow_or_cancelled_is_killed_with_its_children_and_reaped(
    repo, commit, tmp_path, processes, program
):
    slow = program(f"sleep 600 &\necho $! > {tmp_path}/child\nwait")
    assert await look_up(repo, commit, git=slow, timeout=1.0) == [("unknown", "timeout after 1 s")]
    assert processes[0][0].returncode is not None
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def ended():
        try:
            return child.read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    await until(ended, "the child runs on")
    processes.clear()
    lookup = asyncio.ensure_future(GitRepository(repo, git=program("sleep 600")).check([commit]))
    await until(lambda: processes, "git does not start")
    lookup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lookup
    assert processes[0][0].returncode is not None


@pytest.mark.slow
async def test_a_deadline_that_ends_while_git_starts_kills_its_children_too(repo, commit, program):
    slow = program("sleep 600 &\nwait")
    for seconds in (0.0005, 0.001, 0.002, 0.004, 0.008):
        for _ in range(10):
            found = await look_up(repo, commit, git=slow, timeout=seconds)
            assert found == [("unknown", f"timeout after {seconds:g} s")]


async def test_a_hostile_repository_runs_nothing_and_writes_no_file(git, repo, commit, tmp_path, program):
    """Its configuration names programs for every occasion; a missing object would be fetched through one."""
    path = repo / ".git/config"
    before = path.read_text()
    mark, hooks = tmp_path / "pwned", tmp_path / "hooks"
    evil = program(f"touch {mark}")
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).symlink_to(evil)
    settings = f"""
        core.fsmonitor={evil} core.hooksPath={hooks} core.pager={evil} core.sshCommand={evil} core.editor={evil}
        core.askPass={evil} core.alternateRefsCommand={evil} pager.cat-file={evil} alias.cat-file=!{evil}
        diff.external={evil} diff.x.textconv={evil} filter.x.smudge={evil} credential.helper=!{evil}
        gpg.program={evil} log.showSignature=true protocol.allow=always protocol.ext.allow=always
        protocol.file.allow=always remote.origin.url=ext::{evil} remote.origin.uploadpack={evil}
        remote.origin.promisor=true remote.second.url={repo} remote.second.uploadpack={evil}
        remote.second.promisor=true extensions.partialClone=origin core.repositoryFormatVersion=1
    """
    for setting in settings.split():
        git("config", *setting.split("=", 1))
    (repo / ".gitattributes").write_text("* diff=x filter=x\n")
    checks = await GitRepository(repo).check([commit, "deadbeef", "1" * 40], want_text=True)
    assert [check.state for check in checks.values()] == ["verified", "not_found", "not_found"]
    assert not mark.exists()
    (tmp_path / "pwned.d").write_text(f'[core]\n\tfsmonitor = "touch {mark}"\n\tpager = "touch {mark}"\n')
    (repo / ".git/config.worktree").write_text(f'[core]\n\tfsmonitor = "touch {mark}"\n')
    for config in (
        "[include]\n\tpath = {mark}.d\n",
        '[includeIf "gitdir:/"]\n\tpath = {mark}.d\n',
        '[core]\n\tworktree = /\n\tfsmonitor = "touch {mark}"\n',
        "[extensions]\n\tworktreeConfig = true\n[core]\n\trepositoryFormatVersion = 1\n",
        "[trace2]\n\tnormalTarget = {mark}\n\teventTarget = {mark}\n\tperfTarget = {mark}\n",
        '[core]\n\talternateRefsCommand = "touch {mark}"\n\tgitProxy = "touch {mark}"\n',
        '[uploadpack]\n\tpackObjectsHook = "touch {mark}"\n[maintenance]\n\tauto = true\n[gc]\n\tauto = 1\n',
    ):
        path.write_text(before + config.format(mark=mark))
        checks = await GitRepository(repo, timeout=60).check([commit, "deadbeef"], want_text=True)
        assert [check.state for check in checks.values()] == ["verified", "not_found"], config
        assert not mark.exists(), config


async def test_a_repository_that_borrows_from_elsewhere_vouches_for_no_more_and_one_that_hangs_is_unknown(
    repo, commit
):
    (repo / ".git/objects/info").mkdir(exist_ok=True)
    for alternate in ("/dev/zero", "../../../../../..", "\x00", '"\\ud800"', "/"):
        (repo / ".git/objects/info/alternates").write_text(f"{alternate}\n")
        (own, _), (missing, _) = await look_up(repo, commit, "deadbeef", timeout=20)
        assert own in {"verified", "unknown"}, alternate
        assert missing != "verified", alternate
    (repo / ".git/HEAD").unlink()
    os.mkfifo(repo / ".git/HEAD")
    assert (await look_up(repo, commit, timeout=0.5))[0][0] == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_repository_of_another_user_is_read(repo, commit):
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    assert (await look_up(repo, commit))[0][0] == "verified"


async def test_the_message_is_the_text_and_only_on_request_and_not_of_a_giant(git, repo, commit):
    git("commit", "-q", "--allow-empty", "-m", "Cache in Redis\n\nBecause of latency.")
    second = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-F", "-", stdin=b"x" * 5_000_000)
    giant = git("rev-parse", "HEAD")
    assert (await GitRepository(repo).check([commit]))[commit].text is None
    checks = await GitRepository(repo).check([giant, commit[:8], second, "deadbeef"], want_text=True)
    texts = [None, "Use Postgres for storage\n", "Cache in Redis\n\nBecause of latency.\n", None]
    assert [check.text for check in checks.values()] == texts
    assert checks[giant].state == "verified"
