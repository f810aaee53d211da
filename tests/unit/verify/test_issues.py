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


@pytest.mark.parametrize("path", [GITHUB, GITLAB])
@pytest.mark.parametrize(
    ("status", "state", "detail"),
    [
        (200, "verified", "Issue exists"),
        (404, "not_found", "Issue not found"),
        (410, "not_found", "Issue not found"),
    ]
    + [(s, "unknown", f"HTTP {s}") for s in (204, 301, 302, 401, 403, 422, 429, 500, 503)],
)
async def test_state_follows_the_trackers_status(server, trackers, path, status, state, detail):
    server.routes[path + "7"] = Reply(status, body=b"{}")
    check = await trackers[path].exists("7")
    assert (check.state, check.detail) == (state, detail)


async def test_the_token_is_sent_and_shown_nowhere(server, trackers, caplog):
    caplog.set_level(logging.DEBUG)
    for path, tracker in trackers.items():
        check = await tracker.exists("7")
        assert server.asked[-1].path == path + "7"
        assert "s3cret" not in f"{tracker!r} {tracker.identity} {check}"
    assert server.asked[0].headers["authorization"] == "Bearer s3cret"
    assert server.asked[1].headers["private-token"] == "s3cret"
    assert "s3cret" not in caplog.text


async def test_a_moved_issue_is_followed_within_the_host(server, trackers):
    server.routes[GITHUB + "7"] = Reply(301, {"Location": "/api/repositories/1/issues/9"})
    server.routes["/api/repositories/1/issues/9"] = Reply(200, body=b"{}")
    assert (await trackers[GITHUB].exists("7")).state == "verified"


async def test_a_move_to_another_host_is_not_followed_and_gets_no_token(server, trackers):
    async with running() as other:
        other.routes["/x"] = Reply(200)
        server.routes[GITHUB + "7"] = Reply(301, {"Location": other.url("/x")})
        assert (await trackers[GITHUB].exists("7")).state == "unknown"
        assert other.connections == 0


async def test_moves_without_end_end(server, trackers):
    for n in range(20):
        server.routes[GITHUB + str(n)] = Reply(301, {"Location": GITHUB + str(n + 1)})
    assert (await trackers[GITHUB].exists("0")).state == "unknown"
    assert len(server.asked) == 4


@pytest.mark.parametrize("number", ["", "x", "-1", "1/../2", "1?x", "٣", "9" * 13])
async def test_what_is_no_number_is_not_asked(server, trackers, number):
    assert (await trackers[GITHUB].exists(number)).state == "not_found"
    assert server.connections == 0


async def test_a_tracker_out_of_reach_is_unknown():
    tracker = GitHubTracker("http://127.0.0.1:9", "acme/app")
    check = await tracker.exists("1")
    await tracker.close()
    assert (check.state, check.detail) == ("unknown", "connection refused")


async def test_the_text_is_title_and_description(server, trackers):
    server.routes[GITHUB + "7"] = Reply(200, body=b'{"title": "Use Postgres", "body": "because"}')
    server.routes[GITLAB + "7"] = Reply(200, body=b'{"title": "Use Postgres", "description": "because"}')
    for tracker in trackers.values():
        assert (await tracker.exists("7", want_text=True)).text == "Use Postgres\nbecause"
        assert (await tracker.exists("7")).text is None


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"\xff", b"[" * 100_000])
async def test_an_answer_that_cannot_be_read_does_not_tell_how_the_issue_stands(server, trackers, body):
    server.routes[GITHUB + "7"] = Reply(200, body=body)
    assert (await trackers[GITHUB].exists("7")).state == "unknown"


async def test_an_issue_without_text_is_verified_without_support(server, trackers):
    server.routes[GITHUB + "7"] = Reply(200, body=b'{"title": null}')
    check = await trackers[GITHUB].exists("7", want_text=True)
    assert (check.state, check.text) == ("verified", "")


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (GITHUB, '{"state": "closed", "state_reason": "not_planned"}', "Issue closed as not planned"),
        (GITHUB, '{"state": "closed", "state_reason": "duplicate"}', "Issue closed as duplicate"),
        (
            GITLAB,
            '{"state": "closed", "_links": {"closed_as_duplicate_of": "x"}}',
            "Issue closed as duplicate",
        ),
    ],
)
async def test_an_issue_that_was_closed_without_being_acted_on_is_not_verified(
    server, trackers, path, body, detail
):
    server.routes[path + "7"] = Reply(200, body=body.encode())
    check = await trackers[path].exists("7", want_text=True)
    assert (check.state, check.detail, check.text) == ("not_found", detail, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (GITHUB, '{"state": "open", "state_reason": null}'),
        (GITHUB, '{"state": "open", "state_reason": "reopened"}'),
        (GITHUB, '{"state": "closed", "state_reason": "completed"}'),
        (GITHUB, '{"state": "closed", "state_reason": null}'),
        (GITLAB, '{"state": "closed", "_links": {"closed_as_duplicate_of": null}}'),
        (GITLAB, '{"state": "opened", "_links": 1}'),
    ],
)
async def test_an_issue_that_is_open_or_done_is_verified(server, trackers, path, body):
    server.routes[path + "7"] = Reply(200, body=body.encode())
    assert (await trackers[path].exists("7")).state == "verified"


async def test_a_giant_answer_is_cut_off(server, trackers):
    server.routes[GITHUB + "7"] = Reply(200, body=b"x" * 50_000_000)
    assert (await trackers[GITHUB].exists("7", want_text=True)).text is None
    assert server.written < 25_000_000


def test_other_projects_servers_and_tokens_are_other_identities():
    trackers = [
        GitHubTracker("https://a.example", "x/y", "t"),
        GitHubTracker("https://a.example", "x/z", "t"),
        GitHubTracker("https://b.example", "x/y", "t"),
        GitHubTracker("https://a.example", "x/y", "u"),
        GitLabTracker("https://a.example", "x/y", "t"),
    ]
    assert len({t.identity for t in trackers}) == 5


@pytest.mark.parametrize("repository", ["app", "a/b/c", "a/b?x", "../b c", ""])
def test_a_repository_that_is_not_owner_and_name_is_refused(repository):
    with pytest.raises(ValueError, match="owner/name"):
        GitHubTracker("https://api.example", repository)
