"""A worker's metrics, as its own library writes them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Worker:
    """Stands for a worker of a role, whose records come from a topic of that name or of another."""

    def __init__(self, role: str, topic: str | None = None, started: float = 0.0) -> None:
        self.role, self.topic = role, topic or role
        self.restart(started)

    def restart(self, started: float) -> None:
        registry = self.registry = CollectorRegistry()
        self.records = Histogram("groundwire_batch_records", "", ["input"], registry=registry)
        self.decisions = Counter(
            "groundwire_decisions", "", ["kind", "tier", "reason_code"], registry=registry
        )
        self.dead = Counter("groundwire_dead_letters", "", ["code"], registry=registry)
        self.citations = Counter("groundwire_verifications", "", ["type", "state"], registry=registry)
        self.paused = Gauge("groundwire_paused", "", ["dependency"], registry=registry)
        self.lag = Gauge("groundwire_lag_records", "", ["input"], registry=registry)
        self.age = Gauge("groundwire_commit_age_seconds", "", ["input"], registry=registry)
        self.most = Gauge("groundwire_tenant_most", "", ["limit"], registry=registry)
        self.refusals = Counter("groundwire_tenant_refusals", "", ["limit"], registry=registry)
        self.lag.labels(self.role).set(0)
        Gauge("process_start_time_seconds", "", registry=registry).set(started)

    def work(self, records: int, reason: str = "ungrounded", tier: str = "tier_2") -> None:
        self.records.labels(self.topic).observe(records)
        self.decisions.labels("claim", tier, reason).inc(records)

    def answer(self) -> str:
        return generate_latest(self.registry).decode()
