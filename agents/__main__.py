"""`python -m agents claims|deferred|responses|reviews`: runs one worker until SIGTERM."""

from __future__ import annotations

import gc
import os

import click

from groundwire.version import __version__


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Run one worker until SIGTERM. `python -m agents ROLE --help` tells what a role does and needs.

    Settings come from the environment: GROUNDWIRE_BROKERS, GROUNDWIRE_REDIS_URL, GROUNDWIRE_POLICY_FILE and those that
    docs/configuration.md lists. Exit status: 0 after SIGTERM, 2 where it cannot start as it is configured.

    Example: GROUNDWIRE_METRICS_PORT=9100 python -m agents claims
    """


@main.command()
def claims() -> None:
    """Decide claims as they come in.

    What claims cite is looked up in GROUNDWIRE_ADR_DIR and GROUNDWIRE_REPO, or for single tenants where
    GROUNDWIRE_TENANTS_FILE says; citations that have to ask the network go to `deferred`.

    Example: GROUNDWIRE_ADR_DIR=docs/adrs GROUNDWIRE_REPO=. python -m agents claims
    """
    _work("claims")


@main.command()
def deferred() -> None:
    """Decide claims that cite URLs and issues: asks the network first, as GROUNDWIRE_ALLOW_NETWORKS allows.

    Example: GROUNDWIRE_ALLOW_PORTS=80,443 python -m agents deferred
    """
    _work("deferred")


@main.command()
def responses() -> None:
    """Decide responses of language models, and send the claims in them on.

    GROUNDWIRE_CORPUS names the tenants whose responses are checked against what `groundwire corpus load` loaded.
    GROUNDWIRE_MODEL_API names a language model that is asked about claims too; without one, rules verify them.

    Example: GROUNDWIRE_CORPUS=acme python -m agents responses
    """
    _work("responses")


@main.command()
def reviews() -> None:
    """Carry out what people decide: approve, edit, reject and retract, as they come on review-decisions.

    Needs GROUNDWIRE_KEYS_FILE: the keys that review decisions are signed with, made by `groundwire keys new NAME
    --tenant TENANT --role reviewer`, and the reviewers who are delegated; without, every decision is refused. With
    GROUNDWIRE_REVIEW_KEY, the id of a key of its own, it lets expire what nobody reviewed within GROUNDWIRE_REVIEW_TTL
    days; without, nothing expires.

    Example: GROUNDWIRE_KEYS_FILE=keys.toml GROUNDWIRE_REVIEW_KEY=gate python -m agents reviews
    """
    _work("reviews")


def _work(role: str) -> None:
    """Load what a worker is made of, and run it."""
    # Of numpy a worker takes the least of columns: threads for matrices cost more than all else of loading it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # what is loaded stays to the end: looking for cycles in it again and again finds nothing
    from agents.process import run  # noqa: PLC0415 - two seconds of work, which `--help` can do without

    gc.freeze()
    gc.enable()
    run(role)


if __name__ == "__main__":
    main(prog_name="python -m agents")
