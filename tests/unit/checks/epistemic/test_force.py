"""A claim stands on evidence that asserts it, or that has the force which the claim itself has."""

from groundwire.checks.support.force import Force
from groundwire.checks.support.verify import check_answer
from tests.unit.checks.tables import failing

PAIRS = [
    (
        Force.OPEN,
        "Neighbours allege that the club plays music until three.",
        "The club plays music until three.",
    ),
    (Force.OPEN, "Ivo accused his partner of forging the signature.", "His partner forged the signature."),
    (Force.OPEN, "The goalkeeper reportedly signed for Velmar.", "The goalkeeper signed for Velmar."),
    (Force.OPEN, "Legend has it that a blind mason carved the portal.", "A blind mason carved the portal."),
    (Force.OPEN, "The widow believed her husband had been poisoned.", "Her husband had been poisoned."),
    (Force.OPEN, "The fire may have started in the drying room.", "The fire started in the drying room."),
    (Force.OPEN, "The coin was probably minted in Thessaly.", "The coin was minted in Thessaly."),
    (
        Force.OPEN,
        "Has the roof of the hall been insured against hail?",
        "The roof of the hall has been insured against hail.",
    ),
    (
        Force.OPEN,
        "Auditors examine whether the clinic billed patients twice.",
        "The clinic billed patients twice.",
    ),
    (Force.OPEN, "The concert will move indoors unless the rain stops.", "The concert will move indoors."),
    (Force.OPEN, "Had the sluice been opened, the town would have stayed dry.", "The town stayed dry."),
    (
        Force.PLANNED,
        "The museum plans to open a second wing in Torsby.",
        "The museum opened a second wing in Torsby.",
    ),
    (Force.PLANNED, "Engineers recommended replacing the north span.", "Engineers replaced the north span."),
    (Force.DENIED, "The mayor denied that the bridge had been closed.", "The bridge had been closed."),
    (
        Force.DENIED,
        "There is no evidence that the herb lowers blood pressure.",
        "The herb lowers blood pressure.",
    ),
    (
        Force.DENIED,
        "It is a myth that the tower leans because of an earthquake.",
        "The tower leans because of an earthquake.",
    ),
    (Force.DENIED, "The yacht nearly capsized off the cape.", "The yacht capsized off the cape."),
    (
        Force.NEGATED,
        "The surcharge does not apply to weekend stays.",
        "The surcharge applies to weekend stays.",
    ),
    (
        Force.NEGATED,
        "The guard no longer locks the west gate at night.",
        "The guard locks the west gate at night.",
    ),
]


def forces(answer, evidence):
    return [claim.force for claim in check_answer(answer, [evidence]).claims]


def test_what_evidence_does_not_assert_is_a_hard_fault_of_a_claim_that_asserts_it():
    def check(force, evidence, answer):
        (claim,) = check_answer(answer, [evidence]).claims
        assert (claim.force, claim.hard) == (force, True)

    assert failing(check, PAIRS) == []


def test_neither_another_fact_nor_an_unconfirmed_report_makes_evidence_assert_a_claim():
    alleged = "Inspectors allege that the mill polluted the brook."
    unconfirmed = [
        (f"{alleged} The mill was established in 1890.", "The mill polluted the brook."),
        ("The carrier pays a penalty of 500 EUR if delivery is late.", "The carrier pays a penalty of 500 EUR."),
        ("Unless the tenant objects, the rent rises by 5 %.", "The rent rises by 5 %."),
        ("There is no evidence that magnets cure gout.", "Magnets cure gout."),
    ]  # fmt: skip
    assert [(evidence, answer) for evidence, answer in unconfirmed if not any(forces(answer, evidence))] == []


def test_a_claim_of_the_same_force_as_its_evidence_is_no_fault():
    assert [
        evidence
        for evidence in [evidence for _, evidence, _ in PAIRS]
        if any(forces(f"In short: {evidence}", evidence))
    ] == []


def test_a_weaker_clause_beside_it_does_not_weaken_what_evidence_asserts():
    plain = [
        ("Inspectors allege that the mill polluted the brook. The court confirmed it.", "The mill polluted the brook."),
        ("The ship sank in 1871 and may have carried silver.", "The ship sank in 1871."),
        ("She claimed the prize in 1990.", "She claimed the prize in 1990, at last."),
        ("There are no retries.", "There are zero retries."),
    ]  # fmt: skip
    assert [(evidence, answer) for evidence, answer in plain if any(forces(answer, evidence))] == []


def test_an_answer_that_calls_untrue_what_evidence_asserts_is_a_hard_fault():
    answers = [
        "It is not true that the reactor was shut down in 1998.",
        "There is no evidence that the reactor was shut down in 1998.",
        "The reactor was almost shut down in 1998.",
    ]  # fmt: skip
    assert [
        answer for answer in answers if forces(answer, "The reactor was shut down in 1998.") != [Force.DENIED]
    ] == []


def test_another_passage_that_asserts_it_grounds_what_one_only_attributes():
    evidence = ["Otto alleged that Mara took the deposit.", "Mara took the deposit from the safe."]
    assert [claim.force for claim in check_answer("Mara took the deposit.", evidence).claims] == [None]
