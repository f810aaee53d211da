"""How entries are encoded for the scripts and decoded; which matches are reported, and which decide."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.signature import Difference, Thresholds
from groundwire.messages.decisions import DedupMatch, Kind, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.codec import read_answer, read_entry, read_origin, short, write_origin, write_stored
from groundwire.state.matching import Indexed, Match, MatchKind, choose, kind_of
from groundwire.state.model import (
    Conflict,
    GivenUp,
    MatchRules,
    Outcome,
    RecordOrigin,
    StoredOutcome,
    SubjectState,
    Waiting,
)
from tests.state.claims import Claims

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
PARENT = st.builds(ParentFact, id=TEXT, state=st.sampled_from(["approved", "joined", "blocked", "unknown"]))
OUTCOME = st.builds(
    Outcome,
    state=st.sampled_from([state for state in SubjectState if state is not SubjectState.WAITING]),
    tier=st.integers(1, 3),
    revision=st.integers(1, 99),
    fresh=st.just(value=False),
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


@given(outcome=OUTCOME)
def test_an_outcome_is_read_as_it_was_written(outcome: Outcome):
    packed = write_stored(StoredOutcome(Subject("acme", "ada", Kind.CLAIM, "c1"), outcome, None, 0))
    fields = []
    while packed:  # the entry that load.lua makes of it
        end = 4 + int.from_bytes(packed[:4], "little")
        fields.append(packed[4:end])
        packed = packed[end:]
    fingerprint, origin, state, tier, revision, first, joined, facts, payload, record = fields[4:14]
    header = b" ".join((state, tier, revision, fingerprint, origin, first, joined, b"-"))
    entry = b"\n".join((header, facts, payload, record))
    assert read_entry(entry, [parent.id for parent in outcome.parents], outcome.fingerprint) == outcome


@given(origin=ORIGIN, data=st.binary(min_size=16, max_size=16))
def test_origins_and_digests_are_read_as_they_were_written(origin: RecordOrigin, data: bytes):
    assert read_origin(write_origin(origin).decode()) == origin
    assert len(short(data)) == 22
    assert short(data).replace("-", "a").replace("_", "a").isalnum()


def test_short_answers_are_read_and_what_breaks_the_layout_is_an_error():
    ask = Claims().ask()
    answers = {b"!": Conflict(), b"W": Waiting(publish=True), b"w": Waiting(publish=False)}
    answers[b"=R 2 0 f o - - -\non\n\n"] = GivenUp()
    assert {answer: read_answer(ask, answer) for answer in answers} == answers
    for answer in (b"", b"?", b"+", b"=A 1 1\non\n{}\n", b"+Q 1 1 f o - - -\non\n\n"):
        with pytest.raises((ValueError, LookupError)):
            read_answer(ask, answer)
    for topic in ("", "a,b", "a b", "a\nb"):
        with pytest.raises(ValueError, match="topic"):
            write_origin(RecordOrigin(topic, 0, 0, 0, "00" * 32))
    with pytest.raises(ValueError, match="SHA-256"):
        write_origin(RecordOrigin("t", 0, 0, 0, "00" * 20))


@st.composite
def matches(draw) -> list[Match]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        who = Subject("acme", "ada", Kind.CLAIM, draw(st.sampled_from("abcdé")))
        indexed = Indexed(number, who, draw(st.sampled_from(MatchClass)), draw(st.integers(0, 2)), 0, b"")
        inter = draw(st.integers(1, 4))
        found.append(Match(indexed, inter, draw(st.integers(inter, 5)), draw(st.sampled_from(Difference))))
    return draw(st.permutations(found))


@given(found=matches(), material=st.booleans(), data=st.data())
def test_five_are_reported_nearest_first_with_the_nearest_of_each_kind_that_decides(found, material, data):
    rules = MatchRules(Thresholds(7500, 7000, 6000), material)
    kept, best = choose(found, rules)
    assert (kept, best) == choose(data.draw(st.permutations(found)), rules), (
        "in whichever order they are found"
    )
    assert len(kept) == min(5, len(found))
    ratios = [match.inter / match.union for match in kept]
    assert ratios == sorted(ratios, reverse=True)
    for kind in MatchKind:
        of_kind = [match for match in found if kind_of(match.fact(), rules) is kind]
        assert (kind in best) == bool(of_kind)
        if of_kind:
            assert best[kind] in kept
            assert best[kind].rank == min(match.rank for match in of_kind)
    assert material or MatchKind.CONFLICT not in best
    for first, second in pairwise(kept):
        if first.inter * second.union == second.inter * first.union:
            approved = [match.indexed.match_class is MatchClass.APPROVED for match in (first, second)]
            assert approved != [False, True], "of equally near ones the approved come first"
