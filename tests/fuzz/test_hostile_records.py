"""Hostile claims, responses, review actions and dead letters are decided or refused by name, and never unchecked."""

# ruff: noqa: PT017 - an input may be refused: then its refusal is asserted
from __future__ import annotations

import hmac
import json
from contextlib import closing
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from agents.outputs import outputs
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.types import Acted, DeadLetter, Decided, Refused
from groundwire.keys.attestation import Keys
from groundwire.logs import report_fault
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decode import decode_claim, decode_response, decode_review_decision
from groundwire.messages.headers import InboundRecord, dead_letter_headers, deferred_headers, deferred_record
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcome, stored_outcomes
from groundwire.replay.review_closures import ReviewClosures
from groundwire.replay.store import FileRecords
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.review.board import Board
from groundwire.review.dead_letters import Letter, Selection, redrive_letters
from groundwire.review.model import Query
from groundwire.review.permissions import ViewScope
from groundwire.state.policies import PolicyStore
from tests.fuzz import inputs
from tests.fuzz.contract import check_decision, check_outputs, listening, quiet, read_strictly, some_policy
from tests.fuzz.inputs import CANARY, Dice, any_value, feed, mutated, scratched, text, written
from tests.unit.console.rooms import make_decision
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, FakeLog
from tests.unit.gate.office import KEYS, Office
from tests.unit.gate.world import NOW, RESPONSES, TOPIC, World, adr_folder, verifier

INPUTS = (CLAIMS, f"{PREFIX}llm-responses", f"{PREFIX}review-decisions")


def test_a_seed_makes_the_same_input_again():
    value = {"a": [1, "text", None], "b": {"c": True}}

    def made():
        return [written(Dice(f"w{n}"), mutated(Dice(f"m{n}"), value, 1)) for n in range(200)]

    assert made() == made()
    assert len(set(made())) > 100


def test_a_text_in_a_log_and_a_fault_inside_are_found():
    with pytest.raises(AssertionError):
        quiet(f"decided {CANARY}")
    with listening() as heard:
        report_fault("claim.unreadable", ValueError("x"))
        with pytest.raises(AssertionError, match="broke inside"):
            quiet(heard())


def test_a_value_is_read_as_a_record_or_refused_with_a_code_and_a_reason():
    async def read(rng):
        example = rng.one(inputs.claim(rng), inputs.response(rng), inputs.action(rng, "c1", 1, 1))
        value = written(rng, mutated(rng, example, 1))
        for decode in (decode_claim, decode_response, decode_review_decision):
            try:
                record = decode(value)
            except RecordError as error:
                assert error.message
                assert error.code
                f"{error.message}{error.field}".encode()
            else:
                record.model_dump_json()

    feed(30, read)


@pytest.mark.parametrize(
    ("topic", "example", "decode", "share"),
    [(TOPIC, inputs.claim, decode_claim, 6), (RESPONSES, inputs.response, decode_response, 4)],
    ids=["claims", "responses"],
)
def test_a_claim_or_response_is_decided_or_a_dead_letter(topic, example, decode, share, tmp_path):
    secrets = {"docs": b"three", "late": b"four", "nobody": b"?"}
    keys = "\n".join(
        f'[keys.{name}]\nsecret = "{secrets[name].decode()}"\ntenants = ["default"]\n'
        f'sources = ["user", "documentation", "adr"]\n{more}'
        for name, more in (("docs", ""), ("late", "not_after = 2026-01-01T00:00:00Z\n"))
    )
    keys = Keys.parse(keys.encode(), Path("keys.toml"))
    adrs = adr_folder(tmp_path / "adr", ADR_003="We use PostgreSQL for storage")

    def headers(rng, value):
        """Make headers: signatures good and bad, traces, and what nobody asked for."""
        for _ in range(rng.one(0, 0, 1, 3)):
            name = rng.one(
                "gw-attestation", "traceparent", "gw-attempts", "gw-origin", "ce_id", text(rng)[:40]
            )
            held = rng.one(None, b"", b"00-a-b-01", b"1", b"-1", b"9" * 40, rng.said(), b"\xff\xfe")
            if name == "gw-attestation":
                key = rng.choice(sorted(secrets))
                signed = value if rng.chance(0.7) else scratched(rng, value)
                held = f"{key}:{hmac.new(secrets[key], signed, 'sha256').hexdigest()}".encode()
                held = scratched(rng, held) if rng.chance(0.2) else held
            yield name.encode("utf-8", "replace").decode(), held

    def made(rng, world, number):
        value = written(rng, mutated(rng, example(rng, number)))
        if rng.chance(0.01):
            value = rng.one(None, b"", b" ", written(rng, any_value(rng, 3)), scratched(rng, value))
        record = world.record(value, headers=tuple(headers(rng, value or b"")), topic=topic)
        key = rng.one(b"default:ada", None, b"", b"\xff", rng.said())
        odd = (0, -1, 253_402_300_799_999, 2**63 - 1, -(2**63))
        time = record.timestamp if rng.chance(0.97) else rng.choice(odd)
        return InboundRecord(topic, 0, record.offset, time, key, value, record.headers)

    def check(record, result, policy):
        content = None
        try:
            content = decode(record.value)
        except RecordError as error:
            assert 0 < len(error.message) < 2_000
        if isinstance(result, DeadLetter):
            assert content is not None or result.error.code != "claim_id_conflict"
        else:
            assert content is not None, "decided, though it cannot be read"
            assert isinstance(result, Decided)
            check_decision(result.decision, content, policy)

    async def gated(rng):
        """Put records of one kind through a gate and a state of their own."""
        policy = some_policy(rng)
        citations = verifier(adrs, urls={"https://docs.example.org/good": 200})
        world = World(policy=policy, verifier=citations, keys=keys)
        records = [made(rng, world, number) for number in range(1, rng.one(1, 1, 2, 3) + 1)]
        if rng.chance(0.1):
            records.append(records[0])
        gate = world.gate
        for batch in [records] if rng.chance(0.5) else [[one] for one in records]:
            results = await gate.apply_step(await gate.prepare(batch, ask_network=True), deferred=True)
            for record, result in zip(batch, results, strict=True):
                check(record, result, policy)
            check_outputs(results)
        if rng.chance(0.1):
            for result in gate.provisional(await gate.prepare(records)):
                assert isinstance(result, DeadLetter) or not result.decision.approved
        await citations.close()
        quiet(heard())

    with listening() as heard:
        feed(share, gated)


def test_an_action_is_carried_out_only_for_a_person_who_may_and_only_as_sent():
    secrets = {"console": b"one", "gate": b"two", "docs": b"three", "late": b"four", "nobody": b"?"}
    keys = Keys.parse(KEYS.encode(), Path("keys.toml"))

    def check(value, result, *, attested):
        try:
            review = decode_review_decision(value)
        except RecordError:
            assert isinstance(result, DeadLetter)
            return
        assert isinstance(result, Acted | Refused)
        if isinstance(result, Refused):
            return
        assert attested
        assert review.tenant_id in {"default", "acme"}, "carried out for a tenant that the key is not of"
        assert review.reviewer == review.user_id or keys.delegated(review.tenant_id, review.reviewer)
        assert review.action != "expire", "expired without the gate's own key"
        decision = result.decision
        if decision.approved and result.fresh:
            assert review.action in {"approve", "edit"}
            assert decision.reason_code == "human_approved"
            assert review.action != "edit" or decision.evidence.claim == review.content

    async def reviewed(rng):
        """Decide a claim or a response, and then let people act on it."""
        office = Office(policy=some_policy(rng), keys=keys)
        made = inputs.claim(rng) if rng.chance(0.8) else inputs.response(rng)
        topic, subject = (TOPIC, "c1") if "claim_id" in made else (RESPONSES, "r1")
        first = written(rng, {**made, "tenant_id": "default"})
        (result,) = await office.results(office.record(first, topic=topic))
        if isinstance(result, Decided):
            office.publish(result.decision)
        for number in range(rng.one(1, 1, 2, 3)):
            plain = inputs.action(rng, subject, rng.one(1, 1, 1, 2, 0), number)
            value = written(rng, mutated(rng, plain, 0, 2) if rng.chance(0.5) else plain)
            key = rng.one(*secrets, "console", "console", "console")
            signed = value if rng.chance(0.9) else scratched(rng, value)
            header = f"{key}:{hmac.new(secrets[key], signed, 'sha256').hexdigest()}".encode()
            if rng.chance(0.1):
                header, signed = scratched(rng, header), b""
            headers = (("gw-attestation", header),) if rng.chance(0.9) else ()
            done = await office.carry_out(office.record(value, headers=headers, topic=INPUTS[2]))
            for each in done:
                check(value, each, attested=headers and signed == value and key == "console")
            check_outputs(done)
        quiet(heard())

    with listening() as heard:
        feed(4, reviewed)


def some_letter(rng):
    """Make key, value and headers of a dead letter as the gate writes it, with some of it broken."""
    value = written(rng, mutated(rng, inputs.claim(rng)))
    topic = rng.one(*INPUTS, CLAIMS, f"{PREFIX}approved", "other.claims", text(rng)[:60])
    topic = topic.encode("utf-8", "replace").decode()
    error = RecordError(rng.choice(list(ErrorCode)), rng.said().decode())
    place = topic, rng.one(0, 2), rng.one(0, 7, 2**62)
    headers = list(dead_letter_headers(error, *place, (), rng.one(-1, 0, 5000, 2**62)))
    for _ in range(rng.one(0, 0, 1, 2)):
        name, held = headers.pop(rng.randrange(len(headers)))
        broken = rng.one(None, b"", b"-1", b"9" * 30, "\u0663".encode(), scratched(rng, held or b""))
        if rng.chance(0.7):
            headers.insert(rng.randint(0, len(headers)), (name, broken))
    if rng.chance(0.3):
        headers.append((text(rng)[:40].encode("utf-8", "replace").decode(), rng.one(None, b"x", b"\xff")))
    key = rng.one(b"default:ada", b"acme:ann", None, b"", b":", b"\xff", rng.said())
    return key, rng.one(value, value, value, None, b"", b"\xff"), headers


def test_a_dead_letter_is_sent_back_once_with_its_bytes_or_not_at_all():
    async def redriven(log):
        run = redrive_letters(log, Selection(), "ann", most=3, rate=1e9, limit=None)
        return [letter async for letter in run if letter.outcome == "redriven"]

    async def sent_back(rng):
        log = FakeLog()
        for _ in range(rng.randint(1, 4)):
            Letter(log.put(DEAD, *some_letter(rng)))
        if rng.chance(0.3):
            log.put(AUDIT, b"", written(rng, any_value(rng)))
        before = {topic: len(records) for topic, records in log.topics.items()}
        sent = await redriven(log)
        grown = {topic for topic, records in log.topics.items() if len(records) > before.get(topic, 0)}
        assert grown <= {AUDIT, *INPUTS}
        for step in sent:
            on_topic = [(one.key, one.value) for one in log.topics[step.failure.topic]]
            assert (step.record.key, step.record.value) in on_topic
        for record in log.topics[AUDIT][before.get(AUDIT, 0) :]:
            read_strictly(record.value)
        assert not await redriven(log)
        quiet(heard())

    with listening() as heard:
        feed(6, sent_back)


def test_published_records_that_somebody_changed_stop_no_reader_and_do_not_verify(tmp_path):
    """The readers: the console's board, a rebuild, and `verify`."""
    made, originals = [], []
    (tmp_path / "none").touch()
    (tmp_path / "policies").mkdir()
    policies = PolicyStore(tmp_path / "policies", None)

    async def everything_published():
        """Let a gate decide, and people act, so that every kind of record is published."""
        office, published, values = Office(), [], []
        rng = Dice("published")  # the same for every run
        for number in range(12):
            values.append(json.dumps({**inputs.claim(rng, number), "tenant_id": "default"}).encode())
            results = await office.results(office.record(values[-1]))
            published += outputs(results)
            decisions = [one.decision for one in results if isinstance(one, Decided)]
            office.publish(*decisions)
            for decision in decisions:
                reviewed = rng.one("approve", "reject", "edit")
                kind = {"approved": "retract", "review": reviewed}.get(decision.verdict)
                if kind:
                    fields = {"content": "Water is wet"} if kind == "edit" else {}
                    record = office.action(kind, decision, **fields)
                    values.append(record.value)
                    published += outputs(await office.carry_out(record))
        for number in range(4):
            values.append(json.dumps({**inputs.response(rng, number), "tenant_id": "default"}).encode())
            published += outputs(await office.results(office.record(values[-1], topic=RESPONSES)))
        return published, values

    def record(rng, number):
        at = to_milliseconds(NOW)
        if rng.chance(0.1):
            key, value, headers = some_letter(rng)
            return InboundRecord(TopicName.DEAD_LETTER, 0, number, at, key, value, tuple(headers))
        one = rng.choice(made)
        value = one.value
        if rng.chance(0.9):
            value = written(rng, mutated(rng, json.loads(one.value or b"null"), 0, 3))
        value = value if rng.chance(0.98) else None
        topic = one.topic if rng.chance(0.9) else rng.choice([*TopicName])
        time = rng.one(at, at, 0, -1, 253_402_300_799_999)
        return InboundRecord(topic, 0, number, time, one.key, value, tuple(one.headers))

    async def read(rng):
        if not made:
            published, values = await everything_published()
            made.extend(published)
            originals.extend(
                one for one in (json.loads(each.value or b"null") for each in made) if one and "facts" in one
            )
            (tmp_path / "records").write_bytes(b"\n".join(values) + b"\n")
            await policies.put(Policy())
            heard()
        records = [record(rng, number) for number in range(rng.randint(1, 6))]
        values = [each.value for each in records if each.value is not None]
        with closing(Board(clock=lambda: NOW)) as board:
            board.add(records)
            board.add(records)
            board.candidates()
            for person in (
                ViewScope("lead", frozenset({"default", "acme"}), frozenset()),
                ViewScope(inputs.USER, frozenset(), frozenset({"default"})),
                ViewScope("eve", frozenset(), frozenset({"globex"})),
            ):
                board.pending(person, Query())
                board.counts(person)
                board.dead_letters(person)
                board.agreement(person, datetime(2026, 1, 1, tzinfo=UTC))
            board.apply_statuses({})
            board.forget(NOW)
        closings = ReviewClosures()
        for value in values:
            closings.note(value)

        async def stored():
            for value in values:
                yield value

        async for _ in stored_outcomes(stored(), Policy(), closings):
            pass
        with closing(FileRecords(tmp_path / "records", tmp_path / "none")) as found:
            verdicts = [(value, await Verifier(found, policies).verify(value)) for value in values]
        for recorded in [json.loads(value) for value, each in verdicts if each.status is VerifyStatus.EQUAL]:
            same = [
                one
                for one in originals
                if all(one[name] == recorded[name] for name in ("decision_id", "facts", "policy"))
            ]
            derived = (
                "verdict",
                "tier",
                "approved",
                "reason_code",
                "checks_passed",
                "checks_failed",
                "evidence",
            )
            for one in same[:1]:
                assert {name: one[name] for name in derived} == {name: recorded[name] for name in derived}
        quiet(heard(), faults=True)  # a rebuild reports records that no gate wrote

    with listening() as heard:
        feed(2, read)


async def test_a_deferred_record_whose_origin_no_log_has_is_decided_as_the_record_that_carries_it():
    for value in (b"{", b'{"claim_id": "c", "user_id": "u", "content": "It is so."}'):
        first = InboundRecord(TOPIC, 0, 1, 1_770_000_000_000, b"default:u", value)
        for name, number in product(("partition", "offset"), (2**53, -(2**53), 10**18)):
            headers = deferred_headers(first)
            odd = tuple(
                (key, b"%d" % number if key == f"gw-origin-{name}" else held) for key, held in headers
            )
            place = ("groundwire.deferred", 3, 4, 1_770_000_000_000, b"default:u", value)
            record = deferred_record(InboundRecord(*place, odd))
            assert (record.partition, record.offset) == (3, 4)
            (result,) = await World().results(record)
            assert isinstance(result, Decided | DeadLetter)


async def test_a_decision_that_no_gate_wrote_keeps_no_other_from_coming_back():
    for change in (
        {"reason_code": "no such code"},
        {"kind": "response", "report": {"regenerate": "x"}},
        {"kind": "response", "report": {}, "reason_code": "x"},
    ):

        async def values(change=change):
            for one in (make_decision("odd", **change), make_decision("plain")):
                yield json.dumps(one).encode()

        outcomes = stored_outcomes(values(), Policy(), ReviewClosures())
        assert [outcome.subject.subject_id async for outcome in outcomes] == ["plain"]


def test_a_revision_that_no_subject_comes_to_is_no_decision():
    for revision in (2**31, 2**63, 10**30):
        value = json.dumps(make_decision("c", revision=1) | {"revision": revision}).encode()
        board = Board()
        board.add([InboundRecord(TopicName.REVIEW, 0, 0, 0, b"acme:ana", value)])
        assert board.candidates() == []
        board.close()
        assert stored_outcome(value, Policy()) is None
