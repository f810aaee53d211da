"""What the documentation shows is what happens: examples run, commands parse, and links of the site lead somewhere."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

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
    problems = [(block.where, problem(words)) for block in SHELL for words in commands(block.text)]
    wrong = [one for one in problems if one[1]]
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


def test_every_link_of_the_site_leads_to_a_place_in_it_pictures_have_texts_and_no_other_host_is_asked(
    tmp_path: Path,
) -> None:
    from properdocs.commands.build import build  # noqa: PLC0415 - half a second that fast runs do not need
    from properdocs.config import load_config  # noqa: PLC0415 - as above

    folder = tmp_path
    build(load_config(str(ROOT / "properdocs.yml"), site_dir=str(folder)))

    class Page(HTMLParser):
        """What a page of the site leads to, what it loads, and what can be led to in it."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.links: list[str] = []
            self.loads: list[str] = []
            self.anchors: set[str] = set()
            self.unnamed_pictures = 0
            self.feed(text)

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {key: value or "" for key, value in attrs}
            self.anchors |= {values[key] for key in ("id", "name") if key in values}
            self.unnamed_pictures += tag == "img" and not values.get("alt")
            if tag == "a" and "href" in values:
                self.links.append(values["href"])
            elif "src" in values:
                self.loads.append(values["src"])
            elif tag == "link" and "canonical" not in values.get("rel", ""):
                self.loads.append(values.get("href", ""))

    pages = {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    assert len(pages) > 10
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if urlsplit(link).scheme or link.startswith("//") or not link:
                continue
            place, anchor = urldefrag(link)
            place = unquote(place.partition("?")[0])
            start = folder if path.name == "404.html" else path.parent  # 404 is served from anywhere
            target = (start / place.lstrip("/")).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            missing = not target.is_file()
            if missing or (
                anchor and target.suffix == ".html" and unquote(anchor) not in pages[target].anchors
            ):
                wrong.append(f"{path.relative_to(folder)}: {link}")
    assert wrong == []

    foreign = {path: one for path, page in pages.items() for one in page.loads if re.match(r"(\w+:)?//", one)}
    styles = {
        style: found
        for style in folder.rglob("*.css")
        if (found := re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text("utf-8")))
    }
    assert (foreign, styles) == ({}, {})
    assert [path for path, page in pages.items() if page.unnamed_pictures] == []
