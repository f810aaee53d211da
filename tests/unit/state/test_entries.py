"""How entries are encoded for the scripts and decoded; which matches are reported, and which decide."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.signature import Difference, Thresholds
from groundwire.messages.decisions import DedupMatch, Kind, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.codec import (
    read_action,
    read_member,
    read_origin,
    read_stored,
    short_bytes,
    write_action,
    write_entry,
    write_member,
    write_origin,
)
from groundwire.state.matching import Indexed, Match, MatchKind, choose, kind_of
from groundwire.state.model import (
    MatchRules,
    Outcome,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    SubjectState,
    SubjectStatus,
)
from groundwire.state.workspace import RecordedAction, StoredEntry
from tests.state.claims import TEXT as CLAIM
from tests.state.claims import Claims, dedup

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


@given(outcome=OUTCOME, later=st.integers(0, 9), ids=st.binary(min_size=16, max_size=16), number=NUMBER)
def test_an_entry_is_read_as_it_was_written(outcome: Outcome, later: int, ids: bytes, number: int):
    parents = [parent.id for parent in outcome.parents]
    entry = StoredEntry.of(outcome, outcome.origin.timestamp + later, joined_to=ids, indexed=(ids, number))
    decided = replace(entry, outcome=None) if not outcome.payload else entry
    assert read_stored(write_entry(entry, outcome.payload), parents) == decided
    waiting = replace(entry, state=SubjectState.WAITING, outcome=None, joined_to=None, indexed=None)
    assert read_stored(write_entry(waiting, b""), None) == waiting


@given(origin=ORIGIN, data=st.binary(min_size=16, max_size=16), revision=st.integers(1, 99))
def test_an_action_is_read_as_it_was_written(origin: RecordOrigin, data: bytes, revision: int):
    status = SubjectStatus(SubjectState.BLOCKED, revision)
    at = origin.timestamp
    for refused in (None, RefusedAction("stale", status, at), RefusedAction("unknown", None, at)):
        done = (revision, SubjectState.APPROVED) if refused is None else ()
        action = RecordedAction(data, ReviewAction.EDIT, data, origin, refused, *done)
        assert read_action(write_action(action)) == action


@given(text=TEXT, digest=st.binary(min_size=16, max_size=16), times=st.tuples(NUMBER, NUMBER))
def test_an_indexed_claim_is_read_as_it_was_written(text: str, digest: bytes, times: tuple[int, int]):
    signature = dedup(CLAIM, Claims().ask().subject).signature
    for match_class in MatchClass:
        of = digest if match_class is MatchClass.PENDING else b""
        claim = Indexed(7, text, of, match_class, *times, signature)
        assert read_member(7, write_member(claim)) == claim


@given(origin=ORIGIN, data=st.binary(min_size=16, max_size=16))
def test_origins_and_digests_are_read_as_they_were_written(origin: RecordOrigin, data: bytes):
    assert read_origin(write_origin(origin).decode()) == origin
    assert len(short_bytes(data)) == 22
    assert short_bytes(data).replace(b"-", b"a").replace(b"_", b"a").isalnum()


def test_what_breaks_the_layout_is_an_error():
    for entry in (b"", b"?", b"+", b"A 1 1\non\n{}\n", b"Q 1 1 f o - - -\non\n\n"):
        with pytest.raises((ValueError, LookupError)):
            read_stored(entry, None)
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
        indexed = Indexed(
            number,
            who.subject_id,
            who.digest,
            draw(st.sampled_from(MatchClass)),
            draw(st.integers(0, 2)),
            0,
            b"",
        )
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
