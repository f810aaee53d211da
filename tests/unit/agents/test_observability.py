"""Decisions are counted once, and a claim can be followed through the gate by its trace."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs

from agents.health import Health
from agents.hooks import Batch
from agents.observability import (
    BatchMetrics,
    InternalErrors,
    LetterLog,
    Tracing,
    open_tracing,
    set_tenant_gauges,
)
from agents.outputs import outputs
from agents.wiring import build_assessor, count_model
from groundwire import metrics
from groundwire.epistemic.plan import VerifierFacts
from groundwire.epistemic.types import ModelCall
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, UsageError
from groundwire.gate.types import Acted, DeadLetter, Decided, Deferred, Result
from groundwire.messages.headers import TRACEPARENT, InboundRecord, header
from groundwire.policy import Policy
from groundwire.verify.models import ModelLimits, OpenAIModel
from tests.unit.gate.office import TEXT, Office
from tests.unit.gate.world import World


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"groundwire_{name}", labels) or 0.0


def published(results: list[Any], fresh: set[str] | None = None) -> Batch:
    """Return a batch of which results were published; `fresh` are the ids of its new decisions, if not as they say."""
    new = (
        {one.decision.decision_id for one in results if getattr(one, "fresh", False)}
        if fresh is None
        else fresh
    )
    loop: Any = None
    return Batch(loop, [], Mock(), results=results, fresh=new)


def test_a_hundred_internal_errors_of_ten_keys_are_too_many_until_a_record_is_decided():
    def decided(key: int, reason: str) -> Decided:
        decision: Any = SimpleNamespace(reason_code=reason, decision_id="")
        return Decided(InboundRecord("t", 0, 0, 0, b"%d" % key, b"{}"), decision, fresh=True)

    rows = [(1, 500, False), (9, 500, False), (10, 99, False), (10, 100, True), (100, 100, True)]
    for keys, errors, too_many in rows:
        run = InternalErrors(Health())
        run.after_publish(published([decided(number % keys, "internal_error") for number in range(errors)]))
        assert run.alone is too_many, (keys, errors)
    for code in ErrorCode:
        for number in range(200):  # broken input tells nothing of the gate
            letter = InboundRecord("t", 0, 0, 0, b"%d" % number, b"{")
            run.after_publish(published([DeadLetter(letter, RecordError(code, "no"))]))
    assert run.alone
    run.after_publish(published([decided(0, "grounded")]))
    assert not run.alone


async def test_each_decision_and_action_counts_once_and_everything_else_is_a_repeat():
    names = {"groundwire_decisions_total": ("reason_code",), "groundwire_repeats_total": ()}
    names["groundwire_review_actions_total"] = ("action", "outcome")

    def counters() -> Counter[tuple[str, ...]]:
        samples = [one for metric in REGISTRY.collect() for one in metric.samples if one.name in names]
        return Counter(
            {(one.name, *(one.labels[label] for label in names[one.name])): int(one.value) for one in samples}
        )

    def counted(results: list[Result], fresh: set[str] | None = None) -> dict[tuple[str, ...], int]:
        before = counters()
        BatchMetrics("reviews").after_publish(published(results, fresh))
        return {name[1:] or name: count for name, count in (counters() - before).items()}

    office = Office()
    (pending,) = await office.decide(office.claim("a", TEXT))
    actions = office.action("approve", pending), office.action("retract", pending, expected_revision=2)
    gate, fresh = office.reviews, set()
    for _ in range(3):  # settled again and again before it is published, as while the broker is away
        results = await gate.apply_step(await gate.prepare(actions))
        fresh |= published(results).fresh
    keys = (("approve", "human_approved"), ("retract", "retracted"), ("human_approved",), ("retracted",))
    assert counted(results, fresh) == dict.fromkeys(keys, 1)
    repeat = {("groundwire_repeats_total",): 1}
    approved, retracted = results
    assert isinstance(approved, Acted)
    later = [replace(approved, decision=retracted.decision), retracted]
    once = {("retract", "retracted"): 1, ("retracted",): 1}
    assert counted(later, {retracted.decision.decision_id}) == once | repeat, "only a later revision is known"
    other = Office()
    (pending,) = await other.decide(other.claim("a", TEXT))
    action = other.action("approve", pending)
    twice = await other.reviews.apply_step(await other.reviews.prepare((action, action)))
    assert counted(twice) == {("approve", "human_approved"): 1, ("human_approved",): 1} | repeat
    claim = other.claim("b", "another text of nobody")
    results = await other.results(claim, claim)
    assert counted(results) == {("ungrounded",): 1} | repeat


def test_broken_input_counts_by_tenant_and_producer_of_which_nobody_may_invent_more_than_a_hundred(
    monkeypatch,
):
    monkeypatch.setattr(metrics, "_senders", set())

    def send(code: ErrorCode, key: bytes | None, *headers: tuple[str, bytes]) -> None:
        dead = DeadLetter(InboundRecord("t", 0, 0, 0, key, b"{", headers), RecordError(code, "why"))
        BatchMetrics("claims").after_publish(published([dead]))

    def counted(tenant: str, producer: str) -> float:
        return value("broken_input_total", tenant=tenant, producer=producer)

    for code in ErrorCode:
        send(code, b"acme:ann", ("client-id", b"crm-7"))
    assert counted("acme", "crm-7") == 4, (
        "conflicts, crashes and what the broker refuses are not the sender's alone"
    )
    send(ErrorCode.INVALID_JSON, b"acme:ann", ("ce_source", b"/crm/eu"))
    assert counted("acme", "/crm/eu") == 1
    for key, producer in ((None, b""), (b"\xff:ann", b"\xff"), (b"my salary is 1234", b"x" * 101)):
        send(ErrorCode.TOO_LARGE, key, ("client-id", producer))
    assert counted("unknown", "unknown") == 3, "no text is a label"
    for number in range(200):
        send(ErrorCode.INVALID_JSON, b"invented-%d:ann" % number)
    assert counted("other", "other") == 103
    send(ErrorCode.INVALID_JSON, b"acme:ann", ("client-id", b"crm-7"))
    assert counted("acme", "crm-7") == 5


def facts(*calls: dict[str, object]) -> VerifierFacts:
    told = [ModelCall.model_validate({"claim_id": "r/claim#1", "kind": "support", **one}) for one in calls]
    return VerifierFacts(model="haiku", calls=told)


def test_questions_are_counted_by_their_result_with_their_cost_and_a_paused_service_is_shown():
    names = {
        ("questions_total", "kind", "support", "result", "answered"): 1,
        ("questions_total", "kind", "support", "result", "cached"): 1,
        ("questions_total", "kind", "support", "result", "timeout"): 1,
        ("requests_total",): 5,
        ("tokens_total", "direction", "input"): 100,
        ("tokens_total", "direction", "output"): 20,
        ("cost_usd_total",): 0.5,
        ("seconds_count",): 1,
        ("seconds_sum",): 1.5,
    }

    def values() -> list[float]:
        return [
            value(f"model_{name}", **dict(zip(labels[::2], labels[1::2], strict=True)))
            for name, *labels in names
        ]

    before = values()
    answered = {"requests": 2, "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}
    count_model(facts(answered, {"cached": True, "requests": 0}, {"fault": "timeout", "requests": 3}), 1.5)
    assert [new - old for new, old in zip(values(), before, strict=True)] == list(names.values())
    nobody_asked = [{"cached": True, "requests": 0}, {"fault": "over_budget", "requests": 0}]
    for calls, paused in (([{"fault": "paused", "requests": 0}], 1), (nobody_asked, 1), ([{}], 0)):
        count_model(facts(*calls), 0.0)
        assert value("model_paused") == paused, "until the service is asked again"


async def test_each_response_that_was_asked_about_is_progress_and_every_fault_is_counted_from_0():
    now = [0.0]
    health = Health(lambda: now[0])
    await health.before_batch(published([]))
    assessor = build_assessor(OpenAIModel("http://127.0.0.1:1", limits=ModelLimits(concurrency=7)), health)
    now[0] = 200.0
    health.tick()
    assert not health.alive()
    assessor.on_answer(facts({}), 1.0)
    assert health.alive()
    assert health.unready() == "starting", "it has not joined its group"
    assert assessor.at_once == 3
    labels = {"kind": "prior", "result": "unreachable"}
    assert REGISTRY.get_sample_value("groundwire_model_questions_total", labels) is not None


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = f"00-{TRACE}-{PARENT}-01"


def record(offset: int = 0, traceparent: str | None = SENT) -> InboundRecord:
    headers = ((TRACEPARENT, traceparent.encode()),) if traceparent else ()
    headers = (*headers, ("tracestate", b"vendor=1"))
    return InboundRecord("groundwire.claims", 3, offset, 1, b"t:secret", b"text", headers)


def test_what_comes_of_a_record_carries_a_span_between_it_and_the_sender() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing("claims", provider.get_tracer("test"))

    def traced(*results) -> tuple[list, list]:
        exporter.clear()
        batch = published(list(results))
        batch.outputs = [outputs(results)]
        with tracing.during("publish", batch):
            (found,) = batch.outputs
        return found, exporter.get_finished_spans()

    other = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    (output, second), (_, span) = traced(Deferred(record(7)), Deferred(record(0, other)))
    assert (header(second.headers, TRACEPARENT) or "").split("-")[1] == "a" * 32, "each has its own trace"
    assert (span.context.trace_id, span.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert header(output.headers, TRACEPARENT) == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert [key for key, _ in output.headers].count(TRACEPARENT) == 1
    assert header(output.headers, "tracestate") == "vendor=1"
    assert dict(span.attributes) == {  # codes and places, and neither ids nor text
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": "groundwire.claims",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 7,
        "groundwire.outcome": "deferred",
    }
    for sent in (None, "", "00-zz-yy-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5000):
        (output,), (span,) = traced(Deferred(record(traceparent=sent)))
        assert span.parent is None
        assert header(output.headers, "tracestate") is None, "it belongs to a trace that cannot be read"
        sent_on = header(output.headers, TRACEPARENT) or ""
        assert sent_on.startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")
    (letter, event), (span,) = traced(DeadLetter(record(), RecordError(ErrorCode.INVALID_JSON, "no")))
    assert header(letter.headers, TRACEPARENT) == SENT, "a dead letter keeps the headers of its record"
    assert f"{span.context.span_id:016x}" in (header(event.headers, TRACEPARENT) or "")
    assert span.attributes["groundwire.error"] == "invalid_json"
    exporter.clear()
    with pytest.raises(BrokerUnavailable), tracing.during("publish", published([Deferred(record())])):
        raise BrokerUnavailable("text")
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "BrokerUnavailable")
    assert not span.events


def test_tracing_without_its_packages_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UsageError, match=r"GROUNDWIRE_TRACING: pip install 'groundwire\[tracing\]'"):
        open_tracing("claims")


async def test_gauges_show_the_fullest_tenant_and_a_refusal_counts_at_its_limit():
    names = ("tenant_most", "tenant_limit", "tenants_at_limit")
    for used, expected in (([], (0, 100, 0)), ([3, 98], (98, 100, 0)), ([99, 1, 100], (100, 100, 2))):
        set_tenant_gauges("bytes", used, 100)
        assert tuple(value(name, limit="bytes") for name in names) == expected
    for limits, more in (({"review_per_tenant": 0}, 1), ({"review_per_user": 0}, 0)):
        world = World(policy=Policy(limits=limits))
        results = await world.results(world.claim())
        before = value("tenant_refusals_total", limit="review")
        BatchMetrics("claims").after_publish(published(results))
        assert value("tenant_refusals_total", limit="review") - before == more


def test_dead_letters_of_a_code_are_logged_ten_a_minute_and_then_counted():
    now = [0.0]
    letters = LetterLog(lambda: now[0])
    with capture_logs() as lines:
        for second in range(70):
            now[0] = float(second)
            for _ in range(5):
                letters.note(record(second), RecordError(ErrorCode.INVALID_JSON, "no"))
        letters.note(record(), RecordError(ErrorCode.TOO_LARGE, "no"))
    told = Counter((line["event"], line["code"], line.get("records")) for line in lines)
    assert told == {
        ("record.dead", "invalid_json", None): 20,
        ("record.dead_more", "invalid_json", 290): 1,
        ("record.dead", "too_large", None): 1,
    }


def test_no_help_names_a_requirement_and_no_counter_has_a_second_series_for_its_beginning():
    families = [family for family in REGISTRY.collect() if family.name.startswith("groundwire_")]
    assert [family.name for family in families if re.search(r"[A-Z]\d?-\d", family.documentation)] == []
    page = generate_latest(REGISTRY).decode()
    assert "groundwire_decisions_total" in page
    assert "_created" not in page
