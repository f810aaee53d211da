"""Whatever a deployment published follows from its records, policies and facts: derived again when a test is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from groundwire.config import Settings
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.policy import load_policy
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.seals import read_seals
from groundwire.replay.verify import Placed, Signatures, VerifyStatus, verify_topics
from groundwire.state.policies import KnownPolicies, PolicyStore


def policies_of(environment: Mapping[str, str]) -> KnownPolicies:
    """The policy of an environment, and those that its workers kept."""
    given = environment.get("GROUNDWIRE_POLICY_FILE")
    kept = environment.get("GROUNDWIRE_POLICIES_DIR")
    in_force = load_policy(Path(given) if given else None, environment)
    return KnownPolicies([in_force], PolicyStore(Path(kept) if kept else None, None))


def new_seal_key(path: Path) -> Path:
    """Make a keys file with a key that seals; its public half checks the seals."""
    new_key(path, "gate-seals", tenants=[], roles=["seal"], asymmetric=True)
    return path


_FINE = {VerifyStatus.EQUAL, VerifyStatus.NOT_SEALED_YET}
"""What a worker that is killed leaves is sealed once another has read it again; a test may be over by then."""


async def not_derived(
    environment: Mapping[str, str], seal_key: Path | None = None
) -> tuple[int, list[Placed]]:
    """Derive everything on the topics of an environment: how much it is, and what does not come out the same.

    With a key of workers, what their seals do not cover is told too.
    """
    signatures = Signatures()
    if seal_key is not None:
        settings = Settings(
            brokers=environment["GROUNDWIRE_BROKERS"],
            topic_prefix=environment["GROUNDWIRE_TOPIC_PREFIX"],
            group_prefix=environment["GROUNDWIRE_GROUP_PREFIX"],
        )
        signatures = Signatures(partial(read_seals, settings, SealKeys(seal_key)))
    prefix = environment["GROUNDWIRE_TOPIC_PREFIX"]
    reader = ReplayReader(environment["GROUNDWIRE_BROKERS"], prefix, Rate(None), lambda *_: None)
    count, wrong = 0, []
    with TemporaryDirectory(prefix="verified-") as scratch:
        findings = verify_topics(
            reader, prefix, "earliest", policies_of(environment), Path(scratch), signatures=signatures
        )
        async with aclosing(findings):
            async for placed in findings:
                count += 1
                if placed.finding.status not in _FINE:
                    wrong.append(placed)
    return count, wrong
