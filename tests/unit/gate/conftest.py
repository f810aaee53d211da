"""Fixtures that the tests of the gate share."""

import pytest

from tests.unit.gate.office import Office, Topics


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def topics() -> Topics:
    return Topics()
