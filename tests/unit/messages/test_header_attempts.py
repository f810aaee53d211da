"""How often a record has failed is counted in a header that anybody may have written."""

import pytest

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.headers import ATTEMPTS, dead_letter_headers, deferred_record
from groundwire.messages.inbound import InboundRecord


@pytest.mark.parametrize(
    ("counted", "now"),
    [
        ("0", "1"),
        ("99999", "100000"),
        ("100000", "1"),
        ("-1", "1"),
        ("²", "1"),
        ("٣", "1"),
        ("", "1"),
        ("x", "1"),
    ],
)
def test_attempts_are_counted_on_from_a_plain_number_of_five_digits_and_else_anew(
    counted: str, now: str
) -> None:
    error = RecordError(ErrorCode.INVALID_JSON, "no")
    headers = dict(dead_letter_headers(error, "t", 0, 1, [(ATTEMPTS, counted.encode())]))
    assert headers[ATTEMPTS] == now.encode()


@pytest.mark.parametrize("name", ["partition", "offset"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_deferred_records_place_is_believed_up_to_the_largest_number_that_every_reader_has(
    name: str, sign: str
) -> None:
    def came_back(number: int) -> bool:
        place = {
            "topic": "claims",
            "partition": "1",
            "offset": "2",
            "timestamp": "3",
            name: f"{sign}{number}",
        }
        headers = tuple((f"gw-origin-{part}", text.encode()) for part, text in place.items())
        record = InboundRecord("groundwire.deferred", 0, 9, 9, None, b"{}", headers)
        return deferred_record(record).topic == "claims"

    assert came_back(2**53 - 1)
    assert not came_back(2**53)
