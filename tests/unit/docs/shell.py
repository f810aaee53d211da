"""Commands of a shell block, held against the parsers of the programs that they start."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import runpy
import shlex
from collections.abc import Iterator, Sequence
from unittest import mock

import click

from groundwire.cli.main import main as groundwire
from tests.unit.docs.pages import ROOT

_HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?(.*?)\n.*?^\1$", re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(r"\.\.\.|…|[A-Z][A-Z_]+|<.*>|\$.*")
_SEPARATORS = {";", "&", "|", "&&", "||", "(", ")"}
_MODULES = {"agents": "agents.__main__", "topics": "topics.__main__"}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell script, without assignments and redirections."""
    script = _HERE_DOCUMENT.sub(r"\2", text).replace("\\\n", " ")
    script = re.sub(r"<\w[\w ]*>[\w.]*", "PLACEHOLDER", script)  # `<sha256>.json`: neither is redirected
    lines = script.splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]  # beside it stands what is printed
    for line in typed or lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word in _SEPARATORS:
                yield from _command(words)
                words = []
            else:
                words.append(word)
        yield from _command(words)


def _command(words: Sequence[str]) -> Iterator[list[str]]:
    kept: list[str] = []
    skip = False
    for word in words:
        if re.fullmatch(r"[<>]+&?", word):
            skip = True
        elif skip:
            skip = False
        elif kept or not re.match(r"[A-Za-z_]+=", word):
            kept.append(word)
    if kept:
        yield kept


def problem(words: Sequence[str]) -> str | None:
    """Say what is wrong with a command as Groundwire's own programs would, or None; others are not looked at."""
    program, arguments = words[0].rpartition("/")[2], list(words[1:])
    if program == "groundwire":
        return _click(groundwire, arguments)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        named = [word for word in arguments if "=" not in word]
        return next((f"make has no target {word}" for word in named if word not in targets), None)
    if program.startswith("python") and arguments[:1] == ["-m"]:
        return _module(arguments[1], arguments[2:])
    if program.startswith("python") and re.match(r"[\w/]+(\.py)?$", "".join(arguments[:1])):
        return _script(arguments[0], arguments[1:])
    return None


def _module(module: str, arguments: list[str]) -> str | None:
    if module in _MODULES:
        return _click(importlib.import_module(_MODULES[module]).main, arguments)
    known = (ROOT / module / "__main__.py").exists() or importlib.util.find_spec(module) is not None
    return None if known else f"there is no module {module}"


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


def _click(command: click.Command, arguments: list[str], path: str = "") -> str | None:
    """Parse as click would, without asking whether files exist and without running anything."""
    context = click.Context(command, info_name=path)
    if {"--help", "--version"} & set(arguments[:1]):
        return None
    if isinstance(command, click.Group):
        if not arguments or _PLACEHOLDER.fullmatch(arguments[0]):
            return None
        inner = command.get_command(context, arguments[0])
        path = f"{path} {arguments[0]}".strip()
        return _click(inner, arguments[1:], path) if inner else f"there is no command {path}"
    try:
        _parse(command, context, arguments)
    except click.UsageError as error:
        return f"{path}: {error.format_message()}"
    return None


def _parse(command: click.Command, context: click.Context, arguments: list[str]) -> None:
    values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if rest and not command.allow_extra_args:
        raise click.UsageError(f"unexpected {shlex.join(rest)}", context)
    for parameter in command.params:
        given = values.get(parameter.name)
        if given is None or given == () or type(given).__name__ == "Sentinel":
            optional = not parameter.required or getattr(parameter, "envvar", None)
            if not optional and "--help" not in arguments:
                raise click.MissingParameter(ctx=context, param=parameter)
        elif not isinstance(parameter.type, click.Path | click.File):
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, str) and not _PLACEHOLDER.fullmatch(value):
                    parameter.type.convert(value, parameter, context)
