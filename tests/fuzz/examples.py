"""Valid records, with all their fields: what mutations begin with."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.fuzz.texts import CANARY, text

USER: Final = "ada"
CONTENTS: Final = (
    *(
        "The API returns JSON",
        "Per ADR-003, we use PostgreSQL",
        "See https://docs.example.org/good for the limits",
    ),
    *(
        "Maybe we could try GraphQL",
        "I feel hopeless about the build",
        "Fixed in commit abcdef1234",
        "Closes #12",
    ),
    *("The ingest service retries every failed upload five times", "See https://docs.example.org/gone"),
)
SOURCES: Final = (
    "ai_synthesis",
    "user",
    "documentation",
    "adr",
    "commit",
    "manual",
    "conversation",
    "chat",
    "agent",
)


def content(rng: Random) -> str:
    """Return a text to be decided on, which no log may hold."""
    said = rng.choice(CONTENTS) if rng.random() < 0.6 else text(rng)
    return f"{said} {CANARY}" if rng.random() < 0.8 else said


def claim(rng: Random, number: int = 1) -> dict[str, Any]:
    """Return a Claim."""
    whole = {
        "claim_id": f"c{number}",
        "tenant_id": "default",
        "user_id": USER,
        "content": content(rng),
        "memory_type": rng.choice(("fact", "preference", "decision")),
        "source": rng.choice(SOURCES),
        "source_id": "wiki/12",
        "captured_at": "2026-01-31T11:00:00+01:00",
        "validity_horizon": rng.choice((None, "2026-12-31T00:00:00Z", "2026-01-31T11:30:00Z")),
        "derived_from": rng.choice(([], [], ["c1"], ["c0", "response:r1"])),
        "metadata": {"tool": "x", "note": CANARY, "nested": {"a": [1, 2.5, None]}},
        "schema_version": "1.0",
    }
    needed = {"claim_id", "user_id", "content"}
    return {name: value for name, value in whole.items() if name in needed or rng.random() < 0.7}


_CODE: Final = "def search(query, top_k):\n    timeout = 30 s\n    return index.find(query)"
_GROUNDED: Final = "Call `search` with `top_k` [source:1]. The timeout is 30 s [source:1]."


def _claims(rng: Random) -> list[dict[str, Any]]:
    one = {"subject": "search", "relation": "calls", "object": "index", "timestamp": "2026-01-01T00:00:00Z"}
    return [{**one, "version": rng.choice(("1", "2.0", None)), "qualifiers": {"unit": "s"}}]


def response(rng: Random, number: int = 1) -> dict[str, Any]:
    """Return an LlmResponse."""
    chunk = {"chunk_id": "a", "file": "src/search.py", "content": _CODE, "start_line": 1, "end_line": 3}
    more = {"revision": "a1", "indexed_at": "2026-01-01T00:00:00Z", "version": "1.2", "document_id": "d1"}
    index = {"e1": {"confidence": 0.9, "role": "service"}}
    whole = {
        "response_id": f"r{number}",
        "tenant_id": "default",
        "user_id": USER,
        "schema_version": "1.0",
        "metadata": {"note": CANARY},
        "query": f"How is search called? {CANARY}",
        "mode": rng.choice(("instant", "auto", "thinking")),
        "scope": "docs",
        "in_reply_to": rng.choice((None, "r0", "r1")),
        "answer": _GROUNDED if rng.random() < 0.4 else f"{_GROUNDED} {content(rng)}",
        "confidence": rng.choice((1.0, 0.9, 0.69, 0.1)),
        "chunks": [
            chunk | (more if rng.random() < 0.5 else {}),
            {**chunk, "chunk_id": "b", "file": "docs/a.md"},
        ],
        "sources": [{"file": "src/search.py", "snippet": "timeout = 30 s", "start_line": 1, "end_line": 3}],
        "current_revisions": {"src/search.py": rng.choice(("a1", "b2"))},
        "transcript": f"I said that I sleep well. {CANARY}",
        "evidence": {"sleep": ["I sleep well"], "mood": [rng.choice(("I said", "I wept"))]},
        "entities": [{"id": "e1", "name": "search", "role": "service", "provenance_id": "p1"}],
        "corpus_index": index,
        "claims": _claims(rng),
        "relations": _claims(rng),
        "hop_results": [{"hop": 1, "found": ["a"]}],
        "steps": [{"claim": "The timeout is 30 s", "cites": ["a"]}],
        "context": {"a": _CODE, "b": f"The search retries 5 times. {CANARY}"},
        "verify": rng.random() < 0.9,
        "fan_out": rng.random() < 0.3,
    }
    needed = {"response_id", "user_id", "answer"}
    kept = rng.choice((0.2, 0.5, 1.0))
    return {name: value for name, value in whole.items() if name in needed or rng.random() < kept}


def action(rng: Random, subject_id: str, revision: int, number: int) -> dict[str, Any]:
    """Return a ReviewDecision."""
    kind = rng.choice(("approve", "reject", "edit", "retract", "expire"))
    whole = {
        "action_id": rng.choice((f"a{number}", "a1", "00000000-0000-4000-8000-000000000000")),
        "tenant_id": "default",
        "user_id": USER,
        "kind": rng.choice(("claim", "claim", "claim", "response")),
        "subject_id": subject_id,
        "expected_revision": revision,
        "action": kind,
        "reviewer": rng.choice((USER, USER, "lead", "mallory", "groundwire")),
        "reason": rng.choice((None, "incorrect", f"no code {CANARY}")),
        "note": rng.choice((None, f"a note {CANARY}")),
        "at": "2026-01-31T12:00:00Z",
    }
    return whole | ({"content": content(rng)} if kind == "edit" else {})
