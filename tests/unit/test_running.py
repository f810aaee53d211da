"""A worker while it starts and runs: what it loads, what its connections are called, and how much it logs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest
from click.testing import CliRunner

from agents.__main__ import main
from agents.app import build_app
from groundwire import __version__
from groundwire.config import Settings
from groundwire.kafka import client_name, name_client
from tests.unit.docs.pages import ROOT


def python(*words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env=environment
    )


def stderr_of(program: str) -> str:
    """Run a program whose logs are configured for a console."""
    configured = 'from groundwire.logs import configure_logs\nconfigure_logs("console", "info")\n'
    return python("-c", configured + textwrap.dedent(program)).stderr


def test_connections_are_called_after_deployment_and_role() -> None:
    try:
        for prefix, name in [("groundwire.", "groundwire.claims"), ("eu-", "eu.claims"), ("", "claims")]:
            app = build_app("claims", Settings(topic_prefix=prefix))
            assert app.conf.broker_client_id == client_name() == name
    finally:
        name_client("groundwire", "")


@pytest.mark.slow
def test_sighup_logs_everything_until_it_comes_again() -> None:
    """Loggers that were used before follow, too."""
    program = """
        import os, signal, structlog
        from agents.process import _toggle_debug
        log = structlog.get_logger()
        signal.signal(signal.SIGHUP, lambda *_: _toggle_debug())
        for name in ("first", "second", "third"):
            log.debug(name)
            os.kill(os.getpid(), signal.SIGHUP)
    """
    said = stderr_of(program)
    told = [line.split("] ")[1].split() for line in said.splitlines()]
    assert [words[0] for words in told] == ["log.level", "second", "log.level", "log.level"]
    assert [words[1:] for words in told if words[0] == "log.level"] == [
        ["now=DEBUG"],
        ["now=INFO"],
        ["now=DEBUG"],
    ]


@pytest.mark.slow
def test_a_broker_that_is_away_is_one_line_of_all_parts_of_its_client() -> None:
    program = """
        import logging
        away = "NodeNotReadyError: Attempt to send a request to node which is not ready (node id 1)."
        logging.getLogger("aiokafka").error("Unable connect to node with id %s: %s", 1, "refused")
        logging.getLogger("aiokafka.consumer.fetcher").error("Failed fetch messages from %s: %s", 1, away)
        logging.getLogger("aiokafka.producer.sender").warning("Got error produce response: %s", away)
        logging.getLogger("aiokafka").error("Unable to update metadata from %s", [1])
        logging.getLogger("aiokafka.consumer.group_coordinator").warning("Something %s", "else")
    """
    said = stderr_of(program)
    assert ["Unable connect" in line for line in said.splitlines()] == [True, False]


def test_a_connection_that_failed_after_nobody_waited_for_it_is_one_line_without_a_traceback() -> None:
    """An error of the system that no connection raised keeps its traceback."""
    program = """
        import logging, ssl
        for kind in (ConnectionResetError, TimeoutError, ssl.SSLEOFError, FileNotFoundError, OSError, ValueError):
            try:
                raise kind("gone")
            except Exception as raised:
                logging.getLogger("asyncio").error(f"never retrieved: {raised!r}", exc_info=raised)
    """
    said = stderr_of(program)
    kept = [part.rstrip().rpartition("\n")[2] for part in said.split("Traceback")[:-1]]
    told = [line.partition("never retrieved: ")[2].partition("(")[0] for line in kept]
    assert told == ["FileNotFoundError", "OSError", "ValueError"]
    assert said.count("never retrieved") == 6


@pytest.mark.slow
def test_a_connection_that_closes_while_uvloop_writes_to_it_is_one_line_without_a_traceback() -> None:
    program = """
        import asyncio, logging, os, uvloop

        async def write() -> None:
            pipe = os.fdopen(os.pipe()[1], "wb", 0)
            transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, pipe)
            transport.close()
            await asyncio.sleep(0.1)
            transport.write(b"x")

        def defect() -> None:
            raise RuntimeError("a defect")

        for told, call in (("closed", lambda: uvloop.run(write())), ("failed", defect)):
            try:
                call()
            except RuntimeError as raised:
                logging.getLogger("asyncio").error(f"Fatal error: {told}", exc_info=raised)
    """
    said = stderr_of(program)
    closed, _, failed = said.partition("Fatal error: failed")
    assert ("Fatal error: closed" in closed, "Traceback" in closed) == (True, False)
    assert "RuntimeError: a defect" in failed


@pytest.mark.slow
def test_a_process_whose_log_nobody_reads_any_more_ends_as_it_would_otherwise():
    program = """
import sys
import structlog
from groundwire.logs import configure_logs
configure_logs("json", "info")
sys.stdin.readline()
for _ in range(3):
    structlog.get_logger().info("nobody reads this")
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as process:
        assert process.stderr
        process.stderr.close()
        assert process.stdin
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.slow
def test_python_m_groundwire_is_the_command() -> None:
    assert __version__ in python("-m", "groundwire", "--version").stdout


def test_who_only_asks_what_a_worker_does_loads_none_of_it() -> None:
    loaded = python("-c", "import sys, agents.__main__; print(*sys.modules)").stdout.split()
    assert "agents.__main__" in loaded
    assert {"faust", "aiokafka", "redis", "pydantic", "agents.process"}.isdisjoint(loaded)


def test_the_collector_rests_while_a_worker_is_loaded_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []

    class Process(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name != "run":
                raise AttributeError(name)
            seen.append(("loaded", gc.isenabled()))
            return lambda role, **_options: seen.append((role, gc.isenabled()))

    monkeypatch.setitem(sys.modules, "agents.process", Process("agents.process"))
    try:
        assert CliRunner().invoke(main, ["claims"], catch_exceptions=False).exit_code == 0
    finally:
        gc.unfreeze()
    assert seen == [("loaded", False), ("claims", True)]
