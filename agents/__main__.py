"""`groundwire worker claims|deferred|responses|reviews`, and `python -m agents` in a checkout: runs one worker."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from inspect import cleandoc
from typing import Final

import click

from groundwire import __version__
from groundwire.errors import naming_extra

_ROLES: Final = {
    "claims": """Decide claims as they come in.

    What claims cite is looked up in GROUNDWIRE_ADR_DIR and GROUNDWIRE_REPO, or for single tenants where
    GROUNDWIRE_TENANTS_FILE says; citations that have to ask the network go to `deferred`.

    Example: GROUNDWIRE_ADR_DIR=docs/adrs GROUNDWIRE_REPO=. groundwire worker claims
    """,
    "deferred": """Decide claims that cite URLs and issues: asks the network first, as GROUNDWIRE_ALLOW_NETWORKS allows.

    Example: GROUNDWIRE_ALLOW_PORTS=80,443 groundwire worker deferred
    """,
    "responses": """Decide responses of language models, and send the claims in them on.

    GROUNDWIRE_CORPUS names the tenants whose responses are checked against what `groundwire corpus load` loaded.
    GROUNDWIRE_MODEL_API names a model that is asked about claims too; without one, rules verify them.

    Example: GROUNDWIRE_CORPUS=acme groundwire worker responses
    """,
    "reviews": """Carry out what people decide: approve, edit, reject and retract, as they come on review-decisions.

    Needs GROUNDWIRE_KEYS_FILE: the keys that review decisions are signed with, made by `groundwire keys new NAME
    --tenant TENANT --role reviewer`, and the reviewers who are delegated; without, every decision is refused. With
    GROUNDWIRE_REVIEW_KEY, the id of a key of its own, it lets expire what nobody reviewed within GROUNDWIRE_REVIEW_TTL
    days; without, nothing expires.

    Example: GROUNDWIRE_KEYS_FILE=keys.toml GROUNDWIRE_REVIEW_KEY=gate groundwire worker reviews
    """,
}
"""What each role does, by its name."""


class _Roles(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "entailment":  # as a role it would need a protocol of its own, and a hop for each pair
            raise click.UsageError(
                "entailment is no role: the model runs within `groundwire worker responses`, with GROUNDWIRE_MODEL_API="
                "entailment and GROUNDWIRE_MODEL_FOLDER; `groundwire entailment FOLDER --policy FILE` adds it",
                ctx,
            )
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Roles)
@click.version_option(__version__)
def main() -> None:
    """Run one worker until SIGTERM. `groundwire worker ROLE --help` tells what a role does and needs.

    Settings come from the environment: GROUNDWIRE_BROKERS, GROUNDWIRE_REDIS_URL, GROUNDWIRE_POLICY_FILE and those that
    docs/reference/configuration.md lists. Exit status: 0 after SIGTERM, 2 where it cannot start as it is configured.

    Example: GROUNDWIRE_METRICS_PORT=9100 groundwire worker claims
    """


def _work(role: str, *, declare: bool) -> None:
    """Load what a worker is made of, and run it."""
    # a worker computes no matrices, and starting numpy's threads for them costs more than loading the rest of it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # modules are never freed: collections while they load find nothing
    try:
        from agents.process import run  # noqa: PLC0415 - two seconds of work, which `--help` can do without
    except ModuleNotFoundError as missing:
        named = naming_extra(missing, "a worker")
        if named is missing:
            raise
        click.echo(f"error: {named}", err=True)
        sys.exit(2)
    gc.freeze()
    gc.enable()
    run(role, declare_topics=declare)


for _name, _help in _ROLES.items():
    _declare = click.Option(["--declare"], is_flag=True, help="Create the topics that are missing first.")
    main.add_command(
        click.Command(_name, callback=partial(_work, _name), params=[_declare], help=cleandoc(_help))
    )


if __name__ == "__main__":
    main(prog_name="python -m agents")
