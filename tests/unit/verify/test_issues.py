"""Issues at a tracker (S0-68)."""

import logging

import pytest

from groundwire.verify.issues import GitHubTracker, GitLabTracker

from .server import Reply, running

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


async def test_the_token_is_sent_and_shown_nowhere(server, trackers, caplog):
    caplog.set_level(logging.DEBUG)
    for path, tracker in trackers.items():
        check = await tracker.exists("7")
        assert server.asked[-1].path == path + "7"
        assert "s3cret" not in f"{tracker!r} {tracker.identity} {check}"
    assert server.asked[0].headers["authorization"] == "Bearer s3cret"
    assert server.asked[1].headers["private-token"] == "s3cret"
    assert "s3cret" not in caplog.text


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


def test_other_projects_servers_and_tokens_are_other_identities():
    places = [("a", "x/y", "t"), ("a", "x/z", "t"), ("b", "x/y", "t"), ("a", "x/y", "u")]
    trackers = [GitHubTracker(f"https://{host}.example", *which) for host, *which in places]
    trackers.append(GitLabTracker("https://a.example", "x/y", "t"))
    assert len({t.identity for t in trackers}) == 5
    for repository in ("app", "a/b/c", "a/b?x", "../b c", ""):
        with pytest.raises(ValueError, match="owner/name"):
            GitHubTracker("https://api.example", repository)
