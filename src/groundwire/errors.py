"""Every error that Groundwire raises on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

WAITED_FOR: Final = (
    *("state", "state_lost", "broker", "topics"),
    *("internal_errors", "seal", "internal", "registry"),
)
"""What a worker waits for: every value of the label of `groundwire_paused`."""


class ErrorCode(StrEnum):
    """Why a record ends as a dead letter. The list is closed."""

    INVALID_JSON = "invalid_json"
    INVALID_RECORD = "invalid_record"
    UNSUPPORTED_VERSION = "unsupported_version"
    TOO_LARGE = "too_large"
    CLAIM_ID_CONFLICT = "claim_id_conflict"
    WORKER_CRASH = "worker_crash"
    UNPUBLISHABLE = "unpublishable"


class GroundwireError(Exception):
    """Base of all errors below."""


class RecordError(GroundwireError):
    """An input record cannot be decided: it becomes a dead letter or an error line.

    Attributes:
        code: one of the closed list of dead-letter codes.
        message: what is wrong and where, in one line, without the record's text.
        field: dotted path of the offending field, or None where no single field is at fault.
    """

    def __init__(self, code: ErrorCode, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class SchemaMissing(RecordError):
    """A value cannot be read as no schema registry is configured, or it does not know the schema."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class UsageError(GroundwireError):
    """A setting, policy, keys file or option is wrong; the message says what to write instead: exit status 2."""


class StateError(GroundwireError):
    """State cannot be used as it is."""


class StateUnavailable(StateError):
    """State did not answer, or not with an outcome: wait, or decide provisionally."""


class StateLost(StateError):
    """State carries another epoch than this worker knows, or none: pause until state is rebuilt."""


class SchemeMismatch(StateError):
    """State holds deduplication keys of another scheme than the one configured: rebuild."""


class CorpusUnusable(StateError):
    """A tenant has no corpus, or one that cannot be read; waiting does not help, loading it does."""


class SealUnavailable(GroundwireError):
    """What was published cannot be sealed now: no key is valid, or the command that signs fails."""


class BrokerUnavailable(GroundwireError):
    """The broker did not acknowledge in time what was published: the batch is tried again."""


class TopicsMissing(BrokerUnavailable):
    """The broker answers, and has no topic for what was to be published."""


class RegistryUnavailable(BrokerUnavailable):
    """The schema registry does not answer, or refuses this process: the batch waits."""


_EXTRAS: Final = {
    **dict.fromkeys(("faust", "mode", "uvloop", "redis"), "worker"),
    **dict.fromkeys(("authlib", "itsdangerous", "jinja2", "starlette", "uvicorn"), "console"),
    **dict.fromkeys(("aiokafka", "cryptography"), "client"),
    **dict.fromkeys(("confluent_kafka", "fastavro", "google"), "registry"),
    **dict.fromkeys(("numpy", "onnxruntime", "tokenizers"), "entailment"),
    "mcp": "mcp",
}
"""Packages that `pip install groundwire` leaves out, and the extra that has them (X-18)."""


def naming_extra(exc: ModuleNotFoundError, what: str) -> ModuleNotFoundError:
    """Return the error that says which extra installs what `what` needs; the same where none does."""
    package = (exc.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return exc
    extra = f"pip install 'groundwire[{_EXTRAS[package]}]'"
    return ModuleNotFoundError(f"{package} is not installed, and {what} needs it: {extra}", name=exc.name)


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """Put the name of a setting before what is wrong with the thing that it names. Raises: UsageError."""
    try:
        yield
    except UsageError as exc:
        raise UsageError(f"{setting}: {exc}") from exc


@contextmanager
def binding(settings: str, host: str, port: int) -> Iterator[None]:
    """Say by which settings an address was chosen that cannot be bound. Raises: UsageError."""
    try:
        yield
    except OSError as exc:
        raise UsageError(f"{settings}: {host}:{port} cannot be bound: {exc.strerror or exc}") from exc


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message about an unknown name, `; did you mean ...?`; empty where nothing is near.

    `prefix`: what all names begin with, so that it makes none of them near.
    """
    parts = [one.removeprefix(prefix) for one in known]
    near = get_close_matches(name[:200].removeprefix(prefix), parts, n=1, cutoff=0.7)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
