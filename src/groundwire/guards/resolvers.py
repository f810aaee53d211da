"""Where indexes and ground truth come from: mappings, functions and objects, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from groundwire.checks.grounding import part
from groundwire.checks.relations import Claim, RelationIndex
from groundwire.messages.responses import IndexEntry, RelationClaim

Index = Mapping[str, IndexEntry | Mapping[str, Any]]
EntityResolver = Index | Callable[[list[str]], "Index | Awaitable[Index]"]
"""An index of entities, or a function of entity ids that returns one, sync or async."""


class LookupResolver(Protocol):
    """Knows the ground truth of relations: a graph, a store of predicates (S3-16)."""

    def lookup(self, *, subject: str, relation: str, obj: str, timestamp: Any) -> Any:  # noqa: ANN401 - see below
        """Return what the sources say of subject and object in either direction; it may be a coroutine.

        Returns:
            A mapping `{relation, version?, timestamp?, qualifiers?, subject?, object?}`, a list of them, or
            None where the sources say nothing. Without subject and object, a truth is one of those asked for.
        """
        ...


RelationResolver = (
    LookupResolver
    | Callable[..., Any]
    | RelationIndex
    | Sequence[Claim]
    | Mapping[tuple[str, ...], Claim | Sequence[Claim]]
)
"""A resolver, its `lookup` alone, or the ground truth itself: an index or a list of truths, or a mapping of
(subject, object) or (subject, relation, object) to truths."""


def asking(resolver: RelationResolver) -> Callable[[Claim], Any]:
    """Return a function of a claim that gives what the resolver knows of it."""
    lookup = getattr(resolver, "lookup", None) or (resolver if callable(resolver) else None)
    if lookup is None:
        index = resolver if isinstance(resolver, RelationIndex) else RelationIndex(_written_out(resolver))
        return lambda _claim: index
    return lambda claim: lookup(
        subject=part(claim, "subject"),
        relation=part(claim, "relation"),
        obj=part(claim, "object"),
        timestamp=part(claim, "timestamp"),
    )


def _written_out(resolver: Any) -> Iterable[Claim]:  # noqa: ANN401 - narrowed by what it holds
    if not isinstance(resolver, Mapping):
        yield from resolver
        return
    for (subject, *relation, obj), truths in resolver.items():
        names = {"subject": subject, "object": obj} | ({"relation": relation[0]} if relation else {})
        for truth in _several(truths):
            yield _completed(truth, names)


def truths_of(claim: Claim, answer: object) -> RelationIndex:
    """Return what a resolver answered of a claim as ground truth; one that names nobody is of the claim's own two."""
    if isinstance(answer, RelationIndex):
        return answer
    names = {"subject": part(claim, "subject"), "object": part(claim, "object")}
    return RelationIndex(_completed(truth, names) for truth in _several(answer))


def _several(answer: object) -> Iterable[object]:
    if not answer:
        return ()
    return (answer,) if isinstance(answer, Mapping | RelationClaim) else answer  # type: ignore[return-value] # else it is refused


def _completed(truth: object, names: Mapping[str, Any]) -> Claim:
    if isinstance(truth, RelationClaim):
        return truth
    if not isinstance(truth, Mapping):
        raise TypeError(f"a truth is a mapping with subject, relation and object, got {type(truth).__name__}")
    return {**names, **truth}


def at_once(answer: Any) -> Any:  # noqa: ANN401 - what a resolver gives
    """Return an answer that is there. Raises: TypeError for one that has to be awaited."""
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError("the resolver is asynchronous: await execute() instead of calling check()")


async def settled(answer: Any) -> Any:  # noqa: ANN401 - what a resolver gives
    """Return an answer, awaited where it has to be."""
    return await answer if inspect.isawaitable(answer) else answer
