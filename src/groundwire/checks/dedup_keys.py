"""From a token set to the keys under which its near-duplicates are found (S0-117, S0-119, S0-120, C-12).

To the index a key is a key: state maps (scope, key) to claims, and exact Jaccard decides among the claims
that share one. Two key functions:

* ``minhash``: MinHash-LSH, 128 permutations of datasketch's scheme affine32. A pair at Jaccard J shares a
  key with probability 1 - (1 - J^rows)^bands. At 0.92 that is 0.99999 for the 16 bands of 8 rows used here,
  and 0.31 for the 4 bands of 29 rows that datasketch's ``MinHashLSH(threshold=0.92)`` would choose: it
  weighs a missed pair like a needless look, and here a look costs microseconds, a miss a wrong approval.
* ``partition``: exact. Let t be the threshold, i and u the sizes of intersection and union of a pair with i
  ≥ t·u. A stored claim of m tokens has i ≤ m, so u ≤ m/t, and u - i ≤ u·(1 - t) ≤ m·(1 - t)/t =: k tokens
  differ. Tokens are dealt into more than k parts by their hash; each differing token touches one part, so
  some part is equal in both. The number of parts depends on m alone; who probes does not know m, but J ≤
  min ÷ max of the two sizes, so t·n ≤ m ≤ n/t. Empty parts count: leaving them out would lose pairs. The
  nearer the threshold to 1, the fewer and larger the parts; below 0.8 they get so small that they find half
  the scope, and `minhash` is the better choice.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from struct import Struct, unpack
from typing import TYPE_CHECKING, Final, Protocol

from groundwire.checks.difference import SIGNATURE
from groundwire.checks.similarity import PARTS
from groundwire.checks.tokens import TOKENIZER, PerToken, token_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy import uint32
    from numpy.typing import NDArray

METHODS: Final = ("minhash", "partition")
KEY_BYTES: Final = 8

_PERMUTATIONS: Final = 128
_SEED: Final = 1
_WORD: Final = 0xFFFFFFFF
_RECALL: Final = 0.99  # of a pair exactly at the threshold (S0-119)
_CACHED_TOKENS: Final = 1 << 14  # of 600 bytes each
_FEW_TOKENS: Final = 64  # among so many, repeats cost less than to find them
_EXACT_PARTS: Final = 8  # numbers of parts above this are rounded up
_CACHED_SIZES: Final = 1 << 10

_PARTITION: Final = blake2b(digest_size=KEY_BYTES, person=b"partition-1")
_PART: Final = Struct("<II")  # the number of parts, and which of them
_DIGESTS: Final = PerToken(token_digest)


class KeyFunction(Protocol):
    """Turns the tokens of a claim into index keys of 8 bytes; no tokens, no keys."""

    @property
    def name(self) -> str:
        """Name and version: equal names give equal keys."""

    def stored(self, tokens: Collection[str]) -> list[bytes]:
        """Return the keys under which a claim is indexed."""

    def probed(self, tokens: Collection[str]) -> list[bytes]:
        """Return the keys that a new claim looks up."""

    def both(self, tokens: Collection[str]) -> tuple[list[bytes], list[bytes]]:
        """Return `stored` and `probed`, for the price of one."""


def key_function(method: str, parts: int) -> KeyFunction:
    """Return the key function of a method for a threshold.

    Args:
        method: ``minhash`` or ``partition``.
        parts: The threshold in ten-thousandths, from `threshold_parts`.

    Raises:
        ValueError: The method is neither, or cannot serve the threshold.
    """
    if not 0 < parts <= PARTS:
        raise ValueError(f"threshold must be 1 to {PARTS} ten-thousandths, got {parts}")
    if method == "minhash":
        return MinHashKeys(parts)
    if method == "partition":
        return PartitionKeys(parts)
    raise ValueError(f"dedup method must be one of {', '.join(METHODS)}, got {method!r}")


def scheme(method: str, parts: int) -> str:
    """Return the id of all that stored keys and signatures depend on.

    It names the key function, the tokeniser, the signature and the threshold: any change of one needs a
    rebuild, also a higher threshold, because the number of parts follows it.

    Raises:
        ValueError: As `key_function`.
    """
    return f"{key_function(method, parts).name}/{TOKENIZER}/{SIGNATURE}/{parts}"


class MinHashKeys:
    """MinHash-LSH keys: one per band. Bands follow the threshold, so that at it 99 % of pairs are found."""

    def __init__(self, parts: int) -> None:
        self._rows = _rows(parts / PARTS)
        self._bands = _PERMUTATIONS // self._rows
        person = f"minhash-{self._bands}x{self._rows}".encode()
        self._heads = [
            blake2b(band.to_bytes(2, "little"), digest_size=KEY_BYTES, person=person)
            for band in range(self._bands)
        ]
        self._cut = Struct(f"{4 * self._rows}s" * self._bands).unpack

    @property
    def name(self) -> str:
        """Bands, rows, scheme and seed, such as ``minhash-16x8-affine32-s1``."""
        return f"minhash-{self._bands}x{self._rows}-affine32-s{_SEED}"

    def stored(self, tokens: Collection[str]) -> list[bytes]:
        """Return one key per band; repeats in `tokens` make no difference."""
        if not tokens:
            return []
        values = self._sketch(tokens if len(tokens) <= _FEW_TOKENS else frozenset(tokens))
        keys = []
        for head, rows in zip(self._heads, self._cut(values), strict=True):
            hasher = head.copy()
            hasher.update(rows)
            keys.append(hasher.digest())
        return keys

    def probed(self, tokens: Collection[str]) -> list[bytes]:
        """Return the same keys as `stored`: MinHash is symmetric."""
        return self.stored(tokens)

    def both(self, tokens: Collection[str]) -> tuple[list[bytes], list[bytes]]:
        """Return the keys twice: MinHash is symmetric."""
        keys = self.stored(tokens)
        return keys, keys

    def _sketch(self, tokens: Collection[str]) -> bytes:
        """Return the least of the tokens' hashes under each permutation: what datasketch's own MinHash holds.

        A token is hashed once, not for every claim that holds it.
        """
        from numpy import frombuffer, minimum  # noqa: PLC0415 - loaded with the permutations

        hashes = frombuffer(b"".join(self._hashes.of(tokens)), "<u4").reshape(-1, _PERMUTATIONS)
        least: NDArray[uint32] = minimum.reduce(hashes)
        return least.tobytes()

    @cached_property
    def _hashes(self) -> PerToken[bytes]:
        return PerToken(self._hash, _CACHED_TOKENS)

    def _hash(self, token: str) -> bytes:
        """Return a token's hash under each permutation."""
        factors, summands = self._permutations
        hashes: NDArray[uint32] = factors * _mix(_hash32(token)) + summands
        return hashes.astype("<u4").tobytes()

    @cached_property
    def _permutations(self) -> NDArray[uint32]:
        """The factors, which are odd, and summands that datasketch would draw; it loads scipy first: 0.7 s."""
        import numpy as np  # noqa: PLC0415 - 0.1 s, for what compares claims

        draw = np.random.RandomState(_SEED).randint
        factors = draw(0, 1 << 31, _PERMUTATIONS, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
        return np.array([factors, draw(0, 1 << 32, _PERMUTATIONS, dtype=np.uint32)])


class PartitionKeys:
    """Exact keys by pigeonhole: one per part of the token set (see the module's text)."""

    def __init__(self, parts: int) -> None:
        if 2 * parts < PARTS:
            raise ValueError("dedup method partition needs a threshold of at least 0.5; use minhash below it")
        self._parts = parts

    @property
    def name(self) -> str:
        """``partition-1``; the threshold, which keys depend on too, stands in the scheme."""
        return "partition-1"

    def stored(self, tokens: Collection[str]) -> list[bytes]:
        """Return one key per part, empty parts included; repeats in `tokens` make no difference."""
        return self.both(tokens)[0]

    def probed(self, tokens: Collection[str]) -> list[bytes]:
        """Return the keys of every number of parts that a match may be stored under."""
        return self.both(tokens)[1]

    def both(self, tokens: Collection[str]) -> tuple[list[bytes], list[bytes]]:
        """Return both: the number of parts that a claim is stored under is among those it looks up."""
        digests = sorted(set(_DIGESTS.of(tokens)))
        if not digests:
            return [], []
        numbers = unpack(f"<{len(digests)}Q", b"".join(digests))
        stored, counts = _part_counts(len(digests), self._parts)
        keys = {count: _part_keys(digests, numbers, count) for count in counts}
        return keys[stored], [*chain.from_iterable(keys.values())]


@lru_cache(_CACHED_SIZES)
def _part_counts(size: int, parts: int) -> tuple[int, list[int]]:
    """Return the number of parts that so many tokens are stored under, and those that they look up."""
    smallest = -(-size * parts // PARTS)
    largest = size * PARTS // parts
    counts = {_part_count(other, parts) for other in range(max(smallest, 1), largest + 1)}
    return _part_count(size, parts), sorted(counts)


def _part_count(size: int, parts: int) -> int:
    count = size * (PARTS - parts) // parts + 1
    if count <= _EXACT_PARTS:
        return count
    # More parts are exact too. Rounded up in steps of an eighth to a quarter, a long claim probes
    # two or three numbers of parts instead of dozens: 576 keys, not 11,500, for 3,000 words at 0.92.
    step = 1 << (count.bit_length() - 3)
    return -(-count // step) * step


def _rows(threshold: float) -> int:
    """Return the rows of a band: as many as keep the recall at the threshold."""
    for rows in (8, 4, 2):
        if 1 - (1 - threshold**rows) ** (_PERMUTATIONS // rows) >= _RECALL:
            return rows
    return 1


def _part_keys(digests: Sequence[bytes], numbers: Sequence[int], count: int) -> list[bytes]:
    dealt: list[list[bytes]] = [[] for _ in range(count)]
    for digest, number in zip(digests, numbers, strict=True):
        dealt[number % count].append(digest)
    keys = []
    for part, members in enumerate(dealt):
        hasher = _PARTITION.copy()
        hasher.update(_PART.pack(count, part) + b"".join(members))
        keys.append(hasher.digest())
    return keys


def _hash32(token: str) -> int:
    return int.from_bytes(token_digest(token)[:4], "little")


def _mix(value: int) -> uint32:
    """Finalise a hash as MurmurHash3 does: before its permutations, datasketch does so too."""
    from numpy import uint32  # noqa: PLC0415 - loaded with the permutations

    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return uint32(value ^ value >> 16)
