"""The `groundwire` command."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Final

import click

from groundwire.environment import unknown_variables
from groundwire.version import __version__

_COMMANDS: Final = {
    "audit": "Hold the claims of answers against their evidence.",
    "check": "Decide claims from a file, without any service.",
    "console": "Serve the review queue to people as a web site.",
    "corpus": "Load what answers are checked against.",
    "dead-letters": "See what could not be decided, and send it again.",
    "evaluate": "Measure verdicts against labels of your own.",
    "keys": "Make and list the keys that sign records.",
    "produce": "Send records to the gate.",
    "rebuild": "Rebuild state from the topics.",
    "replay": "Decide a stretch of the log again, and say what comes out otherwise.",
    "review": "See and decide what waits for a person.",
    "tail": "Print the records of a topic as they come.",
    "token": "Make, list and revoke API tokens of the console.",
    "verify": "Derive decisions again and compare: do they follow from their facts?",
}


class _Lazy(click.Group):
    """Imports a command when it is called: `--help` and `check` need no Kafka client."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"groundwire.commands.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy)
@click.version_option(__version__, prog_name="groundwire")
def main() -> None:
    """Groundwire: the streaming gate between AI agents and the knowledge base they write to.

    Example: groundwire check claims.jsonl --adr-dir docs/adrs --format table
    """
    for warning in unknown_variables(os.environ):
        click.echo(f"warning: {warning}", err=True)
