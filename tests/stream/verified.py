"""Whatever a deployment published follows from its records, policies and facts: derived again when a test is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from groundwire.policy import load_policy
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.verify import Placed, VerifyStatus, verify_topics
from groundwire.state.policies import KnownPolicies, PolicyStore


def policies_of(environment: Mapping[str, str]) -> KnownPolicies:
    """The policy of an environment, and those that its workers kept."""
    given = environment.get("GROUNDWIRE_POLICY_FILE")
    kept = environment.get("GROUNDWIRE_POLICIES_DIR")
    in_force = load_policy(Path(given) if given else None, environment)
    return KnownPolicies([in_force], PolicyStore(Path(kept) if kept else None, None))


async def not_derived(environment: Mapping[str, str]) -> tuple[int, list[Placed]]:
    """Derive everything on the topics of an environment: how much it is, and what does not come out the same."""
    prefix = environment["GROUNDWIRE_TOPIC_PREFIX"]
    reader = ReplayReader(environment["GROUNDWIRE_BROKERS"], prefix, Rate(None), lambda *_: None)
    count, wrong = 0, []
    with TemporaryDirectory(prefix="verified-") as scratch:
        findings = verify_topics(reader, prefix, "earliest", policies_of(environment), Path(scratch))
        async with aclosing(findings):
            async for placed in findings:
                count += 1
                if placed.finding.status is not VerifyStatus.EQUAL:
                    wrong.append(placed)
    return count, wrong
