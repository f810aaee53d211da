"""What waits in the tests: claims and responses for every reason, some of them with texts that mean harm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from groundwire.messages.decisions import Decision, Kind, ReasonCode, Verdict
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.tiers import IngestionTier
from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.risk import risk_of
from tests.browser.site import OWNER, TENANT, as_record, decide

REASONS: Final = [
    code for code in ReasonCode if risk_of(code).rank and code is not ReasonCode.PENDING_DUPLICATE
]
"""Why something waits for a person; what follows another item is decided with that one."""

HOSTILE: Final = {
    "script": "</textarea></p><script>alert(1)</script><script src='https://evil.example/x.js'></script>",
    "handler": "<img src=https://evil.example/pixel onerror=alert(1)><svg onload=alert(2)><body onfocus=alert(3)>",
    "link": "[read](javascript:alert(1)) javascript:alert(2) data:text/html,<script>alert(3)</script>",
    "style": "<style>body{display:none}</style><link rel=stylesheet href=//evil.example/x.css><base href=//evil>",
    "turned": "The release is \u202eexe.gnp\u202c, see \u2066both\u2069 and a zero\u200bwidth \u0007 sign.",
    "template": "{{ 7 * 7 }} {% raw %} ${7*7} <%= 7 * 7 %> &lt;b&gt; &#x3c;i&#x3e; %3Cscript%3E",
    "frame": "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe><form action=//evil.example><button>ok",
    "long-word": "Supercalifragilistic" * 60 + " " + "\u0301" * 200 + "W" * 600,
    "huge": "<b>Nothing</b> is as long as this sentence, which is probably repeated. " * 270,
    "address": "See https://evil.example/" + "a/" * 400 + '?q="><script>alert(1)</script> as ADR-999 says.',
}
"""Texts that would run, load, or break the page if they were anything but text."""

_PLAIN: Final = (
    "The {part} service keeps {n} sessions in memory and evicts the oldest first.",
    "Requests to {part} should usually finish within {n} ms, which is probably enough.",
    "As ADR-{n} says, the {part} team retries a failed call, with a pause that doubles each time.",
)
_PARTS: Final = ("checkout", "billing", "search", "login", "export", "inventory", "mail")


@cache
def waiting(count: int) -> tuple[Decision, ...]:
    """Return so many decisions in review: every fourth a response, every tenth a hostile text, all reasons."""
    hostile = list(HOSTILE.items())
    claims, responses = [], []
    for n in range(count):
        if n % 4 == 3:
            responses.append(_response(n))
        elif n % 10 == 0:
            name, text = hostile[n // 10 % len(hostile)]
            claims.append(claim(f"{name}-{n:03}", text))
        else:
            part = _PARTS[n % len(_PARTS)]
            claims.append(claim(f"{part}-{n:03}", _PLAIN[n % len(_PLAIN)].format(part=part, n=100 + n)))
    return in_review([*claims, *responses])


def more(before: int, after: int) -> list[Decision]:
    """Return those by which `waiting(after)` is more than `waiting(before)`."""
    known = {one.subject_id for one in waiting(before)}
    return [one for one in waiting(after) if one.subject_id not in known]


def claim(claim_id: str, content: str, **changes: Any) -> dict[str, Any]:
    """Return a claim as a producer sends it."""
    base = {"tenant_id": TENANT, "user_id": OWNER.name, "memory_type": "fact", "source": "ai_synthesis"}
    return {**base, "claim_id": claim_id, "content": content, **changes}


def _response(number: int) -> dict[str, Any]:
    chunk = {
        "chunk_id": "c1",
        "file": "src/<script>alert(1)</script>.py" if number % 8 == 3 else "src/retry.py",
        "content": "def retry(): ...",
        "start_line": 1,
        "end_line": 3,
    }
    return {
        "tenant_id": TENANT,
        "user_id": OWNER.name,
        "response_id": f"answer-{number:03}",
        "query": "How are payments retried?",
        "answer": "Payments are retried by `retryWithBackoff` with the `maxAttempts` option, see src/retries.py.",
        "confidence": 0.9,
        "chunks": [chunk],
        "sources": [{"file": chunk["file"]}, {"file": "src/retries.py"}],
    }


def in_review(records: Sequence[dict[str, Any]]) -> tuple[Decision, ...]:
    """Decide records as the gate does, and send all to review, for one reason after the other."""
    now = datetime.now(UTC)
    with ThreadPoolExecutor(1) as pool:  # a thread of its own: the test's may have an event loop already
        found = pool.submit(asyncio.run, decide(list(records), now)).result()
    return tuple(
        _sent_to_review(one, REASONS[n % len(REASONS)], now - timedelta(minutes=n))
        for n, one in enumerate(found)
    )


def _sent_to_review(decision: Decision, reason: ReasonCode, at: datetime) -> Decision:
    values = decision.model_dump(by_alias=True)
    subject = Subject(decision.tenant_id, decision.user_id, Kind(decision.kind), decision.subject_id)
    values |= {
        "decision_id": decision_id(subject, 1),
        "revision": 1,
        "tier": IngestionTier.FLAG_REVIEW,
        "verdict": Verdict.REVIEW,
        "approved": False,
        "reason_code": reason,
        "facts": {**values["facts"], "place": "free"},
        "decided_at": at,
    }
    return Decision.model_validate(values)


def put(board: Board, *decisions: Decision) -> list[str]:
    """Put decisions on a board, as if they had come over the topics; return their ids."""
    now = datetime.now(UTC)
    board.add([as_record(one, TopicName.of(one.verdict), n, now) for n, one in enumerate(decisions)])
    return [one.decision_id for one in decisions]


def board_of(decisions: Sequence[Decision]) -> Board:
    """Return a board with these decisions."""
    board = Board()
    put(board, *decisions)
    return board


def hostile_board() -> tuple[Board, dict[str, str]]:
    """Return a board with every hostile text, in review, and their ids by name."""
    board = Board()
    found = _hostile()
    put(board, *found)
    return board, {one.subject_id: one.decision_id for one in found}


@cache
def _hostile() -> tuple[Decision, ...]:
    return in_review([claim(name, text) for name, text in HOSTILE.items()])
