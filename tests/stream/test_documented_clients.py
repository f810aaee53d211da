"""The programs of docs/use/clients.md: typed as they stand there, and doing what the page shows (X-16)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stream.harness import ROOT, Deployment
from tests.unit.docs.pages import DOCS, agrees, blocks

PROGRAMS = [
    block
    for block in blocks(DOCS / "use" / "clients.md")
    if block.language == "python" and block.mark == "needs: kafka"
]


@pytest.mark.slow
def test_they_pass_mypy_as_they_stand_on_the_page(tmp_path: Path) -> None:
    files = [tmp_path / f"program_{number}.py" for number in range(len(PROGRAMS))]
    for file, block in zip(files, PROGRAMS, strict=True):
        file.write_text(block.text)
    # as on a reader's machine: strict, and without the settings of this repository
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *map(str, files)],
        env={"MYPYPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.stream
@pytest.mark.slow
async def test_they_do_what_the_page_shows(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "ADR-003-search.md").touch()
    deployment.environment["GROUNDWIRE_ADR_DIR"] = str(tmp_path)
    await deployment.start_workers("claims", "responses")
    assert len(PROGRAMS) == 3
    for block in PROGRAMS:
        status, printed, errors = await deployment.command(program=block.text)
        assert status == 0, errors
        assert agrees(block.shown or "", printed), f"{block.where} prints\n{printed}"
