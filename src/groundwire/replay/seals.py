"""What seals prove of the output topics: which records are covered, which were removed, which chains are broken.

- **Signed**: of each record that came of a range of an input partition its topic, partition, id and value
  (`messages.seals:SealedOutput`). Key and `ce_type` follow from value and topic. What came of no input record is an
  event with a signature of its own.
- **Chained**: a seal names the one before it; it begins where that ended. All stand on one partition of `audit`.
- **Held**: the committed offset names the last seal, and so does the head on `heads` or in a file. A seal off the
  committed chain counts for nothing, nor does one of an expired key that nothing later holds.

| attack | named as | by |
|---|---|---|
| a record that no gate published, other bytes under its id | `unsealed` | `faults`, `explain` |
| its bytes in another place, under another key, `ce_id` or `ce_type` | `unsealed`; `differs` | `_misfits`, `faults` |
| an audit event of any type | `unsealed` | `_causes`, `_unsigned` |
| a record removed | `removed` | `faults` |
| a seal removed, moved, or put in another's place | `broken_chain` | `_broken_chain` |
| a seal of another key, deployment or partition of `audit` | `bad_seal` | `_reason_bad` |
| a seal back-dated by a stolen, expired key, or a second start | `bad_seal` | `_reason_bad`, `leave_out_forks` |
| the end of a chain cut off | `broken_chain` | committed offsets in `faults` |
| all of a partition cut, its offsets too, or these set back to a fork | `broken_chain` | `_missing_heads` |
| the heads cut as well | `unanchored` | `_missing_heads` |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from groundwire.kafka.reader import RecordPlace
from groundwire.kafka.store import Store
from groundwire.keys.attestation import AttestationState
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import from_microseconds, to_microseconds, to_milliseconds
from groundwire.messages.decisions import AuditEvent, AuditType, Decision, Origin, RegenerateRequest
from groundwire.messages.erasure import Erasures
from groundwire.messages.headers import InboundRecord, deferred_record, header, misfitting
from groundwire.messages.identity import decision_id, event_id, retraction_id, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.seals import MAX_AT_ONCE, Seal, SignedHead
from groundwire.messages.topics import TopicName, record_key
from groundwire.replay.reading import CLOCK_SKEW
from groundwire.replay.seal_queries import FORKS, LATER, SCHEMA, UNWITNESSED

_YOUNGEST_CUT: Final = timedelta(days=(TopicName.AUDIT.retention_days or 0) - 31)
"""Least age of the first seal after retention: a month may pass without a seal."""

GROUPS: Final = {
    "claims": TopicName.CLAIMS,
    "deferred": TopicName.DEFERRED,
    "responses": TopicName.LLM_RESPONSES,
    "reviews": TopicName.REVIEW_DECISIONS,
}
"""The input topic that each group of workers commits."""

_OF_PEOPLE: Final = {"review_action", "refused_action", "retraction"}
"""Types of the audit events that come of review decisions alone."""

_OF_DECISIONS: Final[set[AuditType]] = {"enqueue", "evidence_failure"}
"""Types of those that a decision brings forth, and a repeat of that decision again."""

_OF_WORKERS: Final[set[AuditType]] = {"policy_loaded", "records_lost", "state_lost", "state_rebuilt"}
"""Types of those that come of no record, and are signed one by one."""

_SUPERSEDES: Final = re.compile(
    rb'\{"decision_id":"([0-9a-f-]{36})","revision":[0-9]+,"supersedes":"([0-9a-f-]{36})"'
)
"""Begins every decision that the gate wrote of a revision from 2 on."""
_ORIGIN: Final = re.compile(rb'"origin":(\{[^{}]*\})')
"""Of a decision that the gate wrote; of other records it may be anything."""


class SealFault(NamedTuple):
    """A fault of a seal, or of a record that a seal should cover.

    `kind`: `bad_seal`, `broken_chain`, `removed`, `unsealed` or `unanchored`; `where`: position of the record, or the
    partition.
    """

    kind: str
    where: str
    id: str | None
    detail: str


class SealEvidence:
    """What the topics of a deployment and their seals hold; filled by `replay.sealed_topics:read_seals`.

    `home`: the partition of `audit` that holds all seals. `audit_is_cut`: retention has removed its first seals.
    `under_way`: input topics with records that no seal has reached, and since when. `committed`: last offsets of the
    groups, with the hash of the seal that ends there; empty: no worker had sealed yet.
    """

    def __init__(self, store: Store, prefix: str, keys: SealKeys, *, now: datetime, home: int = 0) -> None:
        self._store, self._row = store, store.row
        store.script(SCHEMA)
        store.rows("BEGIN")  # never committed: it is not read after a crash
        self._prefix = prefix
        self._now = now
        self._keys = keys
        self.home = home
        self._latest: datetime | None = None
        self._faults: list[SealFault] = []
        self._tombstones: set[str] = set()
        self._first_sealed: dict[tuple[str, int], int | None] = {}
        self._erasures = Erasures()
        self.audit_is_cut = False
        self.under_way: dict[TopicName, datetime] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def note_published(self, record: InboundRecord, *, late: bool = False) -> None:
        """Add a record of an output topic; of a repeated record the first position of a partition counts."""
        topic = TopicName((record.topic or "").removeprefix(self._prefix))
        if topic is TopicName.RETRACTIONS and (erasure := self._erasures.note(record)):
            self._tombstones.add(erasure.id)
            return
        if topic is TopicName.AUDIT and self.note_seal(record):
            return
        name = header(record.headers, "ce_id") or ""
        place = topic.value, record.partition, record.offset, record.timestamp
        wrong = _misfits(topic, record) or self._unsigned(topic, record)
        causes = () if late or wrong else self._causes(topic, record)
        digest, value = bytes.fromhex(record.sha256), record.value or b""
        more: str | bytes | None = None
        if topic is TopicName.AUDIT:
            event = AuditEvent.of_type(value, *_OF_DECISIONS)
            more = event.decision_id if event else None
        elif found := _SUPERSEDES.match(value):
            later, earlier = found.groups()
            self._store.put("superseded", earlier.decode(), later.decode(), digest)
        elif origin := _ORIGIN.search(value):
            more = origin[1]
        self._store.put("published", name, digest, *place, " ".join(causes), more)
        if wrong:
            self._faults.append(SealFault("unsealed", str(RecordPlace.of(record)), name[:100], wrong))

    def note_waiting(self, record: InboundRecord) -> None:
        """Add a record of `deferred` that no seal has reached: its decision may just have been published."""
        self._store.put("waiting", *RecordPlace.of(deferred_record(record)))

    def reached(self, topic: str, partition: int) -> int:
        """Return the offset after the last sealed or committed record of an input partition."""
        (end,) = self._row("SELECT max(end) FROM seals WHERE topic = ? AND part = ?", topic, partition)
        committed = self.committed.get(TopicPartition(topic, partition))
        return max(end or 0, committed.offset if committed else 0)

    def sealed_at(self, partition: TopicPartition) -> datetime | None:
        (time,) = self._row("SELECT max(time) FROM seals WHERE topic = ? AND part = ?", *partition)
        return from_microseconds(time) if time else None

    def note_under_way(self, topic: str, begun: datetime) -> None:
        name = TopicName(topic.removeprefix(self._prefix))
        # a sender may date its record into the future
        self.under_way[name] = min(begun, self._now, self.under_way.get(name, begun))

    def leave_out_forks(self) -> None:
        """Drop seals off the committed chain, whose records are sealed again, and of expired keys without a witness."""
        for (topic, part), (_, head) in self.committed.items():
            self._store.rows(FORKS, topic=topic, part=part, head=head)
        self._drop("SELECT number FROM forks")
        keys = self._store.rows("SELECT DISTINCT key FROM seals").fetchall()
        ended = json.dumps([key for (key,) in keys if self._is_beyond(key, self._now)])
        committed = json.dumps([name for _, name in self.committed.values()])
        unwitnessed = self._store.rows(UNWITNESSED, committed=committed, ended=ended).fetchall()
        self._drop("SELECT value FROM json_each(?)", json.dumps([number for number, *_ in unwitnessed]))
        chains = set(self._partitions())
        for _, topic, part, name, at in unwitnessed:
            if (topic, part) not in chains:  # else a crash may have left it
                detail = "its key has expired, and no committed offset, kept head or later seal shows that it is older"
                where = str(self._place_of_seal(at))
                self._faults.append(SealFault("bad_seal", where, event_id("seal", name), detail))

    def _drop(self, numbers: str, *values: object) -> None:
        self._store.rows(f"DELETE FROM sealed WHERE seal IN ({numbers})", *values)  # noqa: S608 - our own words only
        names = f"SELECT hash, topic, part, end, time FROM seals WHERE number IN ({numbers})"  # noqa: S608 - as above
        self._store.rows(f"INSERT OR IGNORE INTO dropped {names}", *values)
        self._store.rows(f"DELETE FROM seals WHERE number IN ({numbers})", *values)  # noqa: S608 - as above

    def has_lost_seals(self, start: int) -> bool:
        """Say whether retention has removed the first seals, given the first offset.

        A first seal younger than retention leaves means that somebody deleted those before it.
        """
        first = self._row("SELECT time FROM seals ORDER BY number LIMIT 1")
        return start > 0 and (first is None or self._now - from_microseconds(first[0]) >= _YOUNGEST_CUT)

    def sealed_hashes(self) -> frozenset[bytes]:
        """Return the hashes of all sealed records, about 100 bytes of memory each."""
        return frozenset(sha for (sha,) in self._store.rows("SELECT DISTINCT sha FROM sealed"))

    def faults(self) -> Iterator[SealFault]:
        """Yield all faults, but for unsealed decisions: `explain` reports those."""
        yield from self._faults
        yield from self._missing_heads()
        for topic, part in self._partitions():
            yield from self._broken_chain(topic, part)
        for partition, (_, name) in sorted(self.committed.items()):
            if not name:
                continue
            known = self._row("SELECT 1 FROM seals WHERE hash = ?", name)
            kept = self._row("SELECT 1 FROM seals WHERE topic = ? AND part = ?", *partition)
            if not known and (kept or not self.audit_is_cut):
                where = f"{partition.topic}/{partition.partition}"
                detail = f"the seal {name}, which the group committed last, is gone"
                yield SealFault("broken_chain", where, None, detail)
        removed = (
            "SELECT sealed.id, sealed.sha, sealed.topic, sealed.part, seals.time, min(number) AS number"
            " FROM sealed JOIN seals ON number = seal LEFT JOIN published USING (id, sha, topic, part)"
            " WHERE published.id IS NULL GROUP BY sealed.id, sealed.sha, sealed.topic, sealed.part ORDER BY 6, 1"
        )
        for name, digest, topic, part, time, _ in self._store.rows(removed):
            days = TopicName(topic).retention_days if topic in set(TopicName) else None
            if days is None or from_microseconds(time) + timedelta(days=days) > self._now:
                detail = f"a seal names a record of hash {digest.hex()}, and {topic}/{part} does not hold it"
                yield SealFault("removed", self._prefix + topic, name, detail)
        unsealed = (
            "SELECT published.id, published.topic, published.part, at, time, causes, more,"
            " elsewhere.topic, elsewhere.part"
            " FROM published LEFT JOIN sealed USING (id, sha, topic, part)"
            " LEFT JOIN sealed AS elsewhere ON (elsewhere.id, elsewhere.sha) = (published.id, published.sha)"
            " WHERE (causes <> '' OR elsewhere.id IS NOT NULL) AND sealed.id IS NULL"
            " GROUP BY 2, 3, 4 ORDER BY 2, 3, 4"
        )
        latest = to_milliseconds(self._now + CLOCK_SKEW)
        for name, topic, part, at, time, causes, of, *other in self._store.rows(unsealed).fetchall():
            place = RecordPlace(self._prefix + topic, part, at)
            begun = [self.under_way[TopicName(each)] for each in causes.split() if each in self.under_way]
            is_under_way = begun and to_milliseconds(min(begun) - CLOCK_SKEW) <= time <= latest
            is_past = of is not None and self._is_left(name, of)
            if not is_under_way and not is_past and not self._is_before_seals(place):
                detail = "no seal covers it" if None in other else "its seal names {}/{}".format(*other)
                yield SealFault("unsealed", str(place), name[:100], detail)

    def _is_left(self, event: str, decision: str) -> bool:
        """Say whether a crash left an event with its decision: neither is repeated once a later one is published."""
        query = (
            "SELECT published.more FROM published LEFT JOIN sealed USING (id, sha, topic, part)"
            " WHERE published.id = ? AND published.topic <> 'audit' AND sealed.id IS NULL AND more IS NOT NULL"
        )
        origins = [Origin.try_parse(origin) for (origin,) in self._store.rows(query, decision)]
        causes = [origin.model_dump(mode="json") for origin in origins if origin]
        names = {event_id(kind, cause) for kind in _OF_DECISIONS for cause in causes}
        return event in names and self._row(LATER, decision) is not None

    def explain(self, place: RecordPlace, value: bytes) -> tuple[str, str] | None:
        """Return `unsealed`, `expired` or `not_sealed_yet` and why; None: a seal covers the decision."""
        decision = Decision.model_validate_json(value)
        name, digest = decision.decision_id, hashlib.sha256(value).digest()
        if self._row("SELECT 1 FROM sealed WHERE id = ? AND sha = ?", name, digest):
            return None
        if self._row("SELECT 1 FROM sealed WHERE id = ?", name):
            return "unsealed", "its bytes differ from those that were sealed"
        origin = decision.origin
        query = "SELECT min(first) FROM seals WHERE topic = ? AND part = ?"
        (first,) = self._row(query, origin.topic or "", origin.partition)
        if self._is_before_seals(place) and (first is None or origin.offset < first):
            return "expired", "its seal: retention has taken it"
        query = "SELECT 1 FROM waiting WHERE topic = ? AND part = ? AND at = ?"
        waits = self._row(query, *RecordPlace.of(origin)) is not None
        if waits or origin.offset >= self.reached(origin.topic or "", origin.partition):
            return "not_sealed_yet", ""
        return "unsealed", "no seal covers it"

    def is_superseded(self, value: bytes) -> bool:
        """Say whether a later decision of the same subject is sealed.

        A worker that crashes between publishing and sealing leaves its record to the next one, which publishes the
        subject's current decision. A superseded one has no effect any more.
        """
        decision = Decision.model_validate_json(value)
        subject = subject_of_decision(decision)
        erased = self._erasures.until(decision.tenant_id, decision.user_id)
        # revisions begin anew behind an erasure: those before it supersede nothing there
        since = to_microseconds(erased) if erased and decision.decided_at > erased else 0
        later = range(max(decision.revision, 0) + 1, max(decision.revision, 0) + 20)
        query = "SELECT 1 FROM sealed JOIN seals ON number = seal WHERE id = ? AND time > ?"
        return any(self._row(query, decision_id(subject, number), since) for number in later)

    def heads(self) -> Iterator[RecordPlace]:
        """Yield the position of the last seal of each input partition."""
        query = (
            "SELECT audit_at FROM seals WHERE (topic, part) = (?, ?) ORDER BY end DESC, number DESC LIMIT 1"
        )
        for partition in self._partitions():
            yield self._place_of_seal(self._row(query, *partition)[0])

    def _partitions(self) -> list[tuple[str, int]]:
        query = "SELECT DISTINCT topic, part FROM seals ORDER BY topic, part"
        return self._store.rows(query).fetchall()

    def note_head(self, value: bytes, where: str) -> None:
        """Add a head that is kept elsewhere: on `heads`, or in a file."""
        try:
            head = SignedHead.model_validate_json(value)
        except ValueError:
            self._faults.append(SealFault("bad_seal", where, None, "it is no signed head of a seal"))
            return
        seal = head.seal
        state = self._keys.check(seal, bytes.fromhex(head.signature))
        if state is AttestationState.VALID:
            self._store.put("heads", seal.sha256, seal.topic, seal.partition, to_microseconds(seal.at))
        else:
            detail = f"the head of {seal.input}: {_WHY[state]}"
            self._faults.append(SealFault("bad_seal", where, None, detail))

    def _missing_heads(self) -> Iterator[SealFault]:
        """Yield heads that `audit` no longer holds, and the chains that a cut without a trace could shorten."""
        kept = self._now - timedelta(days=TopicName.AUDIT.retention_days or 0)
        query = (
            "SELECT hash, topic, part, time FROM heads WHERE hash NOT IN (SELECT hash FROM seals) AND NOT EXISTS ("
            " SELECT 1 FROM dropped JOIN seals USING (topic, part)"
            " WHERE dropped.hash = heads.hash AND (seals.end >= dropped.end OR seals.time >= dropped.time))"
        )  # those of a crash were sealed again, and later
        for name, topic, part, time in self._store.rows(query):
            if not self.audit_is_cut or from_microseconds(time) > kept:
                detail = f"the seal {name}, whose head is kept elsewhere, is gone"
                yield SealFault("broken_chain", f"{topic}/{part}", None, detail)
        query = "SELECT topic, part FROM seals EXCEPT SELECT topic, part FROM heads"
        anchored = self._row("SELECT 1 FROM heads LIMIT 1") is not None
        for topic, part in self._store.rows(query) if anchored else [(self._prefix + TopicName.HEADS, None)]:
            where = topic if part is None else f"{topic}/{part}"
            detail = "no head is kept: that records, seals and offsets were cut together would not be seen"
            yield SealFault("unanchored", where, None, detail)

    def place_of_decision(self, name: str) -> tuple[RecordPlace, RecordPlace] | None:
        """Return the positions of a sealed decision and of its seal; None: no seal covers this id."""
        query = (
            "SELECT published.topic, published.part, at, audit_at FROM sealed"
            " JOIN published USING (id, sha, topic) JOIN seals ON seals.number = sealed.seal WHERE sealed.id = ?"
        )
        row = self._row(query, name)
        return row and (RecordPlace(self._prefix + row[0], *row[1:3]), self._place_of_seal(row[3]))

    def note_seal(self, record: InboundRecord) -> bool:
        """Add a seal, in offset order; False for any other record of `audit`."""
        event = AuditEvent.of_type(record.value, "seal")
        if event is None:
            return False
        try:
            seal = Seal.of(event)
            why = self._reason_bad(seal, event, record.partition)
            why = why and f"{why} (key {seal.head.key})"
        except ValueError as exc:
            why = str(exc)
        if why:
            where = str(RecordPlace.of(record))
            self._faults.append(SealFault("bad_seal", where, event.event_id[:100], why))
            return True
        head = seal.head
        depth = self._row("SELECT depth FROM seals WHERE hash = ?", head.before)
        chained = head.sha256, head.before, head.topic, head.partition, head.first, head.end
        row = *chained, to_microseconds(head.at), head.key, record.offset, (depth[0] if depth else 0) + 1
        if self._store.put("seals", None, *row):
            (number,) = self._row("SELECT number FROM seals WHERE hash = ?", head.sha256)
            for each in seal.outputs:
                self._store.put(
                    "sealed", each.id, bytes.fromhex(each.sha256), each.topic, each.partition, number
                )
        return True

    def _reason_bad(self, seal: Seal, event: AuditEvent, partition: int) -> str | None:
        head = seal.head
        topic = head.topic.removeprefix(self._prefix)
        if head.topic != self._prefix + topic or topic not in GROUPS.values():
            return "it is of another deployment"
        state = self._keys.check(head, seal.signature)
        if state is not AttestationState.VALID:
            return _WHY[state]
        if not seal.fits or head.first > head.end:
            return "its outputs are not those that were signed"
        if event.event_id != event_id("seal", head.sha256):
            return "it has another id"
        if partition != self.home:
            return f"it is elsewhere: seals are on partition {self.home}"
        if self._row("SELECT 1 FROM seals WHERE hash = ?", head.sha256):
            return None  # a copy
        deeper = "SELECT 1 FROM seals WHERE topic = ? AND part = ? AND depth > ? LIMIT 1"
        if self._latest is not None and self._is_beyond(head.key, self._latest):
            return _BACK_DATED
        if head.before is None and self._row(deeper, head.topic, head.partition, MAX_AT_ONCE):
            return f"it is a second start of the chain of {head.topic}/{head.partition}"
        self._latest = max(head.at, self._latest or head.at)
        return None

    def _unsigned(self, topic: TopicName, record: InboundRecord) -> str:
        """Say why no worker has signed an event that comes of no record; empty: one has, or it is another record."""
        event = AuditEvent.of_type(record.value, *_OF_WORKERS) if topic is TopicName.AUDIT else None
        if event is None:
            return ""
        key, state = self._keys.check_event(event)
        if state is not AttestationState.VALID:
            return f"{_WHY[state]} (key {key[:100]})" if key else _UNSIGNED
        if record.partition != self.home:
            return f"it is elsewhere: events of workers are on partition {self.home}"
        return _BACK_DATED if self._latest and self._is_beyond(key, self._latest) else ""

    def _is_beyond(self, key: str, time: datetime) -> bool:
        """Say whether a key had expired; tolerates clock skew, from which nobody gains."""
        until = self._keys.not_after(key)
        return until is not None and time - until > CLOCK_SKEW

    def _place_of_seal(self, offset: int) -> RecordPlace:
        return RecordPlace(self._prefix + TopicName.AUDIT, self.home, offset)

    def _broken_chain(self, topic: str, part: int) -> Iterator[SealFault]:
        begun = reached = None
        query = (
            "SELECT seals.before, seals.first, seals.end, seals.audit_at, last.end, last.number < seals.number"
            " FROM seals LEFT JOIN seals AS last"
            " ON last.hash = seals.before AND last.topic = seals.topic AND last.part = seals.part"
            " WHERE seals.topic = ? AND seals.part = ? ORDER BY seals.number"
        )
        for before, first, end, at, last_end, behind in self._store.rows(query, topic, part):
            detail = None
            begun = first if begun is None else begun
            if behind:
                if last_end != first:
                    detail = f"it begins at offset {first}, and the seal before it ends at {last_end}"
            elif before and not (last_end is None and self.audit_is_cut and first <= begun):
                gone = "is gone" if last_end is None else "comes after it"
                detail = f"the seal before it, {before}, {gone}"
            elif not before and reached is not None and first > reached:
                detail = f"no seal covers offsets {reached} to {first - 1}"
            if detail:
                detail = f"seal at {self._place_of_seal(at)}: {detail}"
                yield SealFault("broken_chain", f"{topic}/{part}", None, detail)
            reached = max(end, reached or 0)

    def _causes(self, topic: TopicName, record: InboundRecord) -> Collection[TopicName]:
        """Return the input topics that a record can come from; none where it needs no seal."""
        if topic is TopicName.AUDIT:
            event = AuditEvent.try_parse(record.value or b"")
            if event is None:
                return tuple(GROUPS.values())
            tombstone = event.detail.get("tombstone")
            erases = tombstone in self._tombstones and (event.type, event.event_id) == (
                "retraction",
                event_id("retraction", tombstone),
            )
            # `groundwire dead-letters redrive` has no seal key, and no decision rests on what it notes
            redrives = event.type == "dead_letter" and {"letter", "action"} <= event.detail.keys()
            if erases or redrives or event.type in _OF_WORKERS:
                return ()
            return (TopicName.REVIEW_DECISIONS,) if event.type in _OF_PEOPLE else tuple(GROUPS.values())
        if topic is TopicName.RETRACTIONS:
            return () if self._erasures.cover_value(record.value or b"") else (TopicName.REVIEW_DECISIONS,)
        return (TopicName.LLM_RESPONSES, TopicName.DEFERRED) if topic is TopicName.REGENERATE else ()

    def _is_before_seals(self, place: RecordPlace) -> bool:
        if not self.audit_is_cut:
            return False
        key = place.topic.removeprefix(self._prefix), place.partition
        if key not in self._first_sealed:
            query = (
                "SELECT min(at) FROM published JOIN sealed USING (id, sha, topic, part)"
                " WHERE topic = ? AND part = ?"
            )
            (self._first_sealed[key],) = self._row(query, *key)
        first = self._first_sealed[key]
        return first is not None and place.offset < first


def _misfits(topic: TopicName, record: InboundRecord) -> str:
    """Say which of key, `ce_id` and `ce_type` are not those of the value and topic; of a decision `verify` does."""
    kind = _RECORDS.get(topic)
    if kind is None:
        return ""
    match kind.try_parse(record.value):
        case Retraction(decision_id=of, tenant_id=tenant, user_id=user):
            name, key = retraction_id(of), record_key(tenant, user)
        case RegenerateRequest(request_id=name, tenant_id=tenant, user_id=user):
            key = record_key(tenant, user)
        case AuditEvent(event_id=name, tenant_id=tenant):
            key = tenant.encode()
        case _:
            return "it cannot be read"
    wrong = misfitting(record.headers, ce_id=name, ce_type=kind.ce_type)
    wrong += ["key"] if (record.key or b"") != key else []
    return f"{', '.join(wrong)}: other than its value and topic say" if wrong else ""


_RECORDS: Final[dict[TopicName, type[Retraction | RegenerateRequest | AuditEvent]]] = {
    TopicName.RETRACTIONS: Retraction,
    TopicName.REGENERATE: RegenerateRequest,
    TopicName.AUDIT: AuditEvent,
}
_UNSIGNED: Final = "no worker has signed it"
_BACK_DATED: Final = "it is back-dated: seals before it are later than its key holds"
_WHY: Final = {
    AttestationState.UNKNOWN_KEY: "it is signed by an unknown key",
    AttestationState.EXPIRED: "its time is outside that of its key",
    AttestationState.NOT_ENTITLED: "its key may not seal",
    AttestationState.INVALID: "its signature is wrong",
}
