"""How entries are written and read."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.messages.decisions import DedupMatch, Kind, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.codec import read_answer, read_entry, read_origin, short, write_origin, write_stored
from groundwire.state.model import (
    Conflict,
    GivenUp,
    Outcome,
    RecordOrigin,
    StepRequest,
    StoredOutcome,
    SubjectState,
    Waiting,
)

SHA256 = st.binary(min_size=32, max_size=32).map(bytes.hex)
NUMBER = st.integers(0, 2**53 - 1)
TOPIC = st.from_regex(r"[A-Za-z0-9._-]{1,40}[a-z]", fullmatch=True)
ORIGIN = st.builds(RecordOrigin, TOPIC, st.integers(0, 999), NUMBER, st.integers(-1, 2**53 - 1), SHA256)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
MATCH = st.builds(
    DedupMatch,
    subject_id=TEXT,
    inter=NUMBER,
    union=NUMBER,
    difference=st.sampled_from(["none", "negation", "number", "unit", "order"]),
    match_class=st.sampled_from(MatchClass),
)
PARENT = st.builds(
    ParentFact,
    id=TEXT,
    state=st.sampled_from(["approved", "pending", "joined", "refused", "blocked", "unknown"]),
)
OUTCOME = st.builds(
    Outcome,
    state=st.sampled_from([state for state in SubjectState if state is not SubjectState.WAITING]),
    tier=st.integers(1, 3),
    revision=st.integers(1, 99),
    fresh=st.sampled_from([False]),
    origin=ORIGIN,
    first_origin=st.none() | ORIGIN,
    fingerprint=SHA256,
    dedup_status=st.sampled_from(["ok", "failed", "disabled"]),
    matches=st.lists(MATCH, max_size=5),
    parents=st.lists(PARENT, max_size=5),
    place=st.sampled_from(Place),
    payload=st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    record=st.binary(max_size=20),
).map(lambda outcome: outcome if outcome.state is SubjectState.PENDING else replace(outcome, record=b""))
CLAIM = Subject("acme", "ada", Kind.CLAIM, "c1")


def entry_of(outcome: Outcome) -> bytes:
    """Return the entry that load.lua makes of an outcome."""
    packed = write_stored(StoredOutcome(CLAIM, outcome, None, 0))
    fields = []
    while packed:
        end = 4 + int.from_bytes(packed[:4], "little")
        fields.append(packed[4:end])
        packed = packed[end:]
    fingerprint, origin, state, tier, revision, first, joined, facts, payload, record = fields[4:14]
    header = b" ".join((state, tier, revision, fingerprint, origin, first, joined, b"-"))
    return b"\n".join((header, facts, payload, record))


@given(outcome=OUTCOME)
def test_an_outcome_is_read_as_it_was_written(outcome: Outcome):
    parents = [parent.id for parent in outcome.parents]
    assert read_entry(entry_of(outcome), parents, outcome.fingerprint) == outcome


@given(origin=ORIGIN)
def test_an_origin_is_read_as_it_was_written(origin: RecordOrigin):
    assert read_origin(write_origin(origin).decode()) == origin


@pytest.mark.parametrize("topic", ["", "a,b", "a b", "a\nb"])
def test_an_origin_that_would_break_the_header_is_refused(topic):
    with pytest.raises(ValueError, match="topic"):
        write_origin(RecordOrigin(topic, 0, 0, 0, "00" * 32))


def test_a_digest_of_another_length_is_refused():
    with pytest.raises(ValueError, match="SHA-256"):
        write_origin(RecordOrigin("t", 0, 0, 0, "00" * 20))


@given(data=st.binary(min_size=16, max_size=16))
def test_digests_in_keys_are_22_safe_characters(data: bytes):
    assert len(short(data)) == 22
    assert short(data).replace("-", "a").replace("_", "a").isalnum()


def ask() -> StepRequest:
    fingerprint = hashlib.sha256(b"").hexdigest()
    origin = RecordOrigin("t", 0, 0, 0, fingerprint)
    return StepRequest(
        subject=CLAIM,
        fingerprint=fingerprint,
        origin=origin,
        base_tier=1,
        capped=False,
        wait=False,
        dedup=None,
        dedup_failed=False,
        parents=(),
        horizon=0,
        payload=b"",
        record=b"",
    )


def test_the_short_answers_are_read():
    assert read_answer(ask(), b"!") == Conflict()
    assert read_answer(ask(), b"W") == Waiting(publish=True)
    assert read_answer(ask(), b"w") == Waiting(publish=False)


def test_an_entry_without_a_payload_is_that_of_a_record_given_up():
    assert read_answer(ask(), b"=R 2 0 f o - - -\non\n\n") == GivenUp()


@pytest.mark.parametrize("answer", [b"", b"?", b"+", b"=A 1 1\non\n{}\n", b"+Q 1 1 f o - - -\non\n\n"])
def test_what_is_no_answer_is_an_error(answer):
    with pytest.raises((ValueError, LookupError)):
        read_answer(ask(), answer)
