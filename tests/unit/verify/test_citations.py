"""Citations: what is asked, of whom, and what an error comes to (S0-64, S0-65, S0-69, S0-70, C-14)."""

import asyncio
from datetime import UTC, datetime

import pytest

from groundwire.checks.citations import Citation
from groundwire.verify.citations import CitationVerifier, Sources, verify_citation
from groundwire.verify.issues import GitHubTracker
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.results import CitationCheck, CitationState, MemoryCache, VerificationResult
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import UrlChecker

from .server import Reply

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def cite(kind, value):
    return Citation(kind, value, 0, 0)


def issues(count):
    return [("t", cite("issue", str(n))) for n in range(count)]


class CountingCache(MemoryCache):
    def __init__(self):
        super().__init__()
        self.gets, self.puts = [], []

    async def get_many(self, keys):
        self.gets.append(list(keys))
        return await super().get_many(keys)

    async def put(self, key, check):
        self.puts.append(check.state.value)
        await super().put(key, check)


class Tracker:
    """Answers once its gate is open, or breaks, as told."""

    host = "tracker"

    def __init__(self, identity="t", *, error=None, state="verified", gate=None):
        self.identity, self.error, self.state, self.gate = identity, error, state, gate
        self.asked, self.closed = [], False

    async def exists(self, number, *, want_text=False, **_):
        self.asked.append(number)
        await (self.gate.wait() if self.gate else asyncio.sleep(0))
        if self.error:
            raise self.error
        return CitationCheck(CitationState(self.state), "HTTP 503", NOW, "text" if want_text else None)

    async def close(self):
        self.closed = True


@pytest.fixture
def make(urls):
    def build(sources=None, **options):
        options.setdefault("pacer", Pacer(PacingLimits(spacing=0.0)))
        return CitationVerifier(sources or {}, urls=urls, **options)

    return build


def states(answers):
    return {k: c.state.value for k, c in answers.items()}


async def test_fabricated_citations_of_every_kind_are_caught(make, server, git, tmp_path):
    git("commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / "ADR-003-x.md").write_text("x")
    server.routes["/real"] = Reply(200)
    verifier = make({"*": Sources(tmp_path, tmp_path / "repo", Tracker())})
    real = [cite("adr", "3"), cite("commit", git("rev-parse", "HEAD")), cite("url", server.url("/real"))]
    fabricated = [cite("adr", "999"), cite("commit", "deadbeef"), cite("url", server.url("/never-written"))]
    assert set(states(await verifier.verify("t", real)).values()) == {"verified"}
    assert set(states(await verifier.verify("t", fabricated)).values()) == {"not_found"}


async def test_what_is_not_configured_switched_off_or_of_no_known_type_is_unknown_and_says_so(
    make, server, tmp_path
):
    cited = [cite("adr", "3"), cite("commit", "deadbeef"), cite("issue", "1"), cite("doi", "10.1/x")]
    checks = await make({}).verify("t", cited)
    assert set(states(checks).values()) == {"unknown"}
    expected = [f"{what} not configured" for what in ("ADR folder", "repository", "issue tracker")]
    assert [c.detail for c in checks.values()] == [*expected, "unknown citation type"]
    tracker, cache = Tracker(), CountingCache()
    verifier = make({"*": Sources(tracker=tracker)}, network=False, cache=cache)
    requests = [("t", cite("url", server.url("/"))), ("t", cite("issue", "1"))]
    for answers in (await verifier.cached(requests), await verifier.remote(requests)):
        found = [(c.state, c.detail) for c in answers.values()]
        assert found == [("unknown", "network disabled")] * 2
    local = await make({"*": Sources(tmp_path)}).local("t", [*cited, requests[0][1]])
    assert set(local) == {"adr:3", "commit:deadbeef"}, "the local look-up asks no network"
    assert (server.connections, tracker.asked) == (0, [])


async def test_each_tenant_has_its_own_sources_and_the_star_serves_the_rest(make, tmp_path):
    for tenant, number in (("a", 1), ("rest", 2)):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / f"ADR-{number}.md").write_text("x")
    own = Sources(tmp_path / "a", None, Tracker("a"))
    verifier = make({"a": own, "*": Sources(tmp_path / "rest", None, Tracker("rest", state="not_found"))})
    cited = [cite("adr", "1"), cite("adr", "2")]
    assert states(await verifier.local("a", cited)) == {"adr:1": "verified", "adr:2": "not_found"}
    assert states(await verifier.local("b", cited)) == {"adr:1": "not_found", "adr:2": "verified"}
    issue = cite("issue", "7")
    found = states(await verifier.remote([("a", issue), ("b", issue)]))
    assert found == {("a", "issue:7"): "verified", ("b", "issue:7"): "not_found"}
    assert (await verify_citation(cite("adr", "1"), verifier=verifier, tenant="a")).valid
    assert not (await verify_citation(cite("adr", "1"), verifier=verifier)).valid
    await verifier.close()
    assert own.tracker.closed


async def test_the_cache_is_asked_once_for_a_batch_and_not_for_what_needs_no_network(make, server):
    cache = CountingCache()
    verifier = make({"*": Sources(tracker=Tracker())}, cache=cache)
    requests = [(t, cite("url", server.url(f"/{n}"))) for t in "ab" for n in range(50)]
    requests += [(t, cite("issue", str(n))) for t in "ab" for n in range(50)]
    assert await verifier.cached(requests) == {}
    assert [len(keys) for keys in cache.gets] == [len(set(cache.gets[0]))] == [100]
    cache = CountingCache()
    await make({}, cache=cache).cached([("t", cite("adr", "1")), ("t", cite("issue", "1"))])
    assert cache.gets == []


async def test_the_same_citation_is_asked_once_for_each_tenant_and_then_comes_from_the_cache(make, server):
    server.routes["/x"] = Reply(200)
    verifier = make({})
    requests = [(t, cite("url", server.url("/x"))) for t in ("a", "b", "a")]
    answers = await verifier.remote(requests)
    label = requests[0][1].label
    assert states(answers) == {(t, label): "verified" for t in "ab"}
    assert len(server.asked) == 2
    known = states(await verifier.cached([*requests, ("c", requests[0][1])]))
    assert known == {(t, label): "verified" for t in "abc"}
    for _ in range(2):
        await verifier.verify("t", [cite("url", server.url("/x")), cite("url", server.url("/y"))])
    assert sorted(a.path for a in server.asked) == ["/x", "/x", "/y"]


async def test_trackers_with_other_rights_do_not_answer_for_each_other(make, server):
    secret, public = (GitHubTracker(server.url(""), "a/b", token) for token in ("token", None))
    server.routes["/repos/a/b/issues/1"] = lambda asked: Reply(
        200 if "authorization" in asked.headers else 404, body=b"{}"
    )
    verifier = make({"s": Sources(tracker=secret), "p": Sources(tracker=public)})
    issue = cite("issue", "1")
    found = states(await verifier.remote([("s", issue), ("p", issue)]))
    assert found == {("s", "issue:1"): "verified", ("p", "issue:1"): "not_found"}
    await verifier.close()


async def test_text_is_asked_for_again_since_it_is_not_cached(make, server):
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain"}, b"words")
    verifier = make({"*": Sources(tracker=Tracker())})
    cited = [cite("url", server.url("/x")), cite("url", server.url("/gone")), cite("issue", "1")]
    requests = [("t", one) for one in cited]
    await verifier.remote(requests)
    known = await verifier.cached(requests, want_text=True)
    assert set(known) == {("t", "url:" + server.url("/gone"))}
    checks = await verifier.verify("t", cited, want_text=True)
    assert [c.text for c in checks.values()] == ["words", None, "text"]


async def test_whatever_breaks_the_answer_is_unknown_without_the_text_of_the_error(
    make, server, tmp_path, monkeypatch
):
    class Broken:
        async def get_many(self, *_):
            raise RuntimeError

        async def put(self, *_):
            raise RuntimeError

    async def explode(*_, **__):
        raise RuntimeError

    monkeypatch.setattr("groundwire.verify.citations._GRACE", 0.0)
    verifier = make({"*": Sources(tracker=Tracker(gate=asyncio.Event()))})
    check = (await verifier.remote(issues(1), budget=0.05))["t", "issue:0"]
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s"), "a tracker that keeps no time"
    for error in (RuntimeError("secret"), OSError(), TimeoutError(), KeyError("x"), RecursionError()):
        verifier = make({"*": Sources(tracker=Tracker(error=error))})
        check = (await verifier.remote(issues(1)))["t", "issue:0"]
        assert (check.state, "secret" in check.detail) == ("unknown", False), error
    monkeypatch.setattr("groundwire.verify.adr.AdrFolder.check", explode)
    monkeypatch.setattr("groundwire.verify.git.GitRepository.check", explode)
    server.routes["/x"] = Reply(200)
    verifier = make({"*": Sources(tmp_path, tmp_path)}, cache=Broken())
    cited = [cite("adr", "1"), cite("commit", "deadbeef"), cite("url", server.url("/x"))]
    assert list(states(await verifier.verify("t", cited)).values()) == ["unknown", "unknown", "verified"]


async def test_a_cancelled_call_stays_cancelled_and_is_not_cached(make):
    cache, tracker = CountingCache(), Tracker(gate=asyncio.Event())
    asking = asyncio.ensure_future(make({"*": Sources(tracker=tracker)}, cache=cache).remote(issues(1)))
    while not tracker.asked:  # noqa: ASYNC110 - it takes notes, and tells nobody
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cache.puts == []


async def test_a_host_that_keeps_failing_is_left_alone_and_what_was_not_asked_is_not_cached(make):
    tracker, cache = Tracker(state="unknown"), CountingCache()
    pacer = Pacer(PacingLimits(per_host=1, failures=3, spacing=0.0))
    verifier = make({"*": Sources(tracker=tracker)}, pacer=pacer, cache=cache)
    answers = await verifier.remote(issues(10))
    assert set(states(answers).values()) == {"unknown"}
    assert len(tracker.asked) == len(cache.puts) == 3
    assert answers["t", "issue:9"].detail == "host paused after repeated failures"


async def test_a_batch_ends_when_its_patience_does(make):
    gate = asyncio.Event()
    tracker = Tracker(gate=gate)
    verifier = make({"*": Sources(tracker=tracker)}, pacer=Pacer(PacingLimits(per_host=1, spacing=0.0)))
    asking = asyncio.ensure_future(verifier.remote(issues(200), budget=60, patience=0.1))
    async with asyncio.timeout(60):
        while not asking.done():
            await asyncio.sleep(0.2)
            gate.set()
    assert sorted(set(states(await asking).values())) == ["unknown", "verified"]
    assert len(await asking) == 200


async def test_every_looked_up_answer_is_reported_once_and_dated_by_the_clock(make, server, tmp_path):
    seen = []
    options = {"on_result": lambda *r: seen.append(r), "clock": lambda: NOW, "monotonic": lambda: 7.0}
    verifier = make({"*": Sources(adr_dir=tmp_path)}, pacer=Pacer(clock=lambda: 7.0), **options)
    url = cite("url", server.url("/x"))
    checks = await verifier.verify("t", [cite("adr", "1"), url, url, cite("commit", "deadbeef")])
    assert sorted(seen) == [("adr", "not_found", 0.0), ("url", "not_found", 0.0)]
    assert {checks[label].checked_at for label in ("adr:1", "commit:deadbeef")} == {NOW}


async def test_the_loop_turns_while_a_batch_is_verified(make, server, git, tmp_path):
    """Commits, files and pages together: the pages wait for a turn of the loop beside them."""
    git("commit", "-q", "--allow-empty", "-m", "x")
    verifier, gate = make({"*": Sources(tmp_path, tmp_path / "repo")}), asyncio.Event()

    async def held(_):
        await gate.wait()
        return Reply(200)

    server.routes |= {f"/{n}": held for n in range(4)}
    cited = [cite("url", server.url(f"/{n}")) for n in range(4)]
    cited += [cite("commit", f"{n:07x}") for n in range(500)]
    asking = asyncio.ensure_future(verifier.verify("t", cited))
    while len(server.asked) < 4:  # noqa: ASYNC110 - the server takes notes
        await asyncio.sleep(0)
    gate.set()
    assert len(await asking) == 504


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    for name in ("GROUNDWIRE_ADR_DIR", "GROUNDWIRE_REPO", "GROUNDWIRE_NO_NETWORK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("groundwire.verify.citations._answers", MemoryCache())


async def test_a_url_is_valid_only_on_200_and_the_reason_is_its_status(server, urls):
    for status, valid in ((200, True), (404, False), (500, False)):
        server.routes["/x"] = Reply(status)
        verifier = CitationVerifier({}, urls=urls)
        result = await verify_citation(cite("url", server.url("/x")), verifier=verifier)
        assert result == (valid, f"HTTP {status}")
        assert (type(result), result.kind) == (VerificationResult, "existence")


async def test_the_environment_or_the_working_directory_says_where_to_look(git, tmp_path, monkeypatch):
    git("commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / "repo" / "docs/adrs").mkdir(parents=True)
    (tmp_path / "repo" / "docs/adrs/ADR-003-use-postgres.md").write_text("x")
    for folder in ("repo/docs", "repo"):
        monkeypatch.chdir(tmp_path / folder)
        assert await verify_citation(cite("commit", git("rev-parse", "HEAD"))) == (True, "Commit exists")
        assert await verify_citation(cite("commit", "deadbeef")) == (False, "Unknown commit")
    assert await verify_citation(cite("adr", "003")) == (True, "ADR file exists")
    assert await verify_citation(cite("adr", "999")) == (False, "ADR not found")
    (tmp_path / "ADR-1.md").write_text("x")
    for name, value in (("ADR_DIR", tmp_path), ("REPO", tmp_path / "repo"), ("NO_NETWORK", 1)):
        monkeypatch.setenv(f"GROUNDWIRE_{name}", str(value))
    assert (await verify_citation(cite("adr", "1"))).valid
    assert (await verify_citation(cite("commit", git("rev-parse", "HEAD")))).valid
    assert await verify_citation(cite("url", "http://127.0.0.1/")) == (False, "network disabled")


async def test_without_sources_nothing_is_valid_nothing_raised_and_nothing_private_asked(
    server, tmp_path, monkeypatch
):
    """An issue is never valid without a tracker (S0-68)."""
    monkeypatch.chdir(tmp_path)
    assert await verify_citation(cite("issue", "1")) == (False, "issue tracker not configured")
    for host in ("169.254.169.254", "127.0.0.1"):
        assert await verify_citation(cite("url", f"http://{host}/latest/")) == (False, "blocked address")
    assert server.connections == 0
    for kind, value in (
        *(("adr", "1"), ("adr", ""), ("commit", "deadbeef"), ("url", "")),
        *(("url", "\x00"), ("doi", "x")),
    ):
        result = await verify_citation(cite(kind, value))
        assert (result.valid, bool(result.reason)) == (False, True), (kind, value)


async def test_a_second_call_makes_no_request(server, monkeypatch):
    """Calls without a verifier share answers, although each has its own connections."""

    def local_checker(**options):
        return UrlChecker(AddressGuard(["127.0.0.0/8"], ports=[server.port]), **options)

    monkeypatch.setattr("groundwire.verify.url.UrlChecker", local_checker)
    for _ in range(2):
        assert await verify_citation(cite("url", server.url("/none"))) == (False, "HTTP 404")
    assert len(server.asked) == 1
