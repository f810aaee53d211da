"""Builders for requests to state, as the gate makes them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.keys import key_function, scheme
from groundwire.checks.dedup.signature import Thresholds, signature
from groundwire.messages.decisions import Kind, MatchClass
from groundwire.messages.identity import Subject, digest
from groundwire.state.model import (
    DedupQuery,
    MatchRules,
    Outcome,
    QueueLimits,
    RecordOrigin,
    ReviewAction,
    ReviewAnswer,
    ReviewRequest,
    State,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectState,
)

A, P, J, R, B, V, W = map(SubjectState, "APJRBVW")

THRESHOLDS = Thresholds(9200, 8500, 8000)
SCHEME = scheme("partition", THRESHOLDS)
KEYS = key_function("partition", THRESHOLDS)
LIMITS = QueueLimits()
FULL = QueueLimits(per_user=0)
ANSWERS = {"answer approved": 1, "answer in review": 2, "answer pending": 2, "answer blocked": 3}

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"
OTHER = "backups of the billing database are written to a second region every night at two o'clock"
LONG = f"{TEXT} or worse {OTHER}"
NEVER = LONG.replace("retries", "never retries")


def subject(name: str = "c1", *, user: str = "ada", tenant: str = "acme", kind: Kind = Kind.CLAIM) -> Subject:
    return Subject(tenant, user, kind, name)


def origin(offset: int, *, timestamp: int | None = None, topic: str = "groundwire.claims") -> RecordOrigin:
    sha256 = hashlib.sha256(f"{topic} {offset}".encode()).hexdigest()
    return RecordOrigin(topic, 0, offset, 1_000 + offset if timestamp is None else timestamp, sha256)


def dedup(text: str, who: Subject, *, material: bool = True) -> DedupQuery:
    form = read_form(text)
    scope = digest(who.tenant_id, who.user_id, "fact")
    return DedupQuery(scope, *KEYS.of(form), signature(form), MatchRules(THRESHOLDS, material))


@dataclass(slots=True)
class Claims:
    """Builds requests at increasing offsets."""

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
    ) -> StepRequest:
        self.offset += 1
        who = subject(name, user=user, tenant=tenant)
        decisive = fingerprint or f"{text} {tier}"
        return StepRequest(
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
    ) -> StepRequest:
        """Build a response: not compared, never waiting, queued only under `on_failure = "ask"`."""
        ask = self.ask(name, None, tier, user=user, fingerprint=f"response {tier}")
        return replace(
            ask,
            subject=subject(name, user=user, kind=Kind.RESPONSE),
            record=f"answer {name}".encode(),
            queued=queued,
            **changes,
        )

    def again(self, ask: StepRequest, **changes) -> StepRequest:
        """Build a later record of the same subject."""
        self.offset += 1
        return replace(ask, origin=origin(self.offset), **changes)


async def decide(
    state: State, *asks: StepRequest, limits: QueueLimits = LIMITS, deferred: bool = False
) -> list[Outcome]:
    """Take a step that must decide every request."""
    answers = await state.step(asks, limits, deferred=deferred)
    assert all(isinstance(answer, Outcome) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Outcome)]


async def payloads_of(state: State, subjects: Sequence[Subject]) -> list[bytes | None]:
    return [held and held.payload for held in await state.held(subjects)]


async def step_one(
    state: State, ask: StepRequest, *, limits: QueueLimits = LIMITS, deferred: bool = False
) -> StepAnswer:
    (answer,) = await state.step([ask], limits, deferred=deferred)
    return answer


def stored(ask: StepRequest, outcome: Outcome, **changes) -> StoredOutcome:
    """Return an outcome as a rebuild reads it from the output topics."""
    return StoredOutcome(ask.subject, outcome, ask.dedup, ask.horizon, **changes)


@dataclass(slots=True)
class People:
    """Builds review actions, each in a record later than all claims so far."""

    claims: Claims

    def act(
        self,
        action: ReviewAction | str,
        ask: StepRequest,
        *,
        revision: int = 1,
        text: str | None = None,
        action_id: str | None = None,
        **changes,
    ) -> ReviewRequest:
        """Build an action on the subject of a request; `text`: of an edit, by default the claim's own."""
        self.claims.offset += 1
        action = ReviewAction(action)
        keyed = action.value in {"approve", "edit", "reject", "overrule"}
        query = ask.dedup if text is None else dedup(text, ask.subject)
        return ReviewRequest(
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


async def review_one(state: State, ask: ReviewRequest) -> ReviewAnswer:
    (answer,) = await state.review([ask])
    return answer


async def in_state(state: State, claims: Claims, people: People, name: str) -> StepRequest:
    """Bring a claim or response into a named state; return its request."""
    if name in ANSWERS:
        ask = claims.respond(name, ANSWERS[name], queued=name == "answer pending")
        await decide(state, ask)
        return ask
    tiers = {"approved": 1, "blocked": 3}
    ask = claims.ask(name, f"{name} {TEXT}", tiers.get(name, 2), wait=name == "waiting")
    if name == "joined":
        await decide(state, replace(ask, subject=subject("leader")))
    await state.step([ask], FULL if name == "refused" else LIMITS)
    if name == "rejected":
        await review_one(state, people.act("reject", ask))
    return ask


async def found(state: State, claims: Claims, text: str = TEXT) -> list[tuple[str, MatchClass]]:
    """Return what another claim of this text matches: id and class of each."""
    (outcome,) = await decide(state, claims.ask(f"probe {claims.offset}", text, 3), deferred=True)
    return [(match.subject_id, match.match_class) for match in outcome.matches]
