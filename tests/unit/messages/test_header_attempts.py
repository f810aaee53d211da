"""How often a record has failed is counted in a header that anybody may have written."""

import pytest

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.headers import ATTEMPTS, dead_letter_headers


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
