"""The examples of the demo, in the waves in which they are sent, each with the outcome that must come.

`{commit12}`, `{commit10}` and `{site}` stand for what `demo.sources` makes. A user's claims are decided in the
order in which they are sent and compared with that user's alone, so that every outcome is known beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from groundwire.messages.decisions import ReasonCode as Why
from groundwire.messages.topics import TopicName

Outcome = str
"""A reason code of a Decision, or the error code of a dead letter."""


@dataclass(frozen=True, slots=True)
class Example:
    """A record to send: the fields of a Claim, LlmResponse or ReviewDecision, or a value.

    `outcomes` are in order: two where a decision is provisional first. `following`: claims that the gate itself sends
    because of it, by id.
    """

    record: Mapping[str, Any] | bytes | None
    outcomes: tuple[Outcome, ...]
    following: Mapping[str, Outcome] = field(default_factory=dict)

    def value(self, places: Mapping[str, str]) -> bytes | None:
        """Return the value to send, with the places of the demo's sources filled in."""
        if self.record is None or isinstance(self.record, bytes):
            return self.record
        if self.topic is not TopicName.CLAIMS:
            return json.dumps(self.record, ensure_ascii=False).encode()
        content = str(self.record["content"])
        for name, place in places.items():
            content = content.replace("{" + name + "}", place)
        return json.dumps({**self.record, "content": content}, ensure_ascii=False).encode()

    @property
    def subject(self) -> tuple[str, str] | None:
        """User and id of what is decided; None for what will be neither claim nor response."""
        if self.record is None or isinstance(self.record, bytes):
            return None
        names = ("claim_id", "response_id", "subject_id")
        return self.record["user_id"], next(self.record[name] for name in names if name in self.record)

    @property
    def topic(self) -> TopicName:
        record = self.record if isinstance(self.record, Mapping) else {}
        if "action" in record:
            return TopicName.REVIEW_DECISIONS
        return TopicName.LLM_RESPONSES if "response_id" in record else TopicName.CLAIMS

    @property
    def answer(self) -> str | None:
        return self.record.get("answer") if isinstance(self.record, Mapping) else None


@dataclass(frozen=True, slots=True)
class Wave:
    """Examples that are sent together; in an `outage` state is stopped until every first outcome is there."""

    title: str
    examples: Sequence[Example] = field(default_factory=tuple)
    outage: bool = False


def claim(claim_id: str, user: str, content: str, *why: Outcome, **fields: Any) -> Example:  # noqa: ANN401 - fields of a claim
    record = {"claim_id": claim_id, "user_id": user, "content": content, **fields}
    return Example(record, why)


def _action(subject_id: str, user: str, action: str, why: Outcome, **fields: Any) -> Example:  # noqa: ANN401 - fields of a decision
    record: dict[str, Any] = {"action_id": f"demo-{subject_id}", "user_id": user, "subject_id": subject_id}
    record |= {"expected_revision": 1, "action": action, "reviewer": REVIEWER, **fields}
    return Example(record, (why,))


REVIEWER: Final = "lena"
REVIEWERS: Final = (REVIEWER, "omar")
"""Who may decide other people's claims in the demo."""

_USE_POSTGRES: Final = "Per ADR-004, relational data is kept in PostgreSQL"
_BILLING: Final = "The billing service was written by the platform team and is deployed on Tuesdays"
_BACKUP: Final = (
    "The nightly backup of the billing database starts at two o'clock, copies every table to the archive "
    "bucket, checks the copy, and reports to the operations channel within 30 minutes"
)

_GROUNDED: Final = Wave(
    "Grounded: a source that was looked up, or a person's own word",
    (
        claim("g-01", "ann", "Per ADR-003, we use Pixeltable for memory storage", Why.VERIFIED_CITATION),
        claim("g-02", "bob", "Fixed in commit {commit12}", Why.VERIFIED_CITATION),
        claim("g-03", "cay", "Fixed in commit {commit10}", Why.VERIFIED_CITATION),
        claim("g-04", "dan", "See {site}/api", Why.VERIFIED_CITATION),
        claim("g-05", "eve", "I prefer tabs over spaces", Why.TRUSTED_SOURCE, source="user"),
        claim("g-06", "fay", "OAuth2 is required", Why.TRUSTED_SOURCE, source="documentation"),
        claim(
            *("g-07", "gus", "We decided to use PostgreSQL", Why.STATED_DECISION),
            memory_type="decision",
            source="conversation",
        ),
        claim(
            *("g-08", "hal", "Dark mode in every editor, please", Why.STATED_PREFERENCE),
            memory_type="preference",
            source="chat",
        ),
        claim("g-09", "ida", _USE_POSTGRES, Why.VERIFIED_CITATION),
        claim("g-10", "joe", _BACKUP, Why.TRUSTED_SOURCE, source="documentation"),
        claim("g-11", "kim", "Acme sued Globex", Why.TRUSTED_SOURCE, source="documentation"),
    ),
)

_REVIEW: Final = Wave(
    "For a person to look at: nothing speaks against it, nothing vouches for it",
    (
        claim("r-01", "ann", "The API returns JSON for REST responses", Why.UNGROUNDED),
        claim("r-02", "bob", "OAuth2 is the authentication mechanism", Why.UNGROUNDED),
        claim("r-03", "cay", "The service uses PostgreSQL 15", Why.UNGROUNDED),
        claim("r-04", "dan", "The API uses OAuth2 for authentication.", Why.UNGROUNDED),
        claim("r-05", "eve", "The server may timeout under load", Why.TECHNICAL_HEDGE),
        claim("r-06", "fay", "Connections typically complete in <100ms", Why.TECHNICAL_HEDGE),
        claim("r-07", "gus", "The API may return errors under load", Why.TECHNICAL_HEDGE),
        claim("r-08", "hal", "Per ADR-003, replies typically take 5 ms", Why.TECHNICAL_HEDGE),
        claim("r-09", "ida", "Per ADR-999, we use magic", Why.CITATION_UNVERIFIED),
        claim("r-10", "joe", "The limits are listed at {site}/gone", Why.CITATION_UNVERIFIED),
        claim("r-11", "kim", "The token is at http://169.254.169.254/latest", Why.CITATION_UNVERIFIED),
    ),
)

_BLOCKED: Final = Wave(
    "Speculation, whatever is said beside it, and what has expired",
    (
        claim("b-01", "ann", "I think we should use Redis", Why.PERSONAL_SPECULATION),
        claim("b-02", "bob", "I guess the API supports this", Why.PERSONAL_SPECULATION),
        claim("b-03", "cay", "Maybe we could try GraphQL", Why.PERSONAL_SPECULATION),
        claim("b-04", "dan", "I think we should use Redis, definitely", Why.PERSONAL_SPECULATION),
        claim("b-05", "eve", "I believe ADR-003 settles it", Why.PERSONAL_SPECULATION, source="user"),
        claim(
            *("b-06", "fay", "The certificate is valid", Why.EXPIRED),
            source="documentation",
            validity_horizon="2020-01-01T00:00:00Z",
        ),
    ),
)

_COMPARED: Final = Wave(
    "Compared with what the same user has had approved",
    (
        claim("d-01", "ida", _USE_POSTGRES, Why.DUPLICATE),
        claim("d-02", "joe", _BACKUP.replace("archive ", ""), Why.DUPLICATE, source="documentation"),
        claim(
            *("d-03", "joe", _BACKUP.replace("copies", "never copies"), Why.CONFLICTING_NEAR_DUPLICATE),
            source="documentation",
        ),
        claim(
            *("d-04", "joe", _BACKUP.replace("30", "90"), Why.CONFLICTING_NEAR_DUPLICATE),
            source="documentation",
        ),
        claim(
            *("d-05", "joe", _BACKUP.replace("minutes", "hours"), Why.CONFLICTING_NEAR_DUPLICATE),
            source="documentation",
        ),
        claim("d-06", "kim", "Globex sued Acme", Why.CONFLICTING_NEAR_DUPLICATE, source="documentation"),
        claim("d-07", "lou", _USE_POSTGRES, Why.VERIFIED_CITATION),
        claim("d-08", "ann", "The API returns JSON for REST responses", Why.PENDING_DUPLICATE),
        claim(
            *("d-09", "dan", "Since we use OAuth2, we need refresh tokens", Why.DERIVED_FROM_UNAPPROVED),
            source="user",
            derived_from=["r-04"],
        ),
    ),
)

_AGAIN: Final = Wave(
    "The same claim id again: with the same content, then with another",
    (
        claim("g-05", "eve", "I prefer tabs over spaces", Why.TRUSTED_SOURCE, source="user"),
        claim("g-05", "eve", "I prefer spaces over tabs", "claim_id_conflict", source="user"),
    ),
)

_NO_JSON: Final = (
    b'{"claim_id": "x-01", "user_id": "mia", "content": "cut off he',
    b'{"claim_id": "x-02", "user_id": "mia", "user_id": "ned", "content": "Two"}',
    b'{"claim_id": "x-03", "user_id": "mia", "content": "caf\xe9"}',
    None,
)
_NO_CLAIMS: Final = (
    b'{"claim_id": "x-04", "user_id": "mia", "contents": "Misspelt"}',
    b'{"claim_id": 5, "user_id": "mia", "content": "A number for an id"}',
)
_LATER: Final = b'{"claim_id": "x-06", "user_id": "mia", "content": "Later", "schema_version": "9.0"}'
_BAD: Final = Wave(
    "Records that are no claims",
    (
        *(Example(value, ("invalid_json",)) for value in _NO_JSON),
        *(Example(value, ("invalid_record",)) for value in _NO_CLAIMS),
        Example(_LATER, ("unsupported_version",)),
    ),
)

_OUTAGE: Final = Wave(
    "State stops for a moment: reviewed provisionally, and decided when it is back",
    (
        claim(
            *("o-01", "pia", _BILLING, Why.DEDUP_UNAVAILABLE, Why.TRUSTED_SOURCE),
            source="documentation",
        ),
    ),
    outage=True,
)

_SEARCH_FILE: Final = "src/search.py"
_CACHE_FILE: Final = "src/cache.py"
_SEARCH: Final = "def search(query, top_k=10, timeout=30):\n    return index.find(query, top_k)"
_CACHE: Final = "class Cache:\n    max_entries = 1000\n    ttl_seconds = 60"


def chunk(chunk_id: str, file: str, content: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a chunk
    place: dict[str, Any] = {"file": file, "start_line": 1, "end_line": content.count("\n") + 1}
    return {"chunk_id": chunk_id, "content": content, **place, **more}


_CHUNKS: Final = (chunk("s", _SEARCH_FILE, _SEARCH), chunk("c", _CACHE_FILE, _CACHE))
_CITED: Final = ({"file": _SEARCH_FILE}, {"file": _CACHE_FILE})


def _response(
    response_id: str,
    answer: str,
    why: Outcome,
    following: Mapping[str, Outcome] | None = None,
    **fields: Any,  # noqa: ANN401 - fields of a response
) -> Example:
    record = {"response_id": response_id, "user_id": "ray", "answer": answer, "chunks": _CHUNKS, **fields}
    return Example(record, (why,), following or {})


_RESPONSES: Final = Wave(
    "Answers of a language model, held against what it was given",
    (
        _response(
            *("a-01", "The search takes `top_k` [source:1], and its timeout is 30.", Why.GROUNDED),
            following={"a-01#1": Why.UNGROUNDED},
            sources=_CITED,
            fan_out=True,
        ),
        _response(
            *("a-02", "Call `search` [source:1]; see also src/ranking.py.", Why.PHANTOM_SOURCE),
            sources=[*_CITED, {"file": "src/ranking.py"}],
        ),
        _response(
            *("a-03", "The cache keeps `max_entries` entries [source:2].", Why.SNIPPET_MISMATCH),
            sources=[*_CITED, {"file": _SEARCH_FILE, "snippet": "max_entries = 1000"}],
        ),
        _response("a-04", "Pass `top_k` or `fuzziness` to `search` [source:1].", Why.UNVERIFIED_FIELDS),
        _response("a-05", "The `ttl_seconds` of the cache is 90 [source:2].", Why.FLAGGED_CLAIMS),
        _response(
            *("a-06", "She sleeps badly.", Why.QUOTES_REJECTED),
            transcript="I have been sleeping well lately. Work is fine.",
            evidence={"sleep": ["I cannot sleep at night", "Work is fine"]},
        ),
        _response(
            *("a-07", "Globex sued Acme.", Why.RELATION_PRESERVATION_FAILED),
            claims=[{"subject": "Globex", "relation": "sued", "object": "Acme"}],
            relations=[{"subject": "Acme", "relation": "sued", "object": "Globex"}],
        ),
        _response(
            *("a-08", "The Lexora Act authorised the merger.", Why.ENTITY_GROUNDING_FAILED),
            entities=[{"id": "lexora-act"}],
            corpus_index={"merger-act": {"confidence": 0.9}},
        ),
        _response(
            *("a-09", "Call `search` with `top_k` [source:1].", Why.STALE_INDEX),
            chunks=[chunk("s", _SEARCH_FILE, _SEARCH, revision="a1f09c2")],
            current_revisions={_SEARCH_FILE: "b7e4d10"},
        ),
        _response("a-10", "Not found in provided sources.", Why.GROUNDED),
        _response(
            *("a-11", "Use `search` with `top_k` [source:1].", Why.LOW_CONFIDENCE),
            query="How do I search?",
            mode="thinking",
            confidence=0.45,
        ),
    ),
)

_PEOPLE: Final = Wave(
    "People decide what waits, and withdraw what was approved",
    (
        _action("r-03", "cay", "approve", Why.HUMAN_APPROVED, reviewer="cay"),
        _action("r-10", "joe", "edit", Why.HUMAN_APPROVED, content="The limit is 100 requests a minute"),
        _action("r-11", "kim", "reject", Why.HUMAN_REJECTED, reason="not_verifiable"),
        _action("g-07", "gus", "retract", Why.RETRACTED, reason="outdated"),
    ),
)

_AFTER_PEOPLE: Final = Wave(
    "What people decided counts for what comes after",
    (
        claim("p-01", "cay", "The service uses PostgreSQL 15", Why.DUPLICATE),
        claim(
            *("p-02", "kim", "The token is at http://169.254.169.254/latest", Why.PREVIOUSLY_REJECTED),
            source="user",
        ),
        claim(
            *("p-03", "gus", "Backups go to PostgreSQL too", Why.DERIVED_FROM_UNAPPROVED),
            source="user",
            derived_from=["g-07"],
        ),
    ),
)

WAVES: Final = (
    *(_GROUNDED, _REVIEW, _BLOCKED, _COMPARED, _AGAIN, _RESPONSES),
    *(_PEOPLE, _AFTER_PEOPLE, _BAD, _OUTAGE),
)
