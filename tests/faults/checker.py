"""Judges a run by what its topics hold: pure code, without a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from groundwire.messages.identity import Subject
from groundwire.state.model import SubjectState, SubjectStatus
from tests.faults import rules_approval, rules_identity, rules_seals
from tests.faults.history import History, Violation, name

Rule = Callable[[History], Iterator[Violation]]

RULES: Final[Mapping[str, Rule]] = {
    "acknowledged inputs stand on their topics": rules_identity.sent_inputs_stand,
    "every input is decided or a dead letter": rules_identity.every_input_ends,
    "no input is both": rules_identity.one_end,
    "an id's bytes never change": rules_identity.bytes_stay,
    "ids and revisions follow from their subject": rules_identity.identities,
    "nothing is approved without its checks": rules_approval.approvals_are_checked,
    "what says the same is approved once": rules_approval.one_memory,
    "approvals of a key keep their order": rules_identity.order,
    "review limits are never exceeded": rules_approval.limits_hold,
    "audit is complete": rules_approval.audit_is_complete,
    "what is published is sealed": rules_seals.everything_is_sealed,
    "what is sealed stands on its topic": rules_seals.sealed_records_stand,
    "each partition has one chain of seals": rules_seals.chains_hold,
}


def check(history: History) -> dict[str, list[Violation]]:
    """Return what breaks each promise; empty lists are what is hoped for."""
    return {promise: list(rule(history)) for promise, rule in RULES.items()}


def compare_state(history: History, standings: Mapping[Subject, SubjectStatus | None]) -> Iterator[Violation]:
    """Hold what state says against the topics: each approval is stored once, and nothing else is."""
    for subject, by_revision in history.subjects.items():
        revision = max(by_revision)
        last, standing = by_revision[revision], standings.get(subject)
        if standing is None:
            if last.json["approved"] or last.json["verdict"] == "review":
                yield Violation("state", name(last), "state does not know it")
            continue
        stored = standing.state is SubjectState.APPROVED
        if standing.revision != revision:
            yield Violation("state", name(last), f"state is at revision {standing.revision}")
        elif stored != last.json["approved"]:
            yield Violation("state", name(last), f"state has it as {standing.state.name.lower()}")
