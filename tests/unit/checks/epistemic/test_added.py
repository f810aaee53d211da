"""What a claim adds to its evidence, moves within it or exchanges, in few words: an answer with it is not approved."""

import json

from click.testing import CliRunner

from groundwire.checks.support.score import ENOUGH
from groundwire.checks.support.verify import check_answer
from groundwire.cli.main import main
from tests.unit.checks.tables import failing

FERRY = {
    "one": "The ferry Aurora sails to Visk in 2 hours. The captain, Jonas Berg, has commanded her since 2015. The ship "
    "holds a bar, a kiosk, a sauna and a nursery. The upper deck is free; a blue flag means delay.",
    "two": "The mates, Lena Voss and Per Holt, sell tickets for 45 pounds. The owner keeps a third of the price. A red "
    "flag means that the harbour is closed to all ships in the morning.",
}


def holds(answer: str) -> bool:
    found = check_answer(answer, FERRY)
    return found.support >= ENOUGH and not any(claim.hard for claim in found.claims)


def test_what_an_answer_adds_or_moves_is_held():
    answers = [
        "The ship holds a bar, a kiosk, a casino, a sauna and a nursery.",
        "The ferry Aurora sails to Visk in 2 hours with Erik Lund.",
        "Lund commanded the ferry Aurora since 2015.",
        "A blue flag means that the harbour is closed to all ships in the morning.",
    ]  # fmt: skip
    assert [answer for answer in answers if holds(answer)] == []


def test_two_words_exchanged_in_a_quotation_are_hard():
    evidence = ["The clerks are paid with silver coins in late spring and with copper coins in early autumn."]
    exchanged = "The clerks are paid with copper coins in late spring and with silver coins in early autumn."
    assert any(claim.hard for claim in check_answer(exchanged, evidence).claims)


def test_what_says_the_same_in_another_form_holds():
    answers = [
        "The owner keeps one third of the price.",
        "The first passage notes that Jonas Berg has commanded the ferry since 2015.",
        "The ship holds a sauna, a nursery, a kiosk and a bar.",
        "Here is a brief overview of the facts:\n- The upper deck is free.",
    ]  # fmt: skip
    assert [answer for answer in answers if not holds(answer)] == []


def test_a_name_of_neither_evidence_nor_question_is_hard_and_an_adjective_of_one_is_not():
    evidence = ["The embassy of Libya moved to a house at the river last year."]
    assert not any(
        claim.hard
        for claim in check_answer("The house of the Libyan embassy is at the river.", evidence).claims
    )
    assert any(
        claim.hard
        for claim in check_answer("The embassy moved to a house in Bergen last year.", evidence).claims
    )
    asked = check_answer(
        "The embassy in Bergen moved to a house.", evidence, question="Is the embassy in Bergen?"
    )
    assert not any(claim.hard for claim in asked.claims)


def test_words_of_the_question_and_values_that_look_alike_approve_nothing():
    cases = [
        ("Is it safe to eat the berries?", "It is unsafe to eat the berries.", "| Safe to eat | Yes |"),
        ("What rose?", "Rents rose in a quarter.", "Rents rose by 25 %."),
        ("Who teaches?", "The school teaches fifth and sixth graders.", "The school teaches six sixth graders."),
        ("Is it safe?", "The report denies that the pool is safe.", "The report confirms that the pool is safe."),
        ("What does it give?", "The mill gives backup power.", "The mill gives no backup power."),
    ]  # fmt: skip

    def check(question, evidence, answer):
        opening = "The museum lies by the river."
        record = {
            "response_id": "r",
            "user_id": "u",
            "query": question,
            "answer": f"{opening} {answer}",
            "chunks": [
                {
                    "chunk_id": "a",
                    "file": "a",
                    "content": f"{opening} {evidence}",
                    "start_line": 1,
                    "end_line": 1,
                }
            ],
        }
        told = CliRunner().invoke(main, ["check", "-"], input=json.dumps(record))
        assert json.loads(told.stdout)["verdict"] == "review"

    assert failing(check, cases) == []
