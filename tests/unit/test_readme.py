"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from groundwire.cli.main import main
from groundwire.messages.decisions import ReasonCode

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_checking_a_file_of_the_readme_prints_the_table_of_the_readme(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (command,) = [block for block in blocks if "groundwire check" in block]
    program = tmp_path / ".venv" / "bin" / "groundwire"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from groundwire.cli.main import main; main()' \"$@\"\n"
    )
    program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (blocks[blocks.index(command) + 1], "", 0)


def test_every_subcommand_and_file_of_the_readme_and_every_reason_of_the_rules_exists() -> None:
    """X-06."""
    programs = "check|produce|tail|keys|verify|rebuild|replay|review|console|token"
    commands = set(re.findall(rf"groundwire ({programs})\b", README))
    assert commands
    assert all(main.get_command(click.Context(main), name) for name in commands)
    page = (ROOT / "docs/start/concepts.md").read_text()
    table = page.partition("## How a claim is decided")[2].partition("## ")[0]
    reasons = set(re.findall(r"`([a-z]+(?:_[a-z]+)+|duplicate|expired|ungrounded)`", table)) - {
        "derived_from"
    }
    assert len(reasons) > 10
    assert reasons - {str(code) for code in ReasonCode} == set()
    folders = "docs|deploy|demo|examples|schemas"
    files = re.findall(rf"`((?:{folders})/[\w./-]+|[A-Z]+\.md|docker-compose\.yml)`", README)
    assert [name for name in files if not (ROOT / name).exists()] == []
