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
    """Answers after a while, or breaks, as told."""

    def __init__(self, identity="t", *, error=None, delay=0.0, state="verified"):
        self.identity, self.host, self.error, self.delay, self.state = (
            identity,
            "tracker",
            error,
            delay,
            state,
        )
        self.asked, self.now, self.most, self.closed = [], 0, 0, False

    async def exists(self, number, *, want_text=False, **_):
        self.asked.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.delay)
        self.now -= 1
        if self.error:
            raise self.error
        return CitationCheck(CitationState(self.state), "HTTP 503", NOW, "text" if want_text else None)

    async def close(self):
        self.closed = True


@pytest.fixture
async def make(urls):
    made = []

    def build(sources=None, **options):
        options.setdefault("pacer", Pacer(PacingLimits(spacing=0.0)))
        verifier = CitationVerifier(sources or {}, urls=urls, **options)
        made.append(verifier)
        return verifier

    yield build
    for verifier in made:
        await verifier.close()


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


async def test_what_is_not_configured_is_unknown_and_says_so(make):
    cited = [cite("adr", "3"), cite("commit", "deadbeef"), cite("issue", "1")]
    checks = await make({}).verify("t", cited)
    assert set(states(checks).values()) == {"unknown"}
    assert [c.detail for c in checks.values()] == [
        "ADR folder not configured",
        "repository not configured",
        "issue tracker not configured",
    ]


async def test_each_tenant_has_its_own_sources_and_the_star_serves_the_rest(make, tmp_path):
    for tenant in ("a", "rest"):
        (tmp_path / tenant).mkdir()
    (tmp_path / "a" / "ADR-1.md").write_text("x")
    (tmp_path / "rest" / "ADR-2.md").write_text("x")
    trackers = {"a": Tracker("a"), "*": Tracker("rest", state="not_found")}
    verifier = make(
        {
            "a": Sources(tmp_path / "a", None, trackers["a"]),
            "*": Sources(tmp_path / "rest", None, trackers["*"]),
        }
    )
    cited = [cite("adr", "1"), cite("adr", "2")]
    assert states(await verifier.local("a", cited)) == {"adr:1": "verified", "adr:2": "not_found"}
    assert states(await verifier.local("b", cited)) == {"adr:1": "not_found", "adr:2": "verified"}
    issue = cite("issue", "7")
    assert states(await verifier.remote([("a", issue), ("b", issue)])) == {
        ("a", "issue:7"): "verified",
        ("b", "issue:7"): "not_found",
    }


async def test_local_answers_adrs_and_commits_only_and_asks_no_network(make, server, tmp_path):
    verifier = make({"*": Sources(tmp_path)})
    assert set(
        await verifier.local("t", [cite("adr", "1"), cite("url", server.url("/")), cite("issue", "1")])
    ) == {"adr:1"}
    assert server.connections == 0


async def test_without_network_urls_and_issues_are_unknown_at_once(make, server):
    tracker, cache = Tracker(), CountingCache()
    verifier = make({"*": Sources(tracker=tracker)}, network=False, cache=cache)
    requests = [("t", cite("url", server.url("/"))), ("t", cite("issue", "1"))]
    for answers in (await verifier.cached(requests), await verifier.remote(requests)):
        assert {(c.state, c.detail) for c in answers.values()} == {("unknown", "network disabled")}
        assert len(answers) == 2
    assert server.connections == 0
    assert tracker.asked == []


async def test_the_cache_is_asked_once_for_a_batch(make, server):
    cache = CountingCache()
    verifier = make({"*": Sources(tracker=Tracker())}, cache=cache)
    requests = [(t, cite("url", server.url(f"/{n}"))) for t in "ab" for n in range(50)]
    requests += [(t, cite("issue", str(n))) for t in "ab" for n in range(50)]
    assert await verifier.cached(requests) == {}
    assert len(cache.gets) == 1
    assert len(cache.gets[0]) == len(set(cache.gets[0])) == 100


async def test_no_network_citation_asks_no_cache(make):
    cache = CountingCache()
    await make({}, cache=cache).cached([("t", cite("adr", "1")), ("t", cite("issue", "1"))])
    assert cache.gets == []


async def test_the_same_citation_is_asked_once_for_each_tenant_and_then_comes_from_the_cache(make, server):
    server.routes["/x"] = Reply(200)
    verifier = make({})
    requests = [(t, cite("url", server.url("/x"))) for t in ("a", "b", "a")]
    answers = await verifier.remote(requests)
    assert states(answers) == {(t, "url:" + server.url("/x")): "verified" for t in "ab"}
    assert len(server.asked) == 2
    assert states(await verifier.cached([*requests, ("c", requests[0][1])])) == states(answers) | {
        ("c", requests[0][1].label): "verified"
    }
    assert len(server.asked) == 2


async def test_verify_asks_only_what_the_cache_does_not_know(make, server):
    server.routes["/x"] = Reply(200)
    verifier = make({})
    for _ in range(2):
        await verifier.verify("t", [cite("url", server.url("/x")), cite("url", server.url("/y"))])
    assert sorted(a.path for a in server.asked) == ["/x", "/y"]


async def test_trackers_with_other_rights_do_not_answer_for_each_other(make, server):
    secret = GitHubTracker(server.url(""), "a/b", "token")
    public = GitHubTracker(server.url(""), "a/b")
    server.routes["/repos/a/b/issues/1"] = lambda asked: Reply(
        200 if "authorization" in asked.headers else 404, body=b"{}"
    )
    verifier = make({"s": Sources(tracker=secret), "p": Sources(tracker=public)})
    issue = cite("issue", "1")
    assert states(await verifier.remote([("s", issue), ("p", issue)])) == {
        ("s", "issue:1"): "verified",
        ("p", "issue:1"): "not_found",
    }


async def test_text_is_asked_for_again_since_it_is_not_cached(make, server):
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain"}, b"words")
    verifier = make({"*": Sources(tracker=Tracker())})
    requests = [
        ("t", cite("url", server.url("/x"))),
        ("t", cite("url", server.url("/gone"))),
        ("t", cite("issue", "1")),
    ]
    await verifier.remote(requests)
    known = await verifier.cached(requests, want_text=True)
    assert set(known) == {("t", "url:" + server.url("/gone"))}
    checks = await verifier.verify("t", [c for _, c in requests], want_text=True)
    assert [c.text for c in checks.values()] == ["words", None, "text"]


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), OSError(), TimeoutError(), KeyError("x"), RecursionError()]
)
async def test_whatever_breaks_the_answer_is_unknown_without_the_text_of_the_error(make, error):
    verifier = make({"*": Sources(tracker=Tracker(error=error))})
    check = (await verifier.remote([("t", cite("issue", "1"))]))["t", "issue:1"]
    assert check.state == "unknown"
    assert "secret" not in check.detail


async def test_a_broken_reader_or_cache_raises_nothing(make, server, tmp_path, monkeypatch):
    class Broken:
        async def get_many(self, *_):
            raise RuntimeError

        async def put(self, *_):
            raise RuntimeError

    async def explode(*_, **__):
        raise RuntimeError

    monkeypatch.setattr("groundwire.verify.adr.AdrFolder.check", explode)
    monkeypatch.setattr("groundwire.verify.git.GitRepository.check", explode)
    server.routes["/x"] = Reply(200)
    verifier = make({"*": Sources(tmp_path, tmp_path)}, cache=Broken())
    cited = [cite("adr", "1"), cite("commit", "deadbeef"), cite("url", server.url("/x"))]
    assert list(states(await verifier.verify("t", cited)).values()) == ["unknown", "unknown", "verified"]


async def test_a_cancelled_call_stays_cancelled_and_is_not_cached(make):
    cache = CountingCache()
    verifier = make({"*": Sources(tracker=Tracker(delay=5))}, cache=cache)
    asking = asyncio.ensure_future(verifier.remote([("t", cite("issue", "1"))]))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cache.puts == []


async def test_a_tracker_that_keeps_no_time_is_given_up(make, monkeypatch):
    monkeypatch.setattr("groundwire.verify.citations._GRACE", 0.0)
    verifier = make({"*": Sources(tracker=Tracker(delay=30))})
    check = (await verifier.remote([("t", cite("issue", "1"))], budget=0.05))["t", "issue:1"]
    assert (check.state, check.detail) == ("unknown", "timeout after 0.05 s")


async def test_requests_to_one_host_and_to_all_are_bounded(make, server):
    tracker = Tracker(delay=0.005)
    verifier = make({"*": Sources(tracker=tracker)}, pacer=Pacer(PacingLimits(per_host=3, spacing=0.0)))
    answers = await verifier.remote([("t", cite("issue", str(n))) for n in range(30)])
    assert set(states(answers).values()) == {"verified"}
    assert tracker.most == 3


async def test_a_host_that_keeps_failing_is_left_alone_and_that_is_not_cached(make):
    tracker, cache = Tracker(state="unknown"), CountingCache()
    pacer = Pacer(PacingLimits(per_host=1, failures=3, spacing=0.0))
    verifier = make({"*": Sources(tracker=tracker)}, pacer=pacer, cache=cache)
    answers = await verifier.remote([("t", cite("issue", str(n))) for n in range(10)])
    assert set(states(answers).values()) == {"unknown"}
    assert len(tracker.asked) == len(cache.puts) == 3
    assert answers["t", "issue:9"].detail == "host paused after repeated failures"


async def test_a_batch_ends_when_its_patience_does(make):
    verifier = make(
        {"*": Sources(tracker=Tracker(delay=0.2))}, pacer=Pacer(PacingLimits(per_host=1, spacing=0.0))
    )
    async with asyncio.timeout(3):
        answers = await verifier.remote([("t", cite("issue", str(n))) for n in range(200)], patience=0.1)
    assert sorted(set(states(answers).values())) == ["unknown", "verified"]
    assert len(answers) == 200


async def test_a_slow_host_does_not_hold_up_a_quick_one(make, server):
    server.routes["/x"] = Reply(200)
    tracker = Tracker(delay=60.0)
    verifier = make({"*": Sources(tracker=tracker)})
    slow = [("t", cite("issue", str(n))) for n in range(40)]
    asking = asyncio.ensure_future(verifier.remote(slow))
    while tracker.now < PacingLimits().per_host:  # noqa: ASYNC110 - it takes notes, and tells nobody
        await asyncio.sleep(0.01)
    quick = await verifier.remote([("t", cite("url", server.url("/x")))])
    assert set(states(quick).values()) == {"verified"}
    assert len(tracker.asked) == PacingLimits().per_host, (
        "the slow host has answered nothing, nor been given up"
    )
    asking.cancel()


async def test_every_looked_up_answer_is_reported_once_with_type_state_and_seconds(make, server, tmp_path):
    seen = []
    verifier = make({"*": Sources(adr_dir=tmp_path)}, on_result=lambda *r: seen.append(r))
    await verifier.verify(
        "t", [cite("adr", "1"), cite("url", server.url("/x")), cite("url", server.url("/x"))]
    )
    assert sorted((kind, state) for kind, state, _ in seen) == [("adr", "not_found"), ("url", "not_found")]
    assert all(0 <= seconds < 5 for *_, seconds in seen)


async def test_times_come_from_the_clock(make, tmp_path):
    verifier = make({"*": Sources(adr_dir=tmp_path)}, clock=lambda: NOW, network=False)
    checks = await verifier.verify(
        "t", [cite("adr", "1"), cite("url", "http://x.example/"), cite("commit", "deadbeef")]
    )
    assert {c.checked_at for c in checks.values()} == {NOW}


async def test_an_unknown_type_is_unknown(make):
    assert states(await make({}).verify("t", [cite("doi", "10.1/x")])) == {"doi:10.1/x": "unknown"}


async def test_closing_closes_each_tracker():
    tracker = Tracker()
    await CitationVerifier({"a": Sources(tracker=tracker), "*": Sources(tracker=tracker)}).close()
    assert tracker.closed


async def test_by_default_nothing_private_is_asked(server):
    verifier = CitationVerifier({})
    check = (await verifier.verify("t", [cite("url", "http://169.254.169.254/latest/")])).popitem()[1]
    await verifier.close()
    assert (check.state, check.detail) == ("unknown", "blocked address")


async def test_the_loop_turns_while_a_batch_is_verified(make, server, git, tmp_path):
    """Commits, files and pages together: no step holds the loop for long."""
    git("commit", "-q", "--allow-empty", "-m", "x")
    guard = AddressGuard(["127.0.0.0/8"], ports=[server.port])
    checker = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0)))
    verifier = CitationVerifier({"*": Sources(tmp_path, tmp_path / "repo")}, urls=checker)
    for n in range(20):
        server.routes[f"/{n}"] = Reply(200, delay=0.05)
    cited = [cite("url", server.url(f"/{n}")) for n in range(20)] + [
        cite("commit", f"{n:07x}") for n in range(500)
    ]
    asking = asyncio.ensure_future(verifier.verify("t", cited))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0.002)
        turns += 1
    assert len(await asking) == 520
    assert turns > 20
    await verifier.close()


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    for name in ("GROUNDWIRE_ADR_DIR", "GROUNDWIRE_REPO", "GROUNDWIRE_NO_NETWORK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("groundwire.verify.citations._answers", MemoryCache())


@pytest.mark.parametrize(("status", "valid"), [(200, True), (404, False), (500, False)])
async def test_a_url_is_valid_only_on_200_and_the_reason_is_its_status(server, urls, status, valid):
    server.routes["/x"] = Reply(status)
    verifier = CitationVerifier({}, urls=urls)
    result = await verify_citation(cite("url", server.url("/x")), verifier=verifier)
    assert result == (valid, f"HTTP {status}")
    assert isinstance(result, VerificationResult)
    assert result.kind == "existence"


async def test_without_configuration_the_working_directorys_repository_is_asked(git, tmp_path, monkeypatch):
    git("commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / "repo" / "src").mkdir()
    for folder in ("repo", "repo/src"):
        monkeypatch.chdir(tmp_path / folder)
        assert await verify_citation(cite("commit", git("rev-parse", "HEAD"))) == (True, "Commit exists")
        assert await verify_citation(cite("commit", "deadbeef")) == (False, "Unknown commit")


async def test_without_configuration_docs_adrs_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs/adrs").mkdir(parents=True)
    (tmp_path / "docs/adrs/ADR-003-use-postgres.md").write_text("x")
    assert await verify_citation(cite("adr", "003")) == (True, "ADR file exists")
    assert await verify_citation(cite("adr", "999")) == (False, "ADR not found")


async def test_without_a_tracker_an_issue_is_never_valid():
    """S0-68."""
    assert await verify_citation(cite("issue", "1")) == (False, "issue tracker not configured")


async def test_a_private_address_is_not_asked(server):
    assert await verify_citation(cite("url", "http://169.254.169.254/")) == (False, "blocked address")
    assert await verify_citation(cite("url", "http://127.0.0.1/")) == (False, "blocked address")
    assert server.connections == 0


async def test_without_repository_or_folder_nothing_is_valid_and_nothing_raised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, value in (
        ("adr", "1"),
        ("commit", "deadbeef"),
        ("url", ""),
        ("url", "\x00"),
        ("doi", "x"),
        ("adr", ""),
    ):
        result = await verify_citation(cite(kind, value))
        assert result.valid is False
        assert result.reason


async def test_the_environment_says_where_to_look(git, tmp_path, monkeypatch):
    git("commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / "ADR-1.md").write_text("x")
    monkeypatch.setenv("GROUNDWIRE_ADR_DIR", str(tmp_path))
    monkeypatch.setenv("GROUNDWIRE_REPO", str(tmp_path / "repo"))
    monkeypatch.setenv("GROUNDWIRE_NO_NETWORK", "1")
    assert (await verify_citation(cite("adr", "1"))).valid
    assert (await verify_citation(cite("commit", git("rev-parse", "HEAD")))).valid
    assert await verify_citation(cite("url", "http://127.0.0.1/")) == (False, "network disabled")


async def test_a_second_call_makes_no_request(server, monkeypatch):
    """Calls without a verifier share answers, although each has its own connections."""

    def local_checker(**options):
        return UrlChecker(AddressGuard(["127.0.0.0/8"], ports=[server.port]), **options)

    monkeypatch.setattr("groundwire.verify.url.UrlChecker", local_checker)
    for _ in range(2):
        assert await verify_citation(cite("url", server.url("/none"))) == (False, "HTTP 404")
    assert len(server.asked) == 1


async def test_the_tenants_sources_are_looked_in(tmp_path):
    (tmp_path / "ADR-1.md").write_text("x")
    verifier = CitationVerifier({"acme": Sources(adr_dir=tmp_path)})
    assert (await verify_citation(cite("adr", "1"), verifier=verifier, tenant="acme")).valid
    assert not (await verify_citation(cite("adr", "1"), verifier=verifier)).valid
