"""Services for every test that asks for one; unit tests ask for none."""

import faulthandler
import gc
import signal
from collections.abc import Generator, Iterator
from functools import partial
from unittest.mock import patch

import pytest
import structlog
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from tests.services.fixtures import broker, redis_cluster, redis_server

__all__ = ["broker", "redis_cluster", "redis_server"]

# A busy machine is slow, and no test is about time. `make test-all` takes the profile with more examples.
settings.register_profile("groundwire", deadline=None, max_examples=20)
settings.register_profile("groundwire-full", deadline=None, max_examples=200)
settings.load_profile("groundwire")


# A shell's background job ignores Ctrl-C, and so would every program that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def loggers_are_not_kept() -> Iterator[None]:
    """Whichever test configures logs first, those that listen later hear what is said then."""
    with patch.object(structlog, "configure", partial(_configure, structlog.configure)):
        yield


@pytest.fixture(autouse=True)
def structlog_is_left_unconfigured() -> Iterator[None]:
    """Whether structlog is configured decides where the library logs; `capture_logs` configures it too."""
    yield
    structlog.reset_defaults()


def _configure(configure, **settings: object) -> None:
    configure(**{**settings, "cache_logger_on_first_use": False})


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests themselves out of what garbage is looked for in: a second each time, on a busy machine."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """End the process of a test that has failed and hangs as it is torn down: pytest watches it no longer."""
    seconds = float(node.config.getini("faulthandler_timeout") or 0)
    if seconds and isinstance(node, pytest.Item):
        stderr = node.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(seconds, file=stderr, exit=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests tell with `record_property("told", ...)`: their own output is lost in other processes."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.write_line(text)
