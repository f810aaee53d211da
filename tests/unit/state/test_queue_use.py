"""Which buckets of a cluster are asked at once."""

import pytest

from groundwire.state.queue_use import _place, _side_by_side
from tests.state.claims import Claims

CLAIMS = Claims()
PARENT = CLAIMS.ask("parent").subject


@pytest.mark.parametrize(
    ("asked", "at_once"),
    [
        ({"tier": 2}, 1),
        ({"capped": True}, 1),
        ({"failed": True}, 1),
        ({"parents": [PARENT]}, 1),
        ({}, 9),
        ({"tier": 3}, 9),
    ],
)
def test_where_few_places_are_left_one_bucket_of_those_that_ask_for_one_is_asked_at_a_time(asked, at_once):
    requests = {bucket: [CLAIMS.ask(f"c{bucket}", user=f"user-{bucket}", **asked)] for bucket in range(9)}
    room = dict.fromkeys(_place(requests[0][0]), 10**6) | {b"total": 2}
    assert len(_side_by_side(requests, room)) == at_once
