"""The `groundwire` command: its subcommands are imported when they are called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import click

import groundwire
from groundwire import __version__
from groundwire.cli.environment import unknown_variables
from groundwire.errors import naming_extra
from groundwire.kafka import name_client

_COMMANDS: Final = {
    "audit": "Hold the claims of answers against their evidence.",
    "check": "Decide claims from a file, without any service.",
    "console": "Serve the review queue to people as a web site.",
    "corpus": "Load what answers are checked against.",
    "dead-letters": "See what could not be decided, and send it again.",
    "entailment": "Check an entailment model, and name it in a policy.",
    "erase": "Take a person's data out of state and of what consumers hold.",
    "evaluate": "Measure verdicts against labels of your own.",
    "keys": "Make and list the keys that sign records.",
    "lag": "Show how far workers are behind their input.",
    "mcp": "Serve the gate as tools of an agent.",
    "produce": "Send records to the gate.",
    "rebuild": "Rebuild state from the topics.",
    "replay": "Decide a stretch of the log again, and say what comes out otherwise.",
    "report": "Count what the gate decided, and what people made of it.",
    "review": "See and decide what waits for a person.",
    "seals": "Show what workers have signed of what they published.",
    "state": "See what the gate remembers in Redis, and what that takes.",
    "tail": "Print the records of a topic as they come.",
    "token": "Make, list and revoke API tokens of the console.",
    "topics": "Declare the topics, and compare a cluster with them.",
    "verify": "Derive decisions again and compare: do they follow from their facts?",
    "worker": "Run one worker until SIGTERM.",
}
_MODULES: Final = {"erase": "rebuild", "seals": "verify", "token": "keys"}
"""Commands that are in the module of another; each is an attribute of its command's name."""

_ROOMS: Final = {"topics": "topics", "worker": "agents"}
"""Commands of the packages beside this one, by their package: `python -m agents` is `groundwire worker`."""


class _Lazy(click.Group):
    """Imports a command when it is called: `--help` and `check` need no Kafka client."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        try:
            if cmd_name in _ROOMS:
                # A wheel carries these packages in `groundwire/_rooms`, a checkout at its root. They come before
                # installed packages: another project's package may be named `agents` too.
                package = Path(groundwire.__file__).parent
                carried = package / "_rooms"
                place = str(carried if carried.is_dir() else package.parents[1])
                if place not in sys.path:
                    sys.path.insert(0, place)
                return cast("click.Command", import_module(f"{_ROOMS[cmd_name]}.__main__").main)
            name = cmd_name.replace("-", "_")
            module = import_module(f"groundwire.cli.{_MODULES.get(name, name)}")
            command: click.Command = getattr(module, name)
        except ModuleNotFoundError as exc:
            missing = naming_extra(exc, f"`groundwire {cmd_name}`")
            if missing is exc:
                raise
            click.echo(f"error: {missing}", err=True)
            sys.exit(2)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy)
@click.version_option(__version__, prog_name="groundwire")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Groundwire: the streaming gate between AI agents and the knowledge base they write to.

    Example: groundwire check claims.jsonl --adr-dir docs/adrs --format table
    """
    if ctx.invoked_subcommand in _ROOMS:
        return  # they tell it themselves: a worker in its log, which may be JSON
    name_client(os.environ.get("GROUNDWIRE_TOPIC_PREFIX", "groundwire."), ctx.invoked_subcommand or "")
    if os.environ.get("GROUNDWIRE_SCHEMA_REGISTRY_URL"):
        from groundwire.kafka.registry import read_by_schema  # noqa: PLC0415 - few commands need it
        from groundwire.messages.decode import use_registry  # noqa: PLC0415 - as above

        use_registry(read_by_schema)
    for warning in unknown_variables(os.environ):
        click.echo(f"warning: {warning}", err=True)
