"""`groundwire keys`: the keys that records are signed with, and `groundwire token`: API tokens of the console."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, get_args

import click
from pydantic import BaseModel, Field

from groundwire.cli.options import CommandError, TimeParam, format_option, keys_file_option, reporting
from groundwire.cli.output import print_listing
from groundwire.keys.attestation import Keys, Role
from groundwire.keys.file import end_key, new_key, public_keys
from groundwire.messages.base import Time, format_time
from groundwire.review.tokens import Tokens, new_token, revoke_token
from groundwire.text.normalise import escape_controls


class _Listed(BaseModel, from_attributes=True):
    kind: str
    public_key: str | None = Field(validation_alias="verifying_key")
    tenants: list[str]
    sources: list[str]
    roles: list[str]
    not_before: Time | None
    not_after: Time | None


_CELLS: Final = ("kind", "tenants", "sources", "roles", "not_before", "not_after")


def _required(path: Path | None, command: str, *, there: bool = False) -> Path:
    """Return the file of `keys` or `token`; `there`: it has to exist already. Raises: CommandError, what to give."""
    what = f"{command.removesuffix('s')}s"
    if path is None:
        raise CommandError(f"no {what} file: give --file or set GROUNDWIRE_{what.upper()}_FILE")
    if there and not path.exists():
        raise CommandError(f"{what} file {path}: there is none yet; `groundwire {command} new` makes it")
    return path


@click.group(name="keys")
def keys() -> None:
    """Make and list the keys that sign records (header gw-attestation).

    Secrets and private keys stand in the keys file alone and are never printed.

    Example: groundwire keys new console --ed25519 --tenant acme --role reviewer --file keys.toml
    """


@keys.command(name="new")
@click.argument("key_id", metavar="ID")
@click.option("--tenant", "tenants", multiple=True, help="For whom it may speak; repeatable.")
@click.option("--source", "sources", multiple=True, help="A source that it may name; repeatable.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(get_args(Role)),
    help="What else it may sign; repeatable, but for seal.",
)
@click.option(
    "--ed25519", "asymmetric", is_flag=True, help="Signs with a private half; the public one checks."
)
@click.option("--not-before", type=TimeParam(), metavar="TIME", help="From when it holds (RFC 3339).")
@click.option("--not-after", type=TimeParam(), metavar="TIME", help="Until when it holds (RFC 3339).")
@keys_file_option("--file")
def new(
    *,
    key_id: str,
    tenants: tuple[str, ...],
    sources: tuple[str, ...],
    roles: tuple[str, ...],
    not_before: datetime | None,
    not_after: datetime | None,
    asymmetric: bool,
    keys_file: Path | None,
) -> None:
    """Add a random key to the keys file.

    A secret (HMAC) is shared: whoever checks with it could sign with it. With --ed25519 the file gets a private key.
    Its public half is printed: workers and others need no more to check (`groundwire keys public`). A reviewer's key:
    `groundwire keys new console --ed25519 --tenant acme --role reviewer`; one for seals, in a file of its own:
    `groundwire keys new gate-seals --ed25519 --role seal --file seals.toml`.

    Example: groundwire keys new docs-sync --tenant acme --source documentation --file keys.toml
    """
    if not sources and not roles:
        raise click.UsageError("a key needs a --source or a --role: without one it may sign nothing")
    if "seal" in roles and not asymmetric:
        raise click.UsageError("--role seal needs --ed25519: who checks a seal must not be able to make one")
    if not tenants and "seal" not in roles:
        raise click.UsageError("a key needs a --tenant, for whom it may speak; only --role seal does without")
    path = _required(keys_file, "keys")
    with reporting():
        public_key = new_key(
            path,
            key_id,
            tenants=tenants,
            sources=sources,
            roles=roles,
            not_before=not_before,
            not_after=not_after,
            asymmetric=asymmetric,
        )
    half = "private key" if public_key else "secret"
    click.echo(escape_controls(f"key {key_id} added; its {half} is in {path}"))
    if public_key:
        click.echo(f"public key {public_key}")


@keys.command(name="end")
@click.argument("key_id", metavar="ID")
@click.option(
    "--not-after", type=TimeParam(), metavar="TIME", required=True, help="Until when it holds (RFC 3339)."
)
@keys_file_option("--file")
def end(key_id: str, not_after: datetime, keys_file: Path | None) -> None:
    """Set until when a key holds. What it signed before stays valid, as long as the file has its public half.

    Example: groundwire keys end gate-1 --not-after 2027-01-01T00:05:00Z --file gate.toml
    """
    with reporting():
        end_key(_required(keys_file, "keys", there=True), key_id, not_after)
    click.echo(escape_controls(f"key {key_id} ends at {format_time(not_after)}"))


@keys.command(name="list")
@format_option
@keys_file_option("--file")
def list_keys(layout: str, keys_file: Path | None) -> None:
    """List the keys of the keys file, without secrets and private keys.

    A key's kind is what the file holds of it: hmac (a secret), ed25519 (a private key), public (its public half) or
    command (a program that signs).

    Example: groundwire keys list --file keys.toml --format json
    """
    with reporting():
        found = Keys.load(_required(keys_file, "keys", there=True))
        listed = [(key_id, _Listed.model_validate(key)) for key_id, key in found]
    print_listing(layout, "key", listed, _CELLS)


@keys.command(name="public")
@keys_file_option("--file")
def public(keys_file: Path | None) -> None:
    """Print a keys file of the public halves alone, for those who check and must not sign.

    Secrets (HMAC) have no public half: such keys are left out and named on standard error. So are the delegated
    reviewers: write them into a worker's file yourself.

    Example: groundwire keys public --file keys.toml > public.toml
    """
    with reporting():
        content, left_out = public_keys(Keys.load(_required(keys_file, "keys", there=True)))
    lines = (
        escape_controls(line, lambda char: f"\\U{ord(char):08x}") for line in content.decode().split("\n")
    )
    click.echo("\n".join(lines), nl=False)
    if left_out:
        click.echo(f"left out, since they have no public half: {', '.join(left_out)}", err=True)


_TOKEN_CELLS: Final = ("person", "tenants", "may", "not_after")


_tokens_file = click.option(
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
@_tokens_file
def new_api_token(
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
            _required(tokens_file, "token"),
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
@_tokens_file
def list_tokens(layout: str, tokens_file: Path | None) -> None:
    """List the tokens, without their hashes.

    Example: groundwire token list --file tokens.toml --format json
    """
    with reporting():
        found = Tokens.load(_required(tokens_file, "token", there=True))
    print_listing(layout, "token", found, _TOKEN_CELLS, secret="sha256")  # noqa: S106 - the name of a field


@token.command(name="revoke")
@click.argument("token_id", metavar="ID")
@_tokens_file
def revoke(token_id: str, tokens_file: Path | None) -> None:
    """Revoke a token.

    Example: groundwire token revoke nightly --file tokens.toml
    """
    with reporting():
        revoke_token(_required(tokens_file, "token", there=True), token_id)
    click.echo(escape_controls(f"token {token_id} revoked"))
