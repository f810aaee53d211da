"""The board shows the queue as the topics have it, to each person what they may see."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.errors import ErrorCode, RecordError
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Kind, ReasonCode, Verdict
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.model import Backlog, Query, SourceRecord, risk_of
from groundwire.review.permissions import Permissions, Person, ViewScope
from groundwire.review.records import in_one_line
from groundwire.state.model import SubjectState, SubjectStatus
from tests.unit.review.world import (
    ADMIN,
    NOW,
    FilledBoard,
    audit,
    dead_letter,
    decision,
    filled,
    names,
    record,
    records,
    reviewed,
)

OWNER = ViewScope("ann", frozenset(), frozenset({"acme"}))
STRANGER = ViewScope("eve", frozenset(), frozenset({"acme", "globex"}))


@pytest.fixture(params=[True, False], ids=["fts5", "plain"])
def board(request) -> Iterator[Board]:
    made = FilledBoard(fts=request.param)
    yield made
    made.close()


def everything(board: Board, scope: ViewScope) -> object:
    """Whatever a person can read of a board."""
    pages = [board.pending(scope, Query(sort=sort, limit=200)) for sort in ("risk", "oldest", "newest")]
    pages += [board.not_pending(scope, topic, 200) for topic in (TopicName.BLOCKED, TopicName.REVIEW)]
    ids = sorted({row.decision_id for page in pages for row in page.rows})
    found = [board.item(scope, each) for each in ids]
    every = [revision.decision_id for item in found for revision in item.history]
    return (
        pages,
        found,
        [board.item(scope, each) for each in every],
        board.counts(scope),
        board.agreement(scope, NOW - timedelta(days=365)),
        board.dead_letters(scope, 200),
    )


def test_a_review_with_a_place_waits_until_a_higher_revision_says_otherwise(board) -> None:
    board.put(decision("a"), decision("b"), reviewed("b"), decision("c", verdict="blocked"))
    assert names(board.pending(ADMIN, Query())) == ["a"]


def test_a_review_without_a_place_or_that_is_provisional_is_not_pending(board) -> None:
    board.put(
        decision("a", facts={"place": "not_needed"}),
        decision("b", facts={"place": "user_full"}),
        decision("c", revision=0),
    )
    assert board.pending(ADMIN, Query()).total == 0
    assert board.candidates() == []


def test_what_state_does_not_hold_as_pending_at_that_revision_is_dropped(board) -> None:
    board.put(*(decision(name) for name in "abcd"))
    subjects = {subject.subject_id: subject for subject, _ in board.candidates()}
    board.apply_statuses(
        {
            subjects["a"]: SubjectStatus(SubjectState.PENDING, 1),
            subjects["b"]: SubjectStatus(SubjectState.APPROVED, 2),
            subjects["c"]: None,
            subjects["d"]: SubjectStatus(SubjectState.PENDING, 2),
            Subject("acme", "ann", Kind.CLAIM, "unheard"): None,
        }
    )
    assert names(board.pending(ADMIN, Query())) == ["a"]
    assert len(board.candidates(dropped=True)) == 4


def test_what_was_dropped_comes_back_with_a_new_revision_or_when_state_says_so(board) -> None:
    board.put(decision("a"), decision("b"))
    subjects = {subject.subject_id: subject for subject, _ in board.candidates()}
    board.apply_statuses(dict.fromkeys(subjects.values()))
    board.add([record(decision("a", revision=2), 9)])
    assert names(board.pending(ADMIN, Query(text="service"))) == ["a"]
    board.apply_statuses({subjects["b"]: SubjectStatus(SubjectState.PENDING, 1)})
    assert sorted(names(board.pending(ADMIN, Query(text="service")))) == ["a", "b"]


def test_a_status_from_before_the_shown_revision_drops_nothing(board) -> None:
    board.put(decision("a", revision=2))
    board.apply_statuses({Subject("acme", "ann", Kind.CLAIM, "a"): SubjectStatus(SubjectState.REFUSED, 1)})
    assert names(board.pending(ADMIN, Query())) == ["a"]


WORLD = [
    *records(
        *(decision(f"c{n}", age=60 + n % 3, text=f"Text {n % 4}") for n in range(6)),
        *(reviewed(f"c{n}", action) for n, action in enumerate(["approve", "edit", "reject"])),
        reviewed("c0", "retract", revision=3, age=1),
        decision("c1", revision=0),
        decision("r1", kind="response", facts={"place": "not_needed"}),
        decision("x", verdict="blocked", user="bob"),
    ),
    record(decision("c4", age=60 + 4 % 3, text="Text 0"), offset=99, partition=1),
    record(replace_engine := decision("c5", age=62, text="Text 1", engine="0.2.0"), offset=77),
    audit("c1"),
    audit("c2", applied=False, offset=1),
    dead_letter(b"acme:ann", b"{", 2, RecordError(ErrorCode.INVALID_JSON, "no JSON")),
]


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(WORLD)))
def test_any_order_and_repetition_of_the_same_records_gives_the_same_board(rng, again) -> None:
    shuffled = [*WORLD, *again]
    rng.shuffle(shuffled)
    first, second = FilledBoard(), FilledBoard()
    first.add(WORLD)
    cut = rng.randint(0, len(shuffled))
    second.add(shuffled[:cut])
    second.add(shuffled[cut:])
    assert everything(first, ADMIN) == everything(second, ADMIN)
    assert set(first.candidates()) == set(second.candidates()) != set()


def test_records_already_known_change_nothing(board) -> None:
    board.add(WORLD)
    version = board.version
    board.add(list(reversed(WORLD)))
    assert board.version == version


@given(
    st.sampled_from(list(TopicName)), st.binary(max_size=50) | st.none(), st.binary(max_size=20) | st.none()
)
@example(TopicName.REVIEW, b"null", None)
@example(TopicName.AUDIT, b'{"type": "review_action"}', None)
@example(TopicName.DEAD_LETTER, None, b"\xff:x")
def test_what_is_no_such_record_is_left_out(topic, value, key) -> None:
    board = FilledBoard()
    board.add([replace(record(decision()), topic=topic, value=value, key=key)])
    assert board.pending(ADMIN, Query()).total == 0
    assert board.not_pending(ADMIN, TopicName.BLOCKED).total == 0


def test_a_decision_on_a_topic_that_is_not_its_verdicts_is_left_out(board) -> None:
    board.add([replace(record(decision("a", verdict="approved")), topic=TopicName.REVIEW)])
    board.add([record(decision("b", replay="r1"))])
    assert board.candidates() == []
    assert board.item(ADMIN, decision("a").decision_id) is None


def test_each_filter_leaves_what_it_names(board) -> None:
    board.put(
        decision("a", reason_code="technical_hedge"),
        decision("b", user="bob"),
        decision("c", tenant="globex"),
        decision("d", source="chat"),
        decision("e", memory_type="decision"),
        decision("f", kind="response"),
        decision("g", age=3 * 24 * 60),
    )
    for query, found in {
        Query(reason="technical_hedge"): "a",
        Query(user="bob"): "b",
        Query(tenant="globex"): "c",
        Query(source="chat"): "d",
        Query(memory_type="decision"): "e",
        Query(kind=Kind.RESPONSE): "f",
        Query(min_age=timedelta(days=2)): "g",
        Query(max_age=timedelta(days=2), reason="technical_hedge"): "a",
        Query(min_age=timedelta(days=999_999_999)): "",
    }.items():
        assert names(board.pending(ADMIN, query)) == list(found)


def test_the_riskiest_reason_comes_first_and_within_it_the_oldest(board) -> None:
    board.put(
        decision("young", reason_code="ungrounded", age=1),
        decision("old", reason_code="ungrounded", age=9),
        decision("conflict", reason_code="conflicting_near_duplicate", age=1),
        decision("hedge", reason_code="technical_hedge", age=99),
        decision("new code", reason_code="of_a_later_version", age=1),
        decision("parent", reason_code="derived_from_unapproved", age=2),
    )
    risk = ["new code", "conflict", "parent", "hedge", "old", "young"]
    assert names(board.pending(ADMIN, Query())) == risk
    assert names(board.pending(ADMIN, Query(sort="oldest")))[:3] == ["hedge", "old", "parent"]
    assert names(board.pending(ADMIN, Query(sort="newest")))[-3:] == ["parent", "old", "hedge"]


def test_every_reason_of_a_review_has_a_risk_that_says_why() -> None:
    final = {"duplicate", "expired", "personal_speculation", "entity_grounding_failed"}
    final |= {"relation_preservation_failed", "review_queue_full"}
    approving = {"verified_citation", "trusted_source", "stated_decision", "stated_preference", "grounded"}
    people = {"human_approved", "human_rejected", "review_expired", "retracted"}
    for code in ReasonCode:
        assert (risk_of(code).rank == 0) == (code in final | approving | people)


@given(st.integers(1, 40), st.integers(1, 7), st.sampled_from(["risk", "oldest", "newest"]), st.randoms())
def test_pages_together_hold_everything_once_in_order(count, size, sort, rng) -> None:
    codes = ["ungrounded", "technical_hedge", "previously_rejected"]
    failed = [[], ["derived_from_unapproved: b"], ["of_a_later_version"], ["citation_unverified: #7"]]
    board = filled(
        *(
            decision(
                f"c{n}",
                age=rng.randint(0, 4),
                reason_code=rng.choice(codes),
                checks_failed=rng.choice(failed),
            )
            for n in range(count)
        )
    )
    whole = board.pending(ADMIN, Query(sort=sort, limit=200))
    assert (whole.total, whole.next) == (count, None)
    found, cursor = [], None
    while True:
        page = board.pending(ADMIN, Query(sort=sort, limit=size, cursor=cursor))
        assert page.total == count
        found += page.rows
        cursor = page.next
        if cursor is None:
            break
    assert found == whole.rows
    if sort == "risk":
        assert found == sorted(found, key=lambda row: (row.risk.rank, row.since, row.decision_id))


def test_a_wrong_cursor_or_a_query_out_of_range_is_refused_by_name(board) -> None:
    for cursor in ("", "x", "W10=", "WzEsMl0=", "WzEsMiwzXQ==", "é", "WzFlOTksMSwiYSJd" * 9):
        with pytest.raises(ValueError, match="cursor"):
            board.pending(ADMIN, Query(cursor=cursor))
    for field, value in (("limit", 0), ("limit", 201), ("sort", "text")):
        with pytest.raises(ValueError, match=field):
            Query(**{field: value})


def test_words_are_found_by_how_they_begin() -> None:
    board = filled(
        decision("a", text="The Gateway retries twice"),
        decision("b", text="A naïve cache"),
        decision("c", text="新しいデータベースを使う"),
        decision("claim-9", text="Postgres 16"),
        decision("d", text="alpha"),
    )
    every = "a b c claim-9 d"
    expected = {
        "gateway": "a",
        "GATE": "a",
        "the gate": "a",
        "naive": "b",
        "NAÏVE": "b",
        "データ": "c",
        "ベース": "c",
        "claim-9": "claim-9",
        "gateway postgres": "",
        "": every,
        "  ": every,
        "*": "",
        "alpha OR gateway": "",
        "alpha NOT beta": "",
        '"alpha': "d",
    }
    found = {typed: " ".join(sorted(names(board.pending(ADMIN, Query(text=typed))))) for typed in expected}
    assert found == expected
    plain = FilledBoard(fts=False)
    plain.put(decision("a", text="The Gateway retries twice"), decision("b", text="Postgres"))
    assert names(plain.pending(ADMIN, Query(text="gate RETRIES"))) == ["a"]


HOSTILE = [
    '"',
    "'; DROP TABLE items; --",
    "a OR b",
    "NEAR(a b)",
    "text:x",
    "a*",
    "^a",
    "-a",
    "\x00",
    "\ud800",
    "((",
    "{a}:",
]


@given(typed=st.text(max_size=60) | st.lists(st.sampled_from(HOSTILE)).map(" ".join), fts=st.booleans())
@example(typed="a" * 5_000, fts=True)
@example(typed=" ".join(HOSTILE), fts=True)
@example(typed='x"* OR y', fts=True)
def test_whatever_is_typed_is_text_and_narrows_what_is_found(typed, fts) -> None:
    board = FilledBoard(fts=fts)
    board.put(decision("a", text="alpha or beta"), decision("b", text="near gamma", user="bob"))
    found = set(names(board.pending(ADMIN, Query(text=typed))))
    assert found <= {"a", "b"}
    assert set(names(board.pending(OWNER, Query(text=typed)))) == found & {"a"}
    assert board.pending(ADMIN, Query()).total == 2


@given(st.text(max_size=30))
def test_whatever_a_filter_or_an_id_holds_is_a_value(text) -> None:
    board = filled(decision("a"))
    assert board.item(ADMIN, text) is None
    for field in ("reason", "tenant", "user", "source", "memory_type"):
        assert board.pending(ADMIN, Query(**{field: text})).total in {0, 1}
    assert board.candidates()


def test_an_item_is_the_decision_as_published_and_where_it_stands(board) -> None:
    made = decision("a", text="Zwölf")
    value = made.to_bytes().replace(b'{"decision_id"', b'{"added_later":[1],"decision_id"', 1)
    board.add([replace(record(made, offset=7, partition=3), value=value)])
    item = board.item(ADMIN, made.decision_id)
    assert item.decision == json.loads(value)
    assert (item.topic, item.partition, item.offset) == ("review", 3, 7)
    assert item.timestamp == NOW - timedelta(hours=1)
    assert item.pending
    assert item.current.excerpt == "Zwölf"


def test_a_superseded_decision_is_shown_and_not_pending(board) -> None:
    board.put(decision("a"), reviewed("a", reviewer="bob", reason="fine"))
    old = board.item(ADMIN, decision("a").decision_id)
    assert not old.pending
    assert old.decision["revision"] == 1
    assert (old.current.revision, old.current.verdict) == (2, Verdict.APPROVED)
    assert [(each.revision, each.verdict, each.reviewer, each.action) for each in old.history] == [
        (1, "review", None, None),
        (2, "approved", "bob", "approve"),
    ]


def test_the_history_tells_of_refused_attempts_on_this_subject_alone(board) -> None:
    board.add([*records(decision("a"), decision("a", user="bob")), audit("a", "reject", applied=False)])
    (attempt,) = board.item(ADMIN, decision("a").decision_id).attempts
    assert (attempt.actor, attempt.applied, attempt.outcome) == ("mallory", False, "unauthorized")
    assert board.item(ADMIN, decision("a", user="bob").decision_id).attempts == []


def match(name, kind="approved", difference="negation"):
    return {"subject_id": name, "inter": 3, "union": 4, "difference": difference, "class": kind}


def near(name, *matches, **changes):
    facts = {"dedup": {"status": "ok", "scheme": "s", "matches": list(matches)}}
    return decision(name, facts=facts, **changes)


def test_the_nearest_memory_is_the_conflicting_one_else_the_first_match(board) -> None:
    board.put(
        decision("m1", verdict="approved", text="Retries twice"),
        decision("m2", verdict="approved", text="Retries never"),
        near("a", match("m1"), match("m2", difference="none"), conflicting_memory_id="m2"),
        near("b", match("m1"), match("m2")),
        near("c", match("gone")),
        decision("d"),
    )
    nearest = {name: board.item(ADMIN, decision(name).decision_id).nearest for name in ("a", "b", "c", "d")}
    found = nearest["a"]
    assert (found.subject_id, found.text, found.verdict) == ("m2", "Retries never", "approved")
    found = nearest["b"]
    assert (found.subject_id, found.similarity, found.difference) == ("m1", 0.75, "negation")
    assert (nearest["c"].subject_id, nearest["c"].text, nearest["c"].decision_id) == ("gone", None, None)
    assert nearest["d"] is None


def test_a_match_without_words_has_no_similarity_and_breaks_nothing(board) -> None:
    board.put(near("a", match("m") | {"inter": 0, "union": 0}))
    assert board.item(ADMIN, decision("a").decision_id).nearest.similarity == 0.0


def test_the_record_of_a_source_counts_what_became_of_its_claims(board) -> None:
    board.put(
        decision("a"),
        decision("b"),
        reviewed("b"),
        decision("c"),
        reviewed("c", "reject"),
        decision("d", verdict="approved"),
        decision("e", verdict="blocked"),
        decision("f", verdict="approved", source="manual"),
        decision("g", verdict="approved", tenant="globex"),
    )
    item = board.item(ADMIN, decision("a").decision_id)
    assert item.source_record == SourceRecord(approved=2, human_approved=1, human_rejected=1, blocked=2)


def test_the_record_of_a_source_counts_only_what_the_person_sees(board) -> None:
    board.put(decision("a"), decision("b", user="bob", verdict="approved"), decision("c", verdict="blocked"))
    item = board.item(OWNER, decision("a").decision_id)
    assert item.source_record == SourceRecord(approved=0, human_approved=0, human_rejected=0, blocked=1)


def test_a_decision_published_twice_stands_where_it_stood_first(board) -> None:
    made = decision("a")
    for offsets in ((9, 4), (4, 9)):
        board.add([record(made, offset, 1) for offset in offsets])
        assert board.item(ADMIN, made.decision_id).offset == 4


def test_a_claim_is_found_by_its_owner_and_id(board) -> None:
    board.put(decision("a"), reviewed("a"), decision("a", kind="response"))
    assert board.find(ADMIN, "acme", "ann", "a") == reviewed("a").decision_id
    assert board.find(ADMIN, "acme", "bob", "a") is None
    assert board.find(STRANGER, "acme", "ann", "a") is None


OWNERS = [(tenant, user) for tenant in ("acme", "globex", "initech") for user in ("ann", "bob", "eve")]
scopes = st.builds(
    lambda person, whole, own: ViewScope(person, frozenset(whole), frozenset(own) - frozenset(whole)),
    st.sampled_from(["ann", "bob", "eve", "nobody", "%", ""]),
    st.sets(st.sampled_from(["acme", "globex", "initech", "%"])),
    st.sets(st.sampled_from(["acme", "globex", "initech", "%"])),
)
made = st.lists(
    st.tuples(
        st.sampled_from(OWNERS),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["p", "A", "R", "x", "r", "g"]),
    ),
    max_size=12,
)


def history_of(owner, name, what):
    fields = {"tenant": owner[0], "user": owner[1]}
    yield (
        near(name, match("a"), match("b"), **fields)
        if what in "pAR"
        else decision(
            name,
            verdict={"x": "blocked", "g": "approved", "r": "review"}[what],
            kind="response" if what == "r" else "claim",
            facts={"place": "not_needed"},
            **fields,
        )
    )
    if what in "AR":
        yield reviewed(name, "approve" if what == "A" else "reject", **fields)


@given(scopes, made)
def test_a_person_sees_what_a_board_of_what_they_may_see_would_show(scope, things) -> None:
    things = list({(owner, name): (owner, name, what) for owner, name, what in things}.values())
    mine = [thing for thing in things if scope.sees(*thing[0])]
    whole, part = (
        [record(each, offset) for offset, thing in enumerate(some) for each in history_of(*thing)]
        for some in (things, mine)
    )
    everyone, alone = FilledBoard(), FilledBoard()
    everyone.add([replace(each, offset=0) for each in whole])
    alone.add([replace(each, offset=0) for each in part])
    for thing in things:
        for each in history_of(*thing):
            item = everyone.item(scope, each.decision_id)
            assert item == alone.item(scope, each.decision_id)
            assert (item is not None) == scope.sees(*thing[0])
    seen, expected = everything(everyone, scope), everything(alone, scope)
    if scope.whole:  # the gauge of the deployment counts everybody's
        seen, expected = (
            (*found[:3], replace(found[3], total=None), *found[4:]) for found in (seen, expected)
        )
    assert seen == expected


def test_gauges_count_the_persons_own_their_tenants_and_all_that_is_pending(board) -> None:
    board.put(
        decision("a"),
        decision("b"),
        decision("c", user="bob"),
        decision("d", tenant="globex"),
        decision("e", tenant="initech", user="bob"),
        decision("f"),
        reviewed("f"),
    )
    lead = board.counts(ViewScope("ann", frozenset({"acme"}), frozenset({"globex"})))
    assert (lead.own, lead.tenants, lead.total) == ({"acme": 2, "globex": 1}, {"acme": 3}, 5)
    owner = board.counts(OWNER)
    assert (owner.own, owner.tenants, owner.total) == ({"acme": 2}, {}, None)


def test_the_backlog_is_that_of_the_fullest_user_and_tenant_and_as_old_as_its_oldest_item(board) -> None:
    assert board.backlog() == Backlog(0, 0, 0, None)
    board.put(
        decision("a", age=30),
        decision("b"),
        decision("c", user="bob"),
        decision("d", tenant="globex"),
        decision("e", tenant="globex", user="bob", age=70),
        decision("f", age=90),
        reviewed("f"),
    )
    found = board.backlog()
    assert (found.user, found.tenant, found.total) == (2, 3, 5)
    assert found.since == NOW - timedelta(minutes=70)


def test_blocked_items_and_final_responses_can_be_looked_up_newest_first(board) -> None:
    board.put(
        decision("a", verdict="blocked", age=9),
        decision("b", verdict="blocked", age=1),
        decision("r", kind="response", facts={"place": "not_needed"}),
        decision("ask", kind="response"),
        decision("joined", facts={"place": "not_needed"}),
    )
    page = board.not_pending(ADMIN, TopicName.BLOCKED, 1)
    assert (names(page), page.total) == (["b"], 2)
    assert names(board.not_pending(ADMIN, TopicName.BLOCKED, 1, page.next)) == ["a"]
    assert names(board.not_pending(ADMIN, TopicName.REVIEW)) == ["r"]
    with pytest.raises(ValueError, match="limit"):
        board.not_pending(ADMIN, TopicName.BLOCKED, 0)


def test_what_waits_for_nobody_is_searched_apart_from_the_queue_and_by_its_newest_text(board) -> None:
    def found(text, topic=TopicName.APPROVED):
        return names(board.not_pending(ADMIN, topic, text=text))

    board.put(
        decision("a", text="Water is wet"),
        decision("b", text="Water is cold"),
        decision("c", verdict="approved", text="Water is old", age=200),
        decision("d", verdict="blocked", text="Water may be green"),
    )
    board.put(reviewed("b", "edit", text="Wine is cold"), reviewed("a", "approve", text="Water is wet"))
    assert found("wat") == ["a", "c"]
    assert (found("wine co"), found("b")) == (["b"], ["b"])
    assert found("water", TopicName.BLOCKED) == ["d"]
    assert board.pending(ADMIN, Query(text="water")).total == 0
    board.forget(NOW - timedelta(minutes=100))
    assert found("water") == ["a"]


def test_what_is_dropped_from_the_queue_is_sought_there_no_more_until_it_comes_back(board) -> None:
    board.put(decision("a", text="Water is wet"))
    subject = Subject("acme", "ann", Kind.CLAIM, "a")
    for held, count in ((None, 0), (SubjectStatus(SubjectState.PENDING, 1), 1), (None, 0)):
        board.apply_statuses({subject: held})
        assert board.pending(ADMIN, Query(text="water")).total == count


def test_a_dead_letter_is_seen_by_who_sees_its_keys_whole_tenant_unless_its_value_is_anothers() -> None:
    lead = ViewScope("lead", frozenset({"acme"}), frozenset({"globex"}))
    error, wrong = RecordError(ErrorCode.INVALID_JSON, "not JSON at 1"), []
    for key, value, seen in (
        (b"acme:ann", b"{", True),
        (b"acme:ann", b'{"tenant_id": "acme", "user_id": "ann"}', True),
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann", "content": "secret"}', False),
        (b"acme:ann", b'{"user_id": "ann", "content": "of the tenant default"}', False),
        (b"acme:ann", None, True),
        (b"acme", b"{", False),
        (b"", b"{", False),
        (None, b"{", False),
        (b"\xff:ann", b"{", False),
        (b"initech:ann", b"{", False),
    ):
        board = FilledBoard()
        board.add([dead_letter(key, value, error=error)])
        page = board.dead_letters(lead)
        expected = [("invalid_json", "not JSON at 1", "groundwire.claims", 3, 41, "acme")] * seen
        found = [
            (one.code, one.message, one.topic, one.partition, one.offset, one.tenant_id) for one in page.rows
        ]
        if found != expected or page.total != seen or board.dead_letters(OWNER).total:
            wrong.append((key, value, found))
    assert wrong == []


def test_a_dead_letter_is_named_by_where_it_stands_itself(board) -> None:
    letter = replace(
        dead_letter(b"acme:ann", b"{", 17, RecordError(ErrorCode.INVALID_JSON, "no")), partition=2
    )
    board.add([letter])
    (found,) = board.dead_letters(ADMIN).rows
    assert (found.name, found.partition, found.offset) == ("2@17", 3, 41)


def test_dead_letters_come_in_pages_newest_first(board) -> None:
    board.add([dead_letter(b"acme:ann", f"{{{n}".encode(), n) for n in range(5)])
    found, cursor = [], None
    while True:
        page = board.dead_letters(ADMIN, 2, cursor)
        found += [row.excerpt for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert found == [f"{{{n}" for n in reversed(range(5))]


def test_the_file_is_for_its_owner_alone_and_is_read_again(tmp_path) -> None:
    path = tmp_path / "board.sqlite"
    first = FilledBoard(str(path))
    first.put(decision("a"))
    first.close()
    for each in tmp_path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert names(FilledBoard(str(path)).pending(ADMIN, Query(text="service"))) == ["a"]


def test_forgetting_leaves_what_is_pending_and_what_is_young(board) -> None:
    board.put(
        decision("old", verdict="approved", age=90),
        decision("young", verdict="approved", age=5),
        decision("waits", age=90),
        decision("gone", age=90),
    )
    board.apply_statuses({Subject("acme", "ann", Kind.CLAIM, "gone"): None})
    board.forget(NOW - timedelta(hours=1))
    held = [board.find(ADMIN, "acme", "ann", name) is not None for name in ("old", "young", "waits", "gone")]
    assert held == [False, True, True, False]
    assert board.item(ADMIN, decision("old").decision_id) is None


def test_a_random_board_can_be_read_from_threads_at_once() -> None:
    board = filled(*(decision(f"c{n}", age=n) for n in range(50)))
    with ThreadPoolExecutor(4) as pool:
        limits = [Query(limit=1 + n % 200) for n in random.sample(range(200), 100)]
        results = list(pool.map(lambda query: len(board.pending(ADMIN, query).rows), limits))
        pool.submit(board.add, records(decision("late"))).result()
    assert max(results) == 50
    assert board.pending(ADMIN, Query()).total == 51


_WORDS = st.lists(st.text("ab\u00e9\u200b.", min_size=1, max_size=30), max_size=60)
_GAPS = st.sampled_from([" ", "\n", "\n" * 300, "\t" * 900, "\u2003" * 700])


@st.composite
def texts(draw):
    return "".join(draw(_GAPS) + word for word in draw(_WORDS))


@given(texts())
@example("Water is wet." + "\n" * 900 + "And so on.")
@example("a" * 200)
@example("a" * 201)
def test_what_does_not_end_with_an_ellipsis_holds_every_word(text) -> None:
    excerpt = in_one_line(text)
    assert len(excerpt) <= 200
    assert excerpt.endswith("…") or excerpt.split() == text.split()


KEYS = Keys.parse(b'[reviewers]\nacme = ["lead"]\nglobex = ["lead", "ann"]\n', Path("keys.toml"))
PERMISSIONS = Permissions(KEYS)
people = st.builds(
    lambda name, tenants: Person(name, frozenset(tenants)),
    st.sampled_from(["ann", "lead", "Lead", "eve", ""]),
    st.sets(st.sampled_from(["acme", "globex", "initech"])),
)


@given(
    people, st.sampled_from(["acme", "globex", "initech", "other"]), st.sampled_from(["ann", "lead", "bob"])
)
def test_only_the_owner_or_who_is_delegated_decides_and_only_in_the_persons_tenants(
    person, tenant, user
) -> None:
    expected = tenant in person.tenants and (user == person.name or KEYS.delegated(tenant, person.name))
    assert PERMISSIONS.scope(person).sees(tenant, user) == expected


def test_who_may_only_look_sees_as_much_and_delegation_in_one_tenant_is_none_in_another() -> None:
    person = Person("lead", frozenset({"acme"}))
    looking = Person("lead", frozenset({"acme"}), read_only=True)
    assert PERMISSIONS.scope(looking) == PERMISSIONS.scope(person)
    scope = PERMISSIONS.scope(Person("ann", frozenset({"acme", "globex"})))
    assert (scope.whole, scope.own) == ({"globex"}, {"acme"})
