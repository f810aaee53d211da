"""What evidence denies, attributes, supposes, asks, plans or makes conditional grounds an answer of that force only."""

from __future__ import annotations

import pytest

from groundwire import detect_hallucinations
from groundwire.epistemic.types import VerificationConfig

CLOSED = "The ferry terminal closed in March."
PAIRS = {
    "denied": ("The port authority denies that the ferry terminal closed in March.", CLOSED),
    "untrue": ("It is not true that the ferry terminal closed in March.", CLOSED),
    "a myth": ("It is a myth that the ferry terminal closed in March.", CLOSED),
    "no evidence": ("There is no evidence that the ferry terminal closed in March.", CLOSED),
    "alleged": ("Residents allege that the ferry terminal closed in March.", CLOSED),
    "blamed": (
        "Growers blame the new dam for the dry wells in the valley.",
        "The new dam caused the dry wells in the valley.",
    ),
    "said and disputed": (
        "The union says that the ferry terminal closed in March. The operator disputes this.",
        CLOSED,
    ),
    "legend": ("Legend has it that the tower was built by a giant.", "The tower was built by a giant."),
    "supposed": ("The ferry terminal may have closed in March.", CLOSED),
    "asked": ("Inspectors asked whether the ferry terminal closed in March.", CLOSED),
    "a question": ("Did the ferry terminal close in March?", CLOSED),
    "planned": (
        "The council plans to move the archive to the old mill.",
        "The council has moved the archive to the old mill.",
    ),
    "scheduled": ("The bridge is scheduled to open in May.", "The bridge opened in May."),
    "conditional": (
        "If the grant is paid, the museum will open a second hall.",
        "The museum opens a second hall.",
    ),
    "would have been": (
        "Without the strike the ferry would have carried 900 passengers.",
        "The ferry carried 900 passengers.",
    ),
}
ASSERTED = {
    "plain": (f"{CLOSED} Residents had alleged neglect for years.", CLOSED),
    "another clause is supposed": (
        "The ferry terminal closed in March, although it may open again next year.",
        CLOSED,
    ),
    "another sentence asserts it": (
        "Residents claim that the ferry terminal closed in March. In fact, the ferry terminal closed in March.",
        CLOSED,
    ),
    "records show it": ("Port records show that the ferry terminal closed in March.", CLOSED),
    "a ministry reports it": ("The ministry reported that the ferry terminal closed in March.", CLOSED),
    "confirmed": (
        "Residents claimed that the ferry terminal closed in March, and the authority confirmed it.",
        CLOSED,
    ),
    "a question that is answered": ("Did the ferry terminal close in March? Yes, it did.", CLOSED),
    "an instruction": ("If the tap drips, change the washer.", "If the tap drips, change the washer."),
}


def flagged(passage: str, answer: str) -> bool:
    return detect_hallucinations(answer, {"a": passage}, config=VerificationConfig()).is_flagged


@pytest.mark.parametrize(("passage", "answer"), PAIRS.values(), ids=PAIRS)
def test_an_answer_that_says_plainly_what_its_evidence_does_not_assert_is_flagged(passage, answer) -> None:
    assert flagged(passage, answer)


@pytest.mark.parametrize(("passage", "_"), PAIRS.values(), ids=PAIRS)
def test_an_answer_with_the_force_of_its_evidence_is_grounded(passage, _) -> None:
    assert not flagged(passage, passage)


@pytest.mark.parametrize(("passage", "answer"), ASSERTED.values(), ids=ASSERTED)
def test_what_evidence_asserts_grounds_an_answer_whatever_stands_beside_it(passage, answer) -> None:
    assert not flagged(passage, answer)
