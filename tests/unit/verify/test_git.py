import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from groundwire.verify.git import GitRepository, find_repository


@pytest.fixture
def commit(git):
    git("commit", "-q", "--allow-empty", "-m", "Use Postgres for storage")
    return git("rev-parse", "HEAD")


@pytest.fixture
def repo(git, tmp_path):
    return tmp_path / "repo"


@pytest.fixture
def processes(monkeypatch):
    """Every program that asyncio started, with its arguments."""
    started, real = [], asyncio.create_subprocess_exec

    async def spawn(*arguments, **options):
        process = await real(*arguments, **options)
        started.append((process, arguments))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    return started


async def test_a_commit_is_verified_by_its_full_and_short_id(repo, commit):
    checks = await GitRepository(repo).check([commit, commit[:7], commit[:12]])
    assert {(c.state, c.detail) for c in checks.values()} == {("verified", "Commit exists")}
    assert set(checks) == {commit, commit[:7], commit[:12]}


async def test_a_commit_that_does_not_exist_is_unknown_to_git_and_not_found(repo, commit):
    check = (await GitRepository(repo).check(["deadbeef"]))["deadbeef"]
    assert (check.state, check.detail) == ("not_found", "Unknown commit")


async def test_trees_blobs_and_tags_are_no_commits(git, repo, commit):
    git("tag", "-a", "v1", "-m", "tag")
    blob = git("hash-object", "-w", "--stdin", stdin=b"hello")
    ids = [git("rev-parse", "HEAD^{tree}"), blob, git("rev-parse", "v1"), blob[:8]]
    git("hash-object", "-t", "tree", "-w", "--stdin")
    checks = await GitRepository(repo).check(ids)
    assert {c.state for c in checks.values()} == {"not_found"}


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
    checks = await GitRepository(repo).check([*pair, full[:7]])
    assert [checks[p].state for p in pair] == ["verified", "verified"]
    assert checks[full[:7]].state == "not_found"


async def test_a_branch_or_tag_that_is_called_like_an_id_proves_nothing(git, repo, commit):
    git("branch", "abcdef1")
    git("tag", "feedface")
    checks = await GitRepository(repo).check(["abcdef1", "feedface"])
    assert {c.state for c in checks.values()} == {"not_found"}


@pytest.mark.parametrize(
    "value",
    [
        "--upload-pack=touch pwned",
        "--batch-all-objects",
        "-h",
        "HEAD",
        "main",
        "abc123",
        "a" * 41,
        "abcdef1\n",
        "abcdef1 main",
        "abcdef1^{tree}",
        "ABCDEF1",
        "",
        "\x00",
    ],
)
async def test_what_is_not_an_id_never_reaches_git(repo, commit, processes, value):
    checks = await GitRepository(repo).check([value, commit])
    assert checks[value].state == "not_found"
    assert checks[commit].state == "verified"
    assert not any(value in map(str, arguments[1:]) for _, arguments in processes if value)


async def test_a_batch_is_one_process_and_no_shell(repo, commit, processes):
    ids = [commit, *(f"{n:07x}" for n in range(2000))]
    checks = await GitRepository(repo).check(ids)
    assert len(processes) == 1
    assert len(checks) == 2001
    assert processes[0][1][0] == "git"
    assert commit not in processes[0][1]


async def test_nothing_to_ask_starts_nothing(repo, processes):
    assert await GitRepository(repo).check([]) == {}
    assert processes == []


@pytest.mark.parametrize("make", ["none", "file", "empty"])
async def test_what_is_no_repository_is_unknown(tmp_path, make):
    path = tmp_path / "x"
    if make == "file":
        path.write_text("")
    if make == "empty":
        path.mkdir()
    check = (await GitRepository(path).check(["deadbeef"]))["deadbeef"]
    assert (check.state, check.detail) == ("unknown", "not a readable git repository")


async def test_a_folder_inside_a_repository_is_not_that_repository(repo, commit):
    (repo / "docs").mkdir()
    assert (await GitRepository(repo / "docs").check([commit]))[commit].state == "unknown"


async def test_a_bare_repository_and_a_linked_worktree_will_do(git, repo, commit, tmp_path):
    git("clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    for path in (tmp_path / "bare.git", tmp_path / "tree"):
        assert (await GitRepository(path).check([commit]))[commit].state == "verified"


async def test_the_nearest_repository_above_a_folder_is_found(repo, tmp_path):
    (repo / "a" / "b").mkdir(parents=True)
    assert find_repository(repo / "a" / "b") == repo.resolve()
    assert find_repository(Path("/")) is None


async def test_git_missing_is_unknown(repo, commit):
    check = (await GitRepository(repo, git="no-such-git").check([commit]))[commit]
    assert (check.state, check.detail) == ("unknown", "git not found")


async def test_variables_of_the_environment_do_not_lead_git_elsewhere(repo, commit, tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    assert (await GitRepository(repo).check([commit]))[commit].state == "verified"
    assert not (tmp_path / "trace").exists()


async def test_a_slow_git_is_killed_with_its_children_and_reaped(repo, commit, tmp_path, processes):
    program = tmp_path / "slow-git"
    program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/child\nwait\n")
    program.chmod(0o755)
    started = time.monotonic()
    check = (await GitRepository(repo, git=str(program), timeout=0.5).check([commit]))[commit]
    assert (check.state, check.detail) == ("unknown", "timeout after 0.5 s")
    assert time.monotonic() - started < 40, "git would take 60 s"
    assert processes[0][0].returncode is not None
    assert _ended(int((tmp_path / "child").read_text()))


async def test_a_cancelled_lookup_leaves_no_process_behind(repo, commit, tmp_path, processes):
    program = tmp_path / "slow-git"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    lookup = asyncio.ensure_future(GitRepository(repo, git=str(program)).check([commit]))
    for _ in range(500):
        if processes:
            break
        await asyncio.sleep(0.01)
    lookup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lookup
    assert processes[0][0].returncode is not None


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "echo a b c d e; echo", "printf '\\377\\376'"])
async def test_a_git_that_answers_nonsense_is_unknown(repo, commit, tmp_path, script):
    program = tmp_path / "odd-git"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
    program.chmod(0o755)
    check = (await GitRepository(repo, git=str(program)).check([commit]))[commit]
    assert check.state != "verified"


async def test_the_loop_is_not_blocked_while_git_works(repo, commit, tmp_path):
    """While git takes half a second, the loop wakes up every few milliseconds."""
    program = tmp_path / "slow-git"
    program.write_text('#!/bin/sh\nsleep 0.5\nexec git "$@"\n')
    program.chmod(0o755)
    lookup = asyncio.ensure_future(GitRepository(repo, git=str(program)).check([commit]))
    turns = 0
    while not lookup.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert (await lookup)[commit].state == "verified"
    assert turns > 20  # a blocked loop would have turned once or twice


async def test_a_hostile_repository_runs_nothing(git, repo, commit, tmp_path):
    """Its configuration names programs for every occasion; a missing object would be fetched through one."""
    mark = tmp_path / "pwned"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\n")
    evil.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).symlink_to(evil)
    for key, value in {
        "core.fsmonitor": str(evil),
        "core.hooksPath": str(hooks),
        "core.pager": str(evil),
        "core.sshCommand": str(evil),
        "core.editor": str(evil),
        "core.askPass": str(evil),
        "core.alternateRefsCommand": str(evil),
        "pager.cat-file": str(evil),
        "alias.cat-file": f"!{evil}",
        "diff.external": str(evil),
        "diff.x.textconv": str(evil),
        "filter.x.smudge": str(evil),
        "credential.helper": f"!{evil}",
        "gpg.program": str(evil),
        "log.showSignature": "true",
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "protocol.file.allow": "always",
        "remote.origin.url": f"ext::{evil}",
        "remote.origin.uploadpack": str(evil),
        "remote.origin.promisor": "true",
        "remote.second.url": str(repo),
        "remote.second.uploadpack": str(evil),
        "remote.second.promisor": "true",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }.items():
        git("config", key, value)
    (repo / ".gitattributes").write_text("* diff=x filter=x\n")
    checks = await GitRepository(repo).check([commit, "deadbeef", "1" * 40], want_text=True)
    assert {v: c.state for v, c in checks.items()} == {
        commit: "verified",
        "deadbeef": "not_found",
        "1" * 40: "not_found",
    }
    assert not mark.exists()


async def test_a_replaced_object_does_not_answer_for_another(git, repo, commit):
    blob = git("hash-object", "-w", "--stdin", stdin=b"x")
    git("replace", "-f", blob, git("hash-object", "-w", "--stdin", stdin=b"y"))
    (repo / ".git/refs/replace" / blob).write_text(commit + "\n")
    assert (await GitRepository(repo).check([blob]))[blob].state == "not_found"


async def test_a_repository_that_hangs_is_unknown(repo, commit):
    (repo / ".git/HEAD").unlink()
    os.mkfifo(repo / ".git/HEAD")
    assert (await GitRepository(repo, timeout=0.5).check([commit]))[commit].state == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_repository_of_another_user_is_read(repo, commit):
    os.chown(repo, 12345, 12345)
    os.chown(repo / ".git", 12345, 12345)
    assert (await GitRepository(repo).check([commit]))[commit].state == "verified"


async def test_the_message_is_the_text_and_only_on_request(git, repo, commit):
    git("commit", "-q", "--allow-empty", "-m", "Cache in Redis\n\nBecause of latency.")
    second = git("rev-parse", "HEAD")
    assert (await GitRepository(repo).check([commit]))[commit].text is None
    checks = await GitRepository(repo).check([commit[:8], second, "deadbeef"], want_text=True)
    assert checks[commit[:8]].text == "Use Postgres for storage\n"
    assert checks[second].text == "Cache in Redis\n\nBecause of latency.\n"
    assert checks["deadbeef"].text is None


async def test_a_giant_commit_is_verified_without_its_text(git, repo, commit):
    git("commit", "-q", "--allow-empty", "-F", "-", stdin=b"x" * 5_000_000)
    giant = git("rev-parse", "HEAD")
    checks = await GitRepository(repo).check([giant, commit], want_text=True)
    assert (checks[giant].state, checks[giant].text) == ("verified", None)
    assert checks[commit].text is not None


def _ended(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
