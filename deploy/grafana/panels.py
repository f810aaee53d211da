"""What the dashboard shows: every panel with its queries. `python -m deploy.grafana write` makes the JSON of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus, and what its series are called.

    Attributes:
        expr: `$__rate_interval` is Grafana's.
        legend: labels in double braces.
    """

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph.

    Attributes:
        unit: as Grafana names it.
        about: what to think of it, for whoever has not seen it before.
        stacked: series add up to something.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, *, legend: str | None = None) -> Query:
    return Query(f"sum by ({by}) (rate({metric}[$__rate_interval]))", legend or f"{{{{{by}}}}}")


def _total(metric: str, legend: str) -> Query:
    return Query(f"sum(rate({metric}[$__rate_interval]))", legend)


def _quantile(share: float, metric: str, by: str) -> Query:
    name = f"{{{{{by}}}}} p{share * 100:g}"
    return Query(
        f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket[$__rate_interval])))", name
    )


def _worst(metric: str, by: str) -> Query:
    return Query(f"max by ({by}) ({metric})", f"{{{{{by}}}}}")


ROWS: Final = (
    Row(
        "What comes in, what comes of it",
        (
            Panel("Records in", "cps", (_rate("groundwire_batch_records_sum", "input"),), stacked=True),
            Panel(
                "Decisions by tier",
                "cps",
                (_rate("groundwire_decisions_total", "tier"),),
                "tier_1 is approved, tier_2 review, tier_3 blocked. Each subject counts once.",
                stacked=True,
            ),
            Panel(
                "Decisions by reason",
                "cps",
                (_rate("groundwire_decisions_total", "reason_code"),),
                "A reason that comes up or goes away at once is a producer or a policy that changed.",
                stacked=True,
            ),
            Panel(
                "Other ends of a record",
                "cps",
                (
                    _total("groundwire_repeats_total", "repeated"),
                    _total("groundwire_provisional_total", "provisional"),
                    _total("groundwire_deferred_total", "deferred"),
                    _total("groundwire_dead_letters_total", "dead letter"),
                    _total("groundwire_miskeyed_total", "under another key"),
                    _total("groundwire_misplaced_records_total", "on another partition"),
                ),
            ),
            Panel(
                "From the record to its decision",
                "s",
                (
                    _quantile(0.5, "groundwire_latency_seconds", "input"),
                    _quantile(0.95, "groundwire_latency_seconds", "input"),
                    _quantile(0.99, "groundwire_latency_seconds", "input"),
                ),
                "Counted from the record's timestamp: a backlog that is worked off shows its age here.",
            ),
            Panel(
                "Time of a batch by stage",
                "s",
                (_quantile(0.95, "groundwire_stage_seconds", "stage"),),
                "prepare reads and looks up, model asks it, state is the step in Redis, publish waits for the broker.",
            ),
        ),
    ),
    Row(
        "Does it keep up",
        (
            Panel(
                "Lag as the workers see it",
                "short",
                (Query("sum by (role) (groundwire_lag_records)", "{{role}}"),),
                "Of partitions that are held and read; what nobody reads is only in the next panel.",
            ),
            Panel(
                "Lag as Kafka sees it",
                "short",
                (
                    Query(
                        "sum by (consumergroup) (kafka_consumergroup_lag{consumergroup=~'groundwire-.+'})",
                        "{{consumergroup}}",
                    ),
                ),
                "From kafka-exporter: counts without workers too.",
            ),
            Panel(
                "Age of the oldest batch under way", "s", (_worst("groundwire_commit_age_seconds", "role"),)
            ),
            Panel(
                "Claims that wait for a look-up",
                "short",
                (Query("max(groundwire_waiting_claims)", "waiting"),),
            ),
            Panel("Partitions held", "short", (Query("sum by (role) (groundwire_partitions)", "{{role}}"),)),
            Panel("Event loop late by", "s", (_worst("groundwire_event_loop_lag_seconds", "role"),)),
        ),
    ),
    Row(
        "What it waits for",
        (
            Panel(
                "Paused",
                "short",
                (Query("max by (role, dependency) (groundwire_paused)", "{{role}}: {{dependency}}"),),
                "1 while a worker waits. Nothing is lost meanwhile; the lag grows.",
            ),
            Panel(
                "Rebuilds of state",
                "short",
                (
                    Query(
                        "sum by (result) (increase(groundwire_state_rebuilds_total[1h]))", "{{result}} in 1 h"
                    ),
                ),
            ),
            Panel("Failed attempts to publish", "cps", (_rate("groundwire_publish_errors_total", "why"),)),
            Panel(
                "Dead letters",
                "short",
                (
                    Query("sum by (code) (increase(groundwire_dead_letters_total[1h]))", "{{code}} in 1 h"),
                    Query("sum(increase(groundwire_records_lost_total[1h]))", "deleted unread in 1 h"),
                ),
                "`groundwire dead-letters list` shows them.",
            ),
        ),
    ),
    Row(
        "What the checks find",
        (
            Panel(
                "Checks that failed",
                "cps",
                (
                    Query(
                        "sum by (check) (rate(groundwire_checks_total{result='failed'}[$__rate_interval]))",
                        "{{check}}",
                    ),
                ),
            ),
            Panel(
                "Citations by outcome",
                "cps",
                (
                    Query(
                        "sum by (type, state) (rate(groundwire_verifications_total[$__rate_interval]))",
                        "{{type}} {{state}}",
                    ),
                ),
                "unknown: it could not be looked up, and gives no credit.",
                stacked=True,
            ),
            Panel(
                "Time to look a citation up",
                "s",
                (_quantile(0.95, "groundwire_verification_seconds", "type"),),
            ),
            Panel("Quotes", "cps", (_rate("groundwire_quotes_total", "result"),), stacked=True),
        ),
    ),
    Row(
        "What people have to do",
        (
            Panel(
                "Review queue against its limits",
                "percentunit",
                (
                    Query(
                        "max by (limit) (groundwire_review_fullest) / max by (limit) (groundwire_review_limit)",
                        "{{limit}}",
                    ),
                ),
                "Of the user and the tenant who have most, and in all. At 100 % claims are blocked.",
            ),
            Panel(
                "Limits of a tenant",
                "percentunit",
                (
                    Query(
                        "max by (limit) (groundwire_tenant_most) / max by (limit) (groundwire_tenant_limit)",
                        "{{limit}}",
                    ),
                ),
                "Of the tenant that has most. Past it that tenant alone waits or is refused.",
            ),
            Panel(
                "Tenants at a limit",
                "short",
                (
                    Query("max by (limit) (groundwire_tenants_at_limit)", "{{limit}}"),
                    Query("sum(groundwire_paused_hosts)", "hosts left alone"),
                ),
                "Hosts are counted for each tenant that they failed.",
            ),
            Panel(
                "Refused at a tenant's limit", "cps", (_rate("groundwire_tenant_refusals_total", "limit"),)
            ),
            Panel("Places taken", "short", (Query("max(groundwire_review_queue_entries)", "in all"),)),
            Panel(
                "Oldest review",
                "s",
                (
                    Query("max(groundwire_review_oldest_seconds)", "oldest"),
                    Query("max(groundwire_review_ttl_seconds)", "expires after"),
                ),
            ),
            Panel(
                "What people did",
                "cps",
                (
                    Query(
                        "sum by (action, outcome) (rate(groundwire_review_actions_total[$__rate_interval]))",
                        "{{action}}: {{outcome}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "People's decisions of 30 days by the gate's reason",
                "short",
                (
                    Query(
                        "sum by (reason, outcome) (groundwire_reviewed_by_reason)", "{{reason}}: {{outcome}}"
                    ),
                ),
                "What people nearly always approve, or never, is where the policy can do their work.",
            ),
            Panel(
                "People's decisions of 30 days by source",
                "short",
                (
                    Query(
                        "sum by (source, outcome) (groundwire_reviewed_by_source)", "{{source}}: {{outcome}}"
                    ),
                ),
            ),
            Panel(
                "Until people decide, by the gate's reason",
                "s",
                (Query("max by (reason, quantile) (groundwire_review_seconds)", "{{reason}} {{quantile}}"),),
                "0.5 is the median of 30 days; nine of ten were decided within 0.9.",
            ),
            Panel("Console behind by", "s", (Query("max(groundwire_console_stale_seconds)", "console"),)),
        ),
    ),
    Row(
        "What it runs on",
        (
            Panel(
                "Memory of Redis",
                "bytes",
                (Query("redis_memory_used_bytes", "used"), Query("redis_memory_max_bytes", "maxmemory")),
                "Nothing is evicted: at maxmemory the gate stops.",
            ),
            Panel(
                "Redis", "ops", (Query("rate(redis_commands_processed_total[$__rate_interval])", "commands"),)
            ),
            Panel(
                "Processors used",
                "short",
                (_rate("process_cpu_seconds_total{job='groundwire'}", "role"),),
                stacked=True,
            ),
            Panel(
                "Memory of workers",
                "bytes",
                (_worst("process_resident_memory_bytes{job='groundwire'}", "role"),),
            ),
        ),
    ),
)
