"""`groundwire check`: the gate over the lines of a file, with state for the run and no services.

It behaves as the stream with one partition and nothing deferred.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from groundwire.errors import RecordError
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor
from groundwire.gate.types import DeadLetter, Decided, of_kind, put_back
from groundwire.keys.attestation import Keys
from groundwire.library.with_headers import unwrapped
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Decision
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
    """Decides lines as the stream would decide records.

    Args:
        policy: what decides.
        verifier: checks citations, the network's at once.
        now: the clock of every record and the decisions' `decided_at`, cut to milliseconds.
        assessor: the language model that is asked about claims of responses; None: rules alone verify them.
        keys: sign records; none by default.
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
        policies = PolicyStore(None, None)
        self._gate = Gate(
            policy,
            policies,
            MemoryState(),
            Lookups(verifier, assessor=assessor),
            keys=keys or Keys.empty(),
            now=lambda: moment,
            fan_out=False,
        )

    async def check(self, lines: Iterable[bytes]) -> AsyncIterator[Decision | LineError]:
        """Yield one result for each line that is not blank, in order.

        Args:
            lines: one JSON record each, or one with its headers; blank lines count, but give no result.
        """
        batch: list[InboundRecord | LineError] = []
        for number, line in enumerate(lines, 1):
            value = line.rstrip(b"\r\n")
            if value.strip():
                batch.append(self._record(number, value))
            if len(batch) == BATCH:
                for result in await self._decide(batch):
                    yield result
                batch = []
        for result in await self._decide(batch):
            yield result

    def _record(self, number: int, line: bytes) -> InboundRecord | LineError:
        try:
            value, headers = unwrapped(line)
        except RecordError as error:
            return LineError(number, error)
        self._on_headers(headers)
        return InboundRecord(None, 0, number - 1, self._timestamp, None, value, headers)

    async def _decide(self, batch: list[InboundRecord | LineError]) -> list[Decision | LineError]:
        return put_back(batch, await self._decided(of_kind(batch, InboundRecord)), InboundRecord)

    async def _decided(self, batch: list[InboundRecord]) -> list[Decision | LineError]:
        prepared = await self._gate.ask_model(await self._gate.prepare(batch, ask_network=True))
        results: list[Decision | LineError] = []
        for result in await self._gate.apply_step(prepared, deferred=True):
            match result:
                case Decided(decision=decision):
                    results.append(decision)
                case DeadLetter(record=record, error=error):
                    results.append(LineError(record.offset + 1, error))
                case _:
                    raise AssertionError(f"a run without services gave {type(result).__name__}")
        return results
