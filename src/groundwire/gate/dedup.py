"""How a policy has claims compared: scope, keys and signature of one claim."""

from __future__ import annotations

from functools import lru_cache

from groundwire.checks.dedup_keys import KeyFunction, key_function, scheme
from groundwire.checks.difference import signature
from groundwire.checks.similarity import threshold_parts
from groundwire.checks.tokens import tokenize
from groundwire.errors import UsageError
from groundwire.messages.claims import Claim
from groundwire.messages.identity import digest
from groundwire.policy import Policy
from groundwire.state.model import DedupQuery


def dedup_scheme(policy: Policy) -> str:
    """Name everything that stored deduplication data depends on; a change of it needs a rebuild.

    Raises:
        UsageError: for `dedup_method = "vector"`, which needs an embedder and works in the library only.
    """
    if policy.dedup_method == "vector":
        raise UsageError(
            "dedup_method: 'vector' needs an embedder and works in the library only; use 'minhash' or 'partition'"
        )
    if not policy.enable_dedup:
        return "disabled"
    keys = scheme(policy.dedup_method, threshold_parts(policy.dedup_threshold))
    return f"{keys}/{policy.dedup_scope}"


def dedup_query(claim: Claim, policy: Policy) -> DedupQuery | None:
    """Say how a claim is compared, or None where deduplication is disabled."""
    if not policy.enable_dedup:
        return None
    tokens = tokenize(claim.content)
    parts = threshold_parts(policy.dedup_threshold)
    stored, probed = _keys(policy.dedup_method, parts).both(tokens)
    kind = claim.memory_type if policy.dedup_scope == "user_type" else ""
    return DedupQuery(
        scope=digest(claim.tenant_id, claim.user_id, kind),
        stored=stored,
        probed=probed,
        signature=signature(tokens),
        threshold_parts=parts,
        material_difference=policy.dedup_material_difference,
    )


def make_ready(policy: Policy) -> None:
    """Load what comparing claims needs, a tenth of a second of it, before the first of them waits for it."""
    if policy.enable_dedup:
        _keys(policy.dedup_method, threshold_parts(policy.dedup_threshold)).stored(("ready",))


@lru_cache(maxsize=16)
def _keys(method: str, parts: int) -> KeyFunction:
    return key_function(method, parts)
