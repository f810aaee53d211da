"""Puts a worker together: one place where everything is made and handed over."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any, get_args

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from agents import claims, deferred, responses, reviews
from agents.app import ASKED_ABOUT, build_app
from agents.batches import BatchApp
from agents.desk import Desk
from agents.expiry import Expiry
from agents.lanes import Lanes
from agents.pauses import Pauses
from agents.pipeline import Pipeline, Role
from agents.publisher import Publisher
from agents.reassertion import Reassertion
from agents.recovery import Recovery
from agents.tracing import Tracing, open_tracing
from groundwire import metrics
from groundwire.attestation import Keys
from groundwire.client.tail import Span, follow
from groundwire.corpus import CorpusIndex
from groundwire.epistemic.facts import VerifierFacts
from groundwire.epistemic.model import Fault
from groundwire.errors import StateUnavailable, UsageError, naming
from groundwire.gate.dedup import dedup_scheme
from groundwire.gate.gate import Gate
from groundwire.gate.models import Assessor, assessor_of
from groundwire.gate.resolvers import Resolver
from groundwire.gate.reviews import ReviewGate
from groundwire.messages.events import use_hash_key
from groundwire.messages.topics import TopicName
from groundwire.policies import PolicyStore
from groundwire.policy import Policy, load_policy
from groundwire.published import Published
from groundwire.rebuild import Rebuilder, published
from groundwire.settings import Settings
from groundwire.sources import load_sources
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from groundwire.verify import AddressGuard, CitationVerifier, RedisCache, UrlChecker
from groundwire.verify.models import HttpModel, load_model
from groundwire.watched_keys import WatchedKeys

log = structlog.get_logger()

_PATIENCE = 30.0

ROLES = {"claims": claims, "deferred": deferred, "responses": responses, "reviews": reviews}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is put together, but not started."""

    app: BatchApp
    policy: Policy
    policies: PolicyStore
    state: RedisState
    verifier: CitationVerifier
    model: HttpModel | None
    recovery: Recovery
    pipeline: Pipeline
    lanes: Lanes
    pauses: Pauses
    expiry: Expiry | None
    tracing: Tracing


def build_worker(name: str, settings: Settings) -> Worker:
    """Make a worker of the role `name`.

    Raises:
        UsageError: a setting, the policy, the keys or the tenants file is wrong.
    """
    policy = load_policy(settings.policy_file, os.environ)
    use_hash_key(settings.hash_key)
    with naming("GROUNDWIRE_KEYS_FILE"):
        keys = WatchedKeys(settings.keys_file) if settings.keys_file else Keys.empty()
    state = RedisState(connect(settings.redis_url), settings.topic_prefix, scheme=dedup_scheme(policy))
    policies = PolicyStore(settings.policies_dir, state)
    verifier = build_verifier(settings)
    model = load_model(network=not settings.no_network) if name == "responses" else None
    app = build_app(name, settings, most=ASKED_ABOUT if model is not None else None)
    pauses = Pauses()
    publisher = Publisher(partial(_producer, app), settings.topic_prefix)
    expiry = build_expiry(settings, keys, state, publisher) if name == "reviews" else None
    assessor = build_assessor(model, pauses) if model is not None else None
    gate = Gate(
        policy,
        policies,
        state,
        verifier,
        keys=keys,
        now=_now,
        resolver=build_resolver(settings),
        assessor=assessor,
    )
    desk: Desk = gate
    if name == "reviews":
        find, own_key = Published(settings), settings.review_key
        desk = ReviewGate(policy, policies, state, keys=keys, find=find, own_key=own_key, now=_now)
    read = partial(published, settings)
    rebuilder = Rebuilder(state, policy, read, quiet=settings.rebuild_wait)
    recovery = Recovery(state, rebuilder, read, pauses)
    reassertion = Reassertion(state, policy, read, partial(_server_run, connect(settings.redis_url)))
    role: Role = ROLES[name].role(settings, policy)
    tracing = open_tracing(name, enabled=settings.tracing)
    inquire = gate.inquire if assessor is not None else None
    pipeline = Pipeline(
        role, desk, state, publisher, recovery, reassertion, pauses, tracing=tracing, inquire=inquire
    )
    lanes = Lanes(pipeline.settle, pauses)
    ROLES[name].declare(app, settings, lanes)
    return Worker(
        app, policy, policies, state, verifier, model, recovery, pipeline, lanes, pauses, expiry, tracing
    )


def build_verifier(settings: Settings) -> CitationVerifier:
    """Make the verifier that the settings describe; answers of the network are shared through Redis."""
    try:
        networks = [net.strip() for net in settings.allow_networks.split(",") if net.strip()]
        ports = [int(port) for port in settings.allow_ports.split(",") if port.strip()]
        guard = AddressGuard(networks, ports=ports)
    except ValueError as exc:
        raise UsageError(f"GROUNDWIRE_ALLOW_NETWORKS, GROUNDWIRE_ALLOW_PORTS: {exc}") from None
    return CitationVerifier(
        load_sources(settings),
        network=not settings.no_network,
        cache=RedisCache(connect(settings.redis_url, patience=1.0), settings.topic_prefix),
        urls=UrlChecker(guard),
        on_result=_count_verification,
    )


def build_resolver(settings: Settings) -> Resolver | None:
    """Make the resolver over the corpora in Redis; None where no tenant is checked against one."""
    if not settings.corpus_tenants:
        return None
    index = CorpusIndex(connect(settings.redis_url, patience=1.0), settings.topic_prefix)
    return Resolver(index, frozenset(settings.corpus_tenants))


def build_assessor(model: HttpModel, pauses: Pauses) -> Assessor:
    """Make what asks the language model, and counts what it is asked.

    Each response that was asked about is progress: a batch of them may take longer than a worker may be silent.
    """
    for kind, fault in product(("support", "prior"), get_args(Fault)):
        metrics.MODEL_QUESTIONS.labels(kind, fault)  # from 0, so that the first one is an increase

    def told(facts: VerifierFacts, seconds: float) -> None:
        pauses.progress()
        count_model(facts, seconds)

    return assessor_of(model, told)


def build_expiry(settings: Settings, keys: Keys, state: RedisState, publisher: Publisher) -> Expiry | None:
    """Make what lets old reviews expire; None where the gate has no key to sign with.

    Raises:
        UsageError: the key is not in the keys file, or may not sign for reviewers.
    """
    if settings.review_key is None:
        log.warning("review.expiry_off", hint="set GROUNDWIRE_REVIEW_KEY to a key with the role reviewer")
        return None
    key = dict(keys).get(settings.review_key)
    if key is None or "reviewer" not in key.roles:
        raise UsageError(
            f"GROUNDWIRE_REVIEW_KEY: the keys file holds no key {settings.review_key!r} with the role reviewer"
        )
    sign = partial(keys.sign, settings.review_key)
    topic = settings.topic_prefix + TopicName.REVIEW
    read = partial(follow, settings.brokers, topic, Span("earliest"), _PATIENCE)
    ttl = timedelta(days=settings.review_ttl)
    return Expiry(read, state, publisher, sign, ttl=ttl, now=_now)


def _now() -> datetime:
    return datetime.now(UTC)


def _count_verification(kind: str, state: str, seconds: float) -> None:
    metrics.VERIFICATIONS.labels(kind, state).inc()
    metrics.VERIFICATION_SECONDS.labels(kind).observe(seconds)


def count_model(facts: VerifierFacts, seconds: float) -> None:
    """Count what a language model was asked about a response."""
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


async def _server_run(redis: Redis) -> str | None:
    """Name the server's process; None where it may not be asked. Raises: StateUnavailable."""
    try:
        answer = await redis.info("server")
    except ResponseError:
        return None
    except (RedisError, OSError, TimeoutError) as exc:
        raise StateUnavailable(f"INFO: {type(exc).__name__}") from exc
    return str(answer["run_id"]) if "run_id" in answer else None


def _producer(app: Any) -> Any:  # noqa: ANN401 - Faust's app, aiokafka's producer
    return app.producer._ensure_producer()  # noqa: SLF001 - Faust's own send is not enough: see agents/publisher.py
