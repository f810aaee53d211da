"""ADRs in folders and commits in repositories, honest and hostile (S0-66, S0-67, S0-73, S0-77, C-16, C-17)."""

import asyncio
import hashlib
import os
import threading
from pathlib import Path

import pytest

from groundwire.verify import local
from groundwire.verify.local import AdrFolder, DecisionLog, GitRepository, find_repository


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


async def test_an_adr_cited_by_its_file_is_that_file_and_none_of_the_same_number(folder):
    (folder / "0003-postgres.md").write_text("x")
    cited = dict.fromkeys(("0003-postgres.md", "0003-Postgres.md"), "verified")
    cited |= dict.fromkeys(
        ("0003-redis.md", "3-postgres.md", "../0003-postgres.md", "0004-postgres.md"), "not_found"
    )
    assert await states(folder, *cited) == cited


async def test_a_decision_is_found_in_a_log_by_its_number_anchor_or_day(tmp_path):
    log = tmp_path / "decisionLog.md"
    log.write_text(
        "# Decisions\n\n## ADR-003: Use Redis\nSessions.\n\n## 4. Use UTC (2025-04-01)\nStatus: superseded\n\n"
        "[2025-04-02 10:00] - Use oak doors.\n"
    )
    cited = dict.fromkeys(
        (
            "3",
            "003",
            "4",
            "decisionLog.md#adr-003-use-redis",
            "decisionlog.md#2025-04-01",
            "decisionLog.md#2025-04-02",
        ),
        "verified",
    )
    cited |= dict.fromkeys(
        ("5", "decisionLog.md#use-files", "other.md#2025-04-01", "decisionLog.md#"), "not_found"
    )
    checks = await DecisionLog(log).check(cited, want_text=True)
    assert {one: check.state.value for one, check in checks.items()} == cited
    assert checks["4"].detail == "Decision logged, status: superseded"
    assert "oak" in checks["decisionLog.md#2025-04-02"].text
    missing = (await DecisionLog(tmp_path / "no.md").check(["3"]))["3"]
    assert (missing.state.value, missing.detail) == ("unknown", "decision log not readable")


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
    monkeypatch.setattr(local, "_list", lambda _: ended.wait(60))
    monkeypatch.setattr(local, "_TIMEOUT", 0.05)
    check = (await AdrFolder(folder).check(["1"]))["1"]
    ended.set()
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s")


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
    async def until(condition, what):
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - the system tells nobody
                await asyncio.sleep(0.01)
        assert condition(), what

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
