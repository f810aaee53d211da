"""Where a subject stands is what was decided last, unless that was withdrawn or erased."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

from groundwire.client.standing import MemoryStanding
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from tests.unit.client.test_followed_table import NOW, SAMPLE, decided, erased, retracted


def standing(*records):
    known = MemoryStanding(Subject("acme", "maria", Kind.CLAIM, "c1"))
    for record in records:
        known.note(record)
    return known.now


def test_the_highest_revision_stands_and_others_subjects_do_not_count():
    assert standing(decided(2, "newer"), decided(1), decided(3, claim_id="c2")).evidence.claim == "newer"
    assert standing(decided(claim_id="c2")) is None


def test_an_approval_that_was_withdrawn_is_blocked_in_every_order_of_records():
    for records in permutations([decided(1), decided(2), retracted(2)]):
        now = standing(*records)
        assert (now.approved, now.verdict, now.reason_code) == (False, "blocked", "retracted")
        assert (now.revision, now.reason, now.decided_at) == (3, "outdated", NOW)


def test_nothing_is_known_of_an_erased_subject_until_it_is_decided_again():
    for order in (1, -1):
        assert standing(*[decided(), retracted(), erased(SAMPLE.decided_at)][::order]) is None
    assert standing(erased(SAMPLE.decided_at - timedelta(seconds=1)), decided()).approved
