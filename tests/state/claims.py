"""Asks as a gate makes them, for tests."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from groundwire.checks.dedup_keys import key_function, scheme
from groundwire.checks.difference import signature
from groundwire.checks.tokens import tokenize
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject, digest
from groundwire.state.model import (
    Answer,
    Ask,
    DedupQuery,
    Limits,
    Outcome,
    RecordOrigin,
    ReviewAction,
    ReviewAnswer,
    ReviewAsk,
    State,
    StoredOutcome,
)

PARTS = 9200
SCHEME = scheme("partition", PARTS)
KEYS = key_function("partition", PARTS)
LIMITS = Limits()

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"


def subject(name: str = "c1", *, user: str = "ada", tenant: str = "acme", kind: Kind = Kind.CLAIM) -> Subject:
    return Subject(tenant, user, kind, name)


def origin(offset: int, *, timestamp: int | None = None, topic: str = "groundwire.claims") -> RecordOrigin:
    sha256 = hashlib.sha256(f"{topic} {offset}".encode()).hexdigest()
    return RecordOrigin(topic, 0, offset, 1_000 + offset if timestamp is None else timestamp, sha256)


def dedup(text: str, who: Subject, *, material: bool = True) -> DedupQuery:
    tokens = tokenize(text)
    scope = digest(who.tenant_id, who.user_id, "fact")
    return DedupQuery(
        scope,
        KEYS.stored(tokens),
        KEYS.probed(tokens),
        signature(tokens),
        PARTS,
        material_difference=material,
    )


@dataclass(slots=True)
class Claims:
    """Makes one claim after the other: each gets the next offset."""

    offset: int = field(default=0)

    def ask(
        self,
        name: str = "c1",
        text: str | None = TEXT,
        tier: int = 1,
        *,
        user: str = "ada",
        tenant: str = "acme",
        wait: bool = False,
        capped: bool = False,
        failed: bool = False,
        material: bool = True,
        parents: Sequence[Subject] = (),
        horizon: int = 0,
        fingerprint: str | None = None,
    ) -> Ask:
        self.offset += 1
        who = subject(name, user=user, tenant=tenant)
        decisive = fingerprint or f"{text} {tier}"
        return Ask(
            subject=who,
            fingerprint=hashlib.sha256(decisive.encode()).hexdigest(),
            origin=origin(self.offset),
            base_tier=tier,
            capped=capped,
            wait=wait,
            dedup=None if text is None else dedup(text, who, material=material),
            dedup_failed=failed,
            parents=[(parent.subject_id, parent) for parent in parents],
            horizon=horizon,
            payload=b'{"at":"2026-01-01T00:00:00Z"}',
            record=(text or "").encode(),
        )

    def respond(
        self, name: str = "r1", tier: int = 1, *, user: str = "ada", queued: bool = False, **changes
    ) -> Ask:
        """Return a response: not compared, never waiting, and in the queue only under `on_failure = "ask"`."""
        ask = self.ask(name, None, tier, user=user, fingerprint=f"response {tier}")
        return replace(
            ask,
            subject=subject(name, user=user, kind=Kind.RESPONSE),
            record=f"answer {name}".encode(),
            queued=queued,
            **changes,
        )

    def again(self, ask: Ask, **changes) -> Ask:
        """Return the same claim or response in another, later record."""
        self.offset += 1
        return replace(ask, origin=origin(self.offset), **changes)


async def decide(state: State, *asks: Ask, limits: Limits = LIMITS, deferred: bool = False) -> list[Outcome]:
    """Take a step that is to decide every ask."""
    answers = await state.step(asks, limits, deferred=deferred)
    assert all(isinstance(answer, Outcome) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Outcome)]


async def step_one(state: State, ask: Ask, *, limits: Limits = LIMITS, deferred: bool = False) -> Answer:
    (answer,) = await state.step([ask], limits, deferred=deferred)
    return answer


def stored(ask: Ask, outcome: Outcome, **changes) -> StoredOutcome:
    """Return an outcome as the output topics would give it back."""
    return StoredOutcome(ask.subject, outcome, ask.dedup, ask.horizon, **changes)


@dataclass(slots=True)
class People:
    """Makes one action after the other: each comes as a record of its own, later than all claims so far."""

    claims: Claims

    def act(
        self,
        action: ReviewAction | str,
        ask: Ask,
        *,
        revision: int = 1,
        text: str | None = None,
        action_id: str | None = None,
        **changes,
    ) -> ReviewAsk:
        """Return an action on the subject of an ask; `text`: that of an edit, by default the claim's."""
        self.claims.offset += 1
        action = ReviewAction(action)
        keyed = action in {ReviewAction.APPROVE, ReviewAction.EDIT, ReviewAction.REJECT}
        query = ask.dedup if text is None else dedup(text, ask.subject)
        return ReviewAsk(
            **{
                "subject": ask.subject,
                "action_id": action_id or f"action {self.claims.offset}",
                "action": action,
                "expected_revision": revision,
                "origin": origin(self.claims.offset, topic="groundwire.review-decisions"),
                "refused": "",
                "expired": False,
                "dedup": query if keyed else None,
                "dedup_failed": False,
                "parents": ask.parents,
                "horizon": ask.horizon,
                "payload": b'{"by":"%s"}' % action.encode(),
            }
            | changes
        )


async def review_one(state: State, ask: ReviewAsk) -> ReviewAnswer:
    (answer,) = await state.review([ask])
    return answer
