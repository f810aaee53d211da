"""The policy: every threshold, list and switch that decides, with a version and a hash that decisions name.

A policy is a TOML file with flat keys, `[hedges]`, `[limits]` and `[verification]`; environment variables override
single keys. What is in force after that, the effective policy, is kept as JSON under its SHA-256: in a folder that a
deployment ships, and in state.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from groundwire.checks.hedges import Lexicon
from groundwire.epistemic.types import AS_SCORED, VerificationConfig
from groundwire.errors import RecordError, UsageError, did_you_mean
from groundwire.messages.base import TenantId, canonical_json, comma_separated, sha256_hex
from groundwire.messages.decode import parse_json

ENV_PREFIX: Final = "GROUNDWIRE_"
TRUSTED_SOURCES: Final = frozenset({"user", "documentation", "adr", "commit", "manual"})
"""Sources trusted by default (S0-18)."""

Words = tuple[Annotated[str, Field(min_length=1, max_length=100)], ...]
Tracker = Annotated[
    str, Field(pattern=r"^[A-Z][A-Z0-9_]{1,9}=https?://[^\s{}]*\{key\}[^\s{}]*$", max_length=500)
]
Places = Annotated[int, Field(ge=0, le=10_000_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Hedges(_Section):
    """Words and phrases that count as hedges beside those of the built-in grammar (S0-103).

    They are literal text, matched as whole words in any case, in what a reader sees of a claim; in a quotation that is
    only reported, in code and in names they decide nothing either.

    Attributes:
        block: speculation.
        review: technical hedges.
        lexicon: `scientific` adds the hedges of scientific papers to those for review.
    """

    block: Words = ()
    review: Words = ()
    lexicon: Lexicon = "none"


class Limits(_Section):
    """Places in the review queue (S0-133, S0-134), and how many claims one response may fan out (S4-33).

    A tenant has fewer places than there are in all, and bytes of its own. Below `review_reserved` it gets a place
    whatever the total: no flood of other tenants takes its last one. With `tenants`, others have no more than that.
    """

    review_per_user: Places = 100
    review_per_tenant: Places = 2_000
    review_total: Places = 10_000
    review_reserved: Places = 100
    tenants: tuple[TenantId, ...] = ()
    pending_bytes_per_tenant: Annotated[int, Field(ge=0, le=10**12)] = 64_000_000
    max_claims_per_response: Annotated[int, Field(ge=0, le=100)] = (
        VerificationConfig().max_claims_per_response
    )


_LATER: Final[Mapping[str, Any]] = {
    "review_reserved": 100,
    "tenants": [],
    "trackers": [],
    "entailment_model": "",
    "entailment_head": list(AS_SCORED),
}
"""Keys that kept policies may lack: at these defaults they are left out of the hash, which stays what it was."""


class Policy(_Section):
    """What decides, beside the record and the facts. Every stricter setting is opt-in (S0-158).

    Attributes:
        version: your name for this policy.
        enable_dedup: compare claims with stored ones.
        dedup_threshold: least Jaccard similarity of a duplicate.
        conflict_threshold: least Jaccard similarity of two claims' content words, values set aside, for a conflict.
        rejected_threshold: least Jaccard similarity to a text that a person rejected or retracted.
        dedup_scope: `user_type` compares within a memory type, `user` across types.
        dedup_method: how candidates are found; `vector` only in the library.
        dedup_material_difference: a near-duplicate with another value, negation or order is a conflict (C-08).
        dedup_word_difference: a near-duplicate with another content word is a conflict.
        trusted_sources: sources that ground a claim.
        trusted_technical_hedges: what a technical hedge of a trusted source gets (C-26).
        grounded_speculation: what personal speculation with a verified citation gets (C-02).
        failed_citation_overrides_trust: one unverified citation sends a claim to review (C-04).
        auto_approve_ai_synthesis: `false`: every AI synthesis goes to review (S0-156).
        trackers: projects whose tickets count as citations, and where they are looked up: `PLAT=https://x.org/{key}`.
        verify_claim_relevance: the cited source must support the claim (S0-155).
        relevance_minimum: least such support.
        attestation: `hmac`: a source counts only in a signed record (C-34).
        state_outage: without state, `defer` decides provisionally, `pause` waits.
        evidence_quote_validation_enabled: check quotes against the transcript (S1-01).
        evidence_quote_validation_mode: exact or approximate match (S1-02).
        evidence_quote_fuzzy_threshold: least similarity of a fuzzy match; use 0.8 or more (S1-03).
        evidence_quote_fail_on_all_rejected: block a response if no quote is found (S1-04).
        evidence_quote_log_rejections: log counts and hashes of rejected quotes (S1-05).
        evidence_quote_min_characters: least characters of a quote (S1-30).
        evidence_quote_min_words: least words of a quote (S1-30).
        evidence_quote_word_boundaries: a quote must begin and end at word boundaries (S1-30).
        evidence_quote_remove_soft: ignore soft hyphens and word joiners too (S1-15).
        require_source_tags: each technical paragraph of an answer needs a citation mark.
        entity_required_confidence: least confidence of an entity's corpus entry (S3-01).
        require_provenance: an entity needs a `provenance_id` (S3-13).
        strict_versions: a relation must name the version that the truth has (C-53).
        require_qualifiers: a relation needs every qualifier of the truth (S3-26).
        check_values: check the answer's numbers, dates and negations against the chunks.
        on_critical: what a critical gap between an answer and its evidence gets.
    """

    version: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    enable_dedup: bool = True
    dedup_threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.92
    conflict_threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.85
    rejected_threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.8
    dedup_scope: Literal["user_type", "user"] = "user_type"
    dedup_method: Literal["minhash", "partition", "vector"] = "minhash"
    dedup_material_difference: bool = True
    dedup_word_difference: bool = True
    trusted_sources: frozenset[Annotated[str, Field(min_length=1, max_length=100)]] = TRUSTED_SOURCES
    trusted_technical_hedges: Literal["review", "approve"] = "review"
    grounded_speculation: Literal["block", "review"] = "block"
    failed_citation_overrides_trust: bool = False
    auto_approve_ai_synthesis: bool = True
    trackers: tuple[Tracker, ...] = ()
    verify_claim_relevance: bool = False
    relevance_minimum: Annotated[float, Field(ge=0, le=1)] = 0.5
    attestation: Literal["off", "hmac"] = "off"
    state_outage: Literal["defer", "pause"] = "defer"
    evidence_quote_validation_enabled: bool = True
    evidence_quote_validation_mode: Literal["substring", "fuzzy"] = "substring"
    evidence_quote_fuzzy_threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.85
    evidence_quote_fail_on_all_rejected: bool = False
    evidence_quote_log_rejections: bool = True
    evidence_quote_min_characters: Annotated[int, Field(ge=0, le=1_000)] = 0
    evidence_quote_min_words: Annotated[int, Field(ge=0, le=100)] = 0
    evidence_quote_word_boundaries: bool = False
    evidence_quote_remove_soft: bool = False
    require_source_tags: bool = False
    entity_required_confidence: Annotated[float, Field(ge=0, le=1)] = 0.6
    require_provenance: bool = False
    strict_versions: bool = False
    require_qualifiers: bool = False
    check_values: bool = True
    on_critical: Literal["review", "block"] = "review"
    hedges: Hedges = Hedges()
    limits: Limits = Limits()
    verification: VerificationConfig = Field(default_factory=VerificationConfig)

    @cached_property
    def canonical(self) -> bytes:
        """The effective policy in canonical JSON: what is hashed, and what its file holds."""
        plain = self.model_dump(mode="json")
        plain |= {"trusted_sources": sorted(self.trusted_sources)}
        plain |= {table: _kept(plain[table]) for table in ("limits", "verification")}
        return canonical_json(_kept(plain))

    @cached_property
    def sha256(self) -> str:
        """The hash that decisions name."""
        return sha256_hex(self.canonical)


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in _LATER or value != _LATER[key]}


_SECTIONS: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    "hedges": (Hedges, "HEDGES_"),
    "limits": (Limits, ""),
    "verification": (VerificationConfig, "VERIFICATION_"),
}
"""Tables of the file: their model, and what stands before their keys in the environment."""

_LISTS: Final = frozenset(("trusted_sources", "trackers", "tenants", "entailment_head"))

GroundedIngestionConfig = Policy
"""The library's name for a policy (S0-154)."""


def load_policy(path: Path | None, environment: Mapping[str, str]) -> Policy:
    """Read a policy file and apply overrides from the environment.

    A `.json` file is an effective policy: it is taken as it is, without overrides.

    Args:
        path: the file, or None for the defaults.
        environment: variables `GROUNDWIRE_<KEY IN CAPITALS>`; lists are separated by commas.

    Raises:
        UsageError: for an unreadable file, an unknown key or a value out of range; names the key.
    """
    if path is None:
        return _policy(_overridden({}, environment), "the environment", environment)
    try:
        data = path.read_bytes()
        if path.suffix == ".json":
            return _policy(parse_json(data), str(path))
        values = tomllib.loads(data.decode())
    except RecordError as exc:
        raise UsageError(f"policy {path}: {exc.message}") from None
    except (OSError, ValueError, RecursionError) as exc:
        raise UsageError(f"policy {path}: {_unreadable(exc)}") from None
    policy = _policy(values, str(path))
    overridden = _overridden(values, environment)
    return policy if overridden == values else _policy(overridden, f"{path} and the environment", environment)


def _unreadable(exc: Exception) -> str:
    match exc:
        case IsADirectoryError():
            return "cannot be read: it is a folder; give a file"
        case OSError():
            return f"cannot be read: {exc.strerror or exc}"
        case UnicodeDecodeError():
            return f"is not text in UTF-8, at byte {exc.start}"
        case RecursionError():
            return "is nested too deeply"
    return str(exc)


def parse_policy(data: bytes) -> Policy:
    """Read an effective policy from its canonical JSON. Raises: UsageError."""
    try:
        return _policy(parse_json(data), "stored policy")
    except RecordError as exc:
        raise UsageError(f"stored policy: {exc.message}") from None


def _policy(values: object, where: str, environment: Mapping[str, str] | None = None) -> Policy:
    """Read a policy; with an environment, numbers and switches from text as well, as they stand there."""
    try:
        if environment is not None:
            return Policy.model_validate(values)
        return Policy.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        key = [str(part) for part in first["loc"]]
        variable = _variable(key)
        told = variable if variable in (environment or ()) else where
        raise UsageError(
            ": ".join([f"policy ({told})", *([".".join(key)] if key else []), _problem(first)])
        ) from None


def _problem(error: ErrorDetails) -> str:
    """Say what is wrong: an unknown key comes with the nearest there is, a wrong value with the value."""
    if error["type"] == "extra_forbidden":
        *tables, name = map(str, error["loc"])
        model = _SECTIONS[tables[0]][0] if tables else Policy
        if name in Policy.model_fields and name not in _SECTIONS:
            return "there is no such key; it belongs to no table: write it above the first one"
        homes = [f"[{table}]" for table, (one, _) in _SECTIONS.items() if name in one.model_fields]
        if homes:
            return f"there is no such key; it belongs to {' or '.join(homes)}"
        return "there is no such key" + did_you_mean(name, model.model_fields)
    message, given = error["msg"].removeprefix("Value error, "), error["input"]
    return f"{message}, not {given!r:.100}" if isinstance(given, (str, int, float)) else message


def _variable(key: list[str]) -> str:
    section = _SECTIONS.get(key[0]) if key else None
    if section and len(key) > 1:
        return ENV_PREFIX + section[1] + key[1].upper()
    return ENV_PREFIX + key[0].upper() if key else ENV_PREFIX


def policy_variables() -> list[str]:
    """Return the names of the environment variables that override keys."""
    flat = [[name] for name in Policy.model_fields if name not in _SECTIONS]
    tables = [[name, key] for name, (model, _) in _SECTIONS.items() for key in model.model_fields]
    return [_variable(key) for key in (*flat, *tables)]


def _overridden(values: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    result = dict(values)
    for name in Policy.model_fields:
        raw = environment.get(ENV_PREFIX + name.upper())
        if raw is not None and name not in _SECTIONS:
            result[name] = comma_separated(raw) if name in _LISTS else raw
    for section, (model, prefix) in _SECTIONS.items():
        found = {name: environment.get(ENV_PREFIX + prefix + name.upper()) for name in model.model_fields}
        given = {name: raw for name, raw in found.items() if raw is not None}
        if given:
            parsed = {
                name: comma_separated(raw) if model is Hedges or name in _LISTS else raw
                for name, raw in given.items()
            }
            result[section] = {**result.get(section, {}), **parsed}
    return result
