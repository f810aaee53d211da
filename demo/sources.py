"""What the examples cite: an ADR folder, a git repository and a web site, made for one run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from demo.examples import REVIEWERS
from deploy.embedded.process import HOST, find_program
from groundwire.keys.file import new_key

CONSOLE_KEY: Final = "console"
GATE_KEY: Final = "gate"
"""Ids of the keys that sign what people decide, and what expires."""


_ADRS: Final = (
    ("ADR-003-memory.md", "ADR-003: Where memory is kept", "We use Pixeltable for memory storage."),
    ("ADR-004-data.md", "ADR-004: Where relational data is kept", "Relational data is kept in PostgreSQL."),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the claims of the demo can be looked up.

    A folder with two ADRs, a repository with one commit, and the port of a web site that has only `/api`; and the
    file with the keys of console and gate, and the reviewer who may decide for others.
    """

    adr_dir: Path
    repo: Path
    commit: str
    port: int
    keys: Path

    @property
    def places(self) -> dict[str, str]:
        """What the placeholders of the examples become."""
        commits = {f"commit{length}": self.commit[:length] for length in (12, 10)}
        return {**commits, "site": f"http://{HOST}:{self.port}"}

    @property
    def settings(self) -> dict[str, str]:
        return {
            "GROUNDWIRE_ADR_DIR": str(self.adr_dir),
            "GROUNDWIRE_REPO": str(self.repo),
            "GROUNDWIRE_KEYS_FILE": str(self.keys),
            "GROUNDWIRE_REVIEW_KEY": GATE_KEY,
            "GROUNDWIRE_ALLOW_NETWORKS": f"{HOST}/32",
            "GROUNDWIRE_ALLOW_PORTS": f"80,443,{self.port}",
        }


@contextlib.contextmanager
def made_in(folder: Path) -> Iterator[Sources]:
    """Make the sources below `folder`, and serve the web site until the end. Raises: MissingServiceError."""
    repo = folder / "repository"
    adr_dir = repo / "docs" / "adrs"
    adr_dir.mkdir(parents=True)
    for name, title, decided in _ADRS:
        (adr_dir / name).write_text(f"# {title}\n\nStatus: accepted\n\n{decided}\n")
    commit = _commit(repo, folder)
    keys = folder / "keys.toml"
    for name in (CONSOLE_KEY, GATE_KEY):
        new_key(keys, name, tenants=["default"], roles=["reviewer"])
    with keys.open("a") as file:
        file.write(f"\n[reviewers]\ndefault = {json.dumps(REVIEWERS)}\n")
    server = ThreadingHTTPServer((HOST, 0), _Site)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield Sources(adr_dir, repo, commit, server.server_port, keys)
    finally:
        server.shutdown()
        server.server_close()


def _commit(repo: Path, home: Path) -> str:
    """Make a repository of a folder's content; return the id of its one commit."""
    git = find_program("git", "git, with which cited commits are looked up (for example apt-get install git)")
    # nothing of the user's own settings: hooks, signing and templates would change what comes out
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    who = {"NAME": "Demo", "EMAIL": "demo@example.org", "DATE": "2026-01-01T00:00:00Z"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_{name}": value for name, value in who.items()}

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            [git, "-C", str(repo), *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "Record where memory is kept")
    return run("rev-parse", "HEAD")


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/api"
        body = b"The API of the example.\n" if found else b"Not here.\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class's signature
        """Log nothing: the decisions show what was asked."""
