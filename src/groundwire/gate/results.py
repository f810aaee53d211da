"""What becomes of a record: every one ends as exactly one of these."""

from __future__ import annotations

from dataclasses import dataclass

from groundwire.errors import RecordError
from groundwire.messages.decisions import Decision
from groundwire.messages.inbound import InboundRecord


@dataclass(frozen=True, slots=True)
class Decided:
    """The record's subject has this decision; `fresh` says that this record brought it about."""

    record: InboundRecord
    decision: Decision
    fresh: bool


@dataclass(frozen=True, slots=True)
class Provisional:
    """State was out of reach: revision 0 is published, and the record goes to `deferred`."""

    record: InboundRecord
    decision: Decision


@dataclass(frozen=True, slots=True)
class Deferred:
    """The record goes to `deferred`; nothing is decided yet."""

    record: InboundRecord


@dataclass(frozen=True, slots=True)
class Standby:
    """Nothing to publish: another record of the same subject is on `deferred`, its decision will be this one's."""

    record: InboundRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The record cannot be decided."""

    record: InboundRecord
    error: RecordError


Result = Decided | Provisional | Deferred | Standby | DeadLetter
