"""Signatures of claims, and in what two claims differ (S0-121, C-08; contract, "Repeats and conflicts").

A set of words cannot tell "retries" from "never retries", so every claim is stored as a signature, and signatures are
compared:

    bytes 0, 1   how many negations the claim has, and how many of the kind of "rarely"; 255 at most
    bytes 2-5    digest of the values that tell what it is about; zeros where there are none
    bytes 6-9    digest of its frame; zeros where it has none
    bytes 10-13  number of values, little-endian
    bytes 14-17  number of content words with their repeats, little-endian
    then         5 bytes per value, sorted: kind and digest
    then         9 bytes per token: the content words by role, then in text order; then all others in text order

The kinds of values: N number, n number with a unit as it is written, Q number with its unit, U unit of no number, Y M
D W part of a date, B how a time is bounded; of opposites O what the claim says, A what names something else; P and F
the side of the thing in the frame, as it is said ("is free") or as it names the thing ("a free pool"); T any of these
before the verb, which tell what the claim is about; S the order of several. A token is one byte of marks (128: before
the verb, 64: fills the frame, else its role; 0: no content), 4 bytes of digest of its stem and 4 of the token itself.
`groundwire.checks.dedup.form` says what all these are. Words that say the same give the same value ("30s", "thirty
seconds"; "1 May 2024", "2024-05-01").
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from groundwire.arguments import takes
from groundwire.checks.dedup.form import ClaimForm, Word
from groundwire.text.tokens import CACHED_LENGTH, CACHED_TOKENS, PerToken

WHOLE: Final = 10_000
"""Basis points of a whole: thresholds are compared as whole numbers, so that no rounding decides (C-05, C-06)."""


@takes(text1=str, text2=str)
def jaccard_similarity(text1: str, text2: str) -> float:
    """Return words in common ÷ words in either, of the lower-case words between white space (S0-104, S0-105).

    The gate itself compares tokens without edge punctuation, see `groundwire.text.tokens` (C-07).
    Paraphrases are a known miss of any word overlap (S0-115).

    Args:
        text1: One text.
        text2: The other; the order makes no difference.

    Returns:
        A number from 0.0 to 1.0; 0.0 when neither text has a word.
    """
    words1, words2 = set(text1.lower().split()), set(text2.lower().split())
    union = len(words1 | words2)
    return len(words1 & words2) / union if union else 0.0


def basis_points(threshold: float) -> int:
    """Return a threshold, above 0, at most 1, of four decimals, in basis points (S0-111). Raises: ValueError."""
    points = round(threshold * WHOLE) if 0 < threshold <= 1 else 0
    if not points:
        raise ValueError(f"dedup_threshold must be above 0 and at most 1 (four decimals), got {threshold!r}")
    return points


def is_near(inter: int, union: int, points: int) -> bool:
    """Return whether inter ÷ union reaches a threshold, inclusive and in whole numbers (S0-106, C-05)."""
    return union > 0 and WHOLE * inter >= points * union


SIGNATURE: Final = "signature-7"
"""Names format and rules in the dedup scheme. Whoever changes what `signature` returns changes this too."""

_HEADER: Final = Struct("<BB4s4sII")
HEADER_BYTES: Final = _HEADER.size
VALUE_BYTES: Final = 5
TOKEN_BYTES: Final = 9

_TOPIC: Final = 128
_FILLER: Final = 64
_NOTHING: Final = bytes(4)
_MOST: Final = 255


class Difference(StrEnum):
    """In what two claims differ; the values are those of a Decision's facts."""

    NONE = "none"
    NEGATION = "negation"
    NUMBER = "number"
    UNIT = "unit"
    DATE = "date"
    OPPOSITE = "opposite"
    VALUE = "value"
    ORDER = "order"
    WORD = "word"


class Thresholds(NamedTuple):
    """From where on two claims say the same, in basis points of all words or content words; `rejected` by a person."""

    duplicate: int
    conflict: int = WHOLE
    rejected: int = WHOLE


class Comparison(NamedTuple):
    """Two claims that say the same, or of the same thing something else; words in both, and in either."""

    inter: int
    union: int
    difference: Difference


def signature(form: ClaimForm) -> bytes:
    stems = list(map(_STEM, form.words))
    content = sorted(compress(form.words, stems), key=_ROLE)
    others = [word.token for word, stem in zip(form.words, stems, strict=True) if not stem]
    header = _HEADER.pack(
        min(form.full, _MOST),
        min(form.weak, _MOST),
        _digest("\0".join(form.about)) if form.about else _NOTHING,
        _digest(form.frame) if form.frame else _NOTHING,
        len(form.values),
        len(content),
    )
    values = sorted([kind.encode() + _DIGESTS[value] for kind, value in form.values])
    return b"".join((header, *values, *map(_ROWS.__getitem__, content), *_OTHER_ROWS.of(others)))


def _digest(text: str) -> bytes:
    # A lone surrogate cannot come over the wire; the library must not break on one.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()


_DIGESTS: Final = PerToken(_digest)


_STEM: Final = attrgetter("stem")
_ROLE: Final = attrgetter("role")
_MARKS: Final = [bytes((marks,)) for marks in range(256)]


class _Rows(dict["Word", bytes]):
    def __missing__(self, word: Word) -> bytes:
        token, stem, role, topic, filler = word
        row = _MARKS[role | topic * _TOPIC | filler * _FILLER] + _DIGESTS[stem] + _DIGESTS[token]
        if len(word.token) <= CACHED_LENGTH:
            if len(self) >= CACHED_TOKENS:
                self.clear()
            self[word] = row
        return row


_ROWS: Final = _Rows()
_OTHER_ROWS: Final = PerToken(lambda token: _MARKS[0] + _DIGESTS[""] + _DIGESTS[token])


class _Parsed(NamedTuple):
    full: int
    weak: int
    about: bytes
    frame: bytes
    values: dict[str, frozenset[bytes]]
    words: frozenset[bytes]
    content: tuple[tuple[int, bytes], ...]
    stems: frozenset[bytes]
    topics: frozenset[bytes]
    fillers: frozenset[bytes]


def _header(sign: bytes) -> tuple[int, int, bytes, bytes, int, int]:
    """Read the header of a signature, and check that the rest has the layout that it tells of. Raises: ValueError."""
    if len(sign) < HEADER_BYTES:
        raise ValueError(f"a signature is at least {HEADER_BYTES} bytes, got {len(sign)}")
    full, weak, about, frame, values, content = _HEADER.unpack_from(sign)
    start = HEADER_BYTES + values * VALUE_BYTES
    end = start + content * TOKEN_BYTES
    if end > len(sign) or (len(sign) - start) % TOKEN_BYTES:
        raise ValueError(
            f"a signature of {values} values and {content} content words is not {len(sign)} bytes"
        )
    return full, weak, about, frame, values, content


@lru_cache(1 << 12)
def _parse(sign: bytes) -> _Parsed:
    full, weak, about, frame, values, content = _header(sign)
    start = HEADER_BYTES + values * VALUE_BYTES
    end = start + content * TOKEN_BYTES
    kinds: dict[str, set[bytes]] = {}
    for at in range(HEADER_BYTES, start, VALUE_BYTES):
        kinds.setdefault(chr(sign[at]), set()).add(sign[at + 1 : at + VALUE_BYTES])
    rows = [(sign[at], sign[at + 1 : at + 5]) for at in range(start, end, TOKEN_BYTES)]
    return _Parsed(
        full,
        weak,
        about,
        frame,
        {kind: frozenset(found) for kind, found in kinds.items()},
        frozenset(sign[at + 5 : at + TOKEN_BYTES] for at in range(start, len(sign), TOKEN_BYTES)),
        tuple(rows),
        frozenset(stem for _, stem in rows),
        frozenset(stem for marks, stem in rows if marks & _TOPIC),
        frozenset(stem for marks, stem in rows if marks & _FILLER),
    )


def is_signature(data: bytes) -> bool:
    try:
        _header(data)
    except ValueError:
        return False
    return True


def overlap(a: bytes, b: bytes) -> tuple[int, int]:
    """Return the sizes of intersection and union of two claims' token sets (S0-104). Raises: ValueError."""
    one, other = _parse(a).words, _parse(b).words
    inter = len(one & other)
    return inter, len(one) + len(other) - inter


def compare(a: bytes, b: bytes, thresholds: Thresholds, *, rejected: bool = False) -> Comparison | None:
    """Compare a claim with a stored one (S0-121); symmetric, but that the stored one may say a word more.

    None where they are not about the same, or neither repeats nor contradict each other. Raises: ValueError for no
    signature.
    """
    one, other = _parse(a), _parse(b)
    inter, union = overlap(a, b)
    if not union or one.about != other.about:
        return None
    least = min(thresholds.duplicate, thresholds.rejected) if rejected else thresholds.duplicate
    near = is_near(inter, union, least)
    alike = is_near(len(one.stems & other.stems), len(one.stems | other.stems), thresholds.conflict)
    framed = one.frame == other.frame != _NOTHING
    if not near and (rejected or not (framed or alike)):
        return None
    only_one, only_other = one.topics - other.stems, other.topics - one.stems
    if bool(only_one and only_other) or _replaced(one, other, "T"):
        return None
    found = _difference(one, other, framed=framed, near=near)
    if (rejected and found not in _REPEATING) or (not near and found is Difference.NONE):
        return None
    if not (near or alike) and ("F" in one.values or "P" in one.values) and found not in _POLAR:
        return None
    return Comparison(inter, union, found)


def difference(a: bytes, b: bytes) -> Difference:
    """Return in what a claim differs from a near-duplicate, whatever they are about. Raises: ValueError."""
    return _difference(_parse(a), _parse(b), framed=False, near=True)


_REPEATING: Final = frozenset((Difference.NONE, Difference.ORDER, Difference.WORD))
_POLAR: Final = frozenset((Difference.NEGATION, Difference.OPPOSITE))


def _replaced(one: _Parsed, other: _Parsed, kind: str) -> bool:
    mine, theirs = one.values.get(kind, _NO_VALUES), other.values.get(kind, _NO_VALUES)
    return bool(mine - theirs and theirs - mine)


def _difference(one: _Parsed, other: _Parsed, *, framed: bool, near: bool) -> Difference:
    only_one, only_other = one.stems - other.stems, other.stems - one.stems
    kinds = _value_kinds(one, other, strict=near, framed=framed)
    if kinds:
        # one value beside another, or beside another word, is of another event, place or person
        alone = len({_GROUPS[kind] for kind in kinds}) == 1 and not (only_one and only_other)
        alone = alone and not _replaced(one, other, "A") and not _moved(one, other)
        alone = alone and (Difference.DATE in kinds or _is_dated(one) == _is_dated(other))
        if near or alone:
            return kinds[0]
    filled = framed and only_one and only_other and only_one <= one.fillers and only_other <= other.fillers
    if kinds or filled:
        return Difference.VALUE if filled and _COUNTS.issuperset(kinds) else Difference.NONE
    if not near and only_one | only_other:
        return Difference.NONE
    moved = near and one.full == other.full and one.values.get("S") != other.values.get("S")
    if moved or (_order(one, other) != _order(other, one) and (near or _exchanged(one, other))):
        return Difference.ORDER
    return Difference.WORD if near and only_one else Difference.NONE


_KINDS: Final = (
    (Difference.NUMBER, "N"), (Difference.NUMBER, "Q"), (Difference.UNIT, "U"), (Difference.DATE, "Y"),
    (Difference.DATE, "M"), (Difference.DATE, "D"), (Difference.DATE, "W"), (Difference.OPPOSITE, "O"),
    (Difference.OPPOSITE, "A"), (Difference.DATE, "B"),
)  # fmt: skip
_COUNTS: Final = frozenset((Difference.NUMBER, Difference.UNIT))
_GROUPS: Final = {kind: kind for kind in Difference} | {Difference.UNIT: Difference.NUMBER}


def _value_kinds(one: _Parsed, other: _Parsed, *, strict: bool, framed: bool) -> list[Difference]:
    """Return the kinds in which values and polarity differ.

    `strict`: also where one claim has a value that the other lacks; else, and always of opposites, only where each has
    one that the other lacks. `framed`: they say of the same thing what side it is on, or what fills their frame.
    """
    found = [Difference.NUMBER] if one.about != other.about else []
    for kind, letter in _KINDS:
        differs = one.values.get(letter, _NO_VALUES) != other.values.get(letter, _NO_VALUES)
        if letter == "A" and (not strict or Difference.OPPOSITE in found):
            continue
        if _replaced(one, other, letter) or (strict and differs and kind is not Difference.OPPOSITE):
            same_number = letter == "Q" and one.values.get("n") == other.values.get("n")
            found.append(Difference.UNIT if same_number else kind)
    if framed and Difference.OPPOSITE not in found and (_opposed(one, other) or _opposed(other, one)):
        found.append(Difference.OPPOSITE)
    if (one.full, one.weak) != (other.full, other.weak):
        if Difference.OPPOSITE in found and (one.full - other.full) % 2 and one.weak == other.weak:
            found.remove(Difference.OPPOSITE)  # "not locked", "unlocked"
        else:
            found.insert(0, Difference.NEGATION)
    return found


_NO_VALUES: Final[frozenset[bytes]] = frozenset()


def _is_dated(of: _Parsed) -> bool:
    return not of.values.keys().isdisjoint("YMDW")


def _opposed(one: _Parsed, other: _Parsed) -> bool:
    named, said = one.values.get("F"), other.values.get("P")
    return bool(named and said and named != said)


def _moved(one: _Parsed, other: _Parsed) -> bool:
    mine, theirs = ([stem for marks, stem in of.content if marks & _TOPIC] for of in (one, other))
    return mine != theirs and set(mine) == set(theirs)


def _exchanged(one: _Parsed, other: _Parsed) -> bool:
    """Return whether two words have exchanged their roles: "Anna overtook Ben", "Anna was overtaken by Ben"."""
    mine, theirs = ({stem: marks % _FILLER for marks, stem in reversed(of.content)} for of in (one, other))
    roles = {(role, theirs[stem]) for stem, role in mine.items() if stem in theirs}
    return any(role != new and (new, role) in roles for role, new in roles)


def _order(of: _Parsed, beside: _Parsed) -> list[bytes]:
    return [stem for _, stem in of.content if stem in beside.stems]
