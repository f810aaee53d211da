"""`groundwire token`: API tokens of the console."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from groundwire.cli.options import Command, TimeParam, format_option, reporting, required_file
from groundwire.cli.output import print_listing
from groundwire.review.tokens import ApiToken, Tokens, new_token, revoke_token
from groundwire.text.normalise import escape_controls

_CELLS: Final[dict[str, Callable[[ApiToken], object]]] = {
    "person": lambda token: token.person,
    "tenants": lambda token: token.tenants,
    "may": lambda token: "look" if token.read_only else "decide",
    "not after": lambda token: token.not_after,
}


def _file_option() -> Callable[[Command], Command]:
    return click.option(
        "--file",
        "tokens_file",
        envvar="GROUNDWIRE_TOKENS_FILE",
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="TOML file with the hashes of the tokens.",
    )


@click.group(name="token")
def token() -> None:
    """Make, list and revoke API tokens of the console.

    A token speaks for one person, in the tenants named. It is printed once; only its hash is kept. What is
    revoked counts no more at once.

    Example: groundwire token new nightly --person ann@acme.example --tenant acme --read-only
    """


@token.command(name="new")
@click.argument("token_id", metavar="ID")
@click.option("--person", required=True, metavar="NAME", help="For whom it speaks, as user ids are written.")
@click.option("--tenant", "tenants", multiple=True, required=True, help="In which tenant; repeatable.")
@click.option("--read-only", is_flag=True, help="It may look, and not decide.")
@click.option("--not-after", type=TimeParam(), metavar="TIME", help="Until when it holds (RFC 3339).")
@_file_option()
def new(
    token_id: str,
    *,
    person: str,
    tenants: tuple[str, ...],
    read_only: bool,
    not_after: datetime | None,
    tokens_file: Path | None,
) -> None:
    """Make a token and print it; it cannot be shown again.

    Example: groundwire token new nightly --person ann@acme.example --tenant acme --file tokens.toml
    """
    with reporting():
        made = new_token(
            required_file(tokens_file, "token"),
            token_id,
            person=person,
            tenants=tenants,
            read_only=read_only,
            not_after=not_after,
        )
    click.echo(made)
    click.echo(escape_controls(f"token {token_id} added; it is not shown again"), err=True)


@token.command(name="list")
@format_option
@_file_option()
def list_tokens(layout: str, tokens_file: Path | None) -> None:
    """List the tokens, without their hashes.

    Example: groundwire token list --file tokens.toml --format json
    """
    with reporting():
        found = Tokens.load(required_file(tokens_file, "token", there=True))
    print_listing(layout, "token", found, _CELLS, secret="sha256")  # noqa: S106 - the name of a field


@token.command(name="revoke")
@click.argument("token_id", metavar="ID")
@_file_option()
def revoke(token_id: str, tokens_file: Path | None) -> None:
    """Revoke a token.

    Example: groundwire token revoke nightly --file tokens.toml
    """
    with reporting():
        revoke_token(required_file(tokens_file, "token", there=True), token_id)
    click.echo(escape_controls(f"token {token_id} revoked"))
