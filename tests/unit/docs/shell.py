"""Commands of a shell block, held against the parsers of the programs that they start."""

import argparse
import importlib
import importlib.util
import re
import runpy
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from unittest import mock

import click

from groundwire.cli.main import main as groundwire
from tests.unit.docs.pages import ROOT

_HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?(.*?)\n.*?^\1$", re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(r"\.\.\.|…|[A-Z][A-Z_]+|<.*>|\$.*")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell script, without assignments and redirections."""
    script = _HERE_DOCUMENT.sub(r"\2", text).replace("\\\n", " ")
    script = re.sub(r"<\w[\w ]*>[\w.]*", "PLACEHOLDER", script)  # `<sha256>.json`: neither is redirected
    lines = script.splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]  # the other lines are output
    for line in typed or lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        kept: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if word in {";", "&", "|", "&&", "||", "(", ")"}:
                if kept:
                    yield kept
                kept, redirected = [], False
            elif re.fullmatch(r"[<>]+&?", word):
                redirected = True
            elif redirected:
                redirected = False
            elif kept or not re.match(r"[A-Za-z_]+=", word):
                kept.append(word)


def problem(words: Sequence[str]) -> str | None:
    """Return what Groundwire's own program refuses about a command, or None; other programs are not checked."""
    program, arguments = words[0].rpartition("/")[2], list(words[1:])
    if program == "groundwire":
        return _click(groundwire, arguments)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        named = [word for word in arguments if "=" not in word]
        return next((f"make has no target {word}" for word in named if word not in targets), None)
    if program.startswith("python") and arguments[:1] == ["-m"]:
        module = arguments[1]
        if module in {"agents", "topics"}:
            return _click(importlib.import_module(f"{module}.__main__").main, arguments[2:])
        known = (ROOT / module / "__main__.py").exists() or importlib.util.find_spec(module) is not None
        return None if known else f"there is no module {module}"
    if program.startswith("python") and re.match(r"[\w/]+(\.py)?$", "".join(arguments[:1])):
        return _script(arguments[0], arguments[1:])
    return None


def _script(path: str, arguments: Sequence[str]) -> str | None:
    """Let a program, a file or a folder with a main module, parse its arguments, and stop it there."""
    if not (ROOT / path).exists():
        return f"there is no file {path}"
    parse = argparse.ArgumentParser.parse_args

    def only_parse(self: argparse.ArgumentParser, *_: object) -> None:
        parse(self, list(arguments))
        raise SystemExit(0)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", only_parse):
        try:
            runpy.run_path(str(ROOT / path), run_name="__main__")
        except SystemExit as ended:
            return None if not ended.code else f"{path} refuses {shlex.join(arguments)}"
    return None


def _click(command: click.Command, arguments: list[str]) -> str | None:
    """Parse arguments as click does, without asking whether files exist; placeholders pass for any value."""

    def converted(self: click.ParamType, value: object, param: object = None, ctx: object = None) -> object:
        text = isinstance(value, str)
        if text and (isinstance(self, click.Path | click.File) or _PLACEHOLDER.fullmatch(value)):
            return value
        return None if value is None else self.convert(value, param, ctx)

    with mock.patch.object(click.ParamType, "__call__", converted), redirect_stdout(StringIO()):
        try:
            while isinstance(command, click.Group):
                if not arguments or _PLACEHOLDER.fullmatch(arguments[0]):
                    return None
                context = click.Context(command)
                if arguments[0] in {"--help", "--version"}:
                    return None
                _, found, arguments = command.resolve_command(context, arguments)
                command = found or command
            command.make_context("", list(arguments))
        except click.MissingParameter as error:
            return None if getattr(error.param, "envvar", None) else error.format_message()
        except click.UsageError as error:
            return error.format_message()
        except click.exceptions.Exit:
            return None
    return None
