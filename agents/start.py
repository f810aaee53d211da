"""What is looked at before a worker starts: whether its broker is there, and what an operator should be told."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from groundwire.client.kafka import consumer
from groundwire.environment import unknown_variables
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.gate.responses import policy_advice
from groundwire.policy import Policy
from groundwire.security import kafka_security
from groundwire.settings import Settings

BROKER_SECONDS: Final = 10.0
"""How long a broker that is starting too is waited for; afterwards whoever started the worker starts it again."""


def advice(role: str, policy: Policy, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (event, sentence) for what is configured, but hardly as it was meant."""
    for sentence in unknown_variables(os.environ):
        yield "setting.unknown", sentence
    for sentence in policy_advice(policy):
        yield "policy.advice", sentence
    if role == "reviews":
        if settings.keys_file is None:
            make = "groundwire keys new console --tenant TENANT --role reviewer --file keys.toml"
            sentence = (
                f"GROUNDWIRE_KEYS_FILE is not set: every review decision is refused; `{make}` makes one"
            )
            yield "review.no_keys", sentence
        return
    if policy.attestation == "hmac" and settings.keys_file is None:
        yield (
            "attestation.no_keys",
            'the policy says attestation = "hmac", but GROUNDWIRE_KEYS_FILE is not set: no source is believed',
        )
    if role != "responses" and not (settings.adr_dir or settings.repo or settings.tenants_file):
        yield (
            "sources.none",
            "neither GROUNDWIRE_ADR_DIR nor GROUNDWIRE_REPO is set: citations of ADRs and commits will be unknown",
        )


async def await_broker(brokers: str, seconds: float = BROKER_SECONDS) -> None:
    """Wait until the broker answers.

    Raises:
        UsageError: it does not, within `seconds`, or `brokers` is not `host:port,...`.
    """
    try:
        with _unheard("aiokafka"):
            async with consumer(brokers, seconds):
                pass
    except BrokerUnavailable:
        raise UsageError(
            f"GROUNDWIRE_BROKERS: no broker at {brokers} answered within {seconds:g} s;"
            f" is it up, and GROUNDWIRE_BROKERS{kafka_security().variables} right?"
        ) from None


@contextmanager
def _unheard(name: str) -> Iterator[None]:
    """Keep a library from saying again and again what will be said once."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
