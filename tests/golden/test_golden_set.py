"""Every decision of the golden set comes out as it was kept, byte for byte."""

from __future__ import annotations

import pytest

from tests.golden.__main__ import differences, make, read

PARTS = ("audit", "claims", "gate", "library", "responses")


@pytest.fixture(scope="module")
def made():
    return make()


@pytest.fixture(scope="module")
def expected():
    return read()


@pytest.mark.parametrize("part", PARTS)
def test_what_is_decided_is_what_was_kept(part, made, expected):
    found = list(differences(expected[part], made[part]))
    assert not found, f"{len(found)} of {len(made[part])} records differ:\n" + "\n".join(found[:20])


def test_the_set_reaches_every_kind_of_decision(expected):
    assert tuple(expected) == PARTS
    assert sum(map(len, expected.values())) >= 2_000
