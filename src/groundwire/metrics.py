"""Every metric, declared once. Labels are codes and names from closed lists, never ids or text (X-11)."""

from __future__ import annotations

import re
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from groundwire.errors import WAITED_FOR

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody asks for

# What became of records ------------------------------------------------------------------------------------

DECISIONS = Counter(
    "groundwire_decisions", "Subjects decided, counted once each.", ["kind", "tier", "reason_code"]
)
REPEATS = Counter(
    "groundwire_repeats", "Recorded decisions published again for a redelivered or re-sent record."
)
PROVISIONAL = Counter(
    "groundwire_provisional",
    "Provisional decisions (revision 0) while state was out of reach.",
    ["reason_code"],
)
DEFERRED = Counter("groundwire_deferred", "Records put on the deferred topic.")
DEAD_LETTERS = Counter("groundwire_dead_letters", "Records that could not be decided.", ["code"])
BROKEN_INPUT = Counter(
    "groundwire_broken_input",
    "Dead letters that are the sender's fault: tenant of the key, and header client-id or ce_source.",
    ["tenant", "producer"],
)
RECORDS_LOST = Counter(
    "groundwire_records_lost", "Offsets that retention deleted before a worker read them.", ["input"]
)
MISKEYED = Counter("groundwire_miskeyed", "Records whose key is not {tenant_id}:{user_id}.")
MISPLACED = Counter(
    "groundwire_misplaced_records",
    "Records on another partition than that of {tenant_id}:{user_id}: senders as of broken input.",
    ["input", "tenant", "producer"],
)
FUTURE = Counter(
    "groundwire_future", "Records decided whose timestamp is later than this worker's clock by 5 s."
)
CHECKS = Counter("groundwire_checks", "Checks of fresh decisions by name and result.", ["check", "result"])
REVIEW_ACTIONS = Counter(
    "groundwire_review_actions",
    "What people did, by what it came to: a reason, or why not.",
    ["action", "outcome"],
)
EVENTS = Counter("groundwire_events", "Events of the checks, by name.", ["event"])
EVENTS_LOST = Counter("groundwire_events_lost", "Events whose sink raised.", ["event"])

# How long it took ------------------------------------------------------------------------------------------

LATENCY = Histogram(
    "groundwire_latency_seconds",
    "From a record's Kafka timestamp to the acknowledgement of its decision.",
    ["input"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)
BATCH_RECORDS = Histogram(
    "groundwire_batch_records", "Records in a batch.", ["input"], buckets=(1, 2, 5, 10, 25, 50, 100, 250, 500)
)
STAGE = Histogram(
    "groundwire_stage_seconds",
    "Time of a batch in each stage: prepare (read and look up), model (ask it), state (the step), publish.",
    ["input", "stage"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 35),
)

# What is outside -------------------------------------------------------------------------------------------

VERIFICATIONS = Counter("groundwire_verifications", "Citations looked up.", ["type", "state"])
VERIFICATION_SECONDS = Histogram("groundwire_verification_seconds", "Time to look a citation up.", ["type"])
MODEL_QUESTIONS = Counter(
    "groundwire_model_questions",
    "Questions to the language model by what came of them: answered, cached (not asked again), or the fault.",
    ["kind", "result"],
)
MODEL_REQUESTS = Counter(
    "groundwire_model_requests", "Requests to the language model's service, repeated ones included."
)
MODEL_TOKENS = Counter("groundwire_model_tokens", "Tokens of the language model.", ["direction"])
MODEL_COST = Counter("groundwire_model_cost_usd", "Cost of the language model at the policy's prices.")
MODEL_SECONDS = Histogram(
    "groundwire_model_seconds",
    "Time for all questions about a response.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60),
)
MODEL_PAUSED = Gauge(
    "groundwire_model_paused",
    "1 while the service is left alone after failures in a row, as far as the last questions have told.",
)
BUILD = Gauge("groundwire_build_info", "1; its labels are what runs here.", ["version", "policy", "role"])
POLICY_REFUSED = Gauge(
    "groundwire_policy_refused", "1 while the policy file is refused; the policy before it holds."
)
PAUSED = Gauge("groundwire_paused", "1 while the worker waits for a dependency.", ["dependency"])
PAUSES = Counter("groundwire_pauses", "Times that the worker began to wait for a dependency.", ["dependency"])
STATE_AWAY = Gauge(
    "groundwire_state_partitions_away",
    "Partitions whose primary does not answer or refuses writes, with or without traffic; one Redis has one.",
)
SEAL_KEY_EXPIRES = Gauge(
    "groundwire_seal_key_expires_seconds",
    "When the last valid seal key expires, as a Unix time; +Inf: never.",
)
REVIEW_DEPTH = Gauge("groundwire_review_queue_entries", "Entries of the review queue, all tenants.")
WAITING = Gauge("groundwire_waiting_claims", "Claims that wait on the deferred topic.")
TENANT_MOST = Gauge(
    "groundwire_tenant_most",
    "Used of a tenant's limit by the tenant that has most: places in the queue, bytes of pending records, requests.",
    ["limit"],
)
TENANT_LIMIT = Gauge("groundwire_tenant_limit", "What a tenant may have of each.", ["limit"])
TENANTS_AT_LIMIT = Gauge(
    "groundwire_tenants_at_limit", "Tenants that have 99 % of what they may or more.", ["limit"]
)
TENANT_REFUSALS = Counter(
    "groundwire_tenant_refusals",
    "Refused at a limit of its tenant: claims for review, requests without a place in time, and to paused hosts.",
    ["limit"],
)
PAUSED_HOSTS = Gauge(
    "groundwire_paused_hosts", "Hosts of citations left alone after failures, each counted for each tenant."
)
PARTITIONS = Gauge("groundwire_partitions", "Partitions that this worker holds.")
LAG = Gauge(
    "groundwire_lag_records",
    "Records of the partitions held that can be read and are not done, as far as the last fetch has told.",
    ["input"],
)
COMMIT_AGE = Gauge(
    "groundwire_commit_age_seconds",
    "For how long the oldest batch that was read has not been done; 0 where there is none.",
    ["input"],
)
PUBLISH_ERRORS = Counter(
    "groundwire_publish_errors",
    "Failed attempts to publish: unavailable is tried again, refused is a dead letter, broken ends the worker.",
    ["why"],
)
SEALS = Counter("groundwire_seals", "Seals that this worker has published.")
REBUILDS = Counter("groundwire_state_rebuilds", "Rebuilds of lost state by this worker.", ["result"])
REBUILD_DONE = Gauge("groundwire_rebuild_done", "Decisions that the last rebuild here has read.")
REBUILD_LEFT = Gauge("groundwire_rebuild_left", "Decisions that it has still to read.")
EVENT_LOOP_LAG = Gauge("groundwire_event_loop_lag_seconds", "How late the event loop's last tick was.")

# The validated-response cache -----------------------------------------------------------------------------

# by which its hit rate is measured (S2-42)
QUERY_CACHE_GETS = Counter(
    "groundwire_query_cache_gets",
    "Look-ups by result: hit, miss, unavailable. The hit rate is hits by hits and misses.",
    ["result"],
)
QUERY_CACHE_SETS = Counter(
    "groundwire_query_cache_sets", "Responses by what became of them: stored, or why not.", ["result"]
)
QUERY_CACHE_DROPPED = Counter(
    "groundwire_query_cache_dropped", "Entries by why they went: expired, evicted, invalidated.", ["why"]
)

# Quotes --------------------------------------------------------------------------------------------

QUOTES = Counter(
    "groundwire_quotes",
    "Extracted quotes by result: validated, rejected, unvalidated. The rejection rate is rejected by the first two.",
    ["result"],
)
QUOTES_PER_ITEM = Histogram(
    "groundwire_quotes_per_item", "Validated quotes of a domain.", buckets=(0, 1, 2, 3, 5, 10, 20, 50, 100)
)
QUOTE_ITEMS = Counter(
    "groundwire_quote_items",
    "Domains by what grounding left of them: supported, or empty. The N/A rate is empty by both.",
    ["result"],
)
QUOTE_FAILURES = Counter(
    "groundwire_quote_failures", "Evidence of which not one quote stands in its source.", ["mode"]
)

_SENDER: Final = re.compile(r"[A-Za-z0-9._:/-]{1,100}")
_SENDERS: Final = 100
_senders: Final = set[tuple[str, str]]()


def sender_labels(tenant: str, producer: str) -> tuple[str, str]:
    """Return labels for a sender; after a hundred senders all others are one, as anybody may invent names."""
    tenant, producer = (name if _SENDER.fullmatch(name) else "unknown" for name in (tenant, producer))
    sender = tenant, producer
    if sender not in _senders and len(_senders) >= _SENDERS:
        sender = "other", "other"
    _senders.add(sender)
    return sender


# A counter whose first value is 1 has no increase that anybody could be told of: what alerts look at begins at 0.
for _dependency in WAITED_FOR:
    PAUSED.labels(_dependency).set(0)
    PAUSES.labels(_dependency)
for _why in ("unavailable", "refused", "broken"):
    PUBLISH_ERRORS.labels(_why)
for _result in ("done", "interrupted"):
    REBUILDS.labels(_result)
for _limit in ("review", "requests", "hosts"):
    TENANT_REFUSALS.labels(_limit)
CHECKS.labels("dedup_check_failed", "failed")
PROVISIONAL.labels("dedup_unavailable")
