"""Whatever a deployment published follows from its records, policies and facts: derived again when a test is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from groundwire.policies import PolicyStore
from groundwire.policy import load_policy
from groundwire.replay.rate import Rate
from groundwire.replay.reading import Reader
from groundwire.replay.run import Known
from groundwire.replay.topics import verify_topics
from groundwire.replay.verify import Placed, Status


def policies_of(environment: Mapping[str, str]) -> Known:
    """The policy of an environment, and those that its workers kept."""
    given = environment.get("GROUNDWIRE_POLICY_FILE")
    kept = environment.get("GROUNDWIRE_POLICIES_DIR")
    in_force = load_policy(Path(given) if given else None, environment)
    return Known([in_force], PolicyStore(Path(kept) if kept else None, None))


async def not_derived(environment: Mapping[str, str]) -> tuple[int, list[Placed]]:
    """Derive everything on the topics of an environment: how much it is, and what does not come out the same."""
    prefix = environment["GROUNDWIRE_TOPIC_PREFIX"]
    reader = Reader(environment["GROUNDWIRE_BROKERS"], prefix, Rate(None), lambda *_: None)
    count, wrong = 0, []
    with TemporaryDirectory(prefix="verified-") as scratch:
        findings = verify_topics(reader, prefix, "earliest", policies_of(environment), Path(scratch))
        async with aclosing(findings):
            async for placed in findings:
                count += 1
                if placed.finding.status is not Status.EQUAL:
                    wrong.append(placed)
    return count, wrong
