"""A wheel in an environment of its own outside the checkout: plain, and with workers (X-18)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import uuid
from pathlib import Path

import pytest

from deploy.embedded import RedisServer
from deploy.embedded.process import ServerProcess
from tests.services.brokers import BROKER_VARIABLE, Broker

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.wheel]

ROOT = Path(__file__).resolve().parents[2]
CI = os.environ.get("CI") == "true" and os.environ.get(BROKER_VARIABLE, "embedded") == "embedded"


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


@pytest.mark.smoke
@pytest.mark.parametrize(
    "with_workers",
    [False, pytest.param(True, marks=pytest.mark.skipif(not CI, reason="downloads: in CI alone"))],
)
def test_an_installed_wheel_declares_topics_and_decides_claims_and_names_the_extra_that_a_command_needs(
    wheel: Path, broker: Broker, redis_server: RedisServer, tmp_path: Path, *, with_workers: bool
) -> None:
    """Installed with what workers need, or alone, with what it needs found where tests have it installed.

    Its programs run in a folder in which nothing of the checkout is. Packages named `agents` or `topics` are
    installed by other projects.
    """
    folder = tmp_path / "environment"
    make = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(make, env=bare(), check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    into = ("--python", folder / "bin" / "python", "install", "--quiet")
    if with_workers:
        pip(*into, f"{wheel}[worker]")
    else:
        pip(*into, "--no-deps", "--no-index", wheel)
        # a folder that a `.pth` names has its own `.pth` files left unread: the checkout is not found there
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(name: str, *arguments: str, given: str = "", **more: str) -> tuple[int, str, str]:
        """Run a program of the environment: its status, output and errors."""
        options = {"cwd": folder, "capture_output": True, "text": True, "input": given}
        done = subprocess.run([folder / "bin" / name, *arguments], check=False, env=bare() | more, **options)
        return done.returncode, done.stdout, done.stderr

    def groundwire(*command: str, given: str = "") -> str:
        status, out, err = run("groundwire", *command, given=given, **settings)
        assert status == 0, f"{command}: {out}{err}"
        return out

    def without(*missing: str) -> str:
        """A program that is `groundwire` where these packages are not installed."""
        return (
            f"import sys; sys.modules.update(dict.fromkeys({missing!r}));"
            "from groundwire.cli.main import main; main()"
        )

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
    claim = json.dumps({"claim_id": "c1", "user_id": "ann", "content": "Maybe we could try GraphQL"})
    assert groundwire("topics", "declare") == "12 topics created, 0 were there\n"
    groundwire("topics", "check")
    command = [str(folder / "bin" / "groundwire"), "worker", "claims"]
    worker = ServerProcess("worker", command, tmp_path / "claims.log", bare() | settings, folder)
    worker.start()
    try:
        worker.wait_until(lambda: '"event": "ready"' in worker.log.read_text(), 120)
        groundwire("produce", "-", given=claim)
        decision = json.loads(groundwire("tail", "blocked", "--from", "earliest", "--limit", "1"))
        assert (decision["subject_id"], decision["verdict"]) == ("c1", "blocked")
        worker.stop(60)
    finally:
        worker.kill()
    events = [json.loads(line)["event"] for line in worker.log.read_text().splitlines()]
    assert events.count("setting.unknown") == 1

    for name in ("agents", "topics"):
        missing = f"ModuleNotFoundError: No module named '{name}'"
        assert missing in run("python", "-c", f"import {name}")[2]
    _, printed, _ = run("python", "-c", "import groundwire; print(groundwire.__file__)")
    assert printed.startswith(str(folder)), "the wheel's own, not the checkout's"
    (packages / "agents.py").write_text("raise RuntimeError('the other one')\n")
    for role in ("claims", "deferred", "responses", "reviews"):
        assert f"groundwire worker {role}" in groundwire("worker", role, "--help")

    # a plain install checks claims
    extras = ("aiokafka", "cryptography", "redis", "numpy", "datasketch", "scipy", "faust", "mode", "uvloop")
    plain = without(*extras, "jinja2", "mcp")
    status, out, err = run("python", "-c", plain, "check", given=claim)
    assert (status, err) == (0, "")
    assert json.loads(out)["reason_code"] == "personal_speculation"
    for arguments, package, extra in (
        ("produce --help", "aiokafka", "client"),
        ("tail --help", "aiokafka", "client"),
        ("topics --help", "aiokafka", "client"),
        ("review --help", "aiokafka", "client"),
        ("rebuild --help", "redis", "worker"),
        ("console --help", "uvicorn", "console"),
        ("mcp --help", "mcp", "mcp"),
        *(("worker claims", package, "worker") for package in ("faust", "mode", "uvloop")),
    ):
        name = "a worker needs it" if arguments == "worker claims" else ""
        needs = name or f"`groundwire {arguments.split()[0]}` needs it"
        wanted = f"error: {package} is not installed, and {needs}: pip install 'groundwire[{extra}]'\n"
        assert run("python", "-c", without(package), *arguments.split()) == (2, "", wanted)
    program = "import sys; sys.modules['aiokafka'] = None; from groundwire.client import Producer"
    wanted = "aiokafka is not installed, and Producer needs it: pip install 'groundwire[client]'"
    assert run("python", "-c", program)[2].endswith(f"ModuleNotFoundError: {wanted}\n")


@pytest.mark.skipif(not CI, reason="downloads: in CI alone")
def test_a_plain_install_takes_at_most_80_mb_and_pins_nothing(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], env=bare(), check=True)
    pip("--python", tmp_path / "bin" / "python", "install", "--quiet", wheel)
    taken = sum(file.stat().st_size for file in (tmp_path / "lib").rglob("*") if file.is_file())
    assert taken <= 80_000_000
    (metadata,) = (tmp_path / "lib").glob("python*/site-packages/groundwire-*.dist-info/METADATA")
    needed = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    assert [one for one in needed if "==" in one and "extra ==" not in one] == []
