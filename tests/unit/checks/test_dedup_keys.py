"""Index keys: what shares a key is compared, so recall is all that matters (S0-117, S0-119, S0-120, C-12)."""

import os
import random
import subprocess
import sys
from collections import defaultdict
from hashlib import blake2b
from itertools import combinations, product
from unittest.mock import patch

import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup import keys as keys_module
from groundwire.checks.dedup.form import ClaimForm, Word, read_form
from groundwire.checks.dedup.keys import key_function, scheme
from groundwire.checks.dedup.signature import Thresholds, compare, is_near, signature
from groundwire.text.tokens import token_digest
from tests.unit.checks.tables import failing

METHODS = ["minhash", "partition"]
THRESHOLDS = [5000, 6667, 8000, 9200, 9500, 9999, 10000]
PINNED = "per adr-003 we use kafka for claims redis for state and faust to decide"


def form(words, others=()):
    read = [*(Word(word, word, 1) for word in words), *(Word(word, "") for word in others)]
    return ClaimForm(read, 0, 0, [], [], "", frozenset(words))


def function(method, points=9200):
    return key_function(method, Thresholds(points, points))


def pair_at(rng, inter, only_a, only_b):
    words = [f"{rng.getrandbits(40):x}" for _ in range(inter + only_a + only_b)]
    return set(words[: inter + only_a]), set(words[:inter] + words[inter + only_a :])


def share(keys, stored, probed):
    stored, probed = (one if isinstance(one, ClaimForm) else form(one) for one in (stored, probed))
    return not set(keys.of(stored).stored).isdisjoint(keys.of(probed).probed)


@st.composite
def near_pairs(draw):
    """A threshold and two token sets that reach it, among them the sets that only just do."""
    parts = draw(st.sampled_from(THRESHOLDS))
    inter = draw(st.integers(1, 200))
    most = inter * (10_000 - parts) // parts  # tokens that may differ
    differing = draw(st.one_of(st.just(most), st.integers(0, most)))
    only_a = draw(st.integers(0, differing))
    return parts, *pair_at(random.Random(draw(st.integers(0, 2**32))), inter, only_a, differing - only_a)


@given(near_pairs())
def test_partition_finds_every_pair_that_reaches_the_threshold(case):
    parts, one, other = case
    assert is_near(len(one & other), len(one | other), parts)
    keys = function("partition", parts)
    assert share(keys, one, other)
    assert share(keys, other, one)


@pytest.mark.slow
def test_partition_agrees_with_brute_force_on_small_sets():
    """All subsets of a few words, where parts are often empty: a leftover pair would be a lost duplicate."""

    def check(parts):
        keys = function("partition", parts)
        subsets = [set(chosen) for size in range(1, 7) for chosen in combinations("abcdef", size)]
        missed = [
            (one, other)
            for one in subsets
            for other in subsets
            if is_near(len(one & other), len(one | other), parts) and not share(keys, one, other)
        ]
        assert missed == []

    assert failing(check, THRESHOLDS) == []


def test_partition_keys_stay_few():
    """Stored: one more than may differ, rounded up by a quarter at most; looked up: thrice that at most."""

    def check(size):
        words = [f"w{n}" for n in range(size)]
        keys = function("partition")
        differing = size * 800 // 9200
        assert differing < len(keys.of(form(words)).stored) <= 1.25 * (differing + 1)
        assert set(keys.of(form(words)).stored) <= set(keys.of(form(words)).probed)
        assert len(keys.of(form(words)).probed) <= 4 * (differing + 1)

    assert failing(check, [1, 11, 12, 22, 23, 99, 100, 250, 1000, 3000]) == []


def pairs_at_92(rng, count=2000):
    sizes = [
        (23 * factor, rng.randint(0, 2 * factor), 2 * factor)
        for factor in (1, 2, 3)
        for _ in range(count // 3)
    ]
    return [pair_at(rng, inter, only_a, differing - only_a) for inter, only_a, differing in sizes]


def test_minhash_finds_99_percent_at_the_threshold_and_at_lower_ones():
    def recall(keys, pairs):
        return sum(share(keys, *pair) for pair in pairs) / len(pairs)

    def check(parts, inter, differing):
        rng = random.Random(7)
        pairs = [
            pair_at(rng, inter, only_a := rng.randint(0, differing), differing - only_a) for _ in range(1000)
        ]
        assert recall(function("minhash", parts), pairs) >= 0.985  # 0.99 less three standard errors

    assert recall(function("minhash"), pairs_at_92(random.Random(20260101))) >= 0.99
    assert failing(check, [(8000, 40, 10), (5000, 20, 20), (2500, 10, 30)]) == []


@pytest.mark.slow
def test_the_bands_that_datasketch_chooses_would_miss_most_pairs():
    """The reason for 16 bands of 8 rows (C-12): the library's own 4 of 29 find less than half at J = 0.92."""
    lsh = MinHashLSH(threshold=0.92, num_perm=128)
    assert (lsh.b, lsh.r) == (4, 29)
    rng = random.Random(20260101)
    found = 0
    pairs = pairs_at_92(rng, 600)
    for number, pair in enumerate(pairs):
        one, other = (MinHash(128, seed=1, scheme="affine32") for _ in pair)
        one.update_batch(word.encode() for word in pair[0])
        other.update_batch(word.encode() for word in pair[1])
        lsh.insert(number, one)
        found += number in lsh.query(other)
    assert found / len(pairs) < 0.5


@pytest.mark.slow
def test_candidates_and_exact_jaccard_decide_like_brute_force_on_ten_thousand_claims():
    def corpus(rng, size):
        """Claims of which half are edits of an earlier one, so that near-duplicates abound."""
        words = [f"word{n}" for n in range(3000)]
        claims = []
        for _ in range(size):
            if claims and rng.random() < 0.5:
                claim = set(rng.choice(claims))
                for _ in range(rng.randint(0, 3)):
                    claim.symmetric_difference_update(
                        {rng.choice(words), rng.choice([*claim, rng.choice(words)])}
                    )
            else:
                claim = set(rng.choices(words, k=rng.randint(3, 60)))
            claims.append(frozenset(claim or {"word0"}))
        return claims

    def check(method):
        rng = random.Random(92)
        claims = corpus(rng, 10_000)
        keys = function(method)
        index = defaultdict(set)
        for number, claim in enumerate(claims):
            for key in keys.of(form(claim)).stored:
                index[key].add(number)

        def near(claim, number):
            inter = len(claim & claims[number])
            return is_near(inter, len(claim) + len(claims[number]) - inter, 9200)

        decided = 0
        for new in corpus(rng, 60)[:30] + rng.sample(claims, 120):
            candidates = set().union(*(index.get(key, ()) for key in keys.of(form(new)).probed))
            expected = {number for number in range(len(claims)) if near(new, number)}
            assert {number for number in candidates if near(new, number)} == expected
            decided += len(expected)
        assert decided > 150  # the corpus holds near-duplicates beside the claims themselves

    assert failing(check, METHODS) == []


@given(st.lists(st.text(min_size=1), min_size=1) | st.lists(st.sampled_from("abcdefghijklmnop"), max_size=80))
def test_keys_depend_on_the_set_of_words_alone(words):
    for method in METHODS:
        keys = function(method).of(form(words))
        assert keys == function(method).of(form(words[::-1] + words))
        assert keys == function(method).of(form(frozenset(words)))
        for found in keys:
            assert all(len(key) == 8 for key in found)
            assert len(set(found)) == len(found)


def test_claims_share_a_key_where_they_are_about_the_same_and_not_where_they_are_unrelated():
    def check(method):
        rng = random.Random(3)
        keys = function(method)
        assert keys.of(form([])) == keys.of(form(frozenset())) == ([], [])
        shared = [share(keys, *pair_at(rng, 5, 20, 20)) for _ in range(500)]
        assert sum(shared) <= 5
        rust, haskell = (read_form(f"The parser is written in {name}.") for name in ("Rust", "Haskell"))
        assert share(keys, rust, haskell), "of a thing that can have but one"

    assert failing(check, METHODS) == []
    # else every claim of a numbered series would be compared with all others
    tickets = [read_form(f"Ticket {number} was closed as fixed") for number in (310, 311)]
    assert not share(key_function("partition", Thresholds(9200, 8500)), *tickets)


@given(st.sets(st.text(min_size=1, max_size=80), min_size=1, max_size=30))
def test_minhash_keys_are_the_bands_of_datasketchs_own_sketch_with_and_without_numpy(tokens):
    def hash32(token):
        return int.from_bytes(token_digest(token)[:4], "little")

    sketch = MinHash(128, seed=1, scheme="affine32", hashfunc=hash32)
    sketch.update_batch(tokens)
    values = sketch.hashvalues.astype("<u4").tobytes()
    bands = [band.to_bytes(2, "little") + values[32 * band : 32 * (band + 1)] for band in range(16)]
    expected = [blake2b(band, digest_size=8, person=b"minhash-16x8").digest() for band in bands]
    assert function("minhash").of(form(tokens)).stored == expected
    with patch.object(keys_module, "_numpy", lambda: None):
        assert function("minhash").of(form(tokens)).stored == expected


@pytest.mark.slow
def test_another_process_makes_the_same_keys():
    def check(method):
        program = (
            "import sys; from groundwire.checks.dedup.keys import key_function;"
            "from groundwire.checks.dedup.form import read_form;"
            "from groundwire.checks.dedup.signature import Thresholds;"
            "k = key_function(sys.argv[1], Thresholds(9200, 8500));"
            "print(b''.join(k.of(read_form(sys.argv[2])).stored).hex())"
        )
        command = [sys.executable, "-c", program, method, PINNED]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4711"}
        printed = subprocess.run(
            command, env=env, check=True, capture_output=True, text=True, timeout=240
        ).stdout
        keys = key_function(method, Thresholds(9200, 8500)).of(read_form(PINNED))
        assert printed.strip() == b"".join(keys.stored).hex()

    assert failing(check, METHODS) == []


def test_keys_are_pinned_under_their_scheme_which_thresholds_and_methods_change():
    # keys are pinned under their scheme
    pins = ["4b1c1a64b9cb8863", "3a08b25c3baa84a0"]
    thresholds = Thresholds(9200, 8500)
    assert scheme("minhash", thresholds) == "minhash-16x8-affine32-s1/words-2/signature-7/9200-8500"
    assert scheme("partition", thresholds) == "partition-2/words-2/signature-7/9200-8500"
    assert [
        key_function(method, thresholds).of(read_form(PINNED)).stored[-1].hex() for method in METHODS
    ] == pins
    # a changed threshold or method changes the scheme: How near a rejected claim must be is no part of it; lower
    # thresholds get more bands.
    pairs = [Thresholds(*pair) for pair in product(THRESHOLDS, THRESHOLDS)]
    schemes = {scheme(method, thresholds) for method in METHODS for thresholds in pairs}
    assert len(schemes) == len(METHODS) * len(pairs)
    assert scheme("minhash", Thresholds(9200, 8500, 8000)) == scheme("minhash", Thresholds(9200, 8500, 7000))
    bands = [
        function("minhash", points).name.split("-")[1] for points in (10_000, 9200, 8500, 8000, 5000, 100)
    ]
    assert bands == ["16x8", "16x8", "16x8", "32x4", "64x2", "128x1"]


WORDS_OF_ALL_KINDS = """
the a of in to not never no is are was keeps kept runs reads opened closed locked unlocked thirty 30 40 ms days monday
2024-05-01 may vm-12 vm-13 room upper red green gate team store bucket oslo ada broker parser
""".split()  # noqa: SIM905 - a word list reads better as prose
SENTENCES = st.lists(st.sampled_from(WORDS_OF_ALL_KINDS), max_size=24).map(" ".join)


@st.composite
def edited(draw):
    words = draw(SENTENCES).split()
    other = list(words)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(other)))
        other[place : place + draw(st.integers(0, 1))] = draw(SENTENCES).split()[:1]
    return " ".join(words), " ".join(other)


@given(edited(), st.sampled_from([(9200, 8500), (8000, 9000), (10000, 7000), (6000, 6000)]))
def test_partition_finds_all_that_repeats_or_contradicts(pair, points):
    """Exact recall against brute force, of both rules."""
    one, other = map(read_form, pair)
    thresholds = Thresholds(*points)
    if compare(signature(one), signature(other), thresholds):
        assert share(key_function("partition", thresholds), one, other)
        assert share(key_function("partition", thresholds), other, one)


def test_an_unknown_method_and_a_threshold_that_one_cannot_serve_are_refused():
    for call in (key_function, scheme):
        with pytest.raises(ValueError, match="minhash, partition"):
            call("vector", Thresholds(9200))
    with pytest.raises(ValueError, match=r"at least 0\.5"):
        function("partition", 4999)
    for points in (0, -1, 10_001):
        with pytest.raises(ValueError, match="basis points"):
            function("minhash", points)
