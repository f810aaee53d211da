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
from pathlib import Path

import pytest

from groundwire.library.events import StandardSink, use_sink
from tests.unit.docs.pages import PAGES, ROOT, agrees, blocks, name
from tests.unit.docs.shell import commands, problem

BLOCKS = {page: list(blocks(page)) for page in PAGES}
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
ALL = [block for page in [*PAGES, *OTHERS] for block in blocks(page)]
SHELL = [block for block in ALL if block.language in {"sh", "bash", "console"}]
pytestmark = pytest.mark.slow  # starts a process for each example


def test_the_commands_of_a_page_print_what_it_shows(tmp_path: Path) -> None:
    """The blocks of a page share a folder with a `groundwire` in it, called as after `make setup`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GROUNDWIRE_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    wrong = []
    for number, page in enumerate(PAGES):
        folder = tmp_path / str(number)
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        command = "-c 'from groundwire.cli.main import main; main()'"
        for program, call in (("groundwire", command), ("python", "")):
            (programs / program).write_text(f"#!/bin/sh\nexec '{sys.executable}' {call} \"$@\"\n")
            (programs / program).chmod(0o755)
        for block in BLOCKS[page]:
            if block.language != "sh" or not block.runs:
                called = [words for words in commands(block.text) if words[1:]] if block in SHELL else []
                ours = {words[1] for words in called if words[0].endswith("groundwire")}
                if ours == {"check"} and not block.mark.startswith("needs"):
                    wrong.append(f"{block.where}: what needs no service is run, or marked `needs`")
                continue
            done = subprocess.run(
                ["/bin/sh", "-c", block.text],
                cwd=folder,
                env={**environment, "PATH": f"{programs}:{environment['PATH']}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode != block.status or not agrees(block.shown, done.stdout):
                wrong.append(f"{block.where} ends with {done.returncode} and prints\n{done.stdout}")
    assert not wrong, "\n".join(wrong)


def test_the_python_of_a_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = []
    for number, page in enumerate(PAGES):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        names: dict[str, object] = {"__name__": page.stem}
        for block in BLOCKS[page]:
            if block.language != "python" or block.mark.startswith("needs"):
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, block.where, "exec"), names)  # noqa: S102 - our own pages
            if not agrees(block.shown, printed.getvalue()):
                wrong.append(f"{block.where} prints\n{printed.getvalue()}")
        use_sink(StandardSink())  # an example may have chosen another
    assert not wrong, "\n".join(wrong)


def test_every_command_of_a_page_is_one_that_its_program_takes() -> None:
    """A command within a sentence may leave out what it needs beside the options that it names."""
    told = [(block.where, problem(words)) for block in SHELL for words in commands(block.text)]
    wrong = [one for one in told if one[1]]
    span = re.compile(r"(?<!`)`((?:\.venv/bin/)?(?:groundwire|make|python -m) [^`]+)`(?!`)")
    for page in [*PAGES, *OTHERS]:
        for text in span.findall(re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))):
            said = [problem(words) for words in commands(text.replace("\n", " "))]
            wrong += [(f"{name(page)}: {text}", one) for one in said if one and "issing" not in one]
    assert wrong == []

    refused = {
        "groundwire chekc x": "No such command 'chekc'",
        "groundwire check a b": "unexpected extra argument",
        "A=1 .venv/bin/groundwire tail audit --limit none | cat": "none",
        "make no-such-target": "no-such-target",
        "python -m agents gate &": "gate",
        "python examples/producer.py --usr ann text": "refuses",
    }
    found = [(str(next(map(problem, commands(command)))), part) for command, part in refused.items()]
    assert [one for one, part in found if part not in one] == []


def test_data_on_a_page_can_be_read() -> None:
    """A block that is part of a file, or leaves something out, is marked `part`."""
    wrong, parsers = [], {"json": json.loads, "toml": tomllib.loads}
    for block in ALL:
        if block.language in parsers and not block.mark.startswith("part"):
            try:
                parsers[block.language](block.text)
            except ValueError as error:
                wrong.append(f"{block.where}: {error}")
    assert wrong == []
