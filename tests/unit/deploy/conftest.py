"""Programs that check what is deployed: absent, they skip a test on a laptop and fail it in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a program of the system or of this environment; what it says of errors is the failure."""

    def run(program: str, *arguments: object, package: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        found = shutil.which(program, path=path)
        if found is None:
            missing = f"{program} is not installed here: {package}"
            if os.environ.get("CI") == "true":
                pytest.fail(missing)
            pytest.skip(missing)
        done = subprocess.run(
            [found, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
