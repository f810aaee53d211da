"""What becomes of a record: every one ends as exactly one of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groundwire.errors import RecordError
from groundwire.messages.audit import RegenerateRequest
from groundwire.messages.decisions import Decision
from groundwire.messages.events import Event
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import Retraction, ReviewDecision
from groundwire.state.model import Standing


@dataclass(frozen=True, slots=True)
class Decided:
    """The record's subject has this decision.

    Attributes:
        fresh: whether this record brought it about.
        request: of a response, what its generator is asked for.
        events: what its checks have to tell, where the decision is fresh.
    """

    record: InboundRecord
    decision: Decision
    fresh: bool
    request: RegenerateRequest | None = None
    events: Sequence[Event] = ()


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


@dataclass(frozen=True, slots=True)
class Acted:
    """An action of a person, or of the gate itself, brought its subject's next revision.

    Attributes:
        decision: of that revision; of a later one where state holds that no longer.
        fresh: whether this record brought it about.
        revision: that the action brought about.
        at: milliseconds since 1970: the time of the record that was carried out, of which this may be a repeat.
        retraction: what is to be published beside the decision, where an approval was withdrawn.
    """

    record: InboundRecord
    review: ReviewDecision
    decision: Decision
    fresh: bool
    revision: int
    at: int
    retraction: Retraction | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An action that changes nothing.

    Attributes:
        code: why, as in `groundwire.state.model.RefusedAction`, or `unattested`, `unauthorized`, `reserved`,
            `invalid_reason`, `personal_speculation`, `not_published`.
        current: where the subject stood, where that is known.
        at: as of Acted; 0: that of the record, and another outcome may yet stand for the action's id.
    """

    record: InboundRecord
    review: ReviewDecision
    code: str
    current: Standing | None = None
    at: int = 0


Result = Decided | Provisional | Deferred | Standby | DeadLetter | Acted | Refused
