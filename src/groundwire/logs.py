"""Logs through structlog, as lines for people or as JSON; ids, counts and codes, never a record's text.

structlog is imported where logs are configured only: it brings all of rich along, which takes a program that checks one
claim as long as the check.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Final, TextIO, cast

from cachetools import TTLCache


class _LossyStream:
    """A stream that drops text instead of raising: a closed pipe behind the logs must not stop the gate."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # for good: what is still buffered goes nowhere, or Python would end with 120
            with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
        except (OSError, ValueError):
            pass


def _is_lost_connection(error: BaseException | None) -> bool:
    """Say whether an error is of a connection, and not another OSError, such as of a file, which may be a defect."""
    if type(error) is RuntimeError:
        # as uvloop raises it (UVHandle) where a connection closed while it was written to
        return str(error).endswith("; the handler is closed")
    ssl = sys.modules.get("ssl")  # imported if it raised anything; a program that checks one claim needs none
    return isinstance(error, (ConnectionError, TimeoutError)) or bool(ssl and isinstance(error, ssl.SSLError))


class _OnceAMinute(logging.Filter):
    """Lets each kind of a library's messages through once a minute: without a broker, some come many times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._told: TTLCache[tuple[str, str], bool] = TTLCache(maxsize=1_000, ttl=60)

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.name, str(record.msg)
        if record.name == "asyncio" and record.exc_info and _is_lost_connection(record.exc_info[1]):
            # a connection that failed after nobody waited for it any more: whoever tried was told
            record.exc_info = None
        if record.name.startswith("aiokafka"):
            # each part of aiokafka says for itself that a broker is away
            told = ("NodeNotReadyError", "Unable connect to node", "Unable to update metadata")
            if any(part in record.getMessage() for part in told):
                message = ("aiokafka", "unreachable")
        if message in self._told:
            return False
        self._told[message] = True
        return True


def configure_logs(form: str, level: str) -> None:
    """Send all logs, those of libraries too, to standard error, as `console` or `json`.

    `level` is the least of Groundwire's own logs, until `toggle_debug`; libraries log from `warning` on.
    """
    import structlog  # noqa: PLC0415 - see above
    from structlog.tracebacks import ExceptionDictTransformer  # noqa: PLC0415

    _levels.update(configured=level.upper(), current=level.upper())
    stream = cast("TextIO", _LossyStream(sys.stderr))
    shared: list[Any] = [
        _at_current_level,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        ending: list[Any] = [
            # without the variables of the frames: they hold what the record says
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    else:
        plain = structlog.dev.plain_traceback
        ending = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    # loggers are kept: see `toggle_debug`
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.addFilter(_OnceAMinute())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared[1:], structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


_levels: Final = {"configured": "INFO", "current": "INFO"}
_NUMBERS: Final = logging.getLevelNamesMapping() | {"EXCEPTION": logging.ERROR}


def _at_current_level(_: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if _NUMBERS[method.upper()] < _NUMBERS[_levels["current"]]:
        from structlog import DropEvent  # noqa: PLC0415 - see above

        raise DropEvent
    return event


def toggle_debug() -> str:
    """Log everything from now on, or again as configured; return the level."""
    configured, current = _levels["configured"], _levels["current"]
    _levels["current"] = "DEBUG" if current == configured else configured
    logging.getLogger().setLevel(logging.INFO if _levels["current"] != configured else logging.WARNING)
    return _levels["current"]


_plain = logging.getLogger("groundwire")


def write_event(level: str, event: str, **fields: Any) -> None:  # noqa: ANN401 - whatever a log line holds
    """Log an event of the library: through structlog where the program has configured it, else through `logging`.

    Without a configuration structlog writes to standard output, which belongs to the program.
    """
    structlog = sys.modules.get("structlog")  # who has configured it has imported it
    if structlog and structlog.is_configured():
        getattr(structlog.get_logger(), level)(event, **fields)
    else:
        _plain.log(logging.getLevelNamesMapping()[level.upper()], "%s %s", event, fields)


def report_fault(event: str, error: Exception, **fields: Any) -> None:  # noqa: ANN401 - whatever a log line holds
    """Log an exception of the gate's own code by class and place, never by message: that may hold a record's text.

    The place is the innermost frames, without their variables.
    """
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " < ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    write_event("error", event, error=type(error).__name__, where=where, **fields)
