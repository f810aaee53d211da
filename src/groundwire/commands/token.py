"""`groundwire token`: API tokens of the console."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import click

from groundwire.client.text import columns, visible
from groundwire.commands.options import Command, Failure, TimeParam, reporting
from groundwire.messages.base import format_time
from groundwire.review.tokens import Token, Tokens, new_token, revoke_token


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
            _required(tokens_file),
            token_id,
            person=person,
            tenants=tenants,
            read_only=read_only,
            not_after=not_after,
        )
    click.echo(made)
    click.echo(visible(f"token {token_id} added; it is not shown again"), err=True)


@token.command(name="list")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output.",
)
@_file_option()
def list_tokens(layout: str, tokens_file: Path | None) -> None:
    """List the tokens, without their hashes.

    Example: groundwire token list --file tokens.toml --format json
    """
    with reporting():
        found = Tokens.load(_required(tokens_file))
    if layout == "json":
        for token_id, each in found:
            public = each.model_dump(mode="json", exclude={"sha256"})
            click.echo(json.dumps({"token_id": token_id, **public}, ensure_ascii=False))
        return
    rows = [["token", "person", "tenants", "may", "not after"]]
    rows += [_cells(token_id, each) for token_id, each in found]
    for line in columns(rows):
        click.echo(line)


@token.command(name="revoke")
@click.argument("token_id", metavar="ID")
@_file_option()
def revoke(token_id: str, tokens_file: Path | None) -> None:
    """Revoke a token.

    Example: groundwire token revoke nightly --file tokens.toml
    """
    with reporting():
        revoke_token(_required(tokens_file), token_id)
    click.echo(visible(f"token {token_id} revoked"))


def _required(path: Path | None) -> Path:
    if path is None:
        raise Failure("no tokens file: give --file or set GROUNDWIRE_TOKENS_FILE")
    return path


def _cells(token_id: str, each: Token) -> list[str]:
    may = "look" if each.read_only else "decide"
    not_after = format_time(each.not_after) if each.not_after else "-"
    return [token_id, each.person, ", ".join(each.tenants), may, not_after]
