"""Verifying what stands on the topics of a deployment: each decision, and the record that carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from groundwire.client.tail import Start
from groundwire.gate.claims import Policies
from groundwire.messages.decisions import Decision, Origin
from groundwire.messages.topics import TopicName
from groundwire.replay.job import Job, Order
from groundwire.replay.published import place_of
from groundwire.replay.reading import INPUTS, Reader
from groundwire.replay.spool import Spool, Stretch
from groundwire.replay.verify import Finding, Placed, Status, Verifier

_DECISIONS = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED)


async def verify_topics(
    reader: Reader, prefix: str, since: Start, policies: Policies, folder: Path
) -> AsyncGenerator[Placed, None]:
    """Verify the decisions that stand on their topics from a place on; yields one finding for each.

    Args:
        reader: reads the topics from their beginnings, as what a decision rests on may be old.
        prefix: of the topics' names.
        since: where to begin to verify, on the topics with decisions.
        policies: by which was decided.
        folder: for what is read meanwhile.

    Raises:
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer.
    """
    topics = [prefix + name for name in INPUTS]
    order = Order("verify", topics, "earliest", "latest", policy=None, simulate=False, output=None)
    with Job(folder / "verify", order) as job:
        published = [prefix + name for name in _DECISIONS]
        outputs = await reader.plan(published, "earliest", "latest")
        asked = {
            (each.topic, each.partition): each.start for each in await reader.plan(published, since, "latest")
        }
        inside = await reader.plan(order.topics, "earliest", "latest")
        await reader.read(job, inside, outputs, everything=True)
        for where, name, fields in job.spool.odd():
            if _is_asked(where, asked):
                yield Placed(where, Finding(Status.DIFFERS, name, tuple(fields), "the record does not fit"))
        verifier = Verifier(job.spool, policies, exactly=True)
        for where, value in job.spool.every():
            if _is_asked(where, asked):
                yield Placed(where, _stands(job.spool, inside, value, await verifier.verify(value)))


def _is_asked(where: str, asked: Mapping[tuple[str, int], int]) -> bool:
    """Say whether a published record stands where it is to be verified."""
    topic, partition, offset = place_of(where)
    return offset >= asked.get((topic, partition), 0)


def _stands(spool: Spool, inside: Sequence[Stretch], value: bytes, finding: Finding) -> Finding:
    """Look whether records stand where an otherwise equal decision says.

    The bytes of one that retention has taken may stand elsewhere, sent again: where they first stood is not known.
    """
    if finding.status is not Status.EQUAL:
        return finding
    decision = Decision.model_validate_json(value)
    origins = {"$.origin": decision.origin, "$.subject_origin": decision.subject_origin}
    wrong = {path: origin for path, origin in origins.items() if origin and not spool.stands(origin)}
    if not wrong:
        return finding
    if all(_is_gone(origin, inside) for origin in wrong.values()):
        name, detail = finding.decision_id, f"record of {', '.join(wrong)}: retention has taken it"
        return Finding(Status.MISSING, name, detail=detail)
    paths = tuple(path for path, origin in wrong.items() if not _is_gone(origin, inside))
    return Finding(Status.DIFFERS, finding.decision_id, paths, "no such record stands there")


def _is_gone(origin: Origin, inside: Sequence[Stretch]) -> bool:
    """Say whether a place lies before where retention has left its partition."""
    starts = {(stretch.topic, stretch.partition): stretch.start for stretch in inside}
    return 0 <= origin.offset < starts.get((origin.topic or "", origin.partition), 0)
