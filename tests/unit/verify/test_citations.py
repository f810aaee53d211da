"""Citations: what is asked, of whom, and what an error comes to; issues at a tracker; relevance.

Requirements S0-64, S0-65, S0-68, S0-69, S0-70, C-14.
"""

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.citations import Citation
from groundwire.checks.support.verify import MAX_SOURCES, relevance
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier, Sources, verify_citation
from groundwire.verify.issues import GitHubTracker, GitLabTracker
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.results import CitationCheck, CitationState, MemoryCache, VerificationResult
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import UrlChecker

from .server import Reply, running

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


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    for name in ("GROUNDWIRE_ADR_DIR", "GROUNDWIRE_REPO", "GROUNDWIRE_NO_NETWORK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("groundwire.verify.citations._answers", MemoryCache())


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
    cited = [cite("adr", "3"), cite("commit", "deadbeef"), cite("issue", "1"), cite("isbn", "1")]
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


async def test_each_tenant_has_its_own_sources_and_the_star_serves_the_rest(make, server, tmp_path):
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
    # trackers with other rights do not answer for each other
    secret, public = (GitHubTracker(server.url(""), "a/b", token) for token in ("token", None))
    is_known = {True: Reply(body=b"{}"), False: Reply(404)}
    server.routes["/repos/a/b/issues/1"] = lambda asked: is_known["authorization" in asked.headers]
    verifier = make({"s": Sources(tracker=secret), "p": Sources(tracker=public)})
    issue = cite("issue", "1")
    found = states(await verifier.remote([("s", issue), ("p", issue)]))
    assert found == {("s", "issue:1"): "verified", ("p", "issue:1"): "not_found"}
    await verifier.close()


async def test_a_citation_is_asked_once_for_each_tenant_and_then_comes_without_its_text_from_one_query_of_the_cache(
    make, server
):
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
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain"}, b"words")
    verifier = make({"*": Sources(tracker=Tracker())})
    cited = [cite("url", server.url("/x")), cite("url", server.url("/gone")), cite("issue", "1")]
    requests = [("t", one) for one in cited]
    await verifier.remote(requests)
    known = await verifier.cached(requests, want_text=True)
    assert set(known) == {("t", "url:" + server.url("/gone"))}
    checks = await verifier.verify("t", cited, want_text=True)
    assert [c.text for c in checks.values()] == ["words", None, "text"]
    cache = CountingCache()
    verifier = make({"*": Sources(tracker=Tracker())}, cache=cache)
    requests = [(t, cite("url", server.url(f"/{n}"))) for t in "ab" for n in range(50)]
    requests += [(t, cite("issue", str(n))) for t in "ab" for n in range(50)]
    assert await verifier.cached(requests) == {}
    assert [len(keys) for keys in cache.gets] == [len(set(cache.gets[0]))] == [100]
    cache = CountingCache()
    await make({}, cache=cache).cached([("t", cite("adr", "1")), ("t", cite("issue", "1"))])
    assert cache.gets == []


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
    monkeypatch.setattr("groundwire.verify.local.AdrFolder.check", explode)
    monkeypatch.setattr("groundwire.verify.local.GitRepository.check", explode)
    server.routes["/x"] = Reply(200)
    verifier = make({"*": Sources(tmp_path, tmp_path)}, cache=Broken())
    cited = [cite("adr", "1"), cite("commit", "deadbeef"), cite("url", server.url("/x"))]
    assert list(states(await verifier.verify("t", cited)).values()) == ["unknown", "unknown", "verified"]


async def test_a_host_that_keeps_failing_is_left_alone_and_what_was_not_asked_is_not_cached(make):
    tracker, cache = Tracker(state="unknown"), CountingCache()
    pacer = Pacer(PacingLimits(per_host=1, failures=3, spacing=0.0))
    verifier = make({"*": Sources(tracker=tracker)}, pacer=pacer, cache=cache)
    answers = await verifier.remote(issues(10))
    assert set(states(answers).values()) == {"unknown"}
    assert len(tracker.asked) == len(cache.puts) == 3
    assert answers["t", "issue:9"].detail == "host paused after repeated failures"


async def test_a_batch_ends_when_its_patience_does_and_a_cancelled_one_stays_cancelled_and_is_not_cached(
    make,
):
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
    cache, tracker = CountingCache(), Tracker(gate=asyncio.Event())
    asking = asyncio.ensure_future(make({"*": Sources(tracker=tracker)}, cache=cache).remote(issues(1)))
    while not tracker.asked:  # noqa: ASYNC110 - it takes notes, and tells nobody
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cache.puts == []


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


async def test_a_url_is_valid_on_200_alone_its_reason_is_its_status_and_a_second_call_asks_nothing(
    server, urls, monkeypatch
):
    for status, valid in ((200, True), (404, False), (500, False)):
        server.routes["/x"] = Reply(status)
        verifier = CitationVerifier({}, urls=urls)
        result = await verify_citation(cite("url", server.url("/x")), verifier=verifier)
        assert result == (valid, f"HTTP {status}")
        assert (type(result), result.kind) == (VerificationResult, "existence")
    # calls without a verifier share answers, although each has its own connections
    local = partial(UrlChecker, AddressGuard(["127.0.0.0/8"], ports=[server.port]))
    monkeypatch.setattr("groundwire.verify.url.UrlChecker", local)
    server.asked.clear()
    for _ in range(2):
        assert await verify_citation(cite("url", server.url("/none"))) == (False, "HTTP 404")
    assert len(server.asked) == 1


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
    for kind, value in (("adr", ""), ("commit", "deadbeef"), ("url", "\x00"), ("isbn", "x")):
        result = await verify_citation(cite(kind, value))
        assert (result.valid, bool(result.reason)) == (False, True), (kind, value)


LEAST = Policy().relevance_minimum
ADR = """# ADR-003: Storage engine
We decided to use PostgreSQL for persistent storage because transactions matter. Backups run nightly and are kept
for 30 days. Attachments are not stored in the database."""


def support(claim, *sources):
    return relevance(claim, sources or [ADR])[0]


def test_a_source_supports_what_it_says_and_nothing_that_it_says_otherwise_or_not_at_all():
    expected = {
        "Per ADR-003, we use PostgreSQL for persistent storage.": True,
        "Backups run nightly (ADR-003).": True,
        "ADR-003 says that backups are kept for thirty days.": True,
        "Attachments are not stored in the database, see ADR-003.": True,
        "PostgreSQL is used for storage [ADR-003].": True,
        "Per ADR-003, the frontend framework is React with TypeScript.": False,
        "Per ADR-003, we do not use PostgreSQL for persistent storage.": False,
        "Attachments are stored in the database, see ADR-003.": False,
        "Backups are kept for 60 days (ADR-003).": False,
        "Per ADR-003, we use MongoDB for persistent storage.": False,
        "Backups never run nightly (ADR-003).": False,
    }
    assert {claim: support(claim) >= LEAST for claim in expected} == expected


def test_sources_support_a_claim_together_and_one_beside_the_point_does_not():
    claim = "Backups run nightly (ADR-003), and the office closes at noon (ADR-005)."
    scores = relevance(claim, [ADR, "The office closes at noon.", "Cats purr."])
    assert min(scores[:2]) >= LEAST > scores[2] == 0.0
    assert support(claim) < LEAST


def test_a_citation_is_no_part_of_what_a_claim_says():
    for citation in (
        *("ADR-003", "[ADR 3]", "https://e.example/postgres/x", "issue #123", "GH-45"),
        *("deadbeef1", "a1b2c3d"),
    ):
        assert support(f"Redis keeps sessions {citation}", "Redis keeps sessions.") >= LEAST, citation
        assert support(f"Redis keeps sessions {citation}", f"about {citation}") < LEAST, citation
    assert support("See ADR-003.", "it is") == support("ADR-003", ADR) == 0.0, "no content word"


def test_sources_beyond_the_limit_are_not_looked_at():
    long = "Cats purr. " * (MAX_SOURCES // 11)
    assert relevance("Backups run nightly", [long, ADR]) == [0.0, 0.0]
    assert relevance("Backups run nightly", [ADR, long])[0] >= LEAST


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=3))
def test_the_measure_is_one_number_a_source_of_0_to_1_rounded_to_four_decimals(claim, sources):
    values = relevance(claim, sources)
    assert len(values) == len(sources)
    assert all(0.0 <= value <= 1.0 and value == round(value, 4) for value in values)


GITHUB = "/api/repos/acme/app/issues/"
GITLAB = "/api/v4/projects/group%2Fapp/issues/"


@pytest.fixture
async def trackers(server):
    both = {
        GITHUB: GitHubTracker(server.url("/api/"), "acme/app", "s3cret"),
        GITLAB: GitLabTracker(server.url(""), "group/app", "s3cret"),
    }
    yield both
    for tracker in both.values():
        await tracker.close()


async def test_an_issue_exists_by_the_trackers_status_and_what_it_says_of_closing(server, trackers):
    exists, gone, wrong = ("verified", "Issue exists"), ("not_found", "Issue not found"), []
    unread = "unknown", "Issue not readable"
    unplanned, again = ((("not_found", f"Issue closed as {why}")) for why in ("not planned", "duplicate"))
    cases = [(path, s, b"{}", e) for path in trackers for s, e in ((200, exists), (404, gone), (410, gone))]
    refused = 204, 301, 302, 401, 403, 422, 429, 500, 503
    cases += [(path, status, b"{}", ("unknown", f"HTTP {status}")) for path in trackers for status in refused]
    cases += [(GITHUB, 200, body, unread) for body in (b"", b"nonsense", b"[]", b"\xff", b"[" * 100_000)]
    cases += [
        (path, 200, body.encode(), expected)
        for path, body, expected in (
            (GITHUB, '{"state": "closed", "state_reason": "not_planned"}', unplanned),
            (GITHUB, '{"state": "closed", "state_reason": "duplicate"}', again),
            (GITLAB, '{"state": "closed", "_links": {"closed_as_duplicate_of": "x"}}', again),
            (GITHUB, '{"state": "open", "state_reason": null}', exists),
            (GITHUB, '{"state": "open", "state_reason": "reopened"}', exists),
            (GITHUB, '{"state": "closed", "state_reason": "completed"}', exists),
            (GITHUB, '{"state": "closed", "state_reason": null}', exists),
            (GITLAB, '{"state": "closed", "_links": {"closed_as_duplicate_of": null}}', exists),
            (GITLAB, '{"state": "opened", "_links": 1}', exists),
        )
    ]
    for path, status, body, expected in cases:
        server.routes[path + "7"] = Reply(status, body=body)
        check = await trackers[path].exists("7", want_text=True)
        found = check.state.value, check.detail
        if found != expected or (expected != exists and check.text is not None):
            wrong.append((path, status, body[:80], found))
    assert wrong == []


async def test_the_token_is_sent_and_shown_nowhere_and_another_token_project_or_server_is_another_identity(
    server, trackers, caplog
):
    caplog.set_level(logging.DEBUG)
    for path, tracker in trackers.items():
        check = await tracker.exists("7")
        assert server.asked[-1].path == path + "7"
        assert "s3cret" not in f"{tracker!r} {tracker.identity} {check}"
    assert server.asked[0].headers["authorization"] == "Bearer s3cret"
    assert server.asked[1].headers["private-token"] == "s3cret"
    assert "s3cret" not in caplog.text
    places = [("a", "x/y", "t"), ("a", "x/z", "t"), ("b", "x/y", "t"), ("a", "x/y", "u")]
    known = {GitHubTracker(f"https://{host}.example", *which).identity for host, *which in places}
    assert len(known | {GitLabTracker("https://a.example", "x/y", "t").identity}) == 5
    for repository in ("app", "a/b/c", "a/b?x", "../b c", ""):
        with pytest.raises(ValueError, match="owner/name"):
            GitHubTracker("https://api.example", repository)


async def test_a_moved_issue_is_followed_within_the_host_and_not_without_end(server, trackers):
    server.routes[GITHUB + "7"] = Reply(301, {"Location": "/api/repositories/1/issues/9"})
    server.routes["/api/repositories/1/issues/9"] = Reply(200, body=b"{}")
    assert (await trackers[GITHUB].exists("7")).state == "verified"
    async with running() as other:
        other.routes["/x"] = Reply(200)
        server.routes[GITHUB + "7"] = Reply(301, {"Location": other.url("/x")})
        assert (await trackers[GITHUB].exists("7")).state == "unknown"
        assert other.connections == 0, "no token leaves the host"
    server.asked.clear()
    for n in range(20):
        server.routes[GITHUB + str(n)] = Reply(301, {"Location": GITHUB + str(n + 1)})
    assert (await trackers[GITHUB].exists("0")).state == "unknown"
    assert len(server.asked) == 4


async def test_what_is_no_number_is_not_asked(server, trackers):
    for number in ("", "x", "-1", "1/../2", "1?x", "٣", "9" * 13):
        assert (await trackers[GITHUB].exists(number)).state == "not_found", number
    assert server.connections == 0
    tracker = GitHubTracker("http://127.0.0.1:9", "acme/app")
    check = await tracker.exists("1")
    await tracker.close()
    assert (check.state, check.detail) == ("unknown", "connection refused"), "out of reach"


async def test_the_text_is_title_and_description_and_a_giant_answer_is_cut_off(server, trackers):
    server.routes[GITHUB + "7"] = Reply(200, body=b'{"title": "Use Postgres", "body": "because"}')
    server.routes[GITLAB + "7"] = Reply(200, body=b'{"title": "Use Postgres", "description": "because"}')
    for tracker in trackers.values():
        assert (await tracker.exists("7", want_text=True)).text == "Use Postgres\nbecause"
        assert (await tracker.exists("7")).text is None
    server.routes[GITHUB + "7"] = Reply(200, body=b'{"title": null}')
    assert (await trackers[GITHUB].exists("7", want_text=True)).text == ""
    server.routes[GITHUB + "7"] = Reply(200, body=b"x" * 50_000_000)
    assert (await trackers[GITHUB].exists("7", want_text=True)).text is None
    assert server.written < 25_000_000


async def test_works_standards_flaws_issues_and_tickets_are_looked_up_by_their_resolvers(server):
    found = {
        "/doi/10.1000/xyz-1": ("doi", "10.1000/xyz-1"), "/abs/2401.01234v2": ("arxiv", "2401.01234v2"),
        "/pm/123/": ("pmid", "123"), "/rfc7231": ("rfc", "7231"), "/cve/CVE-2021-1": ("cve", "CVE-2021-1"),
        "/repos/acme/api/issues/4": ("issue", "acme/api#4"),
    }  # fmt: skip
    resolvers = {
        "doi": "/doi/{id}", "arxiv": "/abs/{id}", "pmid": "/pm/{id}/", "rfc": "/rfc{id}", "cve": "/cve/{id}",
        "issue": "/repos/{id}",
    }  # fmt: skip
    given = ",".join(f"{kind}={server.url(path)}" for kind, path in resolvers.items())
    settings = Settings(resolvers=given, allow_networks="127.0.0.0/8", allow_ports=str(server.port))
    urls = UrlChecker.of(settings, pacer=Pacer(PacingLimits(spacing=0.0)))
    verifier = CitationVerifier({}, urls=urls)
    ticket = cite("ticket", "PLAT-12")._replace(url=server.url("/browse/PLAT-12"))
    cited = [*(cite(kind, value) for kind, value in found.values()), ticket]
    for path in (*found, "/browse/PLAT-12"):
        body = b'{"title": "a \\"state\\": \\"closed\\"", "state": "open", "state_reason": null}'
        server.routes[path] = Reply(200, {"Content-Type": "application/json"}, body)
    states = {label: one.state.value for label, one in (await verifier.verify("t", cited)).items()}
    assert states == {one.label: "verified" for one in cited}
    # what is not there, and what its resolver says counts for nothing
    answers = [
        ("doi", "10.1000/no", 404, b"", "not_found", "HTTP 404"),
        ("cve", "CVE-2021-2", 200, b'{"cveMetadata": {"state": "REJECTED"}}', "not_found", "CVE rejected"),
        ("issue", "acme/api#5", 200, b'{"state": "closed", "state_reason": "not_planned"}', "not_found",
         "Issue closed as not planned"),
        ("issue", "acme/api#6", 200, b'{"state": "closed"', "unknown", "answer not readable"),
        ("cve", "CVE-2021-3", 403, b"", "unknown", "HTTP 403"),
    ]  # fmt: skip
    wrong = []
    for kind, value, status, body, state, detail in answers:
        path = resolvers[kind].replace("{id}", value.replace("#", "/issues/"))
        server.routes[path] = Reply(status, {"Content-Type": "application/json"}, body)
        check = (await verifier.verify("t", [cite(kind, value)]))[f"{kind}:{value}"]
        if (check.state.value, check.detail) != (state, detail):
            wrong.append((kind, value, check))
    await verifier.close()
    assert wrong == []


async def test_a_resolver_on_a_private_network_is_not_asked_and_one_that_is_none_is_refused(server):
    settings = Settings(resolvers=f"rfc={server.url('/{id}')}", allow_ports=str(server.port))
    verifier = CitationVerifier({}, urls=UrlChecker.of(settings))
    check = (await verifier.verify("t", [cite("rfc", "1")]))["rfc:1"]
    await verifier.close()
    assert (check.state.value, server.asked) == ("unknown", [])
    for wrong in ("isbn=https://x.example/{id}", "doi=https://x.example/", "doi=file:///{id}", "doi"):
        with pytest.raises(UsageError, match="GROUNDWIRE_RESOLVERS"):
            UrlChecker.of(Settings(resolvers=wrong))
