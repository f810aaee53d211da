"""The console on the demo's data, and what a person needs to use it by browser, by command and by HTTP."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.examples import REVIEWER, REVIEWERS
from demo.feed import PREFIX
from demo.report import progress
from demo.sources import CONSOLE_KEY
from deploy.embedded.process import ServiceError
from groundwire.review.tokens import new_token


def serve_console(environment: Mapping[str, str], folder: Path, workers: Sequence[str]) -> None:
    """Serve the console until it is interrupted, and say how to get in: a link, a token, and what to export.

    `workers`: `host:port` of each worker's metrics. Raises: ServiceError.
    """
    tokens = folder / "tokens.toml"
    token = new_token(tokens, "demo", person=REVIEWER, tenants=["default"])
    own = {
        "GROUNDWIRE_TOKENS_FILE": str(tokens),
        "GROUNDWIRE_CONSOLE_KEY": CONSOLE_KEY,
        "GROUNDWIRE_CONSOLE_PORT": "0",
        "GROUNDWIRE_CONSOLE_TOUR": "1",
        "GROUNDWIRE_CONSOLE_WORKERS": ",".join(workers),
        # no line for each request: the link would scroll away
        "GROUNDWIRE_LOG_LEVEL": "warning",
        "GROUNDWIRE_LOG_FORMAT": "console",
    }
    who = [
        "--one-time-link",
        *(word for name in REVIEWERS for word in ("--name", name)),
        "--tenant",
        "default",
    ]
    process = subprocess.Popen(  # noqa: S603 - the command is built here
        [sys.executable, "-c", "from groundwire.cli.main import main; main()", "console", *who],
        env={**environment, **own},
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        links = [process.stdout.readline().strip() if process.stdout else "" for _ in REVIEWERS]
        if all(links):
            progress(invitation(links, exports({**environment, **own}), token, folder))
        status = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait(15.0)
        return
    if status:
        raise ServiceError(f"the console ended with status {status}")


def exports(environment: Mapping[str, str]) -> list[str]:
    """Return lines for a shell after which commands work on the demo's data, as its reviewer."""
    names = ("BROKERS", "REDIS_URL", "KEYS_FILE", "TOKENS_FILE", "ADR_DIR", "REPO")
    values = {name: environment[f"GROUNDWIRE_{name}"] for name in names}
    values |= {"TOPIC_PREFIX": PREFIX, "REVIEWER": REVIEWER}
    values |= dict.fromkeys(("REVIEWER_KEY", "CONSOLE_KEY"), CONSOLE_KEY)
    return [f"export GROUNDWIRE_{name}={shlex.quote(value)}" for name, value in values.items()]


def invitation(links: Sequence[str], lines: list[str], token: str, logs: Path) -> str:
    commands = Path(sys.executable).parent
    path = [f'export PATH={shlex.quote(str(commands))}:"$PATH"'] if (commands / "groundwire").exists() else []
    origin = links[0].partition("/signin#")[0]
    return "\n".join(
        [
            "\nThe console; a link signs you in once, within ten minutes. Use another browser for the second person.\n",
            *(f"  as {name}: {link}" for name, link in zip(REVIEWERS, links, strict=True)),
            "",
            "The same by command and by HTTP: paste this into another terminal.\n",
            *path,
            *lines,
            f"token={shlex.quote(token)} console={shlex.quote(origin)}",
            "groundwire review list",
            'curl -H "Authorization: Bearer $token" "$console/api/queue"',
            f"\nLogs of the workers: {logs}/worker-*.log\nCtrl-C stops everything.",
        ]
    )
