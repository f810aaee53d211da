"""What the gate decided in a period, counted from its output topics: verdicts by source and reason, and over-hold."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from groundwire.kafka.reader import RecordPlace, open_reader
from groundwire.kafka.store import SCRATCH, Store
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord, failure_of
from groundwire.messages.identity import subject_of_decision
from groundwire.messages.topics import TopicName, record_key

TOPICS: Final = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED, TopicName.DEAD_LETTER)

_SCHEMA: Final = """
CREATE TABLE decided (
  subject BLOB PRIMARY KEY, older INTEGER, id TEXT, kind TEXT, subject_id TEXT, source TEXT, verdict TEXT, reason TEXT,
  place TEXT, at TEXT
) WITHOUT ROWID;
CREATE TABLE judged (id TEXT PRIMARY KEY, action TEXT) WITHOUT ROWID;
CREATE TABLE letters (place TEXT PRIMARY KEY, code TEXT) WITHOUT ROWID;
"""
_COUNTS: Final = """
  sum(verdict = 'approved'), sum(verdict = 'review'), sum(verdict = 'blocked'),
  sum(action = 'approve'), sum(action = 'edit'), sum(action = 'reject')
"""
_VERDICTS: Final = ("approved", "review", "blocked", "people_approved", "people_edited", "people_rejected")
_OF: Final = "FROM decided LEFT JOIN judged USING (id)"


Report = dict[str, Any]
"""What came of a period, as it is printed: `total`, `by_source`, `by_reason` (each with the latest decision as an
example), `no_place`: claims that found no place in the review queue, by the limit that was full, and `dead_letters`."""


class PeriodVerdicts(Store):
    """The gate's own latest decision of each subject, and what people decided of it; repeats count once."""

    def __init__(self, tenant: str | None = None) -> None:
        super().__init__(SCRATCH)
        self.script(_SCHEMA)
        self._tenant = tenant

    def add(self, record: InboundRecord) -> None:
        """Keep what counts of a record of an output topic; what is no Decision is skipped."""
        decision = Decision.try_parse(record.value)
        if decision is None or (self._tenant is not None and decision.tenant_id != self._tenant):
            return
        if review := decision.facts.review:
            if decision.supersedes:
                self.put("judged", decision.supersedes, review.get("action"))
            return
        row = {
            "older": -decision.revision,  # a provisional decision is 0, a refused claim sent again has another one
            "id": decision.decision_id,
            "kind": str(decision.kind),
            "subject_id": decision.subject_id,
            "source": decision.source or "",
            "verdict": str(decision.verdict),
            "reason": decision.reason_code,
            "place": str(decision.facts.place),
            "at": format_time(decision.decided_at),
        }
        self.put_first("decided", {"subject": subject_of_decision(decision).digest}, row, ("older",))

    def add_letter(self, record: InboundRecord) -> None:
        """Count a dead letter, once for each place that it came from; its key names its tenant."""
        if self._tenant is None or (record.key or b"").startswith(record_key(self._tenant, "")):
            code, _, *place, _ = failure_of(record)
            known = None not in place
            self.put("letters", "{}/{}@{}".format(*place) if known else str(RecordPlace.of(record)), code)

    def report(self, since: datetime) -> Report:
        reasons = self.rows(
            # of an aggregate with max() SQLite takes the bare columns from that row
            f"SELECT kind, reason, id, subject_id, max(at), {_COUNTS} {_OF}"
            f" GROUP BY kind, reason ORDER BY count(*) DESC, kind, reason"
        )
        sources = self.rows(
            f"SELECT kind, source, {_COUNTS} {_OF} GROUP BY kind, source ORDER BY count(*) DESC"
        )
        return {
            "since": format_time(since),
            "total": _tally(self.row(f"SELECT {_COUNTS} {_OF}")),
            "by_source": [
                {"kind": kind, "source": source, **_tally(counts)} for kind, source, *counts in sources
            ],
            "by_reason": [
                {
                    "kind": kind,
                    "reason_code": reason,
                    **_tally(counts),
                    "example": {"decision_id": decision_id, "subject_id": subject_id},
                }
                for kind, reason, decision_id, subject_id, _, *counts in reasons
            ],
            "no_place": self._counted("decided WHERE place LIKE '%_full'", "replace(place, '_full', '')"),
            "dead_letters": self._counted("letters", "code"),
        }

    def _counted(self, source: str, column: str) -> dict[str, int]:
        return dict(self.rows(f"SELECT {column}, count(*) FROM {source} GROUP BY 1 ORDER BY 2 DESC, 1"))  # noqa: S608 - our own text


def _tally(counts: Sequence[int | None]) -> dict[str, Any]:
    """Return decisions by verdict, and what people decided of those in review.

    `over_held`: the share that people approved as it was, of what they decided; None: they decided nothing.
    """
    found = dict(zip(_VERDICTS, (count or 0 for count in counts), strict=True))
    judged = sum(found[name] for name in _VERDICTS[3:])
    return {**found, "over_held": round(found["people_approved"] / judged, 4) if judged else None}


async def report_period(
    brokers: str, prefix: str, since: datetime, seconds: float, *, tenant: str | None = None
) -> Report:
    """Read the output topics from a time to their ends, without a consumer group.

    Raises: UsageError, BrokerUnavailable.
    """
    letters = prefix + TopicName.DEAD_LETTER
    with PeriodVerdicts(tenant) as verdicts:
        async with open_reader(brokers, seconds) as reader:
            await reader.begin(dict.fromkeys((prefix + name for name in TOPICS), since))
            async with aclosing(reader.rest()) as pages:
                async for page in pages:
                    with verdicts.transaction():
                        for record in page:
                            (verdicts.add_letter if record.topic == letters else verdicts.add)(record)
        return verdicts.report(since)
