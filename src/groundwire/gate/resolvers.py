"""Entities and relations that a response does not carry itself: asked of the corpus, and recorded as facts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from groundwire.errors import StateUnavailable
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import PreparedResponse

MAX_ASKED: Final = 2_000
"""Entities, and pairs of a relation, of one response that are looked up."""

MAX_ANSWER_BYTES: Final = 50_000
"""JSON of what is found, each of entities and relations: it stands in the decision, whole."""


class Corpus(Protocol):
    """Knows entities and relations, such as `groundwire.corpus.CorpusIndex`.

    Its methods raise StateUnavailable where it is out of reach: it is asked again. Whatever else they raise, for a
    corpus that is not there among others, makes the check unavailable.
    """

    async def entities(self, tenant: str, ids: Sequence[str], /) -> Mapping[str, Mapping[str, Any]]:
        """Return the entries of those ids that the tenant's corpus holds."""
        ...

    async def relations(
        self, tenant: str, pairs: Collection[tuple[str, str]], /
    ) -> Sequence[Mapping[str, Any]]:
        """Return every relation between the subjects and objects of these pairs, in either direction."""
        ...


class Resolver(NamedTuple):
    """A corpus, and the tenants whose responses are checked against it; `*` stands for all."""

    corpus: Corpus
    tenants: frozenset[str]

    def covers(self, tenant_id: str) -> bool:
        """Say whether this tenant's responses are checked against the corpus."""
        return not self.tenants.isdisjoint((tenant_id, "*"))


class TooMuch(Exception):
    """More than a decision can hold."""


def lacking(entry: PreparedResponse, resolver: Resolver | None) -> tuple[str, ...]:
    """Name the checks for which a resolver has to be asked, because the response does not carry what they need."""
    response = entry.response
    if resolver is None or not resolver.covers(response.tenant_id):
        return ()
    entities = response.entities is not None and response.corpus_index is None
    relations = response.claims is not None and response.relations is None
    return ("entities",) * entities + ("relations",) * relations


async def resolve(entry: PreparedResponse, resolver: Resolver) -> None:
    """Ask for what a response does not carry; what cannot be answered makes its check unavailable.

    Raises:
        StateUnavailable: the corpus is out of reach; nothing is known yet, and it is asked again.
    """
    response = entry.response
    for check in lacking(entry, resolver):
        try:
            if check == "entities":
                ids = list(dict.fromkeys(entity.id for entity in response.entities or ()))
                found = await resolver.corpus.entities(response.tenant_id, _few(ids))
                entry.entities = _small({name: dict(found[name]) for name in ids if name in found})
            else:
                pairs = list(dict.fromkeys((claim.subject, claim.object) for claim in response.claims or ()))
                truths = await resolver.corpus.relations(response.tenant_id, _few(pairs))
                entry.relations = _small([dict(truth) for truth in truths])
        except StateUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 - fails closed: the check is unavailable
            _unavailable(entry, check, exc)


def _unavailable(entry: PreparedResponse, check: str, error: Exception) -> None:
    report_fault("resolver.failed", error, check=check, offset=entry.record.offset)
    entry.broken[check] = type(error).__name__


def _few(asked: list[Any]) -> list[Any]:
    if len(asked) > MAX_ASKED:
        raise TooMuch(f"{len(asked)} look-ups in one response, more than {MAX_ASKED}")
    return asked


def _small(answer: Any) -> Any:  # noqa: ANN401 - a JSON value, handed on
    """Return the answer as it is read back from JSON, so that the first decision and a later one see the same."""
    text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MAX_ANSWER_BYTES:
        raise TooMuch(f"the corpus answered more than {MAX_ANSWER_BYTES} bytes")
    return json.loads(text)
