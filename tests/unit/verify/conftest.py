import subprocess

import pytest

from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import UrlChecker

from .server import running


@pytest.fixture
async def server():
    async with running() as server:
        yield server


@pytest.fixture
async def urls(server):
    guard = AddressGuard(["127.0.0.0/8"], ports=[80, 443, server.port])
    checker = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0)))
    yield checker
    await checker.close()


@pytest.fixture
def git(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}

    def run(*arguments, stdin=b""):
        command = ["git", "-C", str(repo), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=True, env=environment)
        return done.stdout.decode().strip()

    run("init", "-q", "-b", "main")
    return run
