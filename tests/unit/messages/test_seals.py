"""Seals: one output is proved by its path alone, and nothing that is signed can be changed unseen."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.keys import ed25519
from groundwire.messages.base import canonical_json
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.identity import event_id
from groundwire.messages.seals import SEALED, Seal, SealedOutput, SealHead, path_of, root_by, root_of, seal_of
from groundwire.messages.topics import TopicName

KEY = ed25519.new_private_key()


def output(number: int) -> SealedOutput:
    name = f"{number:08x}-0000-5000-8000-000000000000"
    return SealedOutput(
        number, "approved", number % 3, name, hashlib.sha256(str(number).encode()).hexdigest()
    )


outputs = st.integers(0, 40).map(lambda count: [output(number) for number in range(count)])


def sealed(given: list[SealedOutput], **changes: object) -> Seal:
    fields = {
        "at": datetime(2026, 5, 1, tzinfo=UTC),
        "before": None,
        "count": len(given),
        "end": 100,
        "first": 0,
        "key": "gate",
        "partition": 0,
        "root": root_of(given),
        "topic": "groundwire.claims",
    }
    head = SealHead.model_validate(fields | changes)
    return Seal(head, ed25519.sign(KEY, head.to_bytes()), tuple(given))


def event(seal: Seal) -> AuditEvent:
    return AuditEvent(
        event_id=event_id("seal", seal.head.sha256),
        type="seal",
        at=seal.head.at,
        tenant_id="",
        actor="groundwire",
        subject_id=None,
        decision_id=None,
        detail=seal.detail(),
    )


@given(outputs)
def test_the_root_is_that_of_rfc_6962(given):
    def by_definition(leaves: list[bytes]) -> bytes:
        """The tree's hash as RFC 6962, 2.1, defines it: split at the largest power of two below the number."""
        if not leaves:
            return hashlib.sha256().digest()
        if len(leaves) == 1:
            return hashlib.sha256(b"\0" + leaves[0]).digest()
        split = 1
        while 2 * split < len(leaves):
            split *= 2
        return hashlib.sha256(b"\1" + by_definition(leaves[:split]) + by_definition(leaves[split:])).digest()

    assert root_of(given) == by_definition([str(each).encode() for each in given]).hex()


@given(outputs.filter(bool), st.data())
def test_a_path_leads_from_its_output_to_the_root_and_from_no_other(given, data):
    index = data.draw(st.integers(0, len(given) - 1))
    path = path_of(given, index)
    assert root_by(given[index], path) == root_of(given)
    assert len(path) <= (len(given) - 1).bit_length()
    assert root_by(given[index]._replace(topic="blocked"), path) != root_of(given)


@given(outputs)
def test_a_seal_is_read_back_from_its_event_as_it_was(given):
    seal = sealed(given)
    assert seal_of(event(seal).model_dump_json().encode()) == seal
    assert seal.fits


def test_what_is_signed_is_canonical_json_and_no_other_outputs_fit_it():
    head = sealed([output(1)]).head
    assert head.to_bytes() == canonical_json(head.model_dump(mode="json"))
    plain = json.dumps(head.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    assert head.to_bytes() == plain.encode()
    given = [output(number) for number in range(5)]
    seal = sealed(given)
    for other in ([*given, output(9)], given[1:], given[::-1], [*given[:-1], output(9)], [*given, given[-1]]):
        assert not Seal(seal.head, seal.signature, tuple(other)).fits


def test_no_field_of_a_head_can_be_changed_under_its_signature():
    for field in ["at", "before", "count", "end", "first", "key", "partition", "root", "topic"]:
        other = {
            "at": datetime(2026, 5, 2, tzinfo=UTC),
            "before": "0" * 64,
            "key": "other",
            "root": "1" * 64,
            "topic": "other.claims",
        }.get(field, 7)
        seal = sealed([output(1)])
        changed = seal.head.model_copy(update={field: other})
        public = ed25519.public_key_of(KEY)
        assert ed25519.is_signed(public, seal.head.to_bytes(), seal.signature)
        assert not ed25519.is_signed(public, changed.to_bytes(), seal.signature)
        assert changed.sha256 != seal.head.sha256


def test_what_is_no_seal_is_refused_without_a_word_of_its_text():
    for detail in [
        {},
        {"seal": None, "signature": "00", "outputs": []},
        {**sealed([]).detail(), "outputs": ["1 approved secret words"]},
        {**sealed([]).detail(), "signature": "no hexadecimal"},
        {**sealed([]).detail(), "signature": None},
        {**sealed([]).detail(), "outputs": 7},
        {**sealed([]).detail(), "seal": {**sealed([]).head.model_dump(mode="json"), "first": -1}},
        {**sealed([]).detail(), "seal": {**sealed([]).head.model_dump(mode="json"), "secret words": 1}},
    ]:
        broken = event(sealed([])).model_copy(update={"detail": detail})
        with pytest.raises(ValueError, match="seal") as refused:
            Seal.of(broken)
        assert "secret words" not in str(refused.value).replace("seal.secret words", "")
        assert seal_of(broken.model_dump_json().encode()) is None


def test_every_output_topic_is_sealed_or_left_out_on_purpose() -> None:
    inputs = {TopicName.CLAIMS, TopicName.LLM_RESPONSES, TopicName.REVIEW_DECISIONS}
    assert set(TopicName) - inputs - set(SEALED) == {
        *(TopicName.DEFERRED, TopicName.DEAD_LETTER, TopicName.HEADS)
    }
