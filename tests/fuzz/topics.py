"""The other topics: what people decide, dead letters, and what the gate wrote, or somebody who should not."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from agents.outputs import Output, outputs
from groundwire.dead_letters.letters import Selection, read_letter
from groundwire.dead_letters.redrive import Redrive, RedriveOutcome, Rules
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.types import Acted, DeadLetter, Decided, Refused, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import dead_letter_headers
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcomes
from groundwire.replay.review_closures import ReviewClosures
from groundwire.replay.store import FileRecords
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.review.board import Board
from groundwire.review.model import Query
from groundwire.review.permissions import ViewScope
from groundwire.review.records import TopicRecord
from groundwire.state.policies import PolicyStore
from tests.fuzz import inputs
from tests.fuzz.inputs import Dice, any_value, mutated, scratched, text, written
from tests.fuzz.records import check_outputs, some_policy
from tests.fuzz.runner import Case, Entry, entry, hold, listening, quiet, read_strictly
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, FakeLog
from tests.unit.gate.office import KEYS, Office
from tests.unit.gate.world import NOW

SECRETS: Final = {"console": b"one", "gate": b"two", "docs": b"three", "late": b"four", "nobody": b"?"}


async def _reviewed(keys: Keys, heard: Callable[[], str], rng: Dice) -> int:
    """Decide a claim or a response, and then let people act on it."""
    office = Office(policy=some_policy(rng), keys=keys)
    made = inputs.claim(rng) if rng.chance(0.8) else inputs.response(rng)
    first = written(rng, {**made, "tenant_id": "default"})
    topic = "groundwire.claims" if "claim_id" in made else "groundwire.llm-responses"
    (result,) = await office.results(office.record(first, topic=topic))
    if isinstance(result, Decided):
        office.publish(result.decision)
    size = len(first)
    for number in range(rng.one(1, 1, 2, 3)):
        plain = inputs.action(rng, "c1" if "claim_id" in made else "r1", rng.one(1, 1, 1, 2, 0), number)
        value = written(rng, mutated(rng, plain, 0, 2) if rng.chance(0.5) else plain)
        key = rng.one(*SECRETS, "console", "console", "console")
        signed = value if rng.chance(0.9) else scratched(rng, value)
        header = f"{key}:{hmac.new(SECRETS[key], signed, 'sha256').hexdigest()}".encode()
        if rng.chance(0.1):
            header, signed = scratched(rng, header), b""
        headers = (("gw-attestation", header),) if rng.chance(0.9) else ()
        attested = headers and signed == value and key == "console"
        size += len(value)
        done = await office.carry_out(
            office.record(value, headers=headers, topic="groundwire.review-decisions")
        )
        for result in done:
            _check_action(value, result, keys, attested=bool(attested))
        check_outputs(done)
    quiet(heard())
    return size


def _check_action(value: bytes, result: Result, keys: Keys, *, attested: bool) -> None:
    try:
        review = decode_review_decision(value)
    except RecordError:
        hold(isinstance(result, DeadLetter), "carried out, though it cannot be read")
        return
    hold(isinstance(result, Acted | Refused), f"ends as {type(result).__name__}")
    if not isinstance(result, Acted):
        return
    decision: Decision = result.decision
    hold(attested, "carried out, though nobody who may vouches for it")
    hold(review.tenant_id in {"default", "acme"}, "carried out for a tenant that the key is not of")
    owner = review.reviewer == review.user_id or keys.delegated(review.tenant_id, review.reviewer)
    hold(owner, "carried out for somebody who may not")
    hold(review.action != "expire", "expired without the gate's own key")
    if decision.approved and result.fresh:
        hold(review.action in {"approve", "edit"}, f"a {review.action} approves")
        hold(decision.reason_code == "human_approved", f"approved as {decision.reason_code}")
        said = decision.evidence.claim if decision.evidence else None
        hold(review.action != "edit" or said == review.content, "approved another text than the one sent")


INPUTS: Final = (CLAIMS, f"{PREFIX}llm-responses", f"{PREFIX}review-decisions")


def some_letter(rng: Dice) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return key, value and headers of a dead letter as the gate writes it, with some of it broken."""
    value: bytes | None = written(rng, mutated(rng, inputs.claim(rng)))
    topic = rng.one(*INPUTS, CLAIMS, f"{PREFIX}approved", "other.claims", text(rng)[:60]).encode(
        "utf-8", "replace"
    )
    error = RecordError(rng.choice(list(ErrorCode)), rng.said().decode())
    headers: list[tuple[str, bytes | None]] = list(
        dead_letter_headers(error, topic.decode(), rng.one(0, 2), rng.one(0, 7, 2**62), ())
    )
    for _ in range(rng.one(0, 0, 1, 2)):
        name, held = headers.pop(rng.randrange(len(headers)))
        broken = rng.one(None, b"", b"-1", b"9" * 30, "\u0663".encode(), scratched(rng, held or b""))
        if rng.chance(0.7):
            headers.insert(rng.randint(0, len(headers)), (name, broken))
    if rng.chance(0.3):
        headers.append((text(rng)[:40].encode("utf-8", "replace").decode(), rng.one(None, b"x", b"\xff")))
    key = rng.one(b"default:ada", b"acme:ann", None, b"", b":", b"\xff", rng.said())
    return key, rng.one(value, value, value, None, b"", b"\xff"), headers


async def _letters(heard: Callable[[], str], rng: Dice) -> int:
    """Put letters and audit records on topics, and have them read and sent back, twice."""
    log = FakeLog()
    size = 0
    for _ in range(rng.randint(1, 4)):
        key, value, headers = some_letter(rng)
        size += len(value or b"")
        read_letter(log.put(DEAD, key, value, headers))
    for _ in range(rng.one(0, 0, 1)):
        log.put(AUDIT, b"", written(rng, any_value(rng)))
    before = {topic: len(records) for topic, records in log.topics.items()}

    async def no_wait(_seconds: float) -> None: ...

    async def redriven() -> list[Any]:
        rules = Rules(PREFIX, "ann")
        run = Redrive(log, Selection(), rules, now=lambda: from_milliseconds(log.clock), sleep=no_wait)
        return [step async for step in run.run() if step.outcome == RedriveOutcome.REDRIVEN]

    sent = await redriven()
    written_to = {topic for topic, records in log.topics.items() if len(records) > before.get(topic, 0)}
    hold(written_to <= {AUDIT, *INPUTS}, f"written to {sorted(written_to)}")
    for step in sent:
        there = [(one.key, one.value) for one in log.topics[step.letter.failed.topic]]
        hold(
            (step.letter.record.key, step.letter.record.value) in there, "a record went back with other bytes"
        )
    for record in log.topics[AUDIT][before.get(AUDIT, 0) :]:
        read_strictly(record.value)
    hold(not await redriven(), "sent back twice")
    quiet(heard())
    return size


SCOPES: Final = (
    ViewScope("lead", frozenset({"default", "acme"}), frozenset()),
    ViewScope(inputs.USER, frozenset(), frozenset({"default"})),
    ViewScope("eve", frozenset(), frozenset({"globex"})),
)


class Published:
    """Takes what the gate wrote, and has it read with some of it changed: by the console, a rebuild, and `verify`."""

    def __init__(
        self, made: Sequence[Output], values: Sequence[bytes], folder: Path, heard: Callable[[], str]
    ) -> None:
        self._made, self._heard = made, heard
        plain = [json.loads(each.value or b"null") for each in made]
        self._decisions = [one for one in plain if one and "facts" in one]
        (folder / "policies").mkdir()
        (folder / "records").write_bytes(b"\n".join(values) + b"\n")
        (folder / "none").write_bytes(b"")
        self.found = FileRecords(folder / "records", folder / "none")
        self._policies = PolicyStore(folder / "policies", None)

    async def __call__(self, rng: Dice) -> int:
        await self._policies.put(Policy())
        records = [self._record(rng, number) for number in range(rng.randint(1, 6))]
        values = [record.value for record in records if record.value is not None]
        with closing(Board(clock=lambda: NOW)) as board:
            board.add(records)
            board.add(records)
            board.candidates()
            for person in SCOPES:
                board.pending(person, Query())
                board.counts(person)
                board.dead_letters(person)
                board.agreement(person, datetime(2026, 1, 1, tzinfo=UTC))
            board.apply_statuses({})
            board.forget(NOW)
        closings = ReviewClosures()
        for value in values:
            closings.note(value)

        async def read() -> AsyncIterator[bytes]:
            for value in values:
                yield value

        async for _ in stored_outcomes(read(), Policy(), closings):
            pass
        for value in values:
            finding = await Verifier(self.found, self._policies).verify(value)
            if finding.status is VerifyStatus.EQUAL:
                recorded = json.loads(value)
                same = [one for one in self._decisions if all(one[name] == recorded[name] for name in _KNOWN)]
                told = [one[name] == recorded[name] for one in same[:1] for name in _TOLD]
                hold(all(told), "verified equal, though its verdict was changed")
        quiet(self._heard(), faults=True)  # of what no gate wrote, a rebuild says so
        return sum(map(len, values))

    def _record(self, rng: Dice, number: int) -> TopicRecord:
        at = to_milliseconds(NOW)
        if rng.chance(0.1):
            key, value, headers = some_letter(rng)
            return TopicRecord(TopicName.DEAD_LETTER, 0, number, at, key, value, tuple(headers))
        one = rng.choice(self._made)
        plain = json.loads(one.value or b"null")
        value = one.value if rng.chance(0.1) else written(rng, mutated(rng, plain, 0, 3))
        value = value if rng.chance(0.98) else None
        topic = one.topic if rng.chance(0.9) else rng.choice([*TopicName])
        time = rng.one(at, at, 0, -1, 253_402_300_799_999)
        return TopicRecord(topic, 0, number, time, one.key, value, tuple(one.headers))


_KNOWN: Final = ("decision_id", "facts", "policy")
_TOLD: Final = ("verdict", "tier", "approved", "reason_code", "checks_passed", "checks_failed", "evidence")


async def _everything() -> tuple[list[Output], list[bytes]]:
    """Let a gate decide, and people act, so that every kind of record is published."""
    office = Office()
    found: list[Output] = []
    values: list[bytes] = []
    rng = Dice("published")  # the same for every run
    for number in range(12):
        value = json.dumps({**inputs.claim(rng, number), "tenant_id": "default"}).encode()
        values.append(value)
        results = await office.results(office.record(value))
        found += outputs(results)
        decisions = [one.decision for one in results if isinstance(one, Decided)]
        office.publish(*decisions)
        for decision in decisions:
            kind = {"approved": "retract"}.get(decision.verdict)
            kind = rng.one("approve", "reject", "edit") if decision.verdict == "review" else kind
            if kind:
                fields = {"content": "Water is wet"} if kind == "edit" else {}
                record = office.action(kind, decision, **fields)
                values.append(record.value or b"")
                found += outputs(await office.carry_out(record))
    for number in range(4):
        value = json.dumps({**inputs.response(rng, number), "tenant_id": "default"}).encode()
        values.append(value)
        found += outputs(await office.results(office.record(value, topic="groundwire.llm-responses")))
    return found, values


@asynccontextmanager
async def _published() -> AsyncIterator[Case]:
    with listening() as heard, TemporaryDirectory() as folder:
        case = Published(*await _everything(), Path(folder), heard)
        heard()
        with closing(case.found):
            yield case


ENTRIES: Final = (
    entry(
        "reviews", lambda _, heard: partial(_reviewed, Keys.parse(KEYS.encode(), Path("keys.toml")), heard), 4
    ),
    entry("letters", lambda _, heard: partial(_letters, heard), 6),
    Entry("published", _published, 2),
)
