"""Builds a worker: everything is created and connected here."""

from __future__ import annotations

import asyncio
import math
import os
import shlex
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any, Final, get_args

import structlog
from aiokafka.errors import KafkaError
from faust.types import TP

from agents.app import build_app, declare_agent, role_of, topics_of
from agents.crash_marks import CrashMarks
from agents.expiry import ReviewExpiry
from agents.faust_patches import WorkerApp
from agents.heads import HeadKeeper
from agents.health import Health
from agents.hooks import Decider, Hook
from agents.loop import Services
from agents.observability import BatchMetrics, InternalErrors, open_tracing, set_tenant_gauges
from agents.partitions import Partitions
from agents.publisher import AuditPublisher, Publisher
from agents.recovery import StateReconciler, StateRecovery
from agents.schemas import Schemas
from agents.sealing import Committed, Sealer
from groundwire import __version__, metrics
from groundwire.config import Settings
from groundwire.epistemic.model import Fault
from groundwire.epistemic.plan import VerifierFacts
from groundwire.errors import SchemeMismatch, StateError, UsageError, naming
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor, TenantCorpus, assessor_of
from groundwire.gate.reviews import ReviewGate
from groundwire.kafka.reader import TopicFollower
from groundwire.kafka.registry import registry
from groundwire.keys.attestation import Keys
from groundwire.keys.seal_keys import SealSigner
from groundwire.keys.watched import WatchedFile, WatchedKeys
from groundwire.messages.decode import use_registry
from groundwire.messages.events import use_hash_key
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy, load_policy
from groundwire.replay.reading import PublishedDecisions
from groundwire.replay.rebuild import Rebuilder, published
from groundwire.state.corpus import CorpusIndex
from groundwire.state.partitions import refuse_other_number
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from groundwire.verify.citations import CitationVerifier, load_sources
from groundwire.verify.models import AnyModel, load_model
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.results import RedisCache
from groundwire.verify.url import UrlChecker
from topics.declare import letter_limits

log = structlog.get_logger()

_TICK: Final = 1.0
_STALLED: Final = 10.0
"""Seconds for which the event loop did not run, from which on the log says so."""
_LOOK: Final = 10.0
"""Seconds between two looks whether all topics exist."""

_BROKER_TICK: Final = 2.0
"""Seconds between two requests for metadata: an answer shows that the broker lives, and what topics there are."""

WAITING_LOOKUPS: Final = 256
"""Look-ups of a tenant that wait for their turn; the claim of one more goes back to `deferred` at once."""


class Worker:
    """A worker of a role. Raises: UsageError: a setting, the policy, the keys or the tenants file is wrong."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._policy_file: WatchedFile[Policy] | None = None
        if settings.policy_file is not None:
            load, taken, broken = partial(load_policy, environment=os.environ), self._take_up, self._refuse
            self._policy_file = WatchedFile(
                settings.policy_file, load, taken=taken, broken=broken, every=_TICK
            )
        file, self._unset = self._policy_file, load_policy(None, os.environ)
        self.policy = policy = file.current() if file else self._unset
        use_hash_key(settings.hash_key)
        with naming("GROUNDWIRE_KEYS_FILE"):
            keys = WatchedKeys(settings.keys_file) if settings.keys_file else Keys.empty()
        scheme, partitions = dedup_scheme(policy), settings.partitions
        self.state = RedisState(
            connect(settings.redis_url), settings.topic_prefix, scheme=scheme, partitions=partitions
        )
        self.policies = policies = PolicyStore(settings.policies_dir, self.state)
        self.model = (
            load_model(policy.verification, network=not settings.no_network) if name == "responses" else None
        )
        self.role = role = role_of(name, with_model=self.model is not None)
        self.app = build_app(name, settings, with_model=self.model is not None)
        self.health = health = Health()
        self.publisher = publisher = Publisher(self.app, settings.topic_prefix)
        self._topics = [settings.topic_prefix + topic for topic in topics_of(name)]
        signer = None
        if settings.seal_key is not None:
            with naming("GROUNDWIRE_SEAL_KEY"):
                signer = SealSigner(settings.seal_key, now=_now)
        self.audit = AuditPublisher(publisher, signer, now=_now)
        self.expiry = build_expiry(settings, keys, self.state, publisher) if name == "reviews" else None
        assessor = build_assessor(self.model, health) if self.model is not None else None
        paced = PacingLimits(waiting=WAITING_LOOKUPS)
        self.pacer = Pacer(paced, on_refusal=lambda limit: metrics.TENANT_REFUSALS.labels(limit).inc())
        verifier, resolver = build_verifier(settings, self.pacer), build_resolver(settings)
        lookups = Lookups(verifier, resolver, assessor, settings.citation_patience)
        find, own_key = PublishedDecisions(settings), settings.review_key

        def handler_of(policy: Policy) -> Gate | ReviewGate:
            if name == "reviews":
                return ReviewGate(
                    policy, policies, self.state, keys=keys, find=find, own_key=own_key, now=_now
                )
            return Gate(policy, policies, self.state, lookups, keys=keys, now=_now)

        self._handler_of = handler_of
        self._grace = settings.state_grace if role.provisional else None
        read = partial(published, settings)
        rebuilder = Rebuilder.of(settings, self.state, policy, policies)
        self.recovery = StateRecovery(self.state, rebuilder, read, health, self.audit.note)

        def partitions_of(topic: str) -> int:
            consumer: Any = self.app.consumer
            return int(consumer.partitions_of(topic))

        hooks: list[Hook] = [health, self.audit, InternalErrors(health), BatchMetrics(role.topic)]
        if opened := registry():
            use_registry(opened.read_known)
            hooks.append(Schemas(opened, health))
        hooks.append(CrashMarks(self.state))
        if signer is not None:
            hooks.append(build_sealer(settings, signer, self.app, publisher, health))
        if settings.tracing:
            hooks.append(open_tracing(name))
        self.services = Services(
            role,
            self._decider_of(policy),
            self.state,
            publisher,
            self.recovery,
            StateReconciler(self.state, policy, policies, read),
            health,
            hooks,
            partitions_of,
        )
        self.app.broker_answered = partial(health.answered, "broker")
        self.app.partitions = self.partitions = Partitions(self.services, self.audit.note)
        declare_agent(self.app, name, settings.topic_prefix, self.partitions.submit)

    def _decider_of(self, policy: Policy) -> Decider:
        """Return what decides batches by a policy."""
        grace = self._grace if policy.state_outage == "defer" else None
        handler = self._handler_of(policy)
        if isinstance(handler, ReviewGate):
            return Decider(handler, grace)
        look_up = handler.look_up if self.role.deferred else None
        return Decider(handler, grace, look_up, handler.ask_model if self.model is not None else None)

    def _take_up(self, policy: Policy) -> None:
        """Take up a changed policy file, if state is built for it."""
        before = self.policy
        if policy.sha256 == before.sha256:
            log.info("policy.unchanged", version=policy.version, sha256=policy.sha256)
            metrics.POLICY_REFUSED.set(0)
            return
        if policy.sha256 == self._unset.sha256:
            why = "the policy file says nothing: it is cut short, or start the worker without it"
            self._refuse(UsageError(why), before)
            return
        try:
            refuse_other_scheme(policy, before)
            if self.model is not None:
                refuse_other_model(policy, before)
            decider = self._decider_of(policy)
            self.policies.put_in_folder(policy)
        except UsageError as exc:
            self._refuse(exc, before)
            return
        self.policy, self.services.decider = policy, decider
        self.services.reconciler.use(policy)
        named = {"version": policy.version, "sha256": policy.sha256, "before": before.sha256}
        log.info("policy.changed", **named)
        self.audit.note("policy_loaded", named, recurs=True)
        metrics.POLICY_REFUSED.set(0)
        self._show_build()

    def _refuse(self, error: UsageError, kept: Policy) -> Policy:
        log.error("policy.refused", error=str(error), kept=self.policy.sha256)
        metrics.POLICY_REFUSED.set(1)
        return kept

    def _show_build(self) -> None:
        metrics.BUILD.clear()
        metrics.BUILD.labels(__version__, self.policy.sha256, self.role.name).set(1)

    async def prepare(self, settings: Settings, partitions: int) -> None:
        """Open model and state before the first record; unreachable state is waited for later.

        `partitions`: of the role's input. Raises: UsageError, SchemeMismatch.
        """
        policy = self.policy
        if self.state.is_cluster:
            refuse_other_number(settings.partitions, partitions)
        self.policies.put_in_folder(policy)
        self.publisher.letter_bytes, self.publisher.letter_age = await letter_limits(settings)
        try:
            if self.model is not None:
                await self.model.open()
                config = policy.verification
                log.info("model.asked", model=config.entailment_model or config.verification_model)
            if await self.state.open() is None:
                await self.recovery.begin()
            await self.policies.put(policy)
        except SchemeMismatch:
            raise
        except StateError as exc:
            log.warning("state.unavailable", error=str(exc))
        log.info("policy.loaded", version=policy.version, sha256=policy.sha256)
        self.audit.note("policy_loaded", {"version": policy.version, "sha256": policy.sha256}, recurs=True)
        self._show_build()

    def add_tasks(self) -> None:
        """Add what runs beside the agent: readiness, expiry, gauges, audit events."""
        if self.expiry is not None:
            self.app.task(partial(self.expiry.run, self.health))
        self.app.task(self.services.reconciler.watch)
        self.app.task(self._watch)
        self.app.task(self._watch_state)
        self.app.task(self._watch_broker)
        self.app.task(self._publish_audit)
        self.app.task(self._watch_topics)

    async def _watch_topics(self) -> None:
        consumer: Any = self.app.consumer
        while not self.app.should_stop:
            await asyncio.sleep(_LOOK)
            with suppress(KafkaError):  # an outage of the broker is told otherwise
                self.health.note_topics(await consumer.missing(self._topics))

    async def _publish_audit(self) -> None:
        while not self.app.should_stop:
            await asyncio.sleep(_TICK)
            await self.audit.publish()

    async def _watch(self) -> None:
        consumer: Any = self.app.consumer
        role, loop = self.role.name, asyncio.get_running_loop()
        while not self.app.should_stop:
            before = loop.time()
            await asyncio.sleep(_TICK)
            late = max(0.0, loop.time() - before - _TICK)
            metrics.EVENT_LOOP_LAG.set(late)
            if late > _STALLED:
                why = "the process was stopped, or had no processor; dependencies may look away for a moment"
                log.warning("worker.stalled", seconds=round(late), why=why)
            self.health.tick()
            if self._policy_file is not None:
                self._policy_file.current()
            lag, age = consumer.backlog()
            metrics.LAG.labels(role).set(lag)
            metrics.COMMIT_AGE.labels(role).set(age)
            if role == "deferred":  # the only role that uses the network
                set_tenant_gauges("requests", self.pacer.in_flight.values(), self.pacer.limits.per_tenant)
                metrics.PAUSED_HOSTS.set(self.pacer.paused)

    async def _watch_state(self) -> None:
        ticks = 0
        while not self.app.should_stop:
            await asyncio.sleep(_TICK)
            try:
                unusable = await self.state.probe()
                metrics.STATE_AWAY.set(len(unusable))
                self.health.answered("state")
                self.partitions.state_answered(unusable)
                metrics.REVIEW_DEPTH.set(await self.state.queue_depth())
                metrics.WAITING.set(await self.state.waiting_count())
                if self.role.name == "reviews" and ticks % 30 == 0:  # it reads all tenants' use of the queue
                    places, stored = await self.state.tenants_use()
                    limits = self.policy.limits
                    set_tenant_gauges("places", places.values(), limits.review_per_tenant)
                    set_tenant_gauges("bytes", stored.values(), limits.pending_bytes_per_tenant)
            except StateError:
                metrics.STATE_AWAY.set(len(self.state.server.tags))
                continue
            ticks += 1

    async def _watch_broker(self) -> None:
        consumer: Any = self.app.consumer
        while not self.app.should_stop:
            await asyncio.sleep(_BROKER_TICK)
            await consumer.refresh_metadata()


def refuse_other_scheme(policy: Policy, before: Policy) -> None:
    """Refuse a policy by which state would have to be built anew. Raises: UsageError."""
    if (scheme := dedup_scheme(policy)) != dedup_scheme(before):
        raise UsageError(
            f"state is not built for the dedup scheme {scheme}: stop all workers and run `groundwire rebuild`"
        )


def refuse_other_model(policy: Policy, before: Policy) -> None:
    """Refuse a policy that names another entailment model than the one that is loaded. Raises: UsageError."""
    if policy.verification.entailment_model != before.verification.entailment_model:
        raise UsageError("it names another entailment_model: restart the worker, with its folder")


def build_verifier(settings: Settings, pacer: Pacer | None = None) -> CitationVerifier:
    """Build the citation verifier; network results are shared through Redis, a tenant's requests by one pacer."""
    pacer = pacer or Pacer()

    def count(kind: str, state: str, seconds: float) -> None:
        metrics.VERIFICATIONS.labels(kind, state).inc()
        metrics.VERIFICATION_SECONDS.labels(kind).observe(seconds)

    return CitationVerifier(
        load_sources(settings),
        network=not settings.no_network,
        cache=RedisCache(connect(settings.redis_url, patience=1.0), settings.topic_prefix),
        urls=UrlChecker.of(settings, pacer=pacer),
        pacer=pacer,
        on_result=count,
    )


def build_resolver(settings: Settings) -> TenantCorpus | None:
    """Build the resolver over the corpora in Redis; None if no tenant has one."""
    if not settings.corpus_tenants:
        return None
    index = CorpusIndex(connect(settings.redis_url, patience=1.0), settings.topic_prefix)
    return TenantCorpus(index, frozenset(settings.corpus_tenants))


def build_assessor(model: AnyModel, health: Health) -> Assessor:
    """Build the assessor over the model; each answer counts, and is progress."""
    for kind, fault in product(("support", "prior"), get_args(Fault)):
        metrics.MODEL_QUESTIONS.labels(kind, fault)  # from 0: the first one is an increase

    def note_asked(facts: VerifierFacts, seconds: float) -> None:
        health.progress()
        count_model(facts, seconds)

    return assessor_of(model, note_asked)


def build_sealer(
    settings: Settings, signer: SealSigner, app: WorkerApp, publisher: Publisher, health: Health
) -> Sealer:
    def committed(tp: TP) -> Committed:
        consumer: Any = app.consumer
        return Committed.of(consumer.starts[tp]) if tp in consumer.starts else Committed(None, None)

    metrics.SEAL_KEY_EXPIRES.set_function(lambda: signer.expires.timestamp() if signer.expires else math.inf)
    keeper = HeadKeeper(settings.heads_file, shlex.split(settings.heads_command))
    return Sealer(signer, publisher.publish, committed, health, keep=keeper.keep, now=_now)


def build_expiry(
    settings: Settings, keys: Keys, state: RedisState, publisher: Publisher
) -> ReviewExpiry | None:
    """Build the expiry of reviews; None without a key. Raises: UsageError: it is missing, public or no reviewer's."""
    if settings.review_key is None:
        log.warning("review.expiry_off", hint="set GROUNDWIRE_REVIEW_KEY to a key with the role reviewer")
        return None
    key = dict(keys).get(settings.review_key)
    if key is None or "reviewer" not in key.roles:
        raise UsageError(
            f"GROUNDWIRE_REVIEW_KEY: the keys file holds no key {settings.review_key!r} with the role reviewer"
        )
    sign = partial(keys.sign, settings.review_key)
    with naming("GROUNDWIRE_REVIEW_KEY"):
        sign(b"")  # fails for a public key
    topic = settings.topic_prefix + TopicName.REVIEW

    def failed(failure: Exception) -> None:
        log.warning("review.unreadable", error=str(failure))

    reviews = TopicFollower(settings.brokers, {topic: "earliest"}, 30.0, failed, retry=5.0)
    ttl = timedelta(days=settings.review_ttl)
    return ReviewExpiry(reviews, state, publisher, sign, ttl=ttl, now=_now)


def _now() -> datetime:
    return datetime.now(UTC)


def count_model(facts: VerifierFacts, seconds: float) -> None:
    metrics.MODEL_SECONDS.observe(seconds)
    for call in facts.calls:
        metrics.MODEL_QUESTIONS.labels(
            call.kind, call.fault or ("cached" if call.cached else "answered")
        ).inc()
        metrics.MODEL_REQUESTS.inc(call.requests)
        metrics.MODEL_TOKENS.labels("input").inc(call.input_tokens)
        metrics.MODEL_TOKENS.labels("output").inc(call.output_tokens)
        metrics.MODEL_COST.inc(call.cost_usd)
        if call.requests:
            metrics.MODEL_PAUSED.set(0)
        elif call.fault == "paused":
            metrics.MODEL_PAUSED.set(1)
