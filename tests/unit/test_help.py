"""What `--help` of every command and example program shows: an example that the command takes, and its settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from demo.__main__ import main as demo
from groundwire.cli.main import main
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
