"""The board shows the queue as the topics hold it, to each person what they may see."""

import json
import random
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from groundwire.errors import ErrorCode, RecordError, UsageError
from groundwire.kafka.store import MEMORY
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Kind, ReasonCode, Verdict
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import ATTESTATION, InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.review import feed
from groundwire.review.board import Board
from groundwire.review.feed import open_board
from groundwire.review.model import SORTS, Backlog, Neighbours, Query, SourceRecord, risk_at, risk_of
from groundwire.review.permissions import Permissions, Person, ViewScope
from groundwire.review.records import in_one_line
from groundwire.state.model import SubjectState, SubjectStatus
from tests.unit.review.world import (
    ADMIN,
    KEYS,
    NOW,
    FilledBoard,
    audit,
    dead_letter,
    decision,
    filled,
    names,
    record,
    records,
    retraction,
    reviewed,
)

OWNER = ViewScope("ann", frozenset(), frozenset({"acme"}))
STRANGER = ViewScope("eve", frozenset(), frozenset({"acme", "globex"}))


@pytest.fixture
def board():
    with FilledBoard() as made:
        yield made


def everything(board, scope):
    topics = TopicName.APPROVED, TopicName.BLOCKED, TopicName.REVIEW
    pages = [board.pending(scope, Query(sort=sort, limit=200)) for sort in SORTS]
    pages += [board.not_pending(scope, topic, 200) for topic in topics]
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


def test_a_review_with_a_place_is_pending_until_a_higher_revision_and_no_replay_or_moved_record_ever(board):
    board.add([replace(record(decision("moved", verdict="approved")), topic=TopicName.REVIEW)])
    board.add([record(decision("replayed", replay="r1"))])
    assert board.item(ADMIN, decision("moved").decision_id) is None
    board.take(
        *(decision("a"), decision("b"), reviewed("b"), decision("c", verdict="blocked")),
        decision("d", facts={"place": "not_needed"}),
        decision("e", facts={"place": "user_full"}),
        decision("f", revision=0),
    )
    assert names(board.pending(ADMIN, Query())) == ["a"]
    assert [subject.subject_id for subject, _ in board.candidates()] == ["a"]


def test_what_state_does_not_hold_as_pending_is_dropped_until_it_comes_back(board):
    def found():
        return sorted(names(board.pending(ADMIN, Query(text="service"))))

    board.take(*(decision(name) for name in "abcd"), decision("e", revision=2))
    subjects = {subject.subject_id: subject for subject, _ in board.candidates()}
    statuses = {
        subjects["a"]: SubjectStatus(SubjectState.PENDING, 1),
        subjects["b"]: SubjectStatus(SubjectState.APPROVED, 2),
        subjects["c"]: None,
        subjects["d"]: SubjectStatus(SubjectState.PENDING, 2),
        subjects["e"]: SubjectStatus(SubjectState.REFUSED, 1),  # from before the shown revision
        Subject("acme", "ann", Kind.CLAIM, "unknown"): None,
    }
    board.apply_statuses(statuses)
    assert found() == ["a", "e"]
    assert len(board.candidates(dropped=True)) == 5
    board.add([record(decision("b", revision=2), 9)])
    assert found() == ["a", "b", "e"]
    board.apply_statuses({subjects["c"]: SubjectStatus(SubjectState.PENDING, 1), subjects["a"]: None})
    assert found() == ["b", "c", "e"]


@given(st.data())
def test_any_order_and_repetition_of_the_same_records_gives_the_same_board(data):
    world = [
        *records(
            *(decision(f"c{n}", age=60 + n % 3, text=f"Text {n % 4}") for n in range(6)),
            *(reviewed(f"c{n}", action) for n, action in enumerate(["approve", "edit", "reject"])),
            reviewed("c0", "retract", revision=3, age=1),
            decision("c1", revision=0),
            decision("r1", kind="response", facts={"place": "not_needed"}),
            decision("x", verdict="blocked", user="bob"),
        ),
        record(decision("c4", age=60 + 4 % 3, text="Text 0"), offset=99, partition=1),
        record(decision("c5", age=62, text="Text 1", engine="0.2.0"), offset=77),
        audit("c1"),
        audit("c2", applied=False, offset=1),
        dead_letter(b"acme:ann", b"{", 2, RecordError(ErrorCode.INVALID_JSON, "no JSON")),
    ]
    shuffled = data.draw(st.permutations(world)) + data.draw(st.lists(st.sampled_from(world)))
    first, second = FilledBoard(), FilledBoard()
    first.add(world)
    cut = data.draw(st.integers(0, len(shuffled)))
    second.add(shuffled[:cut])
    second.add(shuffled[cut:])
    assert everything(first, ADMIN) == everything(second, ADMIN)
    version = first.version
    first.add(shuffled)
    assert first.version == version, "known records change nothing"
    assert set(first.candidates()) == set(second.candidates()) != set()


@given(
    st.sampled_from(list(TopicName)), st.binary(max_size=50) | st.none(), st.binary(max_size=20) | st.none()
)
@example(TopicName.REVIEW, b"null", None)
@example(TopicName.AUDIT, b'{"type": "review_action"}', None)
@example(TopicName.DEAD_LETTER, None, b"\xff:x")
def test_what_is_no_such_record_is_left_out(topic, value, key):
    board = FilledBoard()
    board.add([replace(record(decision()), topic=topic, value=value, key=key)])
    assert board.pending(ADMIN, Query()).total == 0
    assert board.not_pending(ADMIN, TopicName.BLOCKED).total == 0


def test_each_filter_leaves_what_it_names_and_a_wrong_cursor_or_a_query_out_of_range_is_refused_by_name(
    board,
):
    board.take(
        decision("a", reason_code="technical_hedge"),
        decision("b", user="bob"),
        decision("c", tenant="globex"),
        decision("d", source="chat"),
        decision("e", memory_type="decision"),
        decision("f", kind="response"),
        decision("g", age=3 * 24 * 60),
    )
    two_days = timedelta(days=2)
    for found, query in (
        *(("a", {"reason": "technical_hedge"}), ("b", {"user": "bob"}), ("c", {"tenant": "globex"})),
        *(("d", {"source": "chat"}), ("e", {"memory_type": "decision"}), ("f", {"kind": Kind.RESPONSE})),
        *(("g", {"min_age": two_days}), ("a", {"max_age": two_days, "reason": "technical_hedge"})),
        ("", {"min_age": timedelta(days=999_999_999)}),
    ):
        assert names(board.pending(ADMIN, Query(**query))) == list(found), query
    for cursor in ("", "x", "W10=", "WzEsMl0=", "WzEsMiwzXQ==", "é", "WzFlOTksMSwiYSJd" * 9):
        with pytest.raises(ValueError, match="cursor"):
            board.pending(ADMIN, Query(cursor=cursor))
    for field, value in (("limit", 0), ("limit", 201), ("sort", "text")):
        with pytest.raises(ValueError, match=field):
            Query(**{field: value})


def test_the_riskiest_reason_comes_first_and_within_it_the_oldest(board):
    board.take(
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


def test_an_item_is_found_by_its_gravest_reason_which_heads_it_and_by_that_of_its_decision(board):
    conflict = ["conflicting_near_duplicate: b: number"]
    board.take(decision("a", checks_failed=conflict), decision("b"))

    def found(reason):
        page = board.pending(ADMIN, Query(reason=reason))
        return {row.subject_id: row.headline for row in page.rows}

    assert found("conflicting_near_duplicate") == {"a": "conflicting_near_duplicate"}
    assert found("ungrounded") == {"a": "conflicting_near_duplicate", "b": "ungrounded"}


@given(st.integers(1, 40), st.integers(1, 7), st.sampled_from(["risk", "oldest", "newest"]), st.randoms())
def test_pages_together_hold_everything_once_in_order(count, size, sort, rng):
    codes = ["ungrounded", "technical_hedge", "previously_rejected"]
    failed = [[], ["derived_from_unapproved: b"], ["of_a_later_version"], ["citation_unverified: #7"]]
    board = FilledBoard()
    for n in range(count):
        fields = {"reason_code": rng.choice(codes), "checks_failed": rng.choice(failed)}
        board.add([record(decision(f"c{n}", age=rng.randint(0, 4), **fields))])
    whole = board.pending(ADMIN, Query(sort=sort, limit=200))
    assert (whole.total, whole.next) == (count, None)
    found, cursor = [], None
    while not found or cursor:
        page = board.pending(ADMIN, Query(sort=sort, limit=size, cursor=cursor))
        assert page.total == count
        found += page.rows
        cursor = page.next
    assert found == whole.rows
    if sort == "risk":
        assert found == sorted(found, key=lambda row: (row.risk.rank, row.since, row.decision_id))


def test_words_are_found_by_how_they_begin():
    board = filled(
        decision("a", text="The Gateway retries twice"),
        decision("b", text="A naïve cache"),
        decision("c", text="新しいデータベースを使う"),
        decision("claim-9", text="Postgres 16"),
        decision("d", text="alpha"),
    )
    expected = dict.fromkeys(("gateway", "GATE", "the gate"), "a") | dict.fromkeys(("naive", "NAÏVE"), "b")
    expected |= dict.fromkeys(("データ", "ベース"), "c") | {"claim-9": "claim-9", '"alpha': "d"}
    expected |= dict.fromkeys(("gateway postgres", "*", "alpha OR gateway", "alpha NOT beta"), "")
    expected |= dict.fromkeys(("", "  "), "a b c claim-9 d")
    found = {typed: " ".join(sorted(names(board.pending(ADMIN, Query(text=typed))))) for typed in expected}
    assert found == expected


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
]
HOSTILE += ["((", "{a}:"]


@given(typed=st.text(max_size=60) | st.lists(st.sampled_from(HOSTILE)).map(" ".join))
@example(typed="a" * 5_000)
@example(typed=" ".join(HOSTILE))
@example(typed='x"* OR y')
def test_whatever_is_typed_is_text_and_narrows_what_is_found(typed):
    board = FilledBoard()
    board.take(decision("a", text="alpha or beta"), decision("b", text="near gamma", user="bob"))
    found = set(names(board.pending(ADMIN, Query(text=typed))))
    assert found <= {"a", "b"}
    assert set(names(board.pending(OWNER, Query(text=typed)))) == found & {"a"}
    assert board.item(ADMIN, typed) is None
    for field in ("reason", "tenant", "user", "source", "memory_type"):
        assert board.pending(ADMIN, Query(**{field: typed})).total in {0, 1}
    assert board.pending(ADMIN, Query()).total == 2


def test_an_item_is_the_decision_as_published_at_its_first_position_with_its_history_and_refused_actions(
    board,
):
    made = decision("a", text="Zwölf")
    value = made.to_bytes().replace(b'{"decision_id"', b'{"added_later":[1],"decision_id"', 1)
    for offset in (9, 7, 8):
        board.add([replace(record(made, offset=offset, partition=3), value=value)])
    item = board.item(ADMIN, made.decision_id)
    assert item.decision == json.loads(value)
    assert (item.topic, item.partition, item.offset) == ("review", 3, 7)
    assert item.timestamp == NOW - timedelta(hours=1)
    assert item.pending
    assert item.current.excerpt == "Zwölf"
    board.take(decision("h"), reviewed("h", reviewer="bob", reason="fine"), decision("h", user="bob"))
    board.add([audit("h", "reject", applied=False)])
    old = board.item(ADMIN, decision("h").decision_id)
    assert not old.pending
    assert old.decision["revision"] == 1
    assert (old.current.revision, old.current.verdict) == (2, Verdict.APPROVED)
    history = [(each.revision, each.verdict, each.reviewer, each.action) for each in old.history]
    assert history == [(1, "review", None, None), (2, "approved", "bob", "approve")]
    (attempt,) = old.attempts
    assert (attempt.actor, attempt.applied, attempt.outcome) == ("mallory", False, "unauthorized")
    assert board.item(ADMIN, decision("h", user="bob").decision_id).attempts == []


def said(text, action_id="a-action", *, action="comment", minutes=0, keys=KEYS):
    """An action of mallory on ann's claim a, and what they wrote to it, signed by a key of `keys`."""
    review = {
        "action_id": action_id,
        "tenant_id": "acme",
        "user_id": "ann",
        "kind": "claim",
        "subject_id": "a",
    }
    review |= {"expected_revision": 1, "action": action, "reviewer": "mallory", "note": text}
    review = {name: value for name, value in review.items() if value is not None}
    value, at = json.dumps(review).encode(), to_milliseconds(NOW - timedelta(minutes=minutes))
    signed = ((ATTESTATION, keys.sign("console", value)),)
    return InboundRecord(TopicName.REVIEW_DECISIONS, 0, 0, at, b"acme:ann", value, signed)


def test_the_note_of_the_record_that_the_gate_took_is_shown_and_no_forged_one():
    """Each row: what has the action's id, and the note that is shown; whoever sends a record chooses its time."""
    real, forged = said("Which release?"), said("It is wrong.")
    earlier, later = (said("It is wrong.", minutes=minutes) for minutes in (9, -9))
    for sent, shown in (
        ([real, real, earlier, later, said("Nobody took this.", "other")], "Which release?"),
        ([said(None), earlier, later], None),
        ([said(None), forged], None),
        ([real, forged, real], None),
    ):
        for order in (sent, sent[::-1]):
            board = filled(decision("a"), *order)
            assert board.item(ADMIN, decision("a").decision_id).attempts == []
            board.add([audit("a", "comment", detail={"outcome": "commented"})])
            (attempt,) = board.item(ADMIN, decision("a").decision_id).attempts
            assert (attempt.action, attempt.note) == ("comment", shown)


def test_a_note_that_no_reviewers_key_signed_is_not_shown():
    others = Keys.parse(b"[keys.console]\nsecret = 'x'\ntenants = ['acme']", Path("keys.toml"))
    board = filled(decision("a"), said("In your name.", keys=others))
    board.add([audit("a", "comment", detail={"outcome": "commented"})])
    assert [one.note for one in board.item(ADMIN, decision("a").decision_id).attempts] == [None]


def match(name, kind="approved", difference="negation"):
    return {"subject_id": name, "inter": 3, "union": 4, "difference": difference, "class": kind}


def near(name, *matches, **changes):
    facts = {"dedup": {"status": "ok", "scheme": "s", "matches": list(matches)}}
    return decision(name, facts=facts, **changes)


def test_the_nearest_memory_is_the_conflicting_one_else_the_first_match(board):
    board.take(
        decision("m1", verdict="approved", text="Retries twice"),
        decision("m2", verdict="approved", text="Retries never"),
        near("a", match("m1"), match("m2", difference="none"), conflicting_memory_id="m2"),
        near("b", match("m1"), match("m2")),
        near("c", match("gone") | {"inter": 0, "union": 0}),
        decision("d"),
    )
    nearest = {name: board.item(ADMIN, decision(name).decision_id).nearest for name in ("a", "b", "c", "d")}
    found = nearest["a"]
    assert (found.subject_id, found.text, found.verdict) == ("m2", "Retries never", "approved")
    found = nearest["b"]
    assert (found.subject_id, found.similarity, found.difference) == ("m1", 0.75, "negation")
    found = nearest["c"]
    assert (found.subject_id, found.text, found.decision_id, found.similarity) == ("gone", None, None, 0.0)
    assert nearest["d"] is None


def test_the_record_of_a_source_counts_its_claims_that_the_person_sees_each_found_by_owner_and_id(board):
    board.take(
        *(decision("a"), decision("b"), reviewed("b"), decision("c"), reviewed("c", "reject")),
        decision("d", verdict="approved", user="bob"),
        decision("e", verdict="blocked"),
        decision("f", verdict="approved", source="manual"),
        decision("g", verdict="approved", tenant="globex"),
    )
    for scope, approved in ((ADMIN, 2), (OWNER, 1)):
        item = board.item(scope, decision("a").decision_id)
        expected = SourceRecord(approved=approved, human_approved=1, human_rejected=1, blocked=2)
        assert item.source_record == expected
    board.add([record(decision("b", kind="response"))])
    found = [
        board.find(*who, "b")
        for who in ((ADMIN, "acme", "ann"), (ADMIN, "acme", "bob"), (STRANGER, "acme", "ann"))
    ]
    assert found == [reviewed("b").decision_id, None, None]


@given(st.data())
def test_a_person_sees_what_a_board_of_what_they_may_see_would_show(data):
    owners = [(tenant, user) for tenant in ("acme", "globex", "initech") for user in ("ann", "bob", "eve")]
    tenants = st.sets(st.sampled_from(["acme", "globex", "initech", "%"]))
    whole = data.draw(tenants)
    person = data.draw(st.sampled_from(["ann", "bob", "eve", "nobody", "%", ""]))
    scope = ViewScope(person, frozenset(whole), frozenset(data.draw(tenants) - whole))
    subjects = st.tuples(st.sampled_from(owners), st.sampled_from(["a", "b", "c"]))
    everyone, alone = FilledBoard(), FilledBoard()
    for (tenant, user), name in data.draw(st.lists(subjects, max_size=12, unique=True)):
        what = data.draw(st.sampled_from(["pending", "approve", "reject", "blocked", "approved", "response"]))
        fields = {"tenant": tenant, "user": user}
        if what in {"pending", "approve", "reject"}:
            history = [near(name, match("a"), match("b"), **fields)]
        else:
            kind, verdict = ("response", "review") if what == "response" else ("claim", what)
            facts = {"place": "not_needed"}
            history = [decision(name, verdict=verdict, kind=kind, facts=facts, **fields)]
        if what in {"approve", "reject"}:
            history.append(reviewed(name, what, **fields))
        for board in (everyone, alone) if scope.sees(tenant, user) else (everyone,):
            board.add([record(each) for each in history])
        for each in history:
            assert (everyone.item(scope, each.decision_id) is not None) == scope.sees(tenant, user)
    seen, expected = everything(everyone, scope), everything(alone, scope)
    if scope.whole:  # the gauge of the deployment counts all items
        seen, expected = (
            (*found[:3], replace(found[3], total=None), *found[4:]) for found in (seen, expected)
        )
    assert seen == expected


def test_gauges_count_the_persons_own_their_tenants_and_all_pending_items(board):
    assert board.backlog() == Backlog(0, 0, 0, None)
    board.take(
        decision("a", age=30),
        decision("b"),
        decision("c", user="bob"),
        decision("d", tenant="globex"),
        decision("e", tenant="globex", user="bob", age=70),
        decision("f", age=90),
        reviewed("f"),
    )
    lead = board.counts(ViewScope("ann", frozenset({"acme"}), frozenset({"globex"})))
    assert (lead.own, lead.tenants, lead.total) == ({"acme": 2, "globex": 1}, {"acme": 3}, 5)
    owner = board.counts(OWNER)
    assert (owner.own, owner.tenants, owner.total) == ({"acme": 2}, {}, None)
    assert board.backlog() == Backlog(2, 3, 5, NOW - timedelta(minutes=70))


def test_what_is_not_pending_can_be_looked_up_newest_first_and_searched_by_its_newest_text(board):
    board.take(
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
    board = filled(
        decision("a", text="Water is wet"),
        decision("b", text="Water is cold"),
        decision("c", verdict="approved", text="Water is old", age=200),
        decision("d", verdict="blocked", text="Water may be green"),
    )

    def found(text, topic=TopicName.APPROVED):
        return names(board.not_pending(ADMIN, topic, text=text))

    board.take(reviewed("b", "edit", text="Wine is cold"), reviewed("a", "approve", text="Water is wet"))
    assert found("wat") == ["a", "c"]
    assert (found("wine co"), found("b")) == (["b"], ["b"])
    assert found("water", TopicName.BLOCKED) == ["d"]
    assert board.pending(ADMIN, Query(text="water")).total == 0
    board.forget(NOW - timedelta(minutes=100))
    assert found("water") == ["a"]


def test_dead_letters_are_seen_by_who_sees_their_keys_tenant_unless_their_value_is_anothers_newest_first(
    board,
):
    lead = ViewScope("lead", frozenset({"acme"}), frozenset({"globex"}))
    error, wrong = RecordError(ErrorCode.INVALID_JSON, "not JSON at 1"), []
    for key, value, seen in (
        (b"acme:ann", b"{", True),
        (b"acme:ann", b'{"tenant_id": "acme", "user_id": "ann"}', True),
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann", "content": "secret"}', False),
        (b"acme:ann", b'{"user_id": "ann", "content": "of the tenant default"}', False),
        (b"acme:ann", None, True),
        *((key, b"{", False) for key in (b"acme", b"", None, b"\xff:ann", b"initech:ann")),
    ):
        one = FilledBoard()
        one.add([dead_letter(key, value, error=error)])
        page = one.dead_letters(lead)
        expected = [("invalid_json", "not JSON at 1", "groundwire.claims", 3, 41, "acme")] * seen
        shown = attrgetter("code", "message", "topic", "partition", "offset", "tenant_id")
        found = [shown(row) for row in page.rows]
        if found != expected or page.total != seen or one.dead_letters(OWNER).total:
            wrong.append((key, value, found))
    assert wrong == []
    board.add([replace(dead_letter(b"acme:ann", b"{", 17, error), partition=2)])
    (found,) = board.dead_letters(ADMIN).rows
    assert (found.name, found.partition, found.offset) == ("2@17", 3, 41)
    board.add([dead_letter(b"acme:ann", f"{{{n}".encode(), n) for n in range(5)])
    found, cursor = [], None
    while not found or cursor:
        page = board.dead_letters(ADMIN, 2, cursor)
        found += [row.excerpt for row in page.rows]
        cursor = page.next
    assert found == ["{", *(f"{{{n}" for n in reversed(range(5)))]


def test_the_file_is_for_its_owner_alone_and_is_read_again_also_from_threads_at_once(tmp_path, monkeypatch):
    path = tmp_path / "board.sqlite"
    first = FilledBoard(path)
    first.take(decision("a"))
    first.close()
    for each in tmp_path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    second = FilledBoard(path)
    assert names(second.pending(ADMIN, Query(text="service"))) == ["a"]
    # as during a rolling restart: who writes what it has read waits for another process, and does not fail
    with FilledBoard(path) as first, ThreadPoolExecutor(1) as pool:
        with first.transaction():
            (item,) = first.row("SELECT id FROM items")
            writing = pool.submit(second.take, decision("b"))
            with suppress(TimeoutError):
                writing.result(0.2)
            first.rows("UPDATE items SET dropped = 0 WHERE id = ?", item)
        writing.result()
    monkeypatch.chdir(tmp_path)
    FilledBoard(Path(MEMORY)).close()
    assert not Path(MEMORY).exists()
    board = filled(*(decision(f"c{n}", age=n) for n in range(50)))
    with ThreadPoolExecutor(4) as pool:
        limits = [Query(limit=1 + n % 200) for n in random.sample(range(200), 100)]
        results = list(pool.map(lambda query: len(board.pending(ADMIN, query).rows), limits))
        pool.submit(board.add, records(decision("late"))).result()
    assert max(results) == 50
    assert board.pending(ADMIN, Query()).total == 51


def test_forgetting_leaves_what_is_pending_and_what_is_young(board):
    board.take(
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


@given(
    st.lists(st.tuples(st.integers(0, 4), st.text("ab\u00e9\u200b.", min_size=1, max_size=30)), max_size=60)
)
@example([(0, "Water is wet."), (2, "And so on.")])
@example([(0, "a" * 200)])
@example([(0, "a" * 201)])
def test_an_excerpt_without_an_ellipsis_holds_every_word(words):
    gaps = [" ", "\n", "\n" * 300, "\t" * 900, "\u2003" * 700]
    text = "".join(gaps[gap] + word for gap, word in words).removeprefix(" ")
    excerpt = in_one_line(text)
    assert len(excerpt) <= 200
    assert excerpt.endswith("…") or excerpt.split() == text.split()


@given(
    name=st.sampled_from(["ann", "lead", "Lead", "eve", ""]),
    tenants=st.sets(st.sampled_from(["acme", "globex", "initech"])),
    read_only=st.booleans(),
)
@example(name="lead", tenants={"acme"}, read_only=True)
@example(name="ann", tenants={"acme", "globex"}, read_only=False)
def test_only_the_owner_or_a_delegate_sees_an_item_and_only_in_the_persons_tenants(name, tenants, read_only):
    """Who may only look sees as much, and delegation in one tenant is none in another."""
    keys = Keys.parse(b'[reviewers]\nacme = ["lead"]\nglobex = ["lead", "ann"]\n', Path("keys.toml"))
    scope = Permissions(keys).scope(Person(name, frozenset(tenants), read_only=read_only))
    for tenant in ("acme", "globex", "initech", "other"):
        for user in ("ann", "lead", "bob"):
            expected = tenant in tenants and (user == name or keys.delegated(tenant, name))
            assert scope.sees(tenant, user) == expected


def test_every_reason_of_a_review_has_a_risk_and_a_failed_check_is_as_grave_as_the_reason_that_it_may_give():
    least = ReasonCode.PENDING_DUPLICATE
    same = "citation_unverified citation_irrelevant conflicting_near_duplicate previously_rejected"
    same += " source_unattested derived_from_unapproved snippet_mismatch stale_index unverified_fields"
    same += " quotes_rejected quote_polarity source_tags_missing flagged_claims critical_gap low_confidence"
    broken = (
        "sources index fields source_tags quotes entities relations values claims hedges citation parents"
    )
    wrong = []
    for check, like in (
        ("hedge_words_detected: maybe", "technical_hedge"),
        ("citation_missing", "ungrounded"),
        ("dedup_check_failed", "dedup_unavailable"),
        ("phantom_file: f", "phantom_source"),
        ("source_tag_phantom: 7", "phantom_source"),
        ("values_unsupported: 1", "flagged_claims"),
        *((f"{check}: a: b", check) for check in same.split()),
        *((f"{check}_unavailable", "check_unavailable") for check in broken.split()),
    ):
        if risk_of(least, ["source_not_trusted: chat", check]) != risk_of(like):
            wrong.append(check)
        for reason in (code for code in ReasonCode if risk_of(code).rank):
            graver = min(risk_of(reason), risk_of(like), key=lambda risk: risk.rank)
            if risk_of(reason, [check]) != graver or risk_at(graver.rank) != graver:
                wrong.append((reason, check))
    assert wrong == []
    assert risk_of(least, ["citation_missing", "of_a_later_version: x"]).rank == 0
    assert {risk_at(rank).rank for rank in (-1, 0, 10_000)} == {0}
    final = {"duplicate", "expired", "personal_speculation", "entity_grounding_failed"}
    final |= {"relation_preservation_failed", "review_queue_full"}
    approving = {"verified_citation", "trusted_source", "stated_decision", "stated_preference", "grounded"}
    people = {"human_approved", "human_rejected", "review_expired", "retracted"}
    for code in ReasonCode:
        assert (risk_of(code).rank == 0) == (code in final | approving | people)


def test_the_queue_goes_by_the_gravest_failure_of_the_highest_revision_and_an_older_layout_is_filled_anew(
    tmp_path,
):
    failed = (
        ["derived_from_unapproved: b"],
        ["citation_unverified: #7"],
        ["conflicting_near_duplicate: c: number"],
    )
    made = (
        decision("worded", reason_code="technical_hedge", age=90),
        decision("rests", reason_code="ungrounded", age=1, checks_failed=failed[0]),
        decision("cites", reason_code="derived_from_unapproved", age=1, checks_failed=failed[1]),
        decision("denies", reason_code="technical_hedge", checks_failed=failed[2]),
        decision("again", 2, age=1, reason_code="technical_hedge", checks_failed=["citation_missing"]),
        decision("again", 1, reason_code="ungrounded", checks_failed=["previously_rejected: b"]),
    )
    path = tmp_path / "board.sqlite"
    board = FilledBoard(path)
    board.take(*made)
    queue = names(board.pending(ADMIN, Query()))
    assert (queue[0], sorted(queue[1:3]), queue[3:]) == ("denies", ["cites", "rests"], ["worded", "again"])
    first = board.pending(ADMIN, Query()).rows[0]
    assert (first.reason_code, first.risk) == ("technical_hedge", risk_of("conflicting_near_duplicate"))
    assert board.item(ADMIN, first.decision_id).current.risk == first.risk
    board.close()
    assert names(FilledBoard(path).pending(ADMIN, Query())) == queue
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("ALTER TABLE items DROP COLUMN excerpt; PRAGMA user_version = 5")
    with capture_logs() as logs, FilledBoard(path) as board:
        assert [one["event"] for one in logs] == ["review_board.emptied"]
        assert names(board.pending(ADMIN, Query())) == []
        board.take(*made)
        assert names(board.pending(ADMIN, Query())) == queue


def test_a_file_that_is_no_board_or_one_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path):
    FilledBoard(tmp_path / "newer").close()
    others = {"job": 0, "notes": 1, "todo": 5, "list": 6, "newer": 99}
    for name, version in others.items():
        with closing(sqlite3.connect(tmp_path / name)) as other:
            other.executescript(f"CREATE TABLE IF NOT EXISTS items (mine); PRAGMA user_version = {version}")
    (tmp_path / "text").write_text("no database" * 100)
    for name in (*others, "text"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(UsageError, match=name):
            FilledBoard(tmp_path / name)
        assert (tmp_path / name).read_bytes()[100:] == before[100:], "all but SQLite's own header"


def test_who_has_an_sqlite_without_fts5_is_told_so_and_no_file_is_left_half_made(tmp_path, monkeypatch):
    def rows(store, query, *values):
        if "fts5" in query:
            raise UsageError("no such module: fts5")
        return run(store, query, *values)

    run = Board.rows
    with monkeypatch.context() as patch:
        patch.setattr(Board, "rows", rows)
        with pytest.raises(UsageError, match="lacks FTS5"):
            Board(tmp_path / "board")
    Board(tmp_path / "board").close()


@given(
    ages=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    taken=st.sets(st.integers(0, 11)),
    at=st.integers(0, 12),
    sort=st.sampled_from(SORTS),
    reason=st.sampled_from([None, "ungrounded"]),
)
def test_neighbours_are_the_nearest_free_items_of_the_whole_list(ages, taken, at, sort, reason):
    reasons = ("ungrounded", "phantom_source", "technical_hedge")
    made = [decision(f"c{n}", age=age, reason_code=reasons[n % 3]) for n, age in enumerate(ages)]
    board, query = filled(*made), Query(reason=reason, sort=sort, limit=200)
    asked = made[at].decision_id if at < len(made) else "none"
    free = {one.decision_id for n, one in enumerate(made) if n not in taken}
    ids = [row.decision_id for row in board.pending(ADMIN, query).rows]
    first = next((one for one in ids if one in free and one != asked), None)
    expected = Neighbours(after=first, then=first, total=len(ids))
    if asked in ids:
        place = ids.index(asked)
        after = next((one for one in ids[place + 1 :] if one in free), None)
        before = next((one for one in reversed(ids[:place]) if one in free), None)
        expected = Neighbours(before, after, after or first, place + 1, len(ids))
    assert board.neighbours(ADMIN, query, asked, lambda row: row.decision_id in free) == expected


def test_decisions_of_people_are_counted_by_reason_and_source_with_the_times_that_they_took():
    ever = NOW - timedelta(days=365)
    duplicate = reviewed("a", verdict="blocked", tier="tier_3", approved=False, reason_code="duplicate")
    found = filled(
        decision("a", reason_code="technical_hedge"),
        duplicate,  # counts as the approval that it was
        *(decision("b"), reviewed("b", "edit"), decision("d"), reviewed("d", "reject")),
        *(decision("c", source="chat"), reviewed("c", "reject", source="chat"), decision("waits")),
    ).agreement(ADMIN, ever)
    assert (found.total.approved, found.total.edited, found.total.rejected) == (1, 1, 2)
    reasons = [(tally.name, tally.decided) for tally in found.by_reason]
    assert reasons == [("ungrounded", 3), ("technical_hedge", 1)]
    assert [(tally.name, tally.decided) for tally in found.by_source] == [("ai_synthesis", 3), ("chat", 1)]
    made = []
    for minutes in range(1, 11):
        made += [decision(f"c{minutes}", age=100), reviewed(f"c{minutes}", age=100 - minutes)]
    total = filled(*made).agreement(ADMIN, ever).total
    assert (total.median, total.p90) == (timedelta(minutes=5, seconds=30), timedelta(minutes=9))
    nothing = filled(
        *(decision("expired"), reviewed("expired", "expire")),
        *(decision("retracted", verdict="approved"), reviewed("retracted", "retract")),
        *(decision("old"), reviewed("old", age=50 * 60)),
        *(decision("unseen", facts={"place": "not_needed"}), reviewed("unseen")),
    )
    total = nothing.agreement(ADMIN, NOW - timedelta(days=1)).total
    assert (total.decided, total.median, total.p90) == (0, None, None)


def approved(name, *parents, **changes):
    return decision(name, verdict="approved", derived_from=list(parents), **changes)


BASE = approved("base")
RETRACTED = [BASE, reviewed("base", "retract")]


def dependents(board, scope=ADMIN):
    return board.dependents(scope, board.item(ADMIN, BASE.decision_id).current)


def named(page):
    return [(one.name, one.state) for one in page.rows], page.total


@given(st.data())
def test_dependents_are_the_approved_claims_that_name_the_item_in_any_order_of_records(data):
    ids = [f"c{n}" for n in range(6)]
    made = []
    for name in data.draw(st.lists(st.sampled_from(ids), unique=True)):
        parents = data.draw(st.lists(st.sampled_from([*ids, "response:r"]), max_size=3))
        user = data.draw(st.sampled_from(["ann", "bob"]))
        verdict = data.draw(st.sampled_from(["approved", "review", "blocked"]))
        made.append(decision(name, verdict=verdict, derived_from=parents, user=user))
        action = {"approved": "retract", "review": "approve"}.get(verdict)
        if action and data.draw(st.booleans()):
            made.append(reviewed(name, action, derived_from=parents, user=user))
    made.append(decision("r", verdict="approved", kind="response"))
    order = data.draw(st.permutations(records(*made)))
    board = filled(*order, *data.draw(st.lists(st.sampled_from(order))))
    highest = {one.subject_id: one for one in sorted(made, key=lambda one: one.revision)}
    for name, one in highest.items():
        if one.verdict == "approved" or one.reason_code == "retracted":
            called = name if one.kind == "claim" else f"response:{name}"
            expected = sorted(
                other.subject_id
                for other in highest.values()
                if (other.verdict, other.user_id) == ("approved", one.user_id)
                and other is not one
                and called in (other.derived_from or ())
            )
            page = board.dependents(ADMIN, board.item(ADMIN, one.decision_id).current)
            assert named(page) == ([(each, "approved") for each in expected], len(expected))


def test_a_retraction_names_dependents_that_the_board_does_not_hold_and_beyond_a_thousand_they_are_counted():
    made = records(
        *(*RETRACTED, approved("heir", "base")),
        *(approved("since", "base"), reviewed("since", "retract", derived_from=["base"])),
        decision("waits", derived_from=["base"]),
    )
    of_base = retraction("base", "heir", "old", "since", "waits")
    for order in ([of_base, *made], [*made, of_base, of_base]):
        found = dependents(filled(*order))
        assert named(found) == ([(name, "approved") for name in ("heir", "old", "waits")], 3)
        assert [one.decision_id is None for one in found.rows] == [False, True, False]
    others = ({"user": "bob"}, {"tenant": "globex"}, {"kind": "response"})
    retractions = [*(retraction("base", "x", **one) for one in others), retraction("other", "x")]
    invalid = (None, b"", b"{", b"null", b'{"affected": []}')
    retractions += [replace(retraction("base", "x"), value=value) for value in invalid]
    assert named(dependents(filled(*records(*RETRACTED), *retractions))) == ([], 0)
    heirs = [approved(f"h{n:04}", "base") for n in range(1_002)]
    board = filled(*records(BASE, *heirs))
    found, total = named(dependents(board))
    assert ([name for name, _ in found], total) == ([one.subject_id for one in heirs[:1_000]], 1_002)
    board.add([record(reviewed("base", "retract")), retraction("base", "a", "h0000", more=2**80)])
    found, total = named(dependents(board))
    assert found[:2] == [("a", "approved"), ("h0000", "approved")]
    assert len(found) == 1_000
    assert total > 2**30
    board = filled(*records(*RETRACTED), retraction("base", "a", more=5))
    assert named(dependents(board)) == ([("a", "approved")], 6)


def test_dependents_are_shown_to_who_sees_an_approved_or_retracted_item_until_they_are_forgotten():
    heir = approved("heir", "base")
    board = filled(*records(*RETRACTED, heir), retraction("base", "x"))
    assert named(dependents(board, STRANGER)) == ([], 0)
    assert dependents(board).total == 2
    pending = filled(*records(decision("base"), heir))
    assert named(dependents(pending)) == ([], 0)
    later = (reviewed("base", "retract", age=5), heir, approved("late", "base", age=5))
    board = filled(*records(BASE, *later), retraction("base", "heir", "gone", age=60))
    board.forget(NOW - timedelta(minutes=50))
    item = board.item(ADMIN, later[0].decision_id)
    assert named(board.dependents(ADMIN, item.current)) == ([("late", "approved")], 1)


def test_a_kept_board_is_read_on_unless_more_is_wanted_than_it_holds(tmp_path):
    path = tmp_path / "board.sqlite"
    day = timedelta(days=1)
    with FilledBoard(path) as board:
        assert board.resume(NOW - day) == {}
        board.add([record(decision("b"), 7), record(decision("a"), 3), retraction("c")])
    review, retractions = TopicPartition("review", 0), TopicPartition("retractions", 0)
    with FilledBoard(path) as board:
        assert names(board.pending(ADMIN, Query(sort="oldest"))) == ["b", "a"]
        assert board.resume(NOW) == {review: 8, retractions: 1}, "what was read in any order"
        assert board.resume(NOW - 2 * day) == {}
        board.add([record(decision("a"), 3)])
        board.forget(NOW - day / 2)
        assert board.resume(NOW - day / 2) == {review: 4}
        assert board.resume(NOW - day) == {}, "what it forgot is read again"


async def test_a_kept_board_is_one_cluster_s_and_in_a_folder_that_nobody_else_uses(monkeypatch, tmp_path):
    async def cluster_of(brokers, _seconds):
        return {"a:1": "one", "a:1,b:1": "one", "c:1": "two"}.get(brokers)

    async def kept(brokers: str) -> bool:
        with await open_board(None, brokers, "p.", 1.0) as board:
            held = board.resume(NOW) != {}
            board.add([record(decision("a"), 3)])
            return held

    monkeypatch.setattr(feed, "cluster_of", cluster_of)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [await kept(brokers) for brokers in ("a:1", "a:1,b:1", "c:1")] == [False, True, False]
    assert [await kept("without an id") for _ in range(2)] == [False, False]
    (tmp_path / "groundwire").chmod(0o750)
    assert not await kept("a:1")


def test_what_a_user_said_before_their_erasure_leaves_a_kept_board_in_whatever_order_it_is_read():
    before, after, others = decision("a", age=30), decision("b", age=1), decision("c", user="bob", age=30)
    tombstone = Erasure("acme", "ann", NOW - timedelta(minutes=10))
    key, at = b"acme:ann", to_milliseconds(NOW)
    erased = InboundRecord(TopicName.RETRACTIONS, 0, 0, at, key, None, tuple(tombstone.headers))
    notes = said("old", "old", minutes=20), said("new", "new", minutes=5)
    for order in ((before, after, others, *notes, erased), (erased, *notes, before, after, others)):
        board = filled(*order)
        assert list(board.rows("SELECT note FROM notes")) == [("new",)]
        assert sorted(names(board.pending(ADMIN, Query()))) == ["b", "c"]
        assert board.row("SELECT count(*) FROM decisions") == (2,)
        assert board.row("SELECT count(*) FROM texts") == (2,)
