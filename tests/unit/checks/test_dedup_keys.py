"""Index keys: what shares a key is compared, so recall is all that matters (S0-117, S0-119, S0-120, C-12)."""

import os
import random
import subprocess
import sys
from collections import defaultdict
from hashlib import blake2b
from itertools import combinations

import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup_keys import key_function, scheme
from groundwire.checks.similarity import is_near
from groundwire.checks.tokens import token_digest, tokenize

METHODS = ["minhash", "partition"]
THRESHOLDS = [5000, 6667, 8000, 9200, 9500, 9999, 10000]
PINNED = tokenize("per adr-003 we use kafka for claims redis for state and faust to decide")


def pair_at(rng, inter, only_a, only_b):
    """Two token sets of random words with the given overlap."""
    words = [f"{rng.getrandbits(40):x}" for _ in range(inter + only_a + only_b)]
    return set(words[: inter + only_a]), set(words[:inter] + words[inter + only_a :])


def share(keys, stored, probed):
    return not set(keys.stored(stored)).isdisjoint(keys.probed(probed))


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
    keys = key_function("partition", parts)
    assert share(keys, one, other)
    assert share(keys, other, one)


@pytest.mark.parametrize("parts", THRESHOLDS)
def test_partition_agrees_with_brute_force_on_small_sets(parts):
    """All subsets of a few words, where parts are often empty: a leftover pair would be a lost duplicate."""
    keys = key_function("partition", parts)
    subsets = [set(chosen) for size in range(1, 7) for chosen in combinations("abcdef", size)]
    missed = [
        (one, other)
        for one in subsets
        for other in subsets
        if is_near(len(one & other), len(one | other), parts) and not share(keys, one, other)
    ]
    assert missed == []


@pytest.mark.parametrize("size", [1, 11, 12, 22, 23, 99, 100, 250, 1000, 3000])
def test_partition_keys_stay_few(size):
    """Stored: one more than may differ, rounded up by a quarter at most; looked up: thrice that at most."""
    words = [f"w{n}" for n in range(size)]
    keys = key_function("partition", 9200)
    differing = size * 800 // 9200
    assert differing < len(keys.stored(words)) <= 1.25 * (differing + 1)
    assert set(keys.stored(words)) <= set(keys.probed(words))
    assert len(keys.probed(words)) <= 3 * (differing + 1)


def recall(keys, rng, pairs):
    found = [share(keys, *pair) for pair in pairs]
    return sum(found) / len(found)


def pairs_at_92(rng, count=2000):
    """Pairs at exactly J = 0.92: 23/25, 46/50 and 69/75, the differing words on either side."""
    sizes = [
        (23 * factor, rng.randint(0, 2 * factor), 2 * factor)
        for factor in (1, 2, 3)
        for _ in range(count // 3)
    ]
    return [pair_at(rng, inter, only_a, differing - only_a) for inter, only_a, differing in sizes]


def test_minhash_finds_99_percent_at_the_threshold():
    rng = random.Random(20260101)
    assert recall(key_function("minhash", 9200), rng, pairs_at_92(rng)) >= 0.99


@pytest.mark.parametrize(("parts", "inter", "differing"), [(8000, 40, 10), (5000, 20, 20), (2500, 10, 30)])
def test_minhash_finds_99_percent_at_lower_thresholds_too(parts, inter, differing):
    rng = random.Random(7)
    pairs = [
        pair_at(rng, inter, only_a := rng.randint(0, differing), differing - only_a) for _ in range(1000)
    ]
    assert recall(key_function("minhash", parts), rng, pairs) >= 0.985  # 0.99 less three standard errors


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


@pytest.mark.parametrize("method", METHODS)
def test_candidates_and_exact_jaccard_decide_like_brute_force_on_ten_thousand_claims(method):
    rng = random.Random(92)
    claims = corpus(rng, 10_000)
    keys = key_function(method, 9200)
    index = defaultdict(set)
    for number, claim in enumerate(claims):
        for key in keys.stored(claim):
            index[key].add(number)

    def near(claim, number):
        inter = len(claim & claims[number])
        return is_near(inter, len(claim) + len(claims[number]) - inter, 9200)

    decided = 0
    for new in corpus(rng, 60)[:30] + rng.sample(claims, 120):
        candidates = set().union(*(index.get(key, ()) for key in keys.probed(new)))
        expected = {number for number in range(len(claims)) if near(new, number)}
        assert {number for number in candidates if near(new, number)} == expected
        decided += len(expected)
    assert decided > 150  # the corpus holds near-duplicates beside the claims themselves


@pytest.mark.parametrize("method", METHODS)
@given(words=st.lists(st.text(min_size=1), min_size=1))
def test_keys_depend_on_the_set_of_words_alone(method, words):
    keys = key_function(method, 9200)
    for look in (keys.stored, keys.probed):
        assert look(words) == look(words[::-1] + words) == look(frozenset(words))
        assert all(len(key) == 8 for key in look(words))
        assert len(set(look(words))) == len(look(words))


@pytest.mark.parametrize("method", METHODS)
def test_without_words_there_are_no_keys(method):
    keys = key_function(method, 9200)
    assert keys.stored([]) == []
    assert keys.probed(frozenset()) == []


@pytest.mark.parametrize("method", METHODS)
def test_unrelated_claims_share_no_key(method):
    rng = random.Random(3)
    keys = key_function(method, 9200)
    shared = [share(keys, *pair_at(rng, 5, 20, 20)) for _ in range(500)]
    assert sum(shared) <= 5


@given(st.sets(st.text(min_size=1, max_size=80), min_size=1, max_size=30))
def test_minhash_keys_are_the_bands_of_datasketchs_own_sketch(tokens):
    def hash32(token):
        return int.from_bytes(token_digest(token)[:4], "little")

    sketch = MinHash(128, seed=1, scheme="affine32", hashfunc=hash32)
    sketch.update_batch(tokens)
    values = sketch.hashvalues.astype("<u4").tobytes()
    bands = [band.to_bytes(2, "little") + values[32 * band : 32 * (band + 1)] for band in range(16)]
    expected = [blake2b(band, digest_size=8, person=b"minhash-16x8").digest() for band in bands]
    assert key_function("minhash", 9200).stored(tokens) == expected


@given(
    st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=90), st.sampled_from([9200, 9500, 9999])
)
def test_partition_keys_are_hashes_of_the_tokens_dealt_into_parts(tokens, parts):
    digests = sorted(token_digest(token) for token in set(tokens))
    count = len(digests) * (10_000 - parts) // parts + 1
    expected = []
    for part in range(count):
        held = [digest for digest in digests if int.from_bytes(digest, "little") % count == part]
        data = b"".join([count.to_bytes(4, "little"), part.to_bytes(4, "little"), *held])
        expected.append(blake2b(data, digest_size=8, person=b"partition-1").digest())
    assert key_function("partition", parts).stored(tokens) == expected


@pytest.mark.parametrize("method", METHODS)
@given(st.lists(st.sampled_from("abcdefghijklmnop"), max_size=80))
def test_both_are_the_keys_stored_and_the_keys_looked_up(method, tokens):
    keys = key_function(method, 9200)
    assert keys.both(tokens) == (keys.stored(frozenset(tokens)), keys.probed(frozenset(tokens)))


@pytest.mark.parametrize("method", METHODS)
def test_another_process_makes_the_same_keys(method):
    program = (
        "import sys; from groundwire.checks.dedup_keys import key_function;"
        "k = key_function(sys.argv[1], 9200); print(b''.join(k.stored(set(sys.argv[2:]))).hex())"
    )
    command = [sys.executable, "-c", program, method, *PINNED]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4711"}
    printed = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=240).stdout
    assert printed.strip() == b"".join(key_function(method, 9200).stored(PINNED)).hex()


def test_keys_are_pinned_under_their_scheme():
    """If this fails because keys changed (or a library did), the name of the key function must change."""
    assert scheme("minhash", 9200) == "minhash-16x8-affine32-s1/words-1/signature-2/9200"
    assert [key.hex() for key in key_function("minhash", 9200).stored(PINNED)][:3] == [
        "49512d6212879787",
        "b19330dcdc8442de",
        "765b9982f81039ea",
    ]
    assert scheme("partition", 9200) == "partition-1/words-1/signature-2/9200"
    assert [key.hex() for key in key_function("partition", 9200).stored(PINNED)] == [
        "2795bbd9ee37689a",
        "d9d45b30147734f2",
    ]


def test_a_changed_threshold_or_method_changes_the_scheme():
    schemes = {scheme(method, parts) for method in METHODS for parts in THRESHOLDS}
    assert len(schemes) == len(METHODS) * len(THRESHOLDS)


def test_lower_thresholds_get_more_bands():
    names = [
        key_function("minhash", parts).name.split("-")[1] for parts in (10_000, 9200, 8500, 8000, 5000, 100)
    ]
    assert names == ["16x8", "16x8", "16x8", "32x4", "64x2", "128x1"]


def test_an_unknown_method_is_refused_with_the_choices():
    for call in (key_function, scheme):
        with pytest.raises(ValueError, match="minhash, partition"):
            call("vector", 9200)


def test_a_threshold_that_a_method_cannot_serve_is_refused():
    with pytest.raises(ValueError, match=r"at least 0\.5"):
        key_function("partition", 4999)
    for parts in (0, -1, 10_001):
        with pytest.raises(ValueError, match="ten-thousandths"):
            key_function("minhash", parts)
