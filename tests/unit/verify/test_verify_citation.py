import pytest

from groundwire import verify
from groundwire.checks.citations import Citation
from groundwire.verify import (
    AddressGuard,
    CitationVerifier,
    MemoryCache,
    Sources,
    UrlChecker,
    VerificationResult,
    verify_citation,
)

from .server import Reply


def cite(kind, value):
    return Citation(kind, value, 0, 0)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    for name in ("GROUNDWIRE_ADR_DIR", "GROUNDWIRE_REPO", "GROUNDWIRE_NO_NETWORK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(verify, "_answers", MemoryCache())


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

    monkeypatch.setattr("groundwire.verify.citations.UrlChecker", local_checker)
    for _ in range(2):
        assert await verify_citation(cite("url", server.url("/none"))) == (False, "HTTP 404")
    assert len(server.asked) == 1


async def test_the_tenants_sources_are_looked_in(tmp_path):
    (tmp_path / "ADR-1.md").write_text("x")
    verifier = CitationVerifier({"acme": Sources(adr_dir=tmp_path)})
    assert (await verify_citation(cite("adr", "1"), verifier=verifier, tenant="acme")).valid
    assert not (await verify_citation(cite("adr", "1"), verifier=verifier)).valid
