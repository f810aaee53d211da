"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click

from groundwire.cli.main import main
from groundwire.messages.decisions import ReasonCode

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(?:sh)?\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_checking_a_file_of_the_readme_prints_the_table_of_the_readme(tmp_path: Path) -> None:
    (command,) = [block for block in BLOCKS if "groundwire check" in block]
    shown = BLOCKS[BLOCKS.index(command) + 1]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    program = tmp_path / ".venv" / "bin" / "groundwire"
    program.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from groundwire.cli.main import main; main()' \"$@\"\n"
    )
    program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (shown, "", 0)


def test_every_subcommand_named_in_the_readme_exists() -> None:
    named = set(
        re.findall(
            r"groundwire (check|produce|tail|keys|verify|rebuild|replay|review|console|token)\b", README
        )
    )
    assert named
    assert all(main.get_command(click.Context(main), name) for name in named)


def test_every_reason_in_the_rules_is_one_that_decisions_give() -> None:
    page = (ROOT / "docs/start/concepts.md").read_text()
    table = page.partition("## How a claim is decided")[2].partition("## ")[0]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+|duplicate|expired|ungrounded)`", table)) - {"derived_from"}
    assert len(named) > 10
    assert named <= {str(code) for code in ReasonCode}


def test_every_file_named_in_the_readme_exists() -> None:
    """X-06."""
    named = re.findall(
        r"`((?:docs|deploy|demo|examples|schemas)/[\w./-]+|[A-Z]+\.md|docker-compose\.yml)`", README
    )
    assert len(named) > 6
    assert [name for name in named if not (ROOT / name).exists()] == []
