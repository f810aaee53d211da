"""Times: RFC 3339 with any offset in, `Z` out, everything else refused; and hashes of texts in events."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.messages.base import format_time, from_milliseconds, parse_time, to_milliseconds
from groundwire.messages.events import text_hash, use_hash_key


def test_a_time_with_an_offset_is_read_and_published_in_utc():
    for written, published in [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31t12:00:00z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00-00:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00+05:30", "2026-01-31T06:30:00Z"),
        ("2026-01-31T00:00:00+14:00", "2026-01-30T10:00:00Z"),
        ("2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.500Z"),
        ("2026-01-31T12:00:00.120Z", "2026-01-31T12:00:00.120Z"),
        ("2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T12:00:00.000000Z", "2026-01-31T12:00:00Z"),
        ("0999-02-28T00:00:00Z", "0999-02-28T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
    ]:
        assert format_time(parse_time(written)) == published


def test_everything_else_is_refused():
    others = """
    now|2026-01-31|2026-01-31T12:00:00|2026-01-31 12:00:00Z|2026-01-31T12:00Z|2026-01-31T12Z|20260131T120000Z
    2026-W05-6T12:00:00Z|2026-031T12:00:00Z|2026-01-31T12:00:00,5Z|2026-01-31T12:00:00.Z|2026-01-31T12:00:00+01
    2026-01-31T12:00:00+0100|2026-01-31T12:00:00 Z|2026-02-29T00:00:00Z|2026-13-01T00:00:00Z
    2026-01-31T25:00:00Z|2026-01-31T23:59:60Z|2026-01-31T12:00:00+24:00|0000-01-01T00:00:00Z
    0001-01-01T00:00:00+01:00|9999-12-31T23:59:59-01:00|12026-01-31T12:00:00Z|-2026-01-31T12:00:00Z
    """
    for written in [
        *(text for line in others.split("\n") for text in line.strip().split("|")),
        " 2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z\n",
        "\uff12026-01-31T12:00:00Z",
        0,
        1_700_000_000,
        1.5,
        True,
        None,
        ["2026-01-31T12:00:00Z"],
        datetime(2026, 1, 31),  # noqa: DTZ001 - naive on purpose
    ]:
        with pytest.raises(ValueError, match=r"time|offset"):
            parse_time(written)


aware = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 - bounds are naive
    datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))]),
)


@given(aware)
def test_what_is_published_is_read_back_as_the_same_instant(moment):
    assert parse_time(format_time(moment)) == moment
    assert format_time(moment).endswith("Z")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_go_to_a_time_and_back(milliseconds):
    assert to_milliseconds(from_milliseconds(milliseconds)) == milliseconds


def test_a_producer_cannot_choose_a_timestamp_that_stops_the_worker():
    for timestamp in [2**63 - 1, -(2**63), 10**15, -(10**15), -1]:
        format_time(from_milliseconds(timestamp))


def test_a_texts_hash_is_the_first_twelve_digits_of_sha256_or_of_a_keyed_one_that_nobody_can_look_up():
    """S1-37."""
    assert text_hash("I feel hopeless") == "8fcb07baa023"
    use_hash_key("a secret")
    try:
        keyed = text_hash("I feel hopeless")
    finally:
        use_hash_key("")
    assert (keyed != "8fcb07baa023", len(keyed)) == (True, 12)
