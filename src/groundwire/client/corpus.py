"""Corpus files: JSON lines of entities and relations, loaded line by line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from groundwire.client.lines import Line, windows
from groundwire.corpus import MAX_PAIR_BYTES, CorpusIndex, Loading
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.corpus import CorpusLine, decode_corpus_line


@dataclass(slots=True)
class CorpusCounts:
    """What became of the lines of a file; `unchanged`: the corpus before it stays, for some were refused."""

    entities: int = 0
    relations: int = 0
    refused: int = 0
    unchanged: bool = False


class CorpusFile:
    """Loads a file.

    Args:
        on_refused: told the number of a line and what is wrong with it.
        on_window: told the counts after each read.
    """

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

        Args:
            index: where to.
            file: JSON lines, `{"entity": {...}}` or `{"relation": {...}}`.
            tenant: whose corpus it is.
            replace: forget what was there; where a line is refused, or there is none, nothing is changed.

        Raises:
            StateUnavailable: Redis does not answer.
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

    async def _window(self, loading: Loading, window: list[Line]) -> None:
        lines = [(line.number, found) for line in window if (found := self._read(line))]
        entities = [found.entity for _, found in lines if found.entity]
        relations = [(number, found.relation) for number, found in lines if found.relation]
        await loading.add_entities(entities)
        places = await loading.add_relations(relation for _, relation in relations)
        for place in places:
            message = f"relation: more than {MAX_PAIR_BYTES} bytes of relations between these two names"
            self._refuse(relations[place][0], RecordError(ErrorCode.TOO_LARGE, message, "relation"))
        self._counts.entities += len(entities)
        self._counts.relations += len(relations) - len(places)

    def _read(self, line: Line) -> CorpusLine | None:
        if line.value is None:
            self._refuse(line.number, RecordError(ErrorCode.TOO_LARGE, "longer than any record may be"))
            return None
        try:
            return decode_corpus_line(line.value) if line.value.strip() else None
        except RecordError as error:
            self._refuse(line.number, error)
            return None

    def _refuse(self, number: int, error: RecordError) -> None:
        self._counts.refused += 1
        self._on_refused(number, error)
