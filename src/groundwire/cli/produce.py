"""`groundwire produce`: JSON lines to the input topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console

from groundwire.cli.options import Deployment, deployment_options, file_argument, keys_file_option
from groundwire.cli.output import ONE_A_LINE, FileProgress, print_refused
from groundwire.errors import ErrorCode, RecordError, UsageError
from groundwire.kafka.produce import INPUT_TOPICS, HeaderList, Produced, SendOptions
from groundwire.kafka.produce import produce as send
from groundwire.keys.attestation import Keys
from groundwire.messages.headers import ATTESTATION
from groundwire.messages.topics import TopicName


@click.command(name="produce")
@file_argument
@click.option(
    "--topic",
    type=click.Choice([str(topic) for topic in INPUT_TOPICS]),
    help="Input topic, without the prefix.  [default: by the record: claims or llm-responses]",
)
@click.option("--attest", metavar="KEY_ID", help="Sign every record with this key of the keys file.")
@keys_file_option("--keys-file")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Record header; repeatable.")
@click.option("--no-validate", is_flag=True, help="Send lines too that the gate cannot read.")
@deployment_options
def produce(
    file: BinaryIO,
    *,
    topic: str | None,
    attest: str | None,
    keys_file: Path | None,
    headers: tuple[str, ...],
    no_validate: bool,
    deployment: Deployment,
) -> None:
    """Send the records of FILE, or of standard input, one JSON object a line, byte for byte.

    Lines that are no valid record are refused with their number, and the others go on. Exit status: 0 when
    every line was sent, 1 when some were refused, 2 for usage and a broker out of reach.

    Example: groundwire produce claims.jsonl --attest docs-sync
    """
    options = SendOptions(
        prefix=deployment.prefix,
        topic=TopicName(topic) if topic else None,
        checked=not no_validate,
        headers=_headers(headers, attest, keys_file),
        seconds=deployment.seconds,
    )
    console = Console(stderr=True, highlight=False)
    produced = Produced()

    def refused(number: int, error: RecordError) -> None:
        print_refused(console, number, error)
        if error.code == ErrorCode.INVALID_JSON and number == 1:
            console.print(ONE_A_LINE, markup=False)

    with FileProgress(console, "sent", file) as progress:
        sending = send(
            *(file, deployment.brokers, options, produced),
            on_refused=refused,
            on_window=lambda: progress.show(produced.sent),
        )
        try:
            asyncio.run(sending)
        finally:
            progress.stop()
            others = f", refused {produced.refused}" if produced.refused else ""
            click.echo(f"produced {produced.sent}{others}")
    if produced.refused:
        raise SystemExit(1)


def _headers(
    given: Sequence[str], attest: str | None, keys_file: Path | None
) -> Callable[[bytes], HeaderList]:
    fixed: HeaderList = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--header {text!r} is not NAME=VALUE")
        if any("\ud800" <= char <= "\udfff" for char in name):
            raise UsageError("--header: the name is not text")
        fixed.append((name, value.encode("utf-8", "surrogateescape")))  # the bytes of the command line
    if attest is None:
        return lambda _value: fixed
    if keys_file is None:
        raise UsageError("--attest needs a keys file: give --keys-file or set GROUNDWIRE_KEYS_FILE")
    keys = Keys.load(keys_file)
    keys.sign(attest, b"")  # an unknown key is an error before anything is sent
    return lambda value: [*fixed, (ATTESTATION, keys.sign(attest, value))]
