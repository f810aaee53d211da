"""`groundwire corpus`: the entities and relations that answers of language models are checked against."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, BinaryIO, TypeVar

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from groundwire.cli.options import format_option, reporting
from groundwire.cli.output import NOTHING, FileProgress, columns, escape_json, print_refused
from groundwire.config import load_settings
from groundwire.errors import CorpusUnusable, ErrorCode, RecordError, UsageError
from groundwire.kafka.produce import InputLine, windows
from groundwire.messages.base import TenantId
from groundwire.messages.decode import decode_corpus_line
from groundwire.messages.records import CorpusLine
from groundwire.state.corpus import MAX_PAIR_BYTES, CorpusIndex, Loading
from groundwire.state.server import connect
from groundwire.text.normalise import escape_controls


@dataclass(slots=True)
class CorpusCounts:
    """What became of the lines of a file; `unchanged`: the corpus before it stays, for some were refused."""

    entities: int = 0
    relations: int = 0
    refused: int = 0
    unchanged: bool = False


class CorpusFile:
    """Loads a file; what is called with refused lines, and with the counts after each read, is given."""

    def __init__(
        self, on_refused: Callable[[int, RecordError], None], on_window: Callable[[CorpusCounts], None]
    ) -> None:
        self._on_refused = on_refused
        self._on_window = on_window
        self._counts = CorpusCounts()

    async def load(
        self, index: CorpusIndex, file: BinaryIO, tenant: str, *, replace: bool = False
    ) -> CorpusCounts:
        """Load all lines; one that is neither entity nor relation is refused and the others go on.

        `replace`: forget what was there; where a line is refused, or there is none, nothing is changed.
        """
        async with index.loading(tenant, replace=replace) as loading:
            async for window in windows(file):
                await self._window(loading, window)
                self._on_window(self._counts)
            nothing = self._counts.entities + self._counts.relations == 0
            if replace and (self._counts.refused or nothing):  # an export that was cut off is no empty corpus
                self._counts.unchanged = True
                loading.give_up()
        return self._counts

    async def _window(self, loading: Loading, window: list[InputLine]) -> None:
        lines: list[tuple[int, CorpusLine]] = []
        for line in window:
            try:
                if line.value is None:
                    raise RecordError(ErrorCode.TOO_LARGE, "longer than any record may be")  # noqa: TRY301 - as below
                if line.value.strip():
                    lines.append((line.number, decode_corpus_line(line.value)))
            except RecordError as error:
                self._refuse(line.number, error)
        entities = [found.entity for _, found in lines if found.entity]
        relations = [(number, found.relation) for number, found in lines if found.relation]
        await loading.add_entities(entities)
        places = await loading.add_relations(relation for _, relation in relations)
        for place in places:
            message = f"relation: more than {MAX_PAIR_BYTES} bytes of relations between these two names"
            self._refuse(relations[place][0], RecordError(ErrorCode.TOO_LARGE, message, "relation"))
        self._counts.entities += len(entities)
        self._counts.relations += len(relations) - len(places)

    def _refuse(self, number: int, error: RecordError) -> None:
        self._counts.refused += 1
        self._on_refused(number, error)


Result = TypeVar("Result")


class _Tenant(click.ParamType):
    name = "tenant"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return TypeAdapter(TenantId).validate_python(value)
        except ValidationError:
            self.fail(f"{value!r}: letters, digits, dots, dashes and underscores, at most 100", param, ctx)


tenant_option = click.option("--tenant", type=_Tenant(), required=True, help="Whose corpus it is.")


@click.group(name="corpus")
def corpus() -> None:
    """Load, show and drop the entities and relations that answers are checked against.

    They are in Redis, for each tenant; settings come from the environment, as for workers. The corpus decides:
    corpus_index or relations of a response can only lower its verdict.

    Example: groundwire corpus load corpus.jsonl --tenant acme --replace
    """


@corpus.command(name="load")
@click.argument("file", type=click.File("rb"))
@tenant_option
@click.option("--replace", is_flag=True, help="Forget what was there; until all is loaded, it stays in use.")
@format_option
def load(file: BinaryIO, *, tenant: str, replace: bool, layout: str) -> None:
    """Load the entities and relations of FILE, one JSON object a line:

    \b
    {"entity": {"id": "act-7", "confidence": 0.9, "role": "statute", "provenance_id": "doc-12"}}
    {"relation": {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "2"}}

    FILE may be - for standard input. A relation may also have timestamp and qualifiers, an entity fields of
    your own. A line that is neither is refused with its number and the others go on; with --replace such a file,
    or one without a line, changes nothing.

    Exit status: 0 when every line was loaded, 1 when some were refused, 2 for usage and Redis out of reach.

    Example: groundwire corpus load corpus.jsonl --tenant acme --replace
    """  # noqa: D301, D415 - click reads \b as the mark of lines that it must not join
    console = Console(stderr=True, highlight=False)

    with FileProgress(console, "loaded", file) as progress:
        job = CorpusFile(
            partial(print_refused, console), lambda counts: progress.show(counts.entities + counts.relations)
        )
        counts = _run(lambda index: job.load(index, file, tenant, replace=replace))

    def many(count: int, one: str, more: str) -> str:
        return f"{count} {one if count == 1 else more}"

    refused = f"{many(counts.refused, 'line', 'lines')} refused" if counts.refused else ""
    if layout == "json":
        click.echo(_json({"tenant_id": tenant, **asdict(counts)}))
    elif counts.unchanged:
        click.echo(escape_controls(f"nothing changed for {tenant}: {refused or 'the file holds nothing'}"))
    else:
        loaded = many(counts.entities, "entity", "entities"), many(counts.relations, "relation", "relations")
        click.echo(f"loaded {' and '.join(loaded)}" + (f", refused {counts.refused}" if refused else ""))
    if counts.refused or counts.unchanged:
        raise SystemExit(1)


@corpus.command(name="show")
@click.argument("name", metavar="ID")
@click.argument("other", metavar="[NAME]", required=False)
@tenant_option
@format_option
def show(name: str, other: str | None, *, tenant: str, layout: str) -> None:
    """Show the entry of the entity ID; with a NAME too, the relations between the two, in either direction.

    Exit status: 0 when there is something to show, 1 when not, 2 for usage and Redis out of reach.

    Example: groundwire corpus show Acme Globex --tenant acme --format json
    """

    async def ask(index: CorpusIndex) -> list[dict[str, Any]]:
        if not await index.loaded(tenant):
            return []
        if other is not None:
            return await index.relations(tenant, [(name, other)])
        return [{"id": key, **entry} for key, entry in (await index.entities(tenant, [name])).items()]

    found = _run(ask)
    if layout == "json":
        lines = [_json(one) for one in found]
    else:
        names = list(dict.fromkeys(name for one in found for name in one))
        rows = [[NOTHING if one.get(name) is None else one[name] for name in names] for one in found]
        texts = [
            [cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False) for cell in row]
            for row in rows
        ]
        lines = columns([names, *texts] if found else [])
    for line in lines:
        click.echo(line)
    if not found:
        what = f"relations between {name} and {other}" if other else f"entity {name}; name two for relations"
        click.echo(escape_controls(f"the corpus of {tenant} holds no {what}"), err=True)
        raise SystemExit(1)


@corpus.command(name="drop")
@tenant_option
@click.option("--yes", is_flag=True, help="Do it without asking.")
def drop(*, tenant: str, yes: bool) -> None:
    """Forget all entities and relations of a tenant.

    Answers of a tenant that GROUNDWIRE_CORPUS names go to review from then on, unless they carry what they rest on.

    Exit status: 0 when the corpus is gone, 1 when there was none, 2 for usage and Redis out of reach.

    Example: groundwire corpus drop --tenant acme --yes
    """
    if not yes:
        click.confirm(escape_controls(f"Forget the corpus of {tenant}"), abort=True)
    there = _run(lambda index: index.forget(tenant))
    click.echo(
        escape_controls(f"the corpus of {tenant} is gone" if there else f"{tenant} has no corpus"),
        err=not there,
    )
    if not there:
        raise SystemExit(1)


def _run(use: Callable[[CorpusIndex], Awaitable[Result]]) -> Result:
    async def query() -> Result:
        settings = load_settings()
        index = CorpusIndex(connect(settings.redis_url), settings.topic_prefix)
        try:
            return await use(index)
        finally:
            await index.close()

    with reporting():
        try:
            return asyncio.run(query())
        except CorpusUnusable as exc:
            raise UsageError(f"{exc}: load it again") from None


def _json(value: dict[str, Any]) -> str:
    return escape_json(json.dumps(value, ensure_ascii=False))
