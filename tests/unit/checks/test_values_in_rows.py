"""Values that stand in a row share what stands beside the row, whichever place each of them has in it."""

from __future__ import annotations

from groundwire.checks.values.answer import check_values
from tests.unit.checks.tables import failing


def test_values_of_one_row_are_supported_in_any_order_and_each_by_itself():
    cases = [
        ("It serves 5, 10 and 20 users.", "It serves 20, 10 and 5 users."),
        ("It serves 10 users.", "It serves 5, 10 and 20 users."),
        ("It retries 3 or 5 times.", "It retries 5 or 3 times."),
        ("Ports 80 and 443 are open.", "Ports 443 and 80 are open."),
    ]  # fmt: skip

    def check(answer, source):
        found = check_values(answer, [source])
        assert found.found
        assert not found.unsupported

    assert failing(check, cases) == []


def test_a_value_that_is_not_in_the_row_is_unsupported() -> None:
    found = check_values("It serves 5, 10 and 30 users.", ["It serves 20, 10 and 5 users."])
    assert [value.text for value in found.unsupported] == ["30"]


def test_where_names_stand_in_a_row_too_each_value_belongs_to_its_own_name() -> None:
    source = "Workers and readers are limited to 5 and 10 respectively."
    assert not check_values(source, [source]).unsupported
    swapped = "Workers and readers are limited to 10 and 5 respectively."
    assert check_values(swapped, [source]).unsupported
