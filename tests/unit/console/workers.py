"""A worker's metrics, as its own library writes them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Worker:
    """Stands for a worker of a role."""

    def __init__(self, role: str) -> None:
        registry = self.registry = CollectorRegistry()
        Counter("groundwire_decisions", "", ["tier"], registry=registry).labels("tier_1").inc()
        self.partitions = Gauge("groundwire_partitions", "", registry=registry)
        self.waiting = Gauge("groundwire_waiting_claims", "", registry=registry)
        self.paused = Gauge("groundwire_paused", "", ["dependency"], registry=registry)
        self.lag = Gauge("groundwire_lag_records", "", ["input"], registry=registry).labels(role)
        self.age = Gauge("groundwire_commit_age_seconds", "", ["input"], registry=registry).labels(role)
        self.most = Gauge("groundwire_tenant_most", "", ["limit"], registry=registry)
        self.limit = Gauge("groundwire_tenant_limit", "", ["limit"], registry=registry)
        self.full = Gauge("groundwire_tenants_at_limit", "", ["limit"], registry=registry)

    def answer(self) -> str:
        return generate_latest(self.registry).decode()
