"""What decides in epistemic verification (S4-26..S4-36)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from groundwire.epistemic.scale import PRIOR

Share = Annotated[float, Field(ge=0, le=1)]


class VerificationConfig(BaseModel):
    """Epistemic verification: thresholds, what becomes of failures, and when a model is asked.

    The library's configuration, and the table `[verification]` of the policy: the one source of its defaults (S4-36).
    Deterministic checks see every claim; `mode`, limits, skip rules and the cache govern model calls alone.

    Attributes:
        enabled: off, nothing is verified: the gate lists `claims_skipped: disabled`, and `verify_response` hands the
            answer back as it is.
        support_threshold: a claim with less support is flagged.
        dependence_threshold: a claim whose measured dependence is less is flagged.
        gap_threshold_bits: a gap above it is critical.
        on_failure: `flag` says what does not hold: `verify_response` annotates the answer, at the gate it ends in
            review. `retry` asks for another answer where a gap is critical. `ask` leaves it to a person: at the gate,
            whatever brings a response to review asks for a place in the queue.
        max_retries: other answers asked for at most; the gate asks no more than twice.
        verification_model: name that is passed to the client.
        max_claims_per_response: claims of a response that a model is asked about.
        parallel_verification: ask about claims at the same time; results keep their order.
        mode: `full` asks about all claims, `sample` about a share, `critical_only` about those with uncertainty
            markers, numbers, citations or negations.
        sample_rate: that share.
        sample_seed: picks which; the same claims for the same seed (C-61).
        evidence_scrubbing: also ask without the evidence, to measure dependence.
        prior_support: support without evidence where it is not measured.
        model_may_clear: a model may raise support too; off, it can only lower it.
        samples: answers to each question, of which the mean counts: what they agree on, where a model gives no
            log-probabilities.
        timeout_seconds: for one model call, repeated requests included.
        max_output_tokens: of one answer.
        budget_seconds: for all model calls of a response.
        budget_tokens: sent and received, of all model calls of a response; a question that may not fit is not asked.
        budget_usd: the same in US dollars.
        budget_tokens_per_minute: of all responses that one client verifies within a minute.
        budget_usd_per_minute: the same in US dollars.
        input_price: US dollars for a million tokens sent.
        output_price: the same for tokens received.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    enabled: bool = True
    support_threshold: Share = 0.7
    dependence_threshold: Share = 0.3
    gap_threshold_bits: Annotated[float, Field(ge=0, le=100)] = 2.0
    on_failure: Literal["flag", "retry", "ask"] = "flag"
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    verification_model: Annotated[str, Field(min_length=1, max_length=200)] = "haiku"
    max_claims_per_response: Annotated[int, Field(ge=0, le=100)] = 10
    parallel_verification: bool = True
    mode: Literal["full", "sample", "critical_only"] = "sample"
    sample_rate: Share = 0.3
    sample_seed: Annotated[str, Field(max_length=200)] = ""
    evidence_scrubbing: bool = True
    prior_support: Share = PRIOR
    model_may_clear: bool = False
    samples: Annotated[int, Field(ge=1, le=20)] = 1
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    max_output_tokens: Annotated[int, Field(ge=1, le=100_000)] = 300
    budget_seconds: Annotated[float, Field(gt=0, le=3_600)] = 30.0
    budget_tokens: Annotated[int, Field(ge=0, le=1_000_000_000)] = 200_000
    budget_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    budget_tokens_per_minute: Annotated[int, Field(ge=0, le=1_000_000_000)] = 2_000_000
    budget_usd_per_minute: Annotated[float, Field(ge=0, le=1_000_000)] = 10.0
    input_price: Annotated[float, Field(ge=0)] = 0.25
    output_price: Annotated[float, Field(ge=0)] = 1.25
