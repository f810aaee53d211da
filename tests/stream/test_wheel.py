"""A wheel in an environment of its own outside the checkout: plain, and with workers (X-18)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.embedded import RedisServer
from deploy.embedded.process import ServerProcess
from tests.services.brokers import BROKER_VARIABLE, Broker

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.wheel]

ROOT = Path(__file__).resolve().parents[2]
CI = os.environ.get("CI") == "true" and os.environ.get(BROKER_VARIABLE, "embedded") == "embedded"
CLAIM = {"claim_id": "c1", "user_id": "ann", "content": "Maybe we could try GraphQL"}


@dataclass(frozen=True)
class Environment:
    """An environment that the wheel is installed in, and a folder in which nothing of the checkout is."""

    folder: Path

    def run(
        self, *command: str, more: Mapping[str, str] | None = None, given: str = ""
    ) -> tuple[int, str, str]:
        """Run a program of the environment: its status, output and errors."""
        name, *arguments = command
        done = subprocess.run(
            [self.folder / "bin" / name, *arguments],
            cwd=self.folder,
            env={**bare(), **(more or {})},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def output(self, *command: str, more: Mapping[str, str], given: str = "") -> str:
        """Run `groundwire`, which must succeed, and return what it prints."""
        status, out, err = self.run("groundwire", *command, more=more, given=given)
        assert status == 0, f"{command}: {out}{err}"
        return out


def bare() -> dict[str, str]:
    """The variables of this process without those by which it finds the checkout."""
    ours = re.compile(r"GROUNDWIRE_|PYTHONPATH$|VIRTUAL_ENV$")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env=bare(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (built,) = folder.iterdir()
    return built


def without(*packages: str) -> str:
    """A program that is `groundwire` where these packages are not installed."""
    return (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r}));"
        "from groundwire.cli.main import main; main()"
    )


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=pytest.mark.skipif(not CI, reason="downloads: in CI alone"))],
)
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The wheel installed with what workers need, or alone, with what it needs found where tests have it installed."""
    folder = tmp_path_factory.mktemp("environment")
    make = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(make, env=bare(), check=True, capture_output=True)
    python = folder / "bin" / "python"
    if request.param:
        pip("--python", python, "install", "--quiet", f"{wheel}[worker]")
    else:
        pip("--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
        # a folder that a `.pth` names has its own `.pth` files left unread: the checkout is not found there
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(folder)


@pytest.mark.smoke
def test_topics_are_declared_and_a_claim_is_decided(
    installed: Environment, broker: Broker, redis_server: RedisServer, tmp_path: Path
) -> None:
    prefix = f"wheel-{uuid.uuid4().hex[:8]}."
    settings = {
        "GROUNDWIRE_BROKERS": broker.bootstrap,
        "GROUNDWIRE_REDIS_URL": redis_server.url,
        "GROUNDWIRE_TOPIC_PREFIX": prefix,
        "GROUNDWIRE_GROUP_PREFIX": prefix,
        "GROUNDWIRE_PARTITIONS": "1",
        "GROUNDWIRE_REPLICATION": str(broker.replication),
        "GROUNDWIRE_NO_NETWORK": "1",
        "GROUNDWIRE_LOG_FORMAT": "json",
        "GROUNDWIRE_NONSENSE": "1",  # unknown: one warning in the log, which stays JSON
    }
    assert installed.output("topics", "declare", more=settings) == "11 topics created, 0 were there\n"
    installed.output("topics", "check", more=settings)
    command = [str(installed.folder / "bin" / "groundwire"), "worker", "claims"]
    environment = {**bare(), **settings}
    worker = ServerProcess("worker", command, tmp_path / "claims.log", environment, installed.folder)
    worker.start()
    try:
        worker.wait_until(lambda: '"event": "ready"' in worker.log.read_text(), 120)
        installed.output("produce", "-", more=settings, given=json.dumps(CLAIM))
        shown = installed.output("tail", "blocked", "--from", "earliest", "--limit", "1", more=settings)
        decision = json.loads(shown)
        assert (decision["subject_id"], decision["verdict"]) == ("c1", "blocked")
        worker.stop(60)
    finally:
        worker.kill()
    events = [json.loads(line)["event"] for line in worker.log.read_text().splitlines()]
    assert events.count("setting.unknown") == 1


def test_every_role_is_there_and_packages_of_the_checkout_s_names_stay_out_of_the_way(
    installed: Environment,
) -> None:
    """Packages named `agents` are installed by other projects."""
    for name in ("agents", "topics"):
        assert (
            f"ModuleNotFoundError: No module named '{name}'"
            in installed.run("python", "-c", f"import {name}")[2]
        )
    _, printed, _ = installed.run("python", "-c", "import groundwire; print(groundwire.__file__)")
    assert printed.startswith(str(installed.folder)), "the wheel's own, not the checkout's"
    other = next(installed.folder.glob("lib/python*/site-packages")) / "agents.py"
    other.write_text("raise RuntimeError('the other one')\n")
    try:
        for role in ("claims", "deferred", "responses", "reviews"):
            assert f"groundwire worker {role}" in installed.output("worker", role, "--help", more={})
    finally:
        other.unlink()


@pytest.mark.smoke
def test_a_plain_install_checks_claims(installed: Environment) -> None:
    extras = ("aiokafka", "cryptography", "redis", "numpy", "datasketch", "scipy", "faust", "mode", "uvloop")
    program = without(*extras, "jinja2", "mcp")
    status, out, err = installed.run("python", "-c", program, "check", given=json.dumps(CLAIM))
    assert (status, err) == (0, "")
    assert json.loads(out)["reason_code"] == "personal_speculation"


def test_a_command_and_a_public_name_tell_the_extra_that_they_need(installed: Environment) -> None:
    for command, package, extra in (
        ("produce --help", "aiokafka", "client"),
        ("tail --help", "aiokafka", "client"),
        ("topics --help", "aiokafka", "client"),
        ("review --help", "aiokafka", "client"),
        ("rebuild --help", "redis", "worker"),
        ("console --help", "uvicorn", "console"),
        ("mcp --help", "mcp", "mcp"),
        *(("worker claims", package, "worker") for package in ("faust", "mode", "uvloop")),
    ):
        name = "a worker needs it" if extra == "worker" and "claims" in command else ""
        needs = name or f"`groundwire {command.split()[0]}` needs it"
        wanted = f"error: {package} is not installed, and {needs}: pip install 'groundwire[{extra}]'\n"
        assert installed.run("python", "-c", without(package), *command.split()) == (2, "", wanted)
    program = "import sys; sys.modules['aiokafka'] = None; from groundwire.client import Producer"
    wanted = "aiokafka is not installed, and Producer needs it: pip install 'groundwire[client]'"
    assert installed.run("python", "-c", program)[2].endswith(f"ModuleNotFoundError: {wanted}\n")


@pytest.mark.skipif(not CI, reason="downloads: in CI alone")
def test_a_plain_install_takes_at_most_80_mb_and_pins_nothing(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], env=bare(), check=True)
    pip("--python", tmp_path / "bin" / "python", "install", "--quiet", wheel)
    taken = sum(file.stat().st_size for file in (tmp_path / "lib").rglob("*") if file.is_file())
    assert taken <= 80_000_000
    (metadata,) = (tmp_path / "lib").glob("python*/site-packages/groundwire-*.dist-info/METADATA")
    needed = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    assert [one for one in needed if "==" in one and "extra ==" not in one] == []
