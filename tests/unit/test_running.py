"""What an engineer on call turns while a worker runs: whose connections are whose, and how much is logged."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from agents.app import build_app
from groundwire.config import Settings
from groundwire.kafka.names import client_name, name_client


@pytest.fixture(autouse=True)
def _named_as_before():
    yield
    name_client("groundwire", "")


def test_connections_are_called_after_deployment_and_role() -> None:
    for prefix, name in [("groundwire.", "groundwire.claims"), ("eu-", "eu.claims"), ("", "claims")]:
        app = build_app("claims", Settings(topic_prefix=prefix))
        assert app.conf.broker_client_id == client_name() == name


@pytest.mark.slow
def test_sighup_logs_everything_until_it_comes_again() -> None:
    """Loggers that were used before follow, too."""
    program = textwrap.dedent("""
        import os, signal, structlog
        from agents.process import _toggle_debug
        from groundwire.logs import configure_logs
        configure_logs("console", "info")
        log = structlog.get_logger()
        signal.signal(signal.SIGHUP, lambda *_: _toggle_debug())
        for name in ("first", "second", "third"):
            log.debug(name)
            os.kill(os.getpid(), signal.SIGHUP)
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    told = [line.split("] ")[1].split() for line in ended.stderr.splitlines()]
    assert [words[0] for words in told] == ["log.level", "second", "log.level", "log.level"]
    assert [words[1:] for words in told if words[0] == "log.level"] == [
        ["now=DEBUG"],
        ["now=INFO"],
        ["now=DEBUG"],
    ]


@pytest.mark.slow
def test_a_broker_that_is_away_is_one_line_of_all_parts_of_its_client() -> None:
    program = textwrap.dedent("""
        import logging
        from groundwire.logs import configure_logs
        configure_logs("console", "info")
        away = "NodeNotReadyError: Attempt to send a request to node which is not ready (node id 1)."
        logging.getLogger("aiokafka").error("Unable connect to node with id %s: %s", 1, "refused")
        logging.getLogger("aiokafka.consumer.fetcher").error("Failed fetch messages from %s: %s", 1, away)
        logging.getLogger("aiokafka.producer.sender").warning("Got error produce response: %s", away)
        logging.getLogger("aiokafka").error("Unable to update metadata from %s", [1])
        logging.getLogger("aiokafka.consumer.group_coordinator").warning("Something %s", "else")
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ["Unable connect" in line for line in ended.stderr.splitlines()] == [True, False]


def test_a_connection_that_failed_after_nobody_waited_for_it_is_one_line_without_a_traceback() -> None:
    program = textwrap.dedent("""
        import logging
        from groundwire.logs import configure_logs
        configure_logs("console", "info")
        for error in (ConnectionResetError("gone"), ValueError("a defect")):
            try:
                raise error
            except Exception as raised:
                logging.getLogger("asyncio").error("never retrieved: %s", raised, exc_info=raised)
                logging.getLogger("asyncio").error(f"again: {error!r}", exc_info=raised)
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "never retrieved: gone" in ended.stderr
    assert ended.stderr.count("Traceback") == 1
    assert "ConnectionResetError" in ended.stderr.partition("Traceback")[0]


@pytest.mark.slow
def test_an_error_of_the_system_that_no_connection_raised_keeps_its_traceback() -> None:
    program = textwrap.dedent("""
        import logging, ssl
        from groundwire.logs import configure_logs
        configure_logs("console", "info")
        for kind in (ConnectionResetError, TimeoutError, ssl.SSLEOFError, FileNotFoundError, OSError):
            try:
                raise kind("gone")
            except OSError as raised:
                logging.getLogger("asyncio").error(f"never retrieved: {raised!r}", exc_info=raised)
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept = [part.rstrip().rpartition("\n")[2] for part in ended.stderr.split("Traceback")[:-1]]
    assert [line.partition("never retrieved: ")[2].partition("(")[0] for line in kept] == [
        "FileNotFoundError",
        "OSError",
    ]


@pytest.mark.slow
def test_a_connection_that_closes_while_uvloop_writes_to_it_is_one_line_without_a_traceback() -> None:
    program = textwrap.dedent("""
        import asyncio, logging, os, uvloop
        from groundwire.logs import configure_logs

        configure_logs("console", "info")

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
    """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    closed, _, failed = ended.stderr.partition("Fatal error: failed")
    assert ("Fatal error: closed" in closed, "Traceback" in closed) == (True, False)
    assert "RuntimeError: a defect" in failed


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
