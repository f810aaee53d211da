"""Services for every test that asks for one; unit tests ask for none."""

import pytest
from hypothesis import settings

from tests.services.fixtures import broker, redis_server

__all__ = ["broker", "redis_server"]

# a busy machine is slow, and no test is about time
settings.register_profile("groundwire", parent=settings(), deadline=None)
settings.load_profile("groundwire")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests tell with `record_property("told", ...)`: their own output is lost in other processes."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.write_line(text)
