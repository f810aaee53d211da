"""Claims and responses: from the bytes of a record through the gate to what is published."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from agents.outputs import followers, outputs
from groundwire.errors import RecordError
from groundwire.gate.types import DeadLetter, Decided, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_claim, decode_response, decode_review_decision
from groundwire.messages.headers import Headers, InboundRecord
from groundwire.messages.records import Claim, LlmResponse
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.verify.citations import CitationVerifier
from tests.faults.rules_approval import GROUNDS
from tests.fuzz import inputs
from tests.fuzz.inputs import Dice, any_value, mutated, scratched, text, written
from tests.fuzz.runner import Case, Entry, entry, hold, listening, quiet, read_strictly
from tests.unit.gate.world import RESPONSES, TOPIC, World, adr_folder, verifier

LARGEST = 256_000  # bytes of a Decision
_GROUNDED = {
    *("sources_verified", "fields_verified", "source_tags_present", "quotes_grounded", "entities_grounded"),
    *("relations_preserved", "values_supported", "claims_supported"),
}
STANDING = frozenset({"adr:003", "adr:3", "url:https://docs.example.org/good"})
"""The citations that stand in the fuzzer's world; in it nothing else exists."""


def check_decision(decision: Decision, record: Claim | LlmResponse, policy: Policy) -> None:
    """Hold a decision of the gate to its contract, and an approval to its checks. Raises: Failed."""
    value = decision.to_bytes()
    hold(len(value) <= LARGEST, f"a decision of {len(value)} bytes")
    read_strictly(value)
    hold(decision.reason_code != "internal_error", "something broke inside")
    agree = {decision.approved, decision.verdict == "approved", decision.tier == "tier_1"}
    hold(len(agree) == 1, "verdict, tier and approved do not agree")
    for citation in decision.citations:
        label = f"{citation.type}:{citation.value}"
        stands = citation.state != "verified" or label in STANDING
        hold(stands, f"verified that does not stand: {label[:100]!r}")
    if decision.approved:
        told = list((_claim if isinstance(record, Claim) else _response)(decision, record, policy))  # type: ignore[operator]
        hold(not told, f"approved as {decision.reason_code}, though {'; '.join(told)}")


def _names(checks: list[str]) -> set[str]:
    return {check.split(":")[0] for check in checks}


def _claim(decision: Decision, claim: Claim, policy: Policy) -> Iterator[str]:
    passed, failed = _names(decision.checks_passed), _names(decision.checks_failed)
    hedged = policy.trusted_technical_hedges == "approve" or policy.grounded_speculation == "review"
    ground = GROUNDS.get(decision.reason_code, "")
    fact = decision.facts.attestation or {}
    trusted, cited = ground == "trusted_source", ground == "citation_verified"
    synthesis = "source_not_trusted" in failed and claim.source not in {"conversation", "chat"}
    due = {
        "no_speculation": not hedged,
        "not_duplicate": policy.enable_dedup,
        "not_previously_rejected": policy.enable_dedup,
        "parents_approved": bool(claim.derived_from),
        "not_expired": claim.validity_horizon is not None,
        "citation_relevant": policy.verify_claim_relevance and cited,
        str(ground): ground is not None,
    }
    yield from (
        f"{name or 'no ground'} has not passed"
        for name, needed in due.items()
        if needed and name not in passed
    )
    if trusted and policy.attestation == "hmac" and fact.get("state") != "valid":
        yield "nobody vouches for its source"
    if "citation_unverified" in failed and policy.failed_citation_overrides_trust:
        yield "a citation was not verified"
    if synthesis and not policy.auto_approve_ai_synthesis:
        yield "it is AI synthesis"


def _response(decision: Decision, response: LlmResponse, policy: Policy) -> Iterator[str]:
    passed, failed = _names(decision.checks_passed), _names(decision.checks_failed)
    if failed:
        yield f"{', '.join(sorted(failed))} failed"
    if not response.verify and "claims_supported" in passed:
        yield "the check of its claims was to be bypassed"
    if not passed & _GROUNDED:
        yield "nothing was grounded"
    quoted = policy.evidence_quote_validation_enabled
    due = {
        "sources_verified": response.sources and response.chunks is not None,
        "quotes_grounded": quoted and response.evidence and response.transcript is not None,
        "entities_grounded": response.entities and response.corpus_index is not None,
        "relations_preserved": response.claims and response.relations is not None,
    }
    yield from (f"{name} was not looked at" for name, given in due.items() if given and name not in passed)
    if decision.kind != Kind.RESPONSE:
        yield "it is no response"


KEYS: Final = """
[keys.docs]
secret = "three"
tenants = ["default"]
sources = ["user", "documentation", "adr"]
[keys.late]
secret = "four"
tenants = ["default"]
sources = ["user", "documentation", "adr"]
not_after = 2026-01-01T00:00:00Z
"""
SECRETS: Final = {"docs": b"three", "late": b"four", "nobody": b"?"}
_LARGEST: Final = 1_048_576  # bytes of a record that a broker takes
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "enable_dedup": (True, True, False),
    "dedup_scope": ("user_type", "user"),
    "dedup_method": ("minhash", "partition"),
    "trusted_technical_hedges": ("review", "approve"),
    "grounded_speculation": ("block", "review"),
    "failed_citation_overrides_trust": (False, True),
    "auto_approve_ai_synthesis": (True, False),
    "verify_claim_relevance": (False, True),
    "attestation": ("off", "hmac"),
    "evidence_quote_validation_enabled": (True, False),
    "evidence_quote_validation_mode": ("substring", "fuzzy"),
    "evidence_quote_fail_on_all_rejected": (False, True),
    "require_source_tags": (False, True),
    "require_provenance": (False, True),
    "strict_versions": (False, True),
    "on_critical": ("review", "block"),
}


def some_policy(rng: Dice) -> Policy:
    names = rng.sample(sorted(_CHOICES), rng.one(0, 0, 1, 3))
    return Policy(**{name: rng.choice(_CHOICES[name]) for name in names})


def some_headers(rng: Dice, value: bytes) -> Headers:
    """Return headers: signatures good and bad, traces, and what nobody asked for."""
    found: list[tuple[str, bytes | None]] = []
    for _ in range(rng.one(0, 0, 1, 3)):
        name = rng.one("gw-attestation", "traceparent", "gw-attempts", "gw-origin", "ce_id", text(rng)[:40])
        held = rng.one(None, b"", b"00-a-b-01", b"1", b"-1", b"9" * 40, rng.said(), b"\xff\xfe")
        if name == "gw-attestation":
            key = rng.choice(sorted(SECRETS))
            signed = value if rng.chance(0.7) else scratched(rng, value)
            held = f"{key}:{hmac.new(SECRETS[key], signed, 'sha256').hexdigest()}".encode()
            held = scratched(rng, held) if rng.chance(0.2) else held
        found.append((name.encode("utf-8", "replace").decode(), held))
    return tuple(found)


def check_outputs(results: Sequence[Result]) -> None:
    """Hold that whatever is published for a batch can be."""
    for each in (*outputs(results), *followers(results)):
        hold(each.key is None or isinstance(each.key, bytes), "a key that is no bytes")
        for name, value in each.headers:
            hold(isinstance(value, bytes | None), f"the header {name[:40]!r} is no bytes")
            name.encode()
        if each.topic is not TopicName.DEAD_LETTER and each.topic is not TopicName.DEFERRED:
            fits = each.value is not None and len(each.value) <= _LARGEST
            hold(fits, f"a record for {each.topic} is too large")
            read_strictly(each.value or b"")


async def _gated(
    kind: str, citations: CitationVerifier, keys: Keys, heard: Callable[[], str], rng: Dice
) -> int:
    """Put records of one kind through a gate and a state of their own."""
    policy = some_policy(rng)
    world = World(policy=policy, verifier=citations, keys=keys)
    made = [_record(rng, world, kind, number) for number in range(1, rng.one(1, 1, 2, 3) + 1)]
    if rng.chance(0.1):
        made.append(made[0])
    together = rng.chance(0.5)
    gate = world.gate
    for batch in [made] if together else [[one] for one in made]:
        results = await gate.apply_step(await gate.prepare(batch, ask_network=True), deferred=True)
        hold(len(results) == len(batch), "not one result for each record")
        for record, result in zip(batch, results, strict=True):
            _check(record, result, policy)
        check_outputs(results)
    if rng.chance(0.1):
        for result in gate.provisional(await gate.prepare(made)):
            hold(isinstance(result, DeadLetter) or not result.decision.approved, "approved without state")
    quiet(heard())
    return sum(len(one.value or b"") for one in made)


def _record(rng: Dice, world: World, kind: str, number: int) -> InboundRecord:
    example = inputs.claim(rng, number) if kind == "claims" else inputs.response(rng, number)
    value: bytes | None = written(rng, mutated(rng, example))
    if rng.chance(0.01):
        value = rng.one(None, b"", b" ", written(rng, any_value(rng, 3)), scratched(rng, value or b""))
    topic = TOPIC if kind == "claims" else RESPONSES
    record = world.record(value, headers=some_headers(rng, value or b""), topic=topic)
    key = rng.one(b"default:ada", None, b"", b"\xff", rng.said())
    odd = (0, -1, 253_402_300_799_999, 2**63 - 1, -(2**63))
    time = record.timestamp if rng.chance(0.97) else rng.choice(odd)
    return InboundRecord(topic, 0, record.offset, time, key, value, record.headers)


def _check(record: InboundRecord, result: Result, policy: Policy) -> None:
    content: Claim | LlmResponse | None = None
    try:
        content = (decode_claim if record.topic == TOPIC else decode_response)(record.value)
    except RecordError as error:
        hold(0 < len(error.message) < 2_000, "a refusal without a reason, or with too many words")
    if isinstance(result, DeadLetter):
        conflict = result.error.code == "claim_id_conflict"
        hold(content is not None or not conflict, "a conflict of what cannot be read")
        return
    hold(content is not None, "decided, though it cannot be read")
    hold(isinstance(result, Decided), f"ends as {type(result).__name__}")
    check_decision(result.decision, content, policy)


async def _decoded(rng: Dice) -> int:
    """Read a value as each kind of record: it is one, or is refused with a code and a reason."""
    kind = rng.randrange(3)
    example = (inputs.claim(rng), inputs.response(rng), inputs.action(rng, "c1", 1, 1))[kind]
    value = written(rng, mutated(rng, example, 1))
    for decode in (decode_claim, decode_response, decode_review_decision):
        try:
            record = decode(value)
        except RecordError as error:
            hold(error.message and error.code, "a refusal without a reason")
            f"{error.message}{error.field}".encode()
            continue
        record.model_dump_json()
    return len(value)


def _entry(kind: str, share: int) -> Entry:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Case]:
        with TemporaryDirectory() as folder, listening() as heard:
            adrs = adr_folder(Path(folder) / "adr", ADR_003="We use PostgreSQL for storage")
            citations = verifier(adrs, urls={"https://docs.example.org/good": 200})
            try:
                yield partial(_gated, kind, citations, Keys.parse(KEYS.encode(), Path("keys.toml")), heard)
            finally:
                await citations.close()

    return Entry(kind, opened, share)


ENTRIES: Final = (entry("decode", lambda *_: _decoded, 30), _entry("claims", 6), _entry("responses", 4))
