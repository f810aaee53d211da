"""What the documentation shows is what happens: its examples run, and its commands parse."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundwire.library.events import StandardSink, use_sink
from tests.unit.docs.pages import PAGES, ROOT, Block, agrees, blocks, name
from tests.unit.docs.shell import commands, problem

BLOCKS = {page: list(blocks(page)) for page in PAGES}
PYTHON = [page for page in PAGES if any(block.language == "python" for block in BLOCKS[page])]
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
ALL = [block for page in [*PAGES, *OTHERS] for block in blocks(page)]
SHELL = [block for block in ALL if block.language in {"sh", "bash", "console"}]
SPAN = re.compile(r"(?<!`)`((?:\.venv/bin/)?(?:groundwire|make|python -m) [^`]+)`(?!`)")
PARSERS = {"json": json.loads, "toml": tomllib.loads}
DATA = [block for block in ALL if block.language in PARSERS and not block.mark.startswith("part")]
RUN = [page for page in PAGES if any(block.language == "sh" and block.runs for block in BLOCKS[page])]
OFFLINE = {"check"}
"""Subcommands that never need a service: a block with nothing else is run, or says why it cannot be."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a `groundwire` in it, called as after `make setup`."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for program_name, call in (
        ("groundwire", "-c 'from groundwire.cli.main import main; main()'"),
        ("python", ""),
    ):
        program = programs / program_name
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' {call} \"$@\"\n")
        program.chmod(0o755)
    return tmp_path


def run(block: Block, folder: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GROUNDWIRE_")}
    environment["PATH"] = f"{folder / '.venv' / 'bin'}:{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        ["/bin/sh", "-c", block.text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == block.status, f"{block.where}\n{done.stdout}"
    if block.shown is not None:
        assert agrees(block.shown, done.stdout), f"{block.where} prints\n{done.stdout}"


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, folder: Path) -> None:
    for block in BLOCKS[page]:
        if block.language == "sh" and block.runs:
            run(block, folder)


@pytest.fixture
def default_sink() -> Iterator[None]:
    """Take back the sink that an example chose for events."""
    yield
    use_sink(StandardSink())


@pytest.mark.usefixtures("default_sink")
@pytest.mark.parametrize("page", PYTHON, ids=name)
def test_the_python_of_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in BLOCKS[page]:
        if block.language != "python" or block.mark.startswith("needs"):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, block.where, "exec"), names)  # noqa: S102 - our own pages
        if block.shown is not None:
            assert agrees(block.shown, printed.getvalue()), f"{block.where} prints\n{printed.getvalue()}"


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.where)
def test_every_command_of_a_page_is_one_that_its_program_takes(block: Block) -> None:
    assert [found for words in commands(block.text) if (found := problem(words))] == []


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.where)
def test_data_on_a_page_can_be_read(block: Block) -> None:
    """What is a part of a file, or leaves something out, says so before it: `part`."""
    PARSERS[block.language](block.text)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_a_command_within_a_sentence_exists_with_the_options_that_it_is_given(page: Path) -> None:
    """What it needs beside them may be left out there."""
    for span in SPAN.findall(re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))):
        found = [problem(words) for words in commands(span.replace("\n", " "))]
        assert [one for one in found if one and "issing" not in one] == [], span


def test_what_needs_no_service_is_run() -> None:
    """A block that nobody runs says so before it: `needs`, and what."""
    for block in (block for page in PAGES for block in BLOCKS[page] if block in SHELL):
        ours = [words[1] for words in commands(block.text) if words[0].endswith("groundwire") and words[1:]]
        if ours and set(ours) <= OFFLINE:
            assert block.runs or block.mark.startswith("needs"), block.where


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("groundwire chekc x", "no command chekc"),
        ("groundwire check --polcy p x", "--polcy"),
        ("groundwire check --format yaml", "yaml"),
        ("groundwire check a b", "unexpected b"),
        ("groundwire tail", "Missing"),
        ("A=1 .venv/bin/groundwire tail audit --limit none | cat", "none"),
        ("make no-such-target", "no-such-target"),
        ("python -m agents gate &", "gate"),
        ("python -m topics delete", "delete"),
        ("python examples/producer.py --usr ann text", "refuses"),
        ("python examples/approved_table --databse m", "refuses"),
        ("python examples/nothing", "no file"),
    ],
)
def test_a_command_that_its_program_would_refuse_is_found(command: str, part: str) -> None:
    found = [problem(words) for words in commands(command)]
    assert part in str(found[0])


def test_what_is_shown_may_leave_parts_out_and_says_so() -> None:
    assert agrees("a ... c\n", "a b c\n")
    assert agrees("a\n...\nd\n", "a\nb\nc\nd\n")
    assert agrees("{\n  ...\n}\n", "{\n  b\n  c\n}\n")
    assert not agrees("a ... d\n", "a b c\n")
    assert not agrees("a\nd\n", "a\nb\nd\n")
