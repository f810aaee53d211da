"""How long the review board takes to list, search and open items, and how much memory it takes.

    .venv/bin/python bench/review_board.py --pending 10000

One run in one process, processor time of each call. Beside it, in the same run, stands the plain way: a list of
decoded Decisions, filtered and sorted for each page, and looked through for what rests on a claim. Memory is the growth
of the process.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from groundwire.messages.base import format_time, to_milliseconds
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.model import Query, risk_of
from groundwire.review.permissions import ViewScope
from groundwire.review.records import TopicRecord

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = [
    "the",
    "gateway",
    "retries",
    "requests",
    "twice",
    "before",
    "it",
    "gives",
    "up",
    "on",
    "a",
    "slow",
    "region",
    "of",
    "our",
    "cluster",
]
REASONS = ("ungrounded", "technical_hedge", "citation_unverified", "conflicting_near_duplicate")
LEAD = ViewScope("lead", frozenset({"acme"}), frozenset({"globex"}))
_APPROVED = 20_000
_PARENTS = 100
_AT_ONCE = 1_000
OWNER = ViewScope("u7", frozenset(), frozenset({"acme"}))


def main() -> None:
    """Print times and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    rng = random.Random(7)
    records = [_record(rng, number) for number in range(given.pending)]

    before = _resident()
    began = time.process_time()
    board = Board(clock=lambda: NOW)
    board.add(records)
    took = time.process_time() - began
    ids = [row.decision_id for row in board.pending(LEAD, Query(limit=200)).rows]
    memory = _resident() - before
    print(f"{given.pending} pending: read in {took:.1f} s, {memory / 2**20:.0f} MiB")

    before = _resident()
    plain = [Decision.model_validate_json(record.value or b"") for record in records]
    other = _resident() - before
    print(f"as decoded Decisions: {other / 2**20:.0f} MiB, {other / max(memory, 1):.1f} times as much\n")

    taken = [subject for subject, _ in board.candidates()[::10]]
    pages: dict[str, tuple[ViewScope, Query]] = {
        "first page by risk": (LEAD, Query()),
        "by age, one reason": (LEAD, Query(reason="technical_hedge", sort="oldest")),
        "one user of a tenant": (LEAD, Query(user="u7")),
        "own items": (OWNER, Query()),
        "claimed by one": (LEAD, Query(only=taken)),
        "claimed by nobody": (LEAD, Query(without=taken)),
        "search, common word": (LEAD, Query(text="gateway")),
        "search, two words": (LEAD, Query(text="slow 77")),
    }
    print(f"{'list':<22}{'p50 ms':>9}{'p95 ms':>9}{'plain p50':>11}{'ratio':>7}")
    for name, (scope, query) in pages.items():
        ours = _times(lambda scope=scope, query=query: board.pending(scope, query), given.calls)
        theirs = _times(
            lambda scope=scope, query=query: _scan(plain, scope, query), max(3, given.calls // 20)
        )
        _line(name, ours, theirs)
    _resting(board, given.calls)
    opened = _times(lambda: board.item(LEAD, rng.choice(ids)), given.calls)
    counted = _times(lambda: board.counts(LEAD), given.calls)
    many = [decision.decision_id for decision in plain[:_AT_ONCE]]
    stand = _times(lambda: board.standings(LEAD, many), max(3, given.calls // 20))
    compared = _times(lambda: board.memories(LEAD, many), max(3, given.calls // 20))
    shown = (
        ("one item", opened),
        ("gauges", counted),
        ("1,000 items stand", stand),
        ("1,000 compared", compared),
    )
    for name, found in shown:
        print(f"{name:<22}{_part(found, 0.5):>9.2f}{_part(found, 0.95):>9.2f}")


def _resting(board: Board, calls: int) -> None:
    """Print how long it takes to name what rests on one of 20,000 approved claims of an owner."""
    rng = random.Random(8)
    records = [_approved(rng, number) for number in range(_APPROVED)]
    board.add(records)
    plain = [Decision.model_validate_json(record.value or b"") for record in records]
    rows = [found.current for one in plain[:_PARENTS] if (found := board.item(LEAD, one.decision_id))]
    ours = _times(lambda: board.dependents(LEAD, rng.choice(rows)), calls)
    theirs = _times(
        lambda row=rows[0]: [one for one in plain if row.subject_id in (one.derived_from or ())],
        max(3, calls // 20),
    )
    _line("what rests on one", ours, theirs)


def _approved(rng: random.Random, number: int) -> TopicRecord:
    """Return an approval of one owner; each rests on one of the first hundred."""
    decision = _decision(rng, number, NOW - timedelta(days=1)) | {
        "subject_id": f"held-{number}",
        "tenant_id": "acme",
        "user_id": "owner",
        "derived_from": [f"held-{number % _PARENTS}"] if number >= _PARENTS else [],
        "tier": "tier_1",
        "verdict": "approved",
        "approved": True,
        "reason_code": "trusted_source",
    }
    value = json.dumps(decision, ensure_ascii=False).encode()
    return TopicRecord(TopicName.APPROVED, 0, number, to_milliseconds(NOW), b"acme:owner", value)


def _line(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    print(
        f"{name:<22}{_part(ours, 0.5):>9.2f}{_part(ours, 0.95):>9.2f}{_part(theirs, 0.5):>11.2f}"
        f"{_part(theirs, 0.5) / _part(ours, 0.5):>6.0f}x"
    )


def _scan(decisions: Sequence[Decision], scope: ViewScope, query: Query) -> list[Decision]:
    """Do what the board does, by looking at every Decision."""
    words = query.text.split()
    only, without = set(query.only or ()), set(query.without)
    found = [
        each
        for each in decisions
        if scope.sees(each.tenant_id, each.user_id)
        and (query.reason is None or each.reason_code == query.reason)
        and (query.user is None or each.user_id == query.user)
        and (query.only is None or _subject(each) in only)
        and (not without or _subject(each) not in without)
        and all(word in (each.evidence.claim.casefold() if each.evidence else "") for word in words)
    ]
    found.sort(key=lambda each: (risk_of(each.reason_code).rank, each.decided_at, each.decision_id))
    return found[: query.limit]


def _subject(one: Decision) -> Subject:
    return Subject(one.tenant_id, one.user_id, Kind(one.kind), one.subject_id)


def _times(call: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.process_time()
        call()
        times.append((time.process_time() - began) * 1000)
    return sorted(times)


def _part(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(part * len(times)))]


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def _record(rng: random.Random, number: int) -> TopicRecord:
    at = NOW - timedelta(seconds=rng.randrange(60 * 86_400))
    value = json.dumps(_decision(rng, number, at), ensure_ascii=False).encode()
    return TopicRecord(TopicName.REVIEW, number % 8, number // 8, to_milliseconds(at), b"acme:u", value)


def _decision(rng: random.Random, number: int, at: datetime) -> dict[str, Any]:
    time_ = format_time(at)
    origin = {"topic": "claims", "partition": 0, "offset": number, "timestamp": time_, "sha256": "0" * 64}
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(10, 60))) + f" {number}"
    return {
        "decision_id": str(uuid.UUID(int=rng.getrandbits(128))),
        "revision": 1,
        "supersedes": None,
        "kind": "claim",
        "subject_id": f"claim-{number}",
        "tenant_id": "acme" if rng.random() < 0.7 else "globex",
        "user_id": f"u{rng.randrange(100)}",
        "fingerprint": f"{number:064x}",
        "memory_type": "fact",
        "source": "ai_synthesis",
        "derived_from": [],
        "tier": "tier_2",
        "verdict": "review",
        "approved": False,
        "reason": "No citation, and the source is not trusted",
        "reason_code": rng.choice(REASONS),
        "retryable": False,
        "checks_passed": ["not_duplicate", "not_previously_rejected", "no_speculation", "review_place"],
        "checks_failed": ["citation_missing", "source_not_trusted: ai_synthesis"],
        "checks_skipped": ["citation_verification_skipped", "relevance_skipped", "parents_skipped"],
        "hedges": [{"text": "may", "category": "technical_hedge", "action": "review", "start": 0, "end": 3}],
        "citations": [],
        "similarity_score": None,
        "conflicting_memory_id": None,
        "evidence": {"claim": text, "capture_time": time_, "confidence": "medium"},
        "report": None,
        "facts": {"clock": time_, "place": "free", "dedup": {"status": "ok", "scheme": "s", "matches": []}},
        "policy": {"version": "default", "sha256": "0" * 64},
        "engine": "0.1.0",
        "origin": origin,
        "subject_origin": None,
        "decided_at": time_,
        "truncated": None,
        "replay": None,
    }


if __name__ == "__main__":
    main()
