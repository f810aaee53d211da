"""Builds a worker: everything is created and connected here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any, get_args

import structlog
from faust.types import TP

from agents.app import build_app, declare_agent, role_of
from agents.expiry import ReviewExpiry
from agents.faust_patches import BatchApp
from agents.observability import open_tracing
from agents.partitions import Health, PartitionWorkers
from agents.pipeline import Handler, Pipeline, Services
from agents.publisher import AuditPublisher, Publisher
from agents.recovery import StateReconciler, StateRecovery
from agents.sealing import Committed, Sealer
from groundwire import metrics
from groundwire.config import Settings
from groundwire.epistemic.model import Fault
from groundwire.epistemic.plan import VerifierFacts
from groundwire.errors import UsageError, naming
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor, TenantCorpus, assessor_of
from groundwire.gate.reviews import ReviewGate
from groundwire.kafka.reader import TopicSpan, follow
from groundwire.keys.attestation import Keys
from groundwire.keys.seal_keys import SealSigner
from groundwire.keys.watched import WatchedKeys
from groundwire.messages.events import use_hash_key
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy, load_policy
from groundwire.replay.reading import PublishedDecisions
from groundwire.replay.rebuild import Rebuilder, published
from groundwire.state.corpus import CorpusIndex
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from groundwire.verify.citations import CitationVerifier, load_sources
from groundwire.verify.models import HttpModel, load_model
from groundwire.verify.pacing import Pacer
from groundwire.verify.results import RedisCache
from groundwire.verify.url import UrlChecker

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Worker:
    app: BatchApp
    policy: Policy
    policies: PolicyStore
    state: RedisState
    model: HttpModel | None
    recovery: StateRecovery
    reconciler: StateReconciler
    pipeline: Pipeline
    partitions: PartitionWorkers
    health: Health
    expiry: ReviewExpiry | None
    audit: AuditPublisher
    pacer: Pacer
    sealer: Sealer | None


def build_worker(name: str, settings: Settings) -> Worker:
    """Build a worker of a role. Raises: UsageError: a setting, the policy, the keys or the tenants file is wrong."""
    policy = load_policy(settings.policy_file, os.environ)
    use_hash_key(settings.hash_key)
    with naming("GROUNDWIRE_KEYS_FILE"):
        keys = WatchedKeys(settings.keys_file) if settings.keys_file else Keys.empty()
    state = RedisState(
        connect(settings.redis_url),
        settings.topic_prefix,
        scheme=dedup_scheme(policy),
        partitions=settings.partitions,
    )
    policies = PolicyStore(settings.policies_dir, state)
    model = load_model(network=not settings.no_network) if name == "responses" else None
    app = build_app(name, settings, with_model=model is not None)
    health = Health()
    publisher = Publisher.of(app, settings.topic_prefix)
    audit = AuditPublisher(publisher, now=_now)
    expiry = build_expiry(settings, keys, state, publisher) if name == "reviews" else None
    assessor = build_assessor(model, health) if model is not None else None
    pacer = Pacer(on_refusal=lambda limit: metrics.TENANT_REFUSALS.labels(limit).inc())
    gate = Gate(
        policy,
        policies,
        state,
        Lookups(
            build_verifier(settings, pacer), build_resolver(settings), assessor, settings.citation_patience
        ),
        keys=keys,
        now=_now,
    )
    handler: Handler = gate
    if name == "reviews":
        find, own_key = PublishedDecisions(settings), settings.review_key
        handler = ReviewGate(policy, policies, state, keys=keys, find=find, own_key=own_key, now=_now)
    read = partial(published, settings)
    rebuilder = Rebuilder.of(settings, state, policy, policies)
    recovery = StateRecovery(state, rebuilder, read, health, audit.note)
    reconciler = StateReconciler(state, policy, policies, read)
    tracing = open_tracing(name, enabled=settings.tracing)
    sealer = build_sealer(settings, app, publisher, health)
    role = role_of(name, with_model=model is not None)
    pipeline = Pipeline(
        role,
        handler,
        Services(state, publisher, recovery, reconciler, health, tracing, sealer),
        partitions=partial(_partitions_of, app),
        grace=settings.state_grace if role.provisional and policy.state_outage == "defer" else None,
        ask_model=gate.ask_model if assessor is not None else None,
    )
    partitions = PartitionWorkers(pipeline.begin)
    app.new_book, app.finish_running = pipeline.new_book, partitions.finish
    declare_agent(app, name, settings.topic_prefix, partitions)
    return Worker(
        app,
        policy,
        policies,
        state,
        model,
        recovery,
        reconciler,
        pipeline,
        partitions,
        health,
        expiry,
        audit,
        pacer,
        sealer,
    )


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


def build_assessor(model: HttpModel, health: Health) -> Assessor:
    """Build the assessor over the language model; each answer counts, and is progress."""
    for kind, fault in product(("support", "prior"), get_args(Fault)):
        metrics.MODEL_QUESTIONS.labels(kind, fault)  # from 0: the first one is an increase

    def note_asked(facts: VerifierFacts, seconds: float) -> None:
        health.progress()
        count_model(facts, seconds)

    return assessor_of(model, note_asked)


def build_sealer(settings: Settings, app: BatchApp, publisher: Publisher, health: Health) -> Sealer | None:
    """Build the sealer; None without a key. Raises: UsageError: the keys file is unreadable, or no key may seal now."""
    if settings.seal_key is None:
        return None
    with naming("GROUNDWIRE_SEAL_KEY"):
        signer = SealSigner(settings.seal_key, now=_now)

    def committed(tp: TP) -> Committed:
        consumer: Any = app.consumer
        return Committed.of(consumer.starts[tp]) if tp in consumer.starts else Committed(None, None)

    def waits(dependency: str | None) -> None:
        if dependency is not None:
            health.begin(dependency)
        else:
            health.end("seal")
            health.end("broker")

    sealer = Sealer(signer, publisher.publish, committed, waits, now=_now)
    app.seal = sealer.seal
    return sealer


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
    read = partial(follow, settings.brokers, topic, TopicSpan("earliest"), 30.0)
    ttl = timedelta(days=settings.review_ttl)
    return ReviewExpiry(read, state, publisher, sign, ttl=ttl, now=_now)


def _partitions_of(app: BatchApp, topic: str) -> int:
    consumer: Any = app.consumer
    return int(consumer.partitions_of(topic))


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
