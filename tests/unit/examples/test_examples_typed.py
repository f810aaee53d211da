"""The examples of clients are typed as a reader's own program would be."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded import MissingServiceError
from tests.services.fixtures import or_skip

ROOT = Path(__file__).resolve().parents[3]


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingServiceError(f"{package} is not there: make examples")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "package"), [("langgraph_store.py", "langgraph"), ("vector_store/__main__.py", "psycopg")]
)
def test_it_passes_mypy_in_its_strict_mode(program: str, package: str, tmp_path: Path) -> None:
    or_skip(lambda: needs(package))
    file = ROOT / "examples" / program
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(file)],
        env={"MYPYPATH": os.pathsep.join([str(ROOT / "src"), str(file.parent)]), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
