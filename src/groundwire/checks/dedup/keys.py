"""Index keys: how the claims are found that a new one may repeat or contradict (S0-117, S0-119, S0-120, C-12).

State maps (scope, key) to claims; those that share a key are compared (`groundwire.checks.dedup.signature`). Keys are
made of a claim's **key words**: its content words by their stems, without values, negations and function words, a pair
of opposites as one. The values that tell what a claim is about go into every key. A claim with a frame has a key of
that as well. Two key functions:

* ``minhash``: MinHash-LSH over the key words, 128 permutations of datasketch's scheme affine32. A pair at Jaccard J
  shares a key with probability 1 - (1 - J^rows)^bands: at 0.92, 0.99999 for the 16 bands of 8 rows used here, and 0.31
  for the 4 bands of 29 rows that datasketch would choose, as it weighs a missed pair like a needless look.
* ``partition``: exact. Let t be a threshold, i and u the sizes of intersection and union of a pair with i ≥ t·u. A
  stored claim of m words has i ≤ m, so u ≤ m/t, and u - i ≤ u·(1 - t) ≤ m·(1 - t)/t =: k words differ. Key words are
  dealt into more than k parts by their hash; each differing word touches one part, so some part is equal in both. The
  number of parts depends on m alone: the number of content words under one rule and of all words under the other, and a
  claim is stored under both. Who looks up does not know m, but t·n ≤ m ≤ n/t for its own n. Empty parts count. Below
  0.8 the parts get so small that they find half the scope, and `minhash` is the better choice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from operator import attrgetter
from random import Random
from struct import Struct, unpack
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from groundwire.checks.dedup.form import ClaimForm
from groundwire.checks.dedup.signature import SIGNATURE, WHOLE, Thresholds
from groundwire.text.tokens import TOKENIZER, PerToken, token_digest

if TYPE_CHECKING:  # an installation without numpy has keys too
    from numpy import uint32
    from numpy.typing import NDArray

METHODS: Final = ("minhash", "partition")
KEY_BYTES: Final = 8

_PERMUTATIONS: Final = 128
_SEED: Final = 1
_SKETCH: Final = Struct(f"<{_PERMUTATIONS}I")
_TWISTER: Final = 624  # numbers in the Mersenne Twister's state
_WORD: Final = 0xFFFFFFFF
_RECALL: Final = 0.99  # of a pair exactly at the threshold (S0-119)
_CACHED_TOKENS: Final = 1 << 14  # of 600 bytes each
_EXACT_PARTS: Final = 8  # numbers of parts above this are rounded up
_CACHED_SIZES: Final = 1 << 10

_PARTITION: Final = blake2b(digest_size=KEY_BYTES, person=b"partition-2")
_PART: Final = Struct("<III")  # the number of parts, which of them, and the length of the prefix of its words
_DIGESTS: Final = PerToken(token_digest)
_TOKEN: Final = attrgetter("token")
_STEM: Final = attrgetter("stem")


class IndexKeys(NamedTuple):
    """Index keys of a claim, 8 bytes each: those that it is stored under, and those that a new claim looks up."""

    stored: list[bytes]
    probed: list[bytes]


class KeyFunction(Protocol):
    """Turns what a claim says into index keys; equal names give equal keys."""

    @property
    def name(self) -> str:
        pass

    def of(self, form: ClaimForm) -> IndexKeys:
        pass


def key_function(method: str, thresholds: Thresholds) -> KeyFunction:
    """Return the key function of a method. Raises: ValueError where it cannot serve a threshold."""
    for points in thresholds:
        if not 0 < points <= WHOLE:
            raise ValueError(f"threshold must be 1 to {WHOLE} basis points, got {points}")
    if method == "minhash":
        return MinHashKeys(thresholds)
    if method == "partition":
        return PartitionKeys(thresholds)
    raise ValueError(f"dedup method must be one of {', '.join(METHODS)}, got {method!r}")


@lru_cache(maxsize=64)
def scheme(method: str, thresholds: Thresholds) -> str:
    """Return the id of all that stored keys and signatures depend on: any change of it needs a rebuild.

    Also a higher threshold, because the number of parts follows it. How near a rejected text must be is no part of it.
    Raises: ValueError as `key_function`.
    """
    name = key_function(method, thresholds).name
    return f"{name}/{TOKENIZER}/{SIGNATURE}/{thresholds.duplicate}-{thresholds.conflict}"


def _about(form: ClaimForm) -> bytes:
    return "\0".join(form.about).encode("utf-8", "surrogatepass")


def _frame_keys(form: ClaimForm) -> list[bytes]:
    if not form.frame:
        return []
    text = form.frame.encode("utf-8", "surrogatepass")
    return [blake2b(text, digest_size=KEY_BYTES, person=b"frame-1").digest()]


class MinHashKeys:
    """MinHash-LSH keys: one per band. Bands follow the threshold, so that at it 99 % of pairs are found."""

    def __init__(self, thresholds: Thresholds) -> None:
        least = min(thresholds.duplicate, thresholds.conflict) / WHOLE
        rows = (8, 4, 2)  # of a band: as many as keep the recall at the threshold
        kept = (n for n in rows if 1 - (1 - least**n) ** (_PERMUTATIONS // n) >= _RECALL)
        self._rows = next(kept, 1)
        self._bands = _PERMUTATIONS // self._rows
        person = f"minhash-{self._bands}x{self._rows}".encode()
        self._heads = [
            blake2b(band.to_bytes(2, "little"), digest_size=KEY_BYTES, person=person)
            for band in range(self._bands)
        ]
        self._cut = Struct(f"{4 * self._rows}s" * self._bands).unpack

    @property
    def name(self) -> str:
        return f"minhash-{self._bands}x{self._rows}-affine32-s{_SEED}"

    def of(self, form: ClaimForm) -> IndexKeys:
        if not form.words:
            return IndexKeys([], [])
        values, about = self._sketch(form.keys or ("",)), _about(form)
        keys = _frame_keys(form)
        for head, rows in zip(self._heads, self._cut(values), strict=True):
            hasher = head.copy()
            hasher.update(rows + about)
            keys.append(hasher.digest())
        return IndexKeys(keys, keys)

    def _sketch(self, tokens: Collection[str]) -> bytes:
        """Return the least hash of the tokens under each permutation, as datasketch does; 10x slower without numpy."""
        hashes = self._hashes.of(tokens)
        numpy = _numpy()
        if numpy is None:
            return _SKETCH.pack(*map(min, zip(*map(_SKETCH.unpack, hashes), strict=True)))
        least: NDArray[uint32] = (
            numpy.frombuffer(b"".join(hashes), "<u4").reshape(-1, _PERMUTATIONS).min(axis=0)
        )
        return least.tobytes()

    @cached_property
    def _hashes(self) -> PerToken[bytes]:
        return PerToken(self._hash, _CACHED_TOKENS)

    def _hash(self, token: str) -> bytes:
        value = int.from_bytes(token_digest(token)[:4], "little")
        value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
        value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
        mixed = value ^ value >> 16
        return _SKETCH.pack(*(factor * mixed + summand & _WORD for factor, summand in _permutations()))


class PartitionKeys:
    """Exact keys by pigeonhole: one per part of the key words (see the module's text), and that of the frame."""

    def __init__(self, thresholds: Thresholds) -> None:
        if 2 * min(thresholds.duplicate, thresholds.conflict) < WHOLE:
            raise ValueError("dedup method partition needs thresholds of at least 0.5; use minhash below it")
        self._thresholds = thresholds

    @property
    def name(self) -> str:
        return "partition-2"

    def of(self, form: ClaimForm) -> IndexKeys:
        """Return one key per part, empty parts included; probed are all numbers of parts that a match may have."""
        if not form.words:
            return IndexKeys([], [])
        digests = sorted(_DIGESTS.of(form.keys))
        numbers = unpack(f"<{len(digests)}Q", b"".join(digests))
        content, words = len(set(map(_STEM, form.words)) - {""}), len(set(map(_TOKEN, form.words)))
        stored, probed = _part_counts(content, words, self._thresholds.conflict, self._thresholds.duplicate)
        about, frames = _about(form), _frame_keys(form)
        keys = {count: _part_keys(digests, numbers, count, about) for count in probed}
        return IndexKeys(
            [*frames, *chain.from_iterable(keys[count] for count in stored)],
            [*frames, *chain.from_iterable(keys.values())],
        )


@lru_cache(_CACHED_SIZES)
def _part_counts(content: int, words: int, conflict: int, duplicate: int) -> tuple[list[int], list[int]]:
    near = range(-(-words * duplicate // WHOLE), words * WHOLE // duplicate + 1)
    alike = range(-(-content * conflict // WHOLE), content * WHOLE // conflict + 1)
    own = {_part_count(content, conflict), _part_count(words, duplicate)}
    probed = {_part_count(size, conflict) for size in alike} | {_part_count(size, duplicate) for size in near}
    return sorted(own), sorted(probed)


def _part_count(size: int, points: int) -> int:
    count = (size * (WHOLE - points) // points) + 1
    if count <= _EXACT_PARTS:
        return count
    # More parts are exact too. Rounded up in steps of an eighth to a quarter, a long claim probes
    # two or three numbers of parts instead of dozens: 576 keys, not 11,500, for 3,000 words at 0.92.
    step = 1 << (count.bit_length() - 3)
    return -(-count // step) * step


def _part_keys(digests: Sequence[bytes], numbers: Sequence[int], count: int, about: bytes) -> list[bytes]:
    dealt: list[list[bytes]] = [[about] for _ in range(count)]
    for digest, number in zip(digests, numbers, strict=True):
        dealt[number % count].append(digest)
    keys = []
    heads = _few_heads if count <= _EXACT_PARTS else _part_heads  # those of long claims would fill the memory
    for head, members in zip(heads(count, len(about)), dealt, strict=True):
        hasher = head.copy()
        hasher.update(b"".join(members))
        keys.append(hasher.digest())
    return keys


def _part_heads(count: int, length: int) -> list[blake2b]:
    heads = [_PARTITION.copy() for _ in range(count)]
    for part, head in enumerate(heads):
        head.update(_PART.pack(count, part, length))
    return heads


_few_heads: Final = lru_cache(_CACHED_SIZES)(_part_heads)


@cache
def _numpy() -> ModuleType | None:
    """Return numpy where it is installed: the extra `worker` has it; loading it takes 0.1 s."""
    return import_module("numpy") if find_spec("numpy") else None


@cache
def _permutations() -> list[tuple[int, int]]:
    """Return the factors, which are odd, and summands that datasketch draws, from numpy's `RandomState(1)`.

    That is the Mersenne Twister of Python's own `Random`, seeded with one number (Matsumoto and Nishimura 1998,
    `init_genrand`).
    """
    state = [_SEED]
    for index in range(1, _TWISTER):
        state.append((0x6C078965 * (state[-1] ^ state[-1] >> 30) + index) & _WORD)
    twister = Random()  # noqa: S311 - known numbers are wanted
    twister.setstate((3, (*state, _TWISTER), None))
    factors = [(twister.getrandbits(32) & 0x7FFFFFFF) * 2 + 1 for _ in range(_PERMUTATIONS)]
    return [(factor, twister.getrandbits(32)) for factor in factors]
