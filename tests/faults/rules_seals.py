"""Workers seal whatever they publish, in one chain for each partition that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.seals import SEALED, Seal
from tests.faults.history import History, Violation, name, subject_of
from tests.stream.harness import DECISIONS, Seen

_EVENTS = frozenset({"review_action", "refused_action", "retraction", "dead_letter"})
"""Audit events that come of a record, whatever becomes of it later."""


def everything_is_sealed(history: History) -> Iterator[Violation]:
    """What workers published is sealed, but for what a killed one left and a later, sealed decision supersedes."""
    named = {(each.topic, each.id, each.sha256) for _, seal in _seals(history) for each in seal.outputs}
    latest = {
        subject: max((number for number, seen in by_revision.items() if _leaf(seen) in named), default=0)
        for subject, by_revision in history.subjects.items()
    }
    for topic in SEALED:
        for seen in history.of(topic):
            if _leaf(seen) in named:
                continue
            if topic in DECISIONS:
                if latest.get(subject_of(seen.json), 0) <= seen.json["revision"]:
                    yield Violation("unsealed", name(seen), "no seal names it")
            elif topic != "audit" or seen.json["type"] in _EVENTS:
                yield Violation("unsealed", name(seen), "no seal names it")


def sealed_records_stand(history: History) -> Iterator[Violation]:
    """What a seal names stands on its topic, byte for byte."""
    there = {_leaf(seen) for topic in SEALED for seen in history.of(topic)}
    for seen, seal in _seals(history):
        for each in seal.outputs:
            if (each.topic, each.id, each.sha256) not in there:
                yield Violation("removed", name(seen), f"{each.topic} does not hold {each.id}")


def chains_hold(history: History) -> Iterator[Violation]:
    """Each seal stands for its outputs and goes on where one before it ended; one that names none closes no gap."""
    ends: dict[str, int] = {}
    reached: Counter[tuple[str, int]] = Counter()
    for seen, seal in _seals(history):
        head, of = seal.head, (seal.head.topic, seal.head.partition)
        if not seal.fits:
            yield Violation("bad_seal", name(seen), "its outputs are not those that were signed")
        if head.before is not None and ends.get(head.before) != head.first:
            yield Violation("broken_chain", name(seen), "no seal before it ends where it begins")
        if head.before is None and of in reached and head.first > reached[of]:
            yield Violation("broken_chain", name(seen), f"offsets from {reached[of]} on are not sealed")
        ends[head.sha256] = head.end
        reached[of] = max(reached[of], head.end)


def _seals(history: History) -> Iterator[tuple[Seen, Seal]]:
    """Each seal, with the record that holds it, in the order of the partitions of `audit`."""
    for seen in sorted(history.of("audit"), key=lambda each: (each.partition, each.offset)):
        if seen.json["type"] == "seal":
            yield seen, Seal.of(AuditEvent.model_validate_json(seen.value or b""))


def _leaf(seen: Seen) -> tuple[str, str, str]:
    return seen.topic, seen.header("ce_id") or "", sha256_hex(seen.value or b"")
