"""Judges a run by the records of its topics: pure code, without a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.identity import Subject
from groundwire.messages.seals import SEALED, Seal
from groundwire.state.model import SubjectState, SubjectStatus
from tests.faults import rules_approval, rules_identity
from tests.faults.history import History, Violation, name, subject_of
from tests.stream.harness import DECISIONS, Seen

_EVENTS = frozenset({"review_action", "refused_action", "retraction", "dead_letter"})
"""Audit events that a record causes, whatever is decided about it later."""


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


def sealed_records_remain(history: History) -> Iterator[Violation]:
    """What a seal names is on its topic, byte for byte."""
    there = {_leaf(seen) for topic in SEALED for seen in history.of(topic)}
    for seen, seal in _seals(history):
        for each in seal.outputs:
            if (each.topic, each.id, each.sha256) not in there:
                yield Violation("removed", name(seen), f"{each.topic} does not hold {each.id}")


def chains_hold(history: History) -> Iterator[Violation]:
    """Each seal matches its outputs and begins where an earlier one ended; one that names none closes no gap."""
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


Rule = Callable[[History], Iterator[Violation]]

RULES: Final[Mapping[str, Rule]] = {
    "acknowledged inputs are on their topics": rules_identity.sent_inputs_remain,
    "every input is decided or a dead letter": rules_identity.every_input_ends,
    "no input is both": rules_identity.one_end,
    "an id's bytes never change": rules_identity.bytes_stay,
    "ids and revisions follow from their subject": rules_identity.identities,
    "nothing is approved without its checks": rules_approval.approvals_are_checked,
    "what says the same is approved once": rules_approval.one_memory,
    "approvals of a key keep their order": rules_identity.order,
    "review limits are never exceeded": rules_approval.limits_hold,
    "audit is complete": rules_approval.audit_is_complete,
    "what is published is sealed": everything_is_sealed,
    "what is sealed is on its topic": sealed_records_remain,
    "each partition has one chain of seals": chains_hold,
}


def check(history: History) -> dict[str, list[Violation]]:
    """Return what breaks each promise; empty lists are what is hoped for."""
    return {promise: list(rule(history)) for promise, rule in RULES.items()}


def compare_state(history: History, statuses: Mapping[Subject, SubjectStatus | None]) -> Iterator[Violation]:
    """Hold what state says against the topics: each approval is stored once, and nothing else is."""
    for subject, by_revision in history.subjects.items():
        revision = max(by_revision)
        last, status = by_revision[revision], statuses.get(subject)
        if status is None:
            if last.json["approved"] or last.json["verdict"] == "review":
                yield Violation("state", name(last), "state does not know it")
            continue
        stored = status.state is SubjectState.APPROVED
        if status.revision != revision:
            yield Violation("state", name(last), f"state is at revision {status.revision}")
        elif stored != last.json["approved"]:
            yield Violation("state", name(last), f"state has it as {status.state.name.lower()}")
