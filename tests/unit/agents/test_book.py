"""The book of a partition: what may start, what may be committed, and what a crash isolates."""

from __future__ import annotations

from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.app import ROLES
from agents.book import ALONE, LARGE, READ_AHEAD, Entry, PartitionBook
from agents.partitions import Partitions
from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark


def record(offset: int, key: bytes | None = b"a", size: int = 1) -> InboundRecord:
    return InboundRecord("t", 0, offset, 0, key, b"x" * size)


def book_of(*rows: tuple[bytes | None, int], max_bytes: int | None = None, first: int = 0) -> PartitionBook:
    book = PartitionBook(max_bytes)
    book.add([record(first + at, key, size) for at, (key, size) in enumerate(rows)], first + len(rows))
    return book


def offsets(batch: list[Entry]) -> list[int]:
    return [entry.record.offset for entry in batch]


def test_small_records_pass_large_ones_of_other_keys_alone():
    """Each row: keys and sizes, bytes of a batch, the first batch of small ones, batches of large ones."""
    a, b, none = (b"a", 1), (b"b", 1), (None, 1)
    large = (b"a", LARGE)
    sized = [(b"a", 60), (b"b", 30), (b"c", 30), (b"d", 30), (b"e", 10)]
    rows = [
        ([large, b, large, (b"c", LARGE - 1)], None, [1, 3], [[0], [2]]),
        ([a, none, b], None, [0, 1, 2], []),
        ([large, none, b], None, [2], [[0]]),
        ([large, a, b], None, [2], [[0]]),
        (sized, 80, [1, 2, 4], [[0], [3]]),
    ]
    for given_rows, max_bytes, small, behind in rows:
        book = book_of(*given_rows, max_bytes=max_bytes)
        assert offsets(book.take(large=False)) == small
        found = []
        while batch := book.take(large=True):
            found.append(offsets(batch))
            book.done(batch)
        assert found == behind


def test_responses_from_16_kb_on_hold_up_no_smaller_ones():
    book = Partitions(Mock(role=ROLES["responses"], clock=lambda: 0.0)).new_book()
    book.add([record(0, b"a", 16_000), record(1, b"b", 15_999)], 2)
    assert [offsets(book.take(large=large)) for large in (False, True)] == [[1], [0]]


def test_a_partition_is_read_on_past_large_ones_up_to_so_many_bytes():
    book = book_of((b"a", LARGE), (b"b", 1))
    assert not book.has_room
    batch = book.take(large=False)
    assert not book.has_room
    book.done(batch)
    assert book.take(large=False) == []
    assert (book.has_room, book.committable) == (True, 0)
    book.add([record(2, b"a", READ_AHEAD)], 3)
    assert not book.has_room
    book.done(book.take(large=True))
    assert book.committable == 2
    book.done(book.take(large=True))
    assert book.take(large=False) == []
    assert (book.has_room, book.committable) == (True, 3)


def test_keys_and_headers_count_as_read_ahead():
    book = PartitionBook()
    headers = [("big", b"x" * READ_AHEAD), ("none", None)]
    book.add([InboundRecord("t", 0, 0, 0, b"a", b"x" * LARGE, headers)], 1)
    assert book.take(large=False) == []
    assert not book.has_room
    book.done(book.take(large=True))
    assert book.take(large=False) == []
    assert book.has_room


def test_small_records_that_waited_over_several_fetches_start_within_the_bytes_of_a_batch():
    book = book_of((b"a", 90), max_bytes=80)
    for at in range(1, 5):
        book.add([record(at, b"a", 30)], at + 1)
    book.add([record(5, b"b", 30)], 6)
    assert offsets(book.take(large=False)) == [5]
    book.done([*book.undone][-1:])
    book.done(book.take(large=True))
    assert [offsets(book.take(large=False)), book.take(large=False)] == [[1, 2], []]


def test_a_record_that_is_fetched_twice_is_kept_once():
    book = book_of((b"a", 1), (b"b", 1))
    batch = book.take(large=False)
    book.add([record(0), record(1, b"b"), record(2)], 3)
    assert offsets(book.take(large=False)) == []
    book.done(batch)
    assert (offsets(book.take(large=False)), book.committable) == ([2], 2)


def test_only_what_has_started_is_marked_with_the_most_crashes():
    book = PartitionBook()
    book.isolate(InFlightMark(2, 2, 1))
    book.add([record(0, b"a", LARGE), record(1, b"b")], 2)
    large, small = book.take(large=True), book.take(large=False)
    assert (offsets(large), offsets(small), book.mark) == ([0], [], None)
    large[0].started = True
    assert book.mark == InFlightMark(0, 0, 0)
    book.done(large)
    book.add([record(2, b"c"), record(3, b"d")], 4)
    batch = book.take(large=False)
    for entry in batch:
        entry.started = True
    assert (offsets(batch), book.mark) == ([1, 2], InFlightMark(1, 2, 1))
    book.put_back(batch)
    assert book.mark is None


def test_offsets_behind_markers_are_committed_once_everything_before_them_is_done():
    book = PartitionBook()
    book.pass_over(4, first=3)
    assert (book.first_offset, book.committable) == (3, 4)
    book.add([record(4)], 5)
    book.pass_over(7, first=5)
    assert book.committable == 4
    book.done(book.take(large=False))
    assert book.committable == 7


def test_what_was_in_flight_at_a_crash_is_isolated():
    """Each row: the mark that was left, and the batches of ten records, with their crashes."""
    rows = [
        (None, [(0, 9, 0)]),
        (InFlightMark(0, 4, 1), [(0, 4, 1), (5, 9, 0)]),
        (InFlightMark(3, 4, 2), [(0, 2, 0), (3, 3, 2), (4, 4, 2), (5, 9, 0)]),
    ]
    for left, expected in rows:
        book = PartitionBook()
        book.isolate(left)
        book.add([record(at, b"%d" % at) for at in range(10)], 10)
        found = []
        while batch := book.take(large=False):
            found.append((*(offsets(batch)[at] for at in (0, -1)), max(entry.crashes for entry in batch)))
            assert left is None or not book.take(large=True)
            book.done(batch)
        assert found == expected


def test_suspects_wait_for_nothing_beside_them():
    book = PartitionBook()
    book.add([record(0, b"a", LARGE), record(1, b"b")], 2)
    book.isolate(InFlightMark(0, 1, 1))
    batch = book.take(large=True)
    assert (offsets(batch), book.take(large=False)) == ([0], [])
    book.done(batch)
    assert offsets(book.take(large=False)) == [1]


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(1, 5),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
)
def test_every_suspect_carries_its_crashes_and_runs_alone_from_the_second_on(first, more, crashes, sizes):
    left, begin = InFlightMark(first, first + more, crashes), 0
    book = PartitionBook()
    book.isolate(left)
    done: list[int] = []
    for size in sizes:
        book.add([record(at, b"%d" % at) for at in range(begin, begin + size)], begin + size)
        begin += size
        while batch := book.take(large=False):
            for entry in batch:
                suspect = left.first <= entry.record.offset <= left.last
                assert entry.crashes == (crashes if suspect else 0)
                assert not suspect or crashes < ALONE or len(batch) == 1
            done += offsets(batch)
            book.done(batch)
    assert done == list(range(begin))


class Histories(RuleBasedStateMachine):
    """Any order of fetches, starts, ends and delays, beside what a list of all records says."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = PartitionBook(100, 4, due=lambda record: record.timestamp, clock=lambda: self.now)
        self.records: list[InboundRecord] = []
        self.running: list[list[Entry]] = []
        self.done: list[int] = []

    @rule(
        rows=st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", b"c", None]), st.sampled_from([1, 60, LARGE]), st.integers(0, 5)
            ),
            min_size=1,
            max_size=6,
        )
    )
    def fetch(self, rows) -> None:
        first = len(self.records)
        fetched = [
            InboundRecord("t", 0, first + at, due, key, b"x" * size)
            for at, (key, size, due) in enumerate(rows)
        ]
        self.records += fetched
        self.book.add(fetched, len(self.records))

    @rule(large=st.booleans(), started=st.booleans())
    def start(self, large, started) -> None:
        if any(batch[0].large == large for batch in self.running):
            return
        batch = self.book.take(large=large)
        undone = [one for one in self.records if one.offset not in self.done]
        for entry in batch:
            taken = {one.record.offset for one in batch}
            earlier = [one for one in undone if one.offset < entry.record.offset and one.offset not in taken]
            assert entry.record.key not in {one.key for one in earlier}
            assert entry.record.key is not None or not earlier
            assert entry.record.timestamp <= self.now
            entry.started = started
        if batch:
            assert len(batch) <= 4
            assert len(batch) == 1 or sum(entry.size for entry in batch) <= 100
            self.running.append(batch)

    @precondition(lambda self: self.running)
    @rule(back=st.booleans(), which=st.integers(0, 1))
    def end(self, back, which) -> None:
        batch = self.running.pop(which % len(self.running))
        if back:
            self.book.put_back(batch)
        else:
            self.book.done(batch)
            self.done += offsets(batch)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds) -> None:
        self.now += seconds

    @invariant()
    def agrees(self) -> None:
        undone = [one.offset for one in self.records if one.offset not in self.done]
        running = sorted(e.record.offset for batch in self.running for e in batch if e.started)
        assert self.book.committable == (undone[0] if undone else len(self.records) or None)
        assert self.book.waits == (len(undone) > sum(map(len, self.running)))
        mark = self.book.mark
        assert (mark and (mark.first, mark.last)) == ((running[0], running[-1]) if running else None)

    def teardown(self) -> None:
        """Whatever came before, everything is done in the end, each record once and each key in its order."""
        for batch in self.running:
            self.book.put_back(batch)
        self.now = 1e9
        while batch := self.book.take(large=False) or self.book.take(large=True):
            self.book.done(batch)
            self.done += offsets(batch)
        assert sorted(self.done) == list(range(len(self.records)))
        for key in {one.key for one in self.records}:
            of_key = [at for at in self.done if self.records[at].key == key]
            assert of_key == sorted(of_key)


TestHistories = Histories.TestCase
