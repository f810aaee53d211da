"""A short run of the fault suite, with one fault of most kinds."""

from __future__ import annotations

import pytest

from tests.faults.__main__ import main

KINDS = (
    "kill_worker",
    "stop_worker",
    "kill_broker",
    "cut_broker",
    "kill_redis",
    "freeze_redis",
    "fill_queue",
)


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_nothing_let_through_while_workers_broker_and_redis_break():
    assert main(["--seed", "1", "--minutes", "0.75", "--every", "5", "--only", *KINDS]) == 0
