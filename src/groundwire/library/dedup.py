"""Deduplication against a provider of memories: the library's form of what state does for the stream.

Every memory is compared, exactly; nothing is indexed. With an embedder, meanings are compared instead of words.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

from groundwire.arguments import settled, takes
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.signature import (
    WHOLE,
    Difference,
    Thresholds,
    basis_points,
    difference,
    is_near,
    overlap,
    signature,
)
from groundwire.gate.claim_case import first_matches
from groundwire.messages.decisions import DedupFacts, MatchClass
from groundwire.state.matching import Indexed, Match, MatchKind, choose
from groundwire.state.model import MatchRules

StoredMemory = tuple[str, str]
"""Id and content of a stored memory."""

Vector = Sequence[float]
EmbedFunction = Callable[[str], "Vector | Awaitable[Vector]"]

_SLACK: Final = 1e-9  # of a cosine: equal texts must not miss a threshold of 1 by rounding


class MemoryProvider(Protocol):
    """Where stored memories come from; any exception is a failed deduplication (S0-110)."""

    async def memories(self, user_id: str, memory_type: str) -> Iterable[StoredMemory]:
        """Return (memory id, content) of every memory of a user and a type (S0-124)."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how near they are in meaning."""

    async def embed(self, text: str) -> Vector:
        """Return the vector of a text; of the same length for every text."""
        ...


@dataclass(frozen=True, slots=True)
class DuplicateResult:
    """What comparing a text gave (S0-109).

    Attributes:
        is_duplicate: a memory says the same; never where `dedup_failed`.
        similarity: of the nearest memory, 0..1, rounded to 4 decimals.
        existing_memory_id: the memory that it is a duplicate of, or that it conflicts with; else None.
        difference: how the text differs from it, see `groundwire.checks.dedup.signature.Difference` (C-08).
        dedup_failed: the provider or the embedder failed, so nothing is known.
        error: then, the class of the exception.
    """

    is_duplicate: bool
    similarity: float
    existing_memory_id: str | None
    difference: str = "none"
    dedup_failed: bool = False
    error: str | None = None


class DedupChecker:
    """Says whether a text is already stored (S0-107).

    Args:
        provider: where the memories are.
        threshold: least similarity of a duplicate, inclusive: Jaccard of words, or cosine with an embedder.
        embedder: compares meanings instead of words (S0-116).
        material_difference: a near-duplicate that differs in a negation, value or order is none (C-08).

    Raises:
        ValueError: for a threshold that is not above 0 and at most 1.
        TypeError: the provider has no method `memories`.

    Example:
        >>> import asyncio
        >>> class Stored:
        ...     async def memories(self, user_id, memory_type):
        ...         return [("m-1", "We use PostgreSQL for storage")]
        >>> checker = DedupChecker(Stored())
        >>> result = asyncio.run(checker.check_duplicate("We use PostgreSQL for storage.", "ada", "fact"))
        >>> (result.is_duplicate, result.similarity, result.existing_memory_id)
        (True, 1.0, 'm-1')
    """

    @takes(threshold=float | int)
    def __init__(
        self,
        provider: MemoryProvider,
        threshold: float = 0.92,
        *,
        embedder: Embedder | EmbedFunction | None = None,
        material_difference: bool = True,
    ) -> None:
        if not callable(getattr(provider, "memories", None)):
            raise TypeError(f"provider: must have a method memories, got {type(provider).__name__}")
        self._provider = provider
        self._rules = plain_rules(basis_points(threshold), material_difference=material_difference)
        self._embedder = embedder

    @takes(content=str, user_id=str, memory_type=str)
    async def check_duplicate(self, content: str, user_id: str, memory_type: str) -> DuplicateResult:
        """Compare a text with every memory of a user and a type; never raises for the provider (S0-108)."""
        try:
            matches = await self.matches(content, user_id, [memory_type])
        except Exception as exc:  # noqa: BLE001 - whatever broke: nothing is known, and that is said
            return DuplicateResult(
                is_duplicate=False,
                similarity=0.0,
                existing_memory_id=None,
                dedup_failed=True,
                error=type(exc).__name__,
            )
        found = first_matches(report(matches, self._rules).matches, self._rules)
        match = found.get(MatchKind.DUPLICATE) or found.get(MatchKind.CONFLICT)
        nearest = max((Fraction(m.inter, m.union) for m in matches), default=Fraction(0))
        return DuplicateResult(
            is_duplicate=MatchKind.DUPLICATE in found,
            similarity=round(match.inter / match.union if match else float(nearest), 4),
            existing_memory_id=match.subject_id if match else None,
            difference=match.difference if match else "none",
        )

    async def matches(self, content: str, user_id: str, memory_types: Sequence[str]) -> list[Match]:
        """Compare a text with every memory of the types. Raises whatever the provider or the embedder raises."""
        memories: dict[str, str] = {}
        for memory_type in memory_types:
            memories |= {
                str(name): text for name, text in await self._provider.memories(user_id, memory_type)
            }
        own, embedder = signature(read_form(content)), self._embedder
        vector = None if embedder is None else await _embed(embedder, content)
        found = []
        for number, (name, text) in enumerate(memories.items(), 1):
            near = None
            if embedder is not None and vector is not None:
                near = _cosine(vector, await _embed(embedder, text))
            theirs = signature(read_form(text))
            inter, union = overlap(own, theirs)
            kind = difference(own, theirs)
            if kind is Difference.WORD:  # a word makes a conflict in the stream only
                kind = Difference.NONE
            if near is not None:
                if kind is Difference.ORDER and inter != union:  # other words in another order: a paraphrase
                    kind = Difference.NONE
                inter, union = max(0, math.floor((near + _SLACK) * WHOLE)), WHOLE
            indexed = Indexed(number, name, b"", MatchClass.APPROVED, number, 0, theirs)
            found.append(Match(indexed, inter, max(union, 1), kind))
        return found


def plain_rules(points: int, *, material_difference: bool) -> MatchRules:
    """Return the rules of the library: only near-duplicates count."""
    return MatchRules(Thresholds(points), material_difference)


def report(matches: Iterable[Match], rules: MatchRules) -> DedupFacts:
    """Return the matches that reach the threshold, as facts of a decision."""
    near = [match for match in matches if is_near(match.inter, match.union, rules.thresholds.duplicate)]
    chosen, _ = choose(near, rules)
    return DedupFacts(status="ok", scheme="exact", matches=[match.fact() for match in chosen])


async def _embed(embedder: Embedder | EmbedFunction, text: str) -> Vector:
    return await settled((embedder if callable(embedder) else embedder.embed)(text))


def _cosine(a: Vector, b: Vector) -> float:
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    cosine = product / (math.hypot(*a) * math.hypot(*b)) if any(a) and any(b) else math.nan
    if not math.isfinite(cosine):
        raise ValueError("an embedding has no direction")
    return min(1.0, max(-1.0, cosine))
