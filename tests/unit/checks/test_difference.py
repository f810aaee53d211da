"""Signatures, and in what two near-duplicates differ (S0-121, C-08)."""

import time
from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groundwire.checks.difference import SIGNATURE, Difference, difference, overlap, signature
from groundwire.checks.negations import negations
from groundwire.checks.quantities import quantities
from groundwire.checks.similarity import is_near
from groundwire.checks.tokens import tokenize

NEUTRAL = tokenize(
    "kafka redis stores claims agents topic broker worker memory reads writes index user queue"
)
FILLER = (
    "the gateway keeps each session open while clients read from primary storage and writes every audit "
    "record through one queue before workers confirm delivery to downstream systems in both regions"
)
vocabulary = st.sampled_from(
    [
        *NEUTRAL,
        "the",
        "a",
        "not",
        "never",
        "rarely",
        "30",
        "365",
        "30ms",
        "seconds",
        "$5",
        "thirty",
        "per",
        "day",
        "v2.1",
    ]
)
token_lists = st.lists(vocabulary, max_size=20)


def sign(text):
    return signature(tokenize(text))


def between(one, other):
    """The difference of two sentences inside a long claim, where they are near-duplicates."""
    a, b = sign(f"{one} {FILLER}"), sign(f"{other} {FILLER}")
    assert difference(a, b) == difference(b, a)
    return difference(a, b)


@given(token_lists, token_lists)
def test_overlap_is_that_of_the_token_sets(one, other):
    expected = (len(set(one) & set(other)), len(set(one) | set(other)))
    assert overlap(signature(one), signature(other)) == expected


@given(st.lists(st.text(min_size=1)), st.lists(st.text(min_size=1)))
def test_overlap_holds_for_any_tokens(one, other):
    assert overlap(signature(one), signature(other)) == (
        len(set(one) & set(other)),
        len(set(one) | set(other)),
    )


@given(token_lists, token_lists)
def test_difference_is_symmetric_and_none_from_a_claim_to_itself(one, other):
    a, b = signature(one), signature(other)
    assert difference(a, b) == difference(b, a)
    assert difference(a, a) is Difference.NONE


@given(st.lists(st.sampled_from(NEUTRAL), max_size=12), st.randoms(use_true_random=False))
def test_shared_words_in_another_order_differ_in_order(words, random):
    shuffled = random.sample(words, len(words))
    expected = Difference.NONE if shuffled == words else Difference.ORDER
    assert difference(signature(words), signature(shuffled)) is expected


@given(token_lists, st.randoms(use_true_random=False))
def test_permuted_tokens_differ_at_least_in_order(words, random):
    shuffled = random.sample(words, len(words))
    assume([w for w in words if w not in {"a", "the"}] != [w for w in shuffled if w not in {"a", "the"}])
    assert difference(signature(words), signature(shuffled)) is not Difference.NONE


@given(
    st.lists(st.sampled_from(NEUTRAL), min_size=1), st.lists(st.sampled_from(["cache", "cluster", "replica"]))
)
def test_words_that_only_one_claim_has_are_no_material_difference(words, added):
    assert difference(signature(words), signature([*words[:1], *added, *words[1:]])) is Difference.NONE


@given(st.lists(st.sampled_from(NEUTRAL)), st.integers(0, 30), st.sampled_from(["a", "an", "the"]))
def test_articles_count_in_the_overlap_and_not_in_the_order(words, place, article):
    with_article = [*words[:place], article, *words[place:]]
    assert difference(signature(words), signature(with_article)) is Difference.NONE
    assert overlap(signature(words), signature(with_article)) == (len(set(words)), len(set(words)) + 1)


@pytest.mark.parametrize(
    "negation", ["not", "never", "without", "no", "rarely", "cannot", "unless", "doesn't"]
)
@given(words=st.lists(st.sampled_from([*NEUTRAL, "30ms", "5", "days"])), place=st.integers(0, 30))
def test_a_negation_anywhere_is_the_difference_that_applies_first(negation, words, place):
    negated = [*words[:place], negation, *words[place:]]
    assert difference(signature(words), signature(negated)) is Difference.NEGATION


@given(st.lists(st.sampled_from(NEUTRAL)), st.integers(0, 10**6), st.integers(0, 10**6))
def test_another_number_differs_in_number_and_another_spelling_does_not(words, one, other):
    a, b = signature([*words, str(one), "users"]), signature([*words, f"{other:,}", "users"])
    assert difference(a, b) is (Difference.NONE if one == other else Difference.NUMBER)


def test_the_three_published_examples():
    """J = 0.952, 0.929 and 1.0: duplicates by word sets, contradictions to a reader."""
    plain = (
        "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november oscar papa"
    )
    more = f"{plain} quebec romeo sierra tango uniform victor whiskey"
    cases = [
        (
            f"worker retries jobs today {plain}",
            f"worker never retries jobs today {plain}",
            (20, 21),
            "negation",
        ),
        (f"records stay 30 days {more}", f"records stay 365 days {more}", (26, 28), "number"),
        ("Acme sued Globex", "Globex sued Acme", (3, 3), "order"),
    ]
    for one, other, sizes, expected in cases:
        assert overlap(sign(one), sign(other)) == sizes
        assert is_near(*sizes, 9200)
        assert difference(sign(one), sign(other)) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Pods retry failed jobs.", "Pods never retry failed jobs."),
        ("Pods do retry jobs.", "Pods don’t retry jobs."),
        ("Pods dont retry jobs.", "Pods retry jobs."),
        ("A blocking call.", "A non-blocking call."),
        ("A blocking call.", "A nonblocking call."),
        ("It works with TLS.", "It works without TLS."),
        ("Nobody may push.", "Anybody may push."),
        ("Pods often restart.", "Pods seldom restart."),
        ("Pods never restart.", "Pods rarely restart."),
        ("The flag is set.", "The flag is unset."),
        ("Traffic is encrypted.", "Traffic is unencrypted."),
        ("Auth is enabled.", "Auth is disabled."),
        ("The service is stateful.", "The service is stateless."),
        ("It tries to start.", "It fails to start."),
        ("Neither runs.", "Either runs."),
        ("If x == y we stop.", "If x != y we stop."),
        ("if ready then go", "if !ready then go"),
        ("Set do-track on.", "Set do-not-track on."),
    ],
)
def test_negations_of_english(one, other):
    assert between(one, other) is Difference.NEGATION


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Retention is 30 days.", "Retention is 365 days."),
        ("Retention is thirty days.", "Retention is 31 days."),
        ("It costs $30.", "It costs $300."),
        ("It is -5 degrees.", "It is 5 degrees."),
        ("It takes .5 s.", "It takes 5 s."),
        ("Latency <100ms.", "Latency >100ms."),
        ("Latency < 100 ms.", "Latency > 100 ms."),
        ("It needs at least 3 nodes.", "It needs at most 3 nodes."),
        ("It uses postgresql-15.", "It uses postgresql-16."),
        ("It follows ADR-003.", "It follows ADR-004."),
        ("It needs v2.1.", "It needs v2.10."),
        ("Due 2024-01-05.", "Due 2024-05-01."),
        ("A 10x20 grid.", "A 20x10 grid."),
        ("Set retries=3 timeout=30.", "Set retries=30 timeout=3."),
        ("It runs once.", "It runs twice."),
        ("About two million users.", "About two billion users."),
        ("A dozen pods.", "A hundred pods."),
        ("The second replica leads.", "The third replica leads."),
        ("Half of users.", "All of users."),
        ("Mask 0x1f here.", "Mask 0x2f here."),
        ("Some 10⁶ rows.", "Some 106 rows."),
    ],
)
def test_numbers(one, other):
    assert between(one, other) is Difference.NUMBER


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Timeout is 30ms.", "Timeout is 30s."),
        ("Timeout is 30 seconds.", "Timeout is 30 minutes."),
        ("Timeout is thirty seconds.", "Timeout is thirty hours."),
        ("It costs $30.", "It costs €30."),
        ("It costs 30 USD.", "It costs 30 EUR."),
        ("It costs USD 30.", "It costs EUR 30."),
        ("Disk of 30 GB.", "Disk of 30 GiB."),
        ("Disk of 30kb.", "Disk of 30mb."),
        ("A 30-day window.", "A 30-hour window."),
        ("A three-day window.", "A three-week window."),
        ("Heat to 20°C.", "Heat to 20°F."),
        ("It grew 5%.", "It grew 5 points."),
        ("Read 100 MB/s there.", "Read 100 MB/min there."),
        ("We allow 100 requests per second.", "We allow 100 requests per minute."),
        ("Backups run daily.", "Backups run hourly."),
        ("Backups run every day.", "Backups run every week."),
        ("Backups run twice a day.", "Backups run twice a week."),
        ("Read in 30ms, write in 5s.", "Read in 30s, write in 5ms."),
        ("It runs at 3 pm.", "It runs at 3am."),
        ("The limit is in milliseconds.", "The limit is in seconds."),
    ],
)
def test_units(one, other):
    assert between(one, other) is Difference.UNIT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Acme sued Globex.", "Globex sued Acme."),
        ("Timeout is 30 and limit is 5.", "Timeout is 5 and limit is 30."),
        ("Redis does not persist but Kafka does persist.", "Redis does persist but Kafka does not persist."),
        ("We moved from MySQL to Postgres.", "We moved from Postgres to MySQL."),
    ],
)
def test_order(one, other):
    assert between(one, other) is Difference.ORDER


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Pods don't retry.", "Pods do not retry."),
        ("Pods can't retry.", "Pods cannot retry."),
        ("Timeout is 30ms.", "Timeout is 30 ms."),
        ("Timeout is 30 seconds.", "Timeout is thirty seconds."),
        ("A 30-day window.", "A window of 30 days."),
        ("Some 1,000 users.", "Some 1000 users."),
        ("It costs $30.", "It costs 30 dollars."),
        ("It grew 5%.", "It grew 5 percent."),
        ("It went up 5%.", "It went down 5%."),
        ("It follows ADR-003.", "It follows ADR-3."),
        ("It needs more than 3 nodes.", "It needs over 3 nodes."),
        ("Backups run daily.", "Backups run per day."),
        ("The union of units is unique.", "This union of units is unique."),
        ("Take a look at min values.", "Take one's look at min values."),
        ("The cache is fast.", "A cache is fast."),
        ("The cache is very fast.", "The cache is fast."),
    ],
)
def test_what_says_the_same_is_no_difference(one, other):
    assert between(one, other) is Difference.NONE


def test_a_unit_word_counts_only_with_a_number_or_a_rate():
    words = tokenize("The second replica wins 3 in a row by the minute, a day before 5 times")
    assert quantities(words) == (["2th", "3", "5"], ["5 x"])


@given(token_lists)
def test_the_format_is_three_digests_and_one_id_per_token(tokens):
    """The state store reads these bytes too."""
    made = signature(tokens)
    ids = [made[start : start + 8] for start in range(12, len(made), 8)]
    assert len(made) == 12 + 8 * len(tokens)
    for token, found in zip(tokens, ids, strict=True):
        digest = blake2b(token.encode(), digest_size=8).digest()
        assert found == bytes([digest[0] & ~1 | (token in ("a", "an", "the"))]) + digest[1:]


WORDS_THAT_COUNT = """
! !ready != isn't un-set non-null w/o careless unsafe not/never fails to rarely daily per every day in ms a an twice
times second twenty-one three-day one-in- -5 ½ 5s ٣ dozen hundred usd half up than at least most
""".split()  # noqa: SIM905 - a word list reads better as prose


@given(st.lists(st.one_of(st.sampled_from(WORDS_THAT_COUNT), st.text(min_size=1)), max_size=12))
def test_the_header_misses_no_negation_number_or_unit_that_is_among_the_tokens(words):
    tokens = tokenize(" ".join(words))
    numbers, units = quantities(tokens)
    expected = [
        blake2b("\0".join(sorted(members)).encode("utf-8", "surrogatepass"), digest_size=4).digest()
        for members in (negations(tokens), numbers, units)
    ]
    assert signature(tokens)[:12] == b"".join(expected)


def test_the_header_digests_are_those_of_sorted_members_joined_by_nul():
    def digest(*members):
        return blake2b("\0".join(members).encode(), digest_size=4).digest()

    made = sign("Never wait 30 ms or 5s, rarely 7 without")
    assert made[:12] == digest("not", "not", "rarely") + digest("30", "5", "7") + digest("30 ms", "5 s")
    assert signature([]) == digest() * 3


def test_signatures_are_pinned_under_their_id():
    """If this fails because the rules changed, SIGNATURE must change with them."""
    assert SIGNATURE == "signature-2"
    made = sign("The worker never retries after 30 ms.").hex()
    assert made[:24] == "b8049a52005792a45f3197ca"
    assert made[24:] == (
        "5fdaab6c90973a2e728ab1ab0ab85dd3bc70011493e2b280967c3f570047b961"
        "24042d77010047f398736a31cd475b24ca5fa117424ca5c5"
    )


@pytest.mark.parametrize("malformed", [b"", b"x" * 11, b"x" * 13, b"x" * 19])
def test_bytes_that_are_no_signature_are_refused(malformed):
    good = signature(["a"])
    for call in (overlap, difference):
        with pytest.raises(ValueError, match="signature"):
            call(malformed, good)
        with pytest.raises(ValueError, match="signature"):
            call(good, malformed)


@pytest.mark.parametrize("end", ["5", "a5"])
@pytest.mark.parametrize(
    "piece", ["<", "1-", "hundred ", "million ", "9", "!1a=", "-", "(a", "$", "un", "twenty-", "1,000 "]
)
def test_a_text_made_to_be_slow_is_read_in_time(piece, end):
    """The longest content: a quadratic expression takes seconds of processor time, these a tenth."""
    text = (piece * 20_000)[:19_998] + end
    started = time.process_time()
    assert len(sign(text)) == 12 + 8 * len(tokenize(text))
    assert time.process_time() - started < 1


def test_repeats_are_kept():
    twice = signature(["kafka", "kafka"])
    assert Counter(twice[start : start + 8] for start in (12, 20)).most_common(1)[0][1] == 2
    assert difference(twice, signature(["kafka"])) is Difference.ORDER
