"""In what two near-duplicates differ: negation, number, unit, word order, or nothing material (S0-121, C-08).

A set of words cannot tell "retries" from "never retries" in a long claim, so every claim is stored as a
signature, and signatures are compared, here or inside the state store:

    bytes 0-3    blake2b, 4 bytes, of the claim's negations
    bytes 4-7    the same of its numbers
    bytes 8-11   the same of its units
    then         8 bytes per token, in text order, repeats kept: `token_digest` of the token, with the lowest
                 bit of the first byte set to 1 for an article (a, an, the) and to 0 for every other token

Each of the three is a multiset: its members sorted by code point, joined by NUL, in UTF-8. What the
comparison does: the three digests in this order, the first that differs names the difference; then the
tokens that both claims have (as sets of ids), articles left out, in the order and as often as they stand in
each: if the two sequences differ, the difference is order.

Members: `groundwire.checks.negations` and `groundwire.checks.quantities` say what they are. Words that say
the same give the same member ("don't", "do not"; "30s", "thirty seconds"), so that only what differs in
meaning differs.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from groundwire.checks.negations import may_negate, negations
from groundwire.checks.quantities import may_count, quantities
from groundwire.checks.tokens import PerToken, token_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNATURE: Final = "signature-2"
"""Names format and rules in the dedup scheme. Whoever changes what `signature` returns changes this too."""

DIGEST_BYTES: Final = 4
HEADER_BYTES: Final = 3 * DIGEST_BYTES
ID_BYTES: Final = 8

_HASHER: Final = blake2b(digest_size=DIGEST_BYTES)
_EMPTY: Final = _HASHER.digest()
_ARTICLES: Final = frozenset(("a", "an", "the"))


class Difference(StrEnum):
    """In what two claims differ; the values are those of a Decision's facts."""

    NONE = "none"
    NEGATION = "negation"
    NUMBER = "number"
    UNIT = "unit"
    ORDER = "order"


_HEADER: Final = (Difference.NEGATION, Difference.NUMBER, Difference.UNIT)


def signature(tokens: Sequence[str]) -> bytes:
    """Return a claim's signature: 12 bytes and 8 for each token (S0-121; format in the module's text).

    Args:
        tokens: All tokens of the claim in text order, from `groundwire.checks.tokens.tokenize`.
    """
    if not tokens:
        return 3 * _EMPTY
    ids, negating, counting = zip(*_FACTS.of(tokens), strict=True)
    negated = negations(tokens) if any(negating) else ()
    numbers, units = quantities(tokens) if any(counting) else ((), ())
    return b"".join((_multiset(negated), _multiset(numbers), _multiset(units), *ids))


def overlap(a: bytes, b: bytes) -> tuple[int, int]:
    """Return the sizes of intersection and union of two claims' token sets, articles included (S0-104).

    Raises:
        ValueError: One of the two is not a signature.
    """
    ids_a, ids_b = set(_ids(a)), set(_ids(b))
    inter = len(ids_a & ids_b)
    return inter, len(ids_a) + len(ids_b) - inter


def difference(a: bytes, b: bytes) -> Difference:
    """Return in what two signatures differ, the first that applies (S0-121); symmetric.

    Raises:
        ValueError: One of the two is not a signature.
    """
    ids_a, ids_b = _ids(a), _ids(b)
    for place, kind in enumerate(_HEADER):
        digest = slice(place * DIGEST_BYTES, (place + 1) * DIGEST_BYTES)
        if a[digest] != b[digest]:
            return kind
    shared = {token for token in set(ids_a) & set(ids_b) if not token[0] & 1}
    same = [token for token in ids_a if token in shared] == [token for token in ids_b if token in shared]
    return Difference.NONE if same else Difference.ORDER


def _ids(sign: bytes) -> list[bytes]:
    if len(sign) < HEADER_BYTES or (len(sign) - HEADER_BYTES) % ID_BYTES:
        raise ValueError(
            f"a signature is {HEADER_BYTES} bytes and {ID_BYTES} for each token, got {len(sign)}"
        )
    return [sign[start : start + ID_BYTES] for start in range(HEADER_BYTES, len(sign), ID_BYTES)]


def _look_at(token: str) -> tuple[bytes, bool, bool]:
    """Return a token's id, and whether a negation, a number or a unit may begin with it: few do."""
    digest = token_digest(token)
    article = token in _ARTICLES
    token_id = digest if digest[0] & 1 == article else bytes((digest[0] ^ 1,)) + digest[1:]
    return token_id, may_negate(token), may_count(token)


_FACTS: Final = PerToken(_look_at)


def _multiset(members: Sequence[str]) -> bytes:
    if not members:
        return _EMPTY
    hasher = _HASHER.copy()
    hasher.update("\0".join(sorted(members)).encode("utf-8", "surrogatepass"))
    return hasher.digest()
