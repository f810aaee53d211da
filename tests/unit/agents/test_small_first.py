"""The order within a batch: small records do not wait for large ones of other keys, and a key keeps its order."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from agents.partitions import LARGE, parts_of, small_first
from groundwire.messages.headers import InboundRecord

KEYS = st.sampled_from([b"acme:ada", b"acme:bob", b"hooli:eve"])
SIZES = st.sampled_from([10, LARGE - 1, LARGE, 2 * LARGE])


def batch(*given: tuple[bytes | None, int]) -> list[InboundRecord]:
    return [
        InboundRecord("llm-responses", 0, offset, 0, key, b"x" * size, ())
        for offset, (key, size) in enumerate(given)
    ]


def offsets(*parts: list[InboundRecord]) -> list[list[int]]:
    return [[record.offset for record in part] for part in parts]


def test_small_records_go_before_large_ones_of_other_keys() -> None:
    records = batch((b"a", LARGE), (b"b", 1), (b"a", LARGE), (b"c", LARGE - 1))
    assert offsets(*small_first(records)) == [[1, 3], [0, 2]]


def test_a_batch_without_large_records_stays_whole() -> None:
    assert offsets(*small_first(batch((b"a", 1), (None, 1), (b"b", 1)))) == [[0, 1, 2], []]


def test_records_without_a_key_do_not_pass_a_large_one() -> None:
    assert offsets(*small_first(batch((b"a", LARGE), (None, 1), (b"b", 1)))) == [[2], [0, 1]]


def test_small_records_wait_for_a_large_one_of_their_own_key_alone() -> None:
    assert offsets(*small_first(batch((b"a", LARGE), (b"a", 1), (b"b", 1)))) == [[2], [0, 1]]


def test_what_follows_a_large_one_of_an_earlier_batch_in_its_key_stays_behind_it() -> None:
    assert offsets(*small_first(batch((b"a", 1), (b"b", 1), (None, 1)), held={b"a"})) == [[1], [0, 2]]


def test_the_smallest_records_that_fit_together_go_first_the_earliest_of_equal_ones() -> None:
    records = batch((b"a", 60), (b"b", 30), (b"c", 30), (b"d", 30), (b"e", 10))
    assert offsets(*small_first(records, 80)) == [[1, 2, 4], [0, 3]]


def test_what_is_behind_runs_in_parts_that_fit_together_and_alone_where_nothing_does() -> None:
    records = batch((b"a", 60), (b"b", 30), (b"c", 30), (b"d", 90), (b"e", 10))
    assert offsets(*parts_of(records, 70)) == [[0], [1, 2], [3], [4]]
    assert offsets(*parts_of(records, None)) == [[0], [1], [2], [3], [4]]


@given(
    st.lists(st.tuples(KEYS, SIZES), min_size=1, max_size=20),
    st.sampled_from([None, 15, LARGE, 3 * LARGE]),
)
def test_every_record_is_processed_once_and_those_of_a_key_in_their_order(
    given: list[tuple[bytes, int]], most: int | None
) -> None:
    records = batch(*given)
    first, behind = small_first(records, most)
    done = [*first, *chain.from_iterable(parts_of(behind, most))]
    assert sorted(record.offset for record in done) == list(range(len(records)))
    for key in {key for key, _ in given}:
        of_key = [record.offset for record in done if record.key == key]
        assert of_key == sorted(of_key)
