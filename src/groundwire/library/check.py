"""`groundwire check`: the gate over the lines of a file, with state for the run and no services.

It behaves as the stream with one partition and nothing deferred.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor
from groundwire.gate.types import DeadLetter, Decided, of_kind, put_back
from groundwire.keys.attestation import Keys
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import parse_json
from groundwire.messages.headers import Headers, InboundRecord
from groundwire.policy import Policy
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from groundwire.verify.citations import CitationVerifier

BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that could not be decided."""

    line: int
    error: RecordError

    def as_dict(self) -> dict[str, Any]:
        """Return the error as it is printed."""
        error = self.error
        return {
            "line": self.line,
            "error": {"code": error.code, "message": error.message, "field": error.field},
        }


class Checker:
    """Decides lines as the stream would decide records, and asks the network about citations at once.

    Args:
        policy: decides.
        verifier: checks citations.
        now: the clock of every record, cut to milliseconds.
        assessor: the language model that is asked about claims of responses; None: rules alone verify them.
        keys: sign records.
        on_headers: called with the headers of each record.
    """

    def __init__(
        self,
        policy: Policy,
        verifier: CitationVerifier,
        *,
        now: datetime,
        assessor: Assessor | None = None,
        keys: Keys | None = None,
        on_headers: Callable[[Headers], None] = lambda _: None,
    ) -> None:
        self._on_headers = on_headers
        self._timestamp = to_milliseconds(now)
        moment = from_milliseconds(self._timestamp)
        self._gate = Gate(
            policy,
            PolicyStore(None, None),
            MemoryState(),
            Lookups(verifier, assessor=assessor),
            keys=keys or Keys.empty(),
            now=lambda: moment,
            fan_out=False,
        )

    async def check(self, lines: Iterable[bytes]) -> AsyncIterator[Decision | LineError]:
        """Yield one result for each line that is not blank, in order; a line may hold a record with its headers."""
        batch: list[InboundRecord | LineError] = []
        for number, line in enumerate(lines, 1):
            value = line.rstrip(b"\r\n")
            if value.strip():
                try:
                    record, headers = unwrapped(value)
                except RecordError as error:
                    batch.append(LineError(number, error))
                else:
                    self._on_headers(headers)
                    batch.append(InboundRecord(None, 0, number - 1, self._timestamp, None, record, headers))
            if len(batch) == BATCH:
                for result in await self._decide(batch):
                    yield result
                batch = []
        for result in await self._decide(batch):
            yield result

    async def _decide(self, batch: list[InboundRecord | LineError]) -> list[Decision | LineError]:
        records = of_kind(batch, InboundRecord)
        prepared = await self._gate.ask_model(await self._gate.prepare(records, ask_network=True))
        results: list[Decision | LineError] = []
        for result in await self._gate.apply_step(prepared, deferred=True):
            match result:
                case Decided(decision=decision):
                    results.append(decision)
                case DeadLetter(record=record, error=error):
                    results.append(LineError(record.offset + 1, error))
                case _:
                    raise AssertionError(f"a run without services gave {type(result).__name__}")
        return put_back(batch, results, InboundRecord)


def unwrapped(line: bytes) -> tuple[bytes, Headers]:
    """Return the value of a line's record, and its headers; a line that is a record has none.

    Of `{"headers": {"gw-attestation": "docs:9f..."}, "record": {"claim_id": ...}}` the record's value is taken byte for
    byte, as a signature is of bytes, or from a text that holds it. Raises: RecordError, headers that are no texts.
    """
    if b'"headers"' not in line or b'"record"' not in line:
        return line, ()
    try:
        given = parse_json(line)
    except RecordError:
        return line, ()  # deciding it tells the error
    if not isinstance(given, dict) or given.keys() != {"record", "headers"}:
        return line, ()
    headers = given["headers"]
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise RecordError(ErrorCode.INVALID_RECORD, "headers: must be an object of texts", "headers")
    return record_as_written(line, given), tuple((name, text.encode()) for name, text in headers.items())


def wrapped(value: bytes, headers: object) -> bytes:
    """Return the line that `unwrapped` takes apart into a record's value and its headers."""
    return b'{"headers": %b, "record": %b}' % (json.dumps(headers).encode(), value)


def records_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is a single JSON object over several lines, or an array of them, these.

    A file of more than 64 MB is read by lines whatever it holds.
    """
    read, rest = list[bytes](), iter(lines)
    for line in rest:
        read.append(line)
        if line.strip():
            break
    if read and _goes_on(read[-1]):
        size = 0
        for line in rest:
            read.append(line)
            size += len(line)
            if size > _SPREAD_BYTES:
                break
        else:
            read = _spread(b"".join(read)) or read
    yield from read
    yield from rest


def _goes_on(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), list)
    except (ValueError, RecursionError):
        return line.lstrip()[:1] in {b"{", b"["}


def _spread(whole: bytes) -> list[bytes]:
    """Return the objects of a JSON array, or the one object, as they are written; none where there is neither."""
    try:
        text = whole.decode()
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if isinstance(parsed, dict):
        return [whole.strip()]
    if not isinstance(parsed, list) or not parsed or not all(isinstance(one, dict) for one in parsed):
        return []
    found, place, read = [], text.index("[") + 1, json.JSONDecoder().raw_decode
    for _ in parsed:
        begin = _value_after(text, place)
        _, place = read(text, begin)
        found.append(text[begin:place].encode())
    return found


_SPREAD_BYTES: Final = 64_000_000
_SEPARATOR: Final = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*")


def record_as_written(line: bytes, given: Mapping[str, Any]) -> bytes:
    """Return the bytes of the value of `record` in a line of JSON, which was parsed as `given`."""
    if isinstance(given["record"], str):
        return str(given["record"]).encode()
    text, read = line.decode(), json.JSONDecoder().raw_decode
    place = text.index("{") + 1
    while True:
        key, place = read(text, _value_after(text, place))
        begin = _value_after(text, place)
        _, place = read(text, begin)
        if key == "record":
            return text[begin:place].encode()


def _value_after(text: str, place: int) -> int:
    match = _SEPARATOR.match(text, place)
    return match.end() if match else place
