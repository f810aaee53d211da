"""Verifies published decisions: each is derived again from its record, policy and facts, and compared.

This shows that a decision follows from its facts, not that the facts were true.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from groundwire import __version__
from groundwire.errors import RecordError
from groundwire.gate.kinds import Policies
from groundwire.kafka.reader import OffsetRange, RecordPlace, Start
from groundwire.kafka.store import SCRATCH, Store
from groundwire.keys.attestation import AttestationState, Keys, Role
from groundwire.logs import report_fault
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Kind, Origin
from groundwire.messages.identity import event_id
from groundwire.messages.seals import SEALED
from groundwire.messages.topics import TopicName
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Mismatch, Missing, Records, beyond_numbers, gather
from groundwire.replay.reading import CLOCK_SKEW, INPUTS, OUTPUTS, ReplayReader, Report
from groundwire.replay.seals import SealEvidence
from groundwire.replay.store import FileRecords, RecordStore, decision_lines

MAX_PATHS: Final = 100
"""Fields that are named of one decision."""

_OTHER: Final = "another decision has this id"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


MISSING_POLICY: Final = "policy "
"""Begins the detail of a finding whose policy is not known."""


def differences(recorded: Any, derived: Any, path: str = "$") -> Iterator[str]:  # noqa: ANN401 - any JSON values
    """Yield the path of each value that differs, or is in one of them only.

    As strict as bytes: 1, 1.0 and true are three values. The order of an object's keys does not count.
    """
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for name in [*derived, *(name for name in recorded if name not in derived)]:
            if name in recorded and name in derived:
                yield from differences(recorded[name], derived[name], _member(path, name))
            else:
                yield _member(path, name)
    elif isinstance(recorded, list) and isinstance(derived, list):
        for index in range(max(len(recorded), len(derived))):
            if index < min(len(recorded), len(derived)):
                yield from differences(recorded[index], derived[index], f"{path}[{index}]")
            else:
                yield f"{path}[{index}]"
    elif type(recorded) is not type(derived) or recorded != derived:
        yield path


def path_of(location: tuple[int | str, ...]) -> str:
    """Return the JSON path of a validation error's location."""
    path = "$"
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) else _member(path, part)
    return path


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if _NAME.fullmatch(name) else f"{path}[{json.dumps(name, ensure_ascii=False)}]"


class VerifyStatus(StrEnum):
    """The result of verifying a decision.

    `contradicted`: another decision was published under its id, or the audit records its action as refused; `expired`:
    retention has removed a record that it needs. Of inputs: `lost`, retention removed them before a worker read them.
    Of seals: `unsealed`, no seal covers its bytes; `not_sealed_yet`, its worker has not sealed its offset; `removed`,
    a sealed record is on no topic; `broken_chain`, a seal is missing; `bad_seal`, no gate's key signed it;
    `unanchored`, no head of a chain is kept elsewhere. `unattested`: a key that the decision names did not sign.
    """

    EQUAL = "equal"
    DIFFERS = "differs"
    CONTRADICTED = "contradicted"
    EXPIRED = "expired"
    OTHER_ENGINE = "other_engine"
    MISSING = "missing"
    UNSEALED = "unsealed"
    NOT_SEALED_YET = "not_sealed_yet"
    REMOVED = "removed"
    BROKEN_CHAIN = "broken_chain"
    BAD_SEAL = "bad_seal"
    UNANCHORED = "unanchored"
    UNATTESTED = "unattested"
    LOST = "lost"


def format_counts(counts: Mapping[VerifyStatus, int]) -> str:
    """Format counts: "3 equal, 0 differs, ...", those of seals and keys only where there are any."""
    always = list(VerifyStatus)[:6]  # the others are of seals and keys
    shown = [status for status in VerifyStatus if status in always or counts.get(status)]
    return ", ".join(f"{counts.get(status, 0)} {status.value.replace('_', ' ')}" for status in shown)


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """The result of verifying one decision, with at most `MAX_PATHS` differing fields."""

    status: VerifyStatus
    decision_id: str | None
    paths: tuple[str, ...] = ()
    detail: str = ""


class Placed(NamedTuple):
    """A finding, and the position of its decision."""

    where: str
    finding: VerifyFinding


class Verifier:
    def __init__(
        self, records: Records, policies: Policies, *, replay: str | None = None, exactly: bool = False
    ) -> None:
        self._records = records
        self._policies = policies
        self._replay = replay
        self._exactly = exactly

    async def verify(self, value: bytes, recorded: Decision | None = None) -> VerifyFinding:
        """Verify one decision, given as JSON; `recorded`: it is parsed already."""
        try:
            recorded = recorded or Decision.model_validate_json(value)
        except ValidationError as exc:
            paths = dict.fromkeys(path_of(error["loc"]) for error in exc.errors(include_input=False))
            return VerifyFinding(
                VerifyStatus.DIFFERS, None, tuple(islice(paths, MAX_PATHS)), "it is no Decision"
            )
        name = recorded.decision_id[:100]
        if beyond := beyond_numbers(recorded):
            return VerifyFinding(VerifyStatus.DIFFERS, name, tuple(beyond), "there is no such number")
        if recorded.engine != __version__:
            detail = f"engine {recorded.engine[:100]}, this is {__version__}"
            return VerifyFinding(VerifyStatus.OTHER_ENGINE, name, detail=detail)
        policy = await self._policies.get(recorded.policy.sha256)
        if policy is None:
            missing = MISSING_POLICY + recorded.policy.sha256[:64]
            return VerifyFinding(VerifyStatus.MISSING, name, detail=missing)
        try:
            derived = rederive(recorded, gather(recorded, self._records), policy)
        except Missing as exc:
            return VerifyFinding(VerifyStatus.MISSING, name, detail=str(exc))
        except Mismatch as exc:
            return VerifyFinding(VerifyStatus.DIFFERS, name, (exc.path,), str(exc))
        except RecordError as exc:
            return VerifyFinding(
                VerifyStatus.DIFFERS, name, ("$.origin.sha256",), f"the record is {exc.code}"
            )
        except Exception as exc:  # noqa: BLE001 - facts may hold anything: what cannot be derived does not follow
            report_fault("verify.underivable", exc)
            detail = f"nothing can be derived: {type(exc).__name__}"
            return VerifyFinding(VerifyStatus.DIFFERS, name, ("$.facts",), detail)
        if self._replay is not None:
            derived = derived.model_copy(update={"replay": self._replay})
        written = derived.to_bytes()
        if value == written:
            return VerifyFinding(VerifyStatus.EQUAL, name)

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(found := dict(pairs)) != len(pairs):
                raise ValueError("an object has a key twice")
            return found

        try:
            plain = json.loads(value, object_pairs_hook=unique)
        except ValueError as exc:
            return VerifyFinding(VerifyStatus.DIFFERS, name, ("$",), str(exc))
        differing = tuple(islice(differences(plain, json.loads(written)), MAX_PATHS))
        if differing:
            return VerifyFinding(VerifyStatus.DIFFERS, name, differing)
        return VerifyFinding(
            VerifyStatus.DIFFERS if self._exactly else VerifyStatus.EQUAL, name, detail="written otherwise"
        )


async def verify_files(records: FileRecords, verifier: Verifier, path: Path) -> AsyncGenerator[Placed, None]:
    """Verify the decisions of a file; yields one finding for each. Raises: UsageError."""
    for number, value in decision_lines(path):
        finding = await verifier.verify(value)
        if finding.status is VerifyStatus.EQUAL and not records.is_first(value):
            finding = VerifyFinding(VerifyStatus.CONTRADICTED, finding.decision_id, ("$",), _OTHER)
        yield Placed(f"line {number}", finding)


@dataclass(frozen=True, slots=True)
class Signatures:
    """What signatures are checked against.

    `seals`: reads the seals into a store, None: not checked; `keys`: of producers and reviewers, None: not checked.
    """

    seals: Callable[[Store], Awaitable[SealEvidence]] | None = None
    keys: Keys | None = None


async def verify_topics(
    reader: ReplayReader,
    prefix: str,
    since: Start,
    policies: Policies,
    report: Report = lambda *_: None,
    *,
    signatures: Signatures = Signatures(),
) -> AsyncGenerator[Placed, None]:
    """Verify the decisions on the topics from a position on; yields one finding for each.

    Raises: UsageError, BrokerUnavailable.
    """
    with RecordStore(SCRATCH) as store:
        published = [prefix + name for name in SEALED]
        outputs = await reader.plan(
            [prefix + name for name in OUTPUTS if name is not TopicName.DEAD_LETTER], "earliest", "latest"
        )
        starts = {each[:2]: each.start for each in await reader.plan(published, since, "latest")}
        inside = await reader.plan([prefix + name for name in INPUTS], "earliest", "latest")
        await reader.read(store, inside, outputs, everything=True)
        seals = await signatures.seals(store) if signatures.seals else None
        for fault in seals.faults() if seals else ():
            of_record = fault.kind in {VerifyStatus.UNSEALED, VerifyStatus.BAD_SEAL} and "@" in fault.where
            if of_record and not _is_verified(fault.where, starts):
                continue
            yield Placed(fault.where, VerifyFinding(VerifyStatus(fault.kind), fault.id, detail=fault.detail))
        for misfit in store.misfits():
            if _is_verified(misfit.where, starts):
                wrong = VerifyStatus.CONTRADICTED if misfit.other else VerifyStatus.DIFFERS
                detail = _OTHER if misfit.other else "the record does not fit"
                yield Placed(misfit.where, VerifyFinding(wrong, misfit.name, misfit.fields, detail))
        for at, (topic, number, first, end) in store.lost():
            if not isinstance(since, datetime) or at >= to_milliseconds(since):
                detail = f"offsets {first} to {end - 1}: retention deleted them before a worker read them"
                where = str(RecordPlace(topic, number, first))
                yield Placed(where, VerifyFinding(VerifyStatus.LOST, None, detail=detail))
        verifier = Verifier(store, policies, exactly=True)
        total = store.count_decisions()
        for done, (where, value) in enumerate(store.decisions(), 1):
            if _is_verified(where, starts):
                decision = Decision.try_parse(value)
                finding = await verifier.verify(value, decision)
                if decision is not None:
                    finding = on_topics(store, inside, decision, finding)
                if signatures.keys:
                    finding = _attested(store, signatures.keys, value, finding)
                if seals and finding.status in _SIGNED and not seals.is_superseded(value):
                    why = seals.explain(RecordPlace.parse(where), value)
                    under_way = why and why[0] == VerifyStatus.NOT_SEALED_YET
                    if why and (finding.status is VerifyStatus.EQUAL or not under_way):
                        finding = VerifyFinding(VerifyStatus(why[0]), finding.decision_id, detail=why[1])
                yield Placed(where, finding)
            report("derived", done, total)


_SIGNED: Final = frozenset(
    {VerifyStatus.EQUAL, VerifyStatus.EXPIRED, VerifyStatus.OTHER_ENGINE, VerifyStatus.MISSING}
)
"""Findings of a decision after which it may still lack a signature."""


def _attested(store: RecordStore, keys: Keys, value: bytes, finding: VerifyFinding) -> VerifyFinding:
    if finding.status not in _SIGNED:
        return finding
    decision = Decision.model_validate_json(value)
    review, vouched = decision.facts.review or {}, decision.facts.attestation or {}
    claims: list[tuple[str, str, list[Origin | None], Role | None]] = []
    if review:
        claims.append(("$.facts.review", str(review.get("key_id")), [decision.origin], "reviewer"))
    if vouched.get("state") == AttestationState.VALID:
        role: Role | None = "grounding" if decision.kind is Kind.RESPONSE else None
        origins = [decision.origin, decision.subject_origin]
        claims.append(("$.facts.attestation", str(vouched.get("key_id")), origins, role))
    for path, key_id, origins, role in claims:
        states = [_signature_state(store, keys, decision, origin, role) for origin in origins if origin]
        there = [state for state in states if state is not None]
        if there and (key_id, AttestationState.VALID) not in there:
            found = ", ".join(f"{name} {state}" for name, state in there)
            detail = f"key {key_id[:100]} did not sign: {found}"
            return VerifyFinding(VerifyStatus.UNATTESTED, finding.decision_id, (path,), detail)
    return finding


def _signature_state(
    store: RecordStore, keys: Keys, decision: Decision, origin: Origin, role: Role | None
) -> tuple[str, str] | None:
    """Return key and state of the signature on a record; None where the record is gone."""
    place = RecordPlace.of(origin)
    record = store.value(origin.sha256) if store.has_record(place) else None
    if record is None:
        return None
    source = decision.source if role is None else None
    # the gate checked keys against its own clock, slightly before `decided_at`
    times = [
        decision.decided_at,
        max(decision.decided_at, datetime.min.replace(tzinfo=UTC) + CLOCK_SKEW) - CLOCK_SKEW,
    ]
    found = [
        keys.check(store.signature(place), record, tenant=decision.tenant_id, at=at, source=source, role=role)
        for at in times
    ]
    best = next((one for one in found if one and one.valid), found[0])
    return (best.key_id, best.state) if best else ("no key", "")


def _is_verified(where: str, starts: Mapping[tuple[str, int], int]) -> bool:
    place = RecordPlace.parse(where)
    return place.offset >= starts.get(place[:2], 0)


def on_topics(
    store: RecordStore,
    inside: Sequence[OffsetRange],
    decision: Decision,
    finding: VerifyFinding,
    *,
    moved: bool = False,
) -> VerifyFinding:
    """Check what the topics hold against a verified decision, beside its own bytes.

    The audit may contradict one that follows from its facts, and so may a second one under its id where nothing can be
    derived. `moved`: offsets may differ, because the topic was copied.
    """
    if finding.status is VerifyStatus.DIFFERS:
        return finding
    equal = finding.status is VerifyStatus.EQUAL
    origins = {"$.origin": decision.origin, "$.subject_origin": decision.subject_origin}
    wrong = {path: origin for path, origin in origins.items() if origin and not store.has_origin(origin)}
    starts = {each[:2]: each.start for each in inside} if wrong else {}
    gone = [
        path
        for path, origin in wrong.items()
        if 0 <= origin.offset < starts.get((origin.topic or "", origin.partition), 0)  # retention's beginning
    ]
    forged = []
    for path, origin in wrong.items():
        # another record is there; a later one shows that the topic was recreated
        until = max(decision.decided_at, origin.timestamp)
        other = not moved if equal else store.has_record(RecordPlace.of(origin), until=until)
        forged += [path] * (other and path not in gone)
    action_id = (decision.facts.review or {}).get("action_id")
    refused = False  # known to audit as refused, and nowhere as carried out
    if isinstance(action_id, str) and not store.marked("ended", event_id("review_action", action_id)):
        causes = action_id, decision.origin.model_dump(mode="json")
        refused = any(store.marked("ended", event_id("refused_action", cause)) for cause in causes)
    if forged:
        found = VerifyStatus.DIFFERS, tuple(forged), "no such record is there"
    elif refused:
        found = VerifyStatus.CONTRADICTED, ("$.facts.review",), "audit says that this action was refused"
    elif not (equal and not gone) and store.marked("contradicted", decision.decision_id):
        found = VerifyStatus.CONTRADICTED, ("$",), _OTHER
    elif gone:
        found = VerifyStatus.EXPIRED, (), f"record of {', '.join(gone)}: retention has taken it"
    else:
        return finding
    return VerifyFinding(found[0], finding.decision_id, *found[1:])
