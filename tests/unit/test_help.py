"""What `--help` of every command and example program and the README show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from demo.__main__ import main as demo
from groundwire.cli.main import main
from groundwire.messages.decisions import ReasonCode
from tests.unit.docs.pages import ROOT
from tests.unit.docs.shell import commands, problem


def tree(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the command and all below it, each with the words that it is called by."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from tree(inner, f"{path} {name}")


ALL = [*tree(main, "groundwire"), *tree(demo, "python -m demo")]


def test_help_of_a_command_shows_an_example_of_it_that_it_takes() -> None:
    """Whatever is set by a variable as well names the variable."""
    for path, command in ALL:
        example = " ".join((command.help or "").partition("Example: ")[2].split())
        called = [words for words in commands(example) if " ".join(words).startswith(path)]
        assert called, f"{path} --help has no example of itself"
        assert [problem(words) for words in called] == [None]
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if option.envvar and not option.show_envvar] == []


def test_every_role_of_a_worker_says_more_than_workers_in_common() -> None:
    told = {path: command.help for path, command in ALL if path.startswith("groundwire worker")}
    assert len(set(told.values())) == len(told) == 5


@pytest.mark.slow
def test_help_of_an_example_program_shows_how_it_is_run() -> None:
    for name in ["approved_table", "generator.py", "producer.py"]:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / name, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"python examples/{name}" in done.stdout


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
