"""What evidence supports: sides of verbs, additions, force of statements, what is no claim, seeded edits."""

from __future__ import annotations

import json

from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.quality.edits import edits
from groundwire.checks.support.score import ENOUGH, Force
from groundwire.checks.support.verify import check_answer
from groundwire.cli.main import main
from groundwire.epistemic.plan import plan_response
from groundwire.epistemic.types import VerificationConfig
from groundwire.text.refusals import lack_of
from tests.unit.checks.tables import failing

NOUNS = ["falcons", "ministers", "tourists", "farmers", "pirates", "teachers"]
VERBS = ["praise", "follow", "photograph", "fear"]


@given(st.permutations(NOUNS), st.sampled_from(VERBS))
def test_an_exchange_of_the_sides_of_a_verb_is_hard_and_the_statement_itself_is_not(nouns, verb):
    one, other, place, *_ = nouns
    assume(one != other)
    evidence = [f"In the valley of the {place} the {one} {verb} the {other} every spring."]
    said = check_answer(f"The {one} {verb} the {other} every spring.", evidence)
    swapped = check_answer(f"The {other} {verb} the {one} every spring.", evidence)
    assert not any(claim.hard for claim in said.claims)
    assert any(claim.hard for claim in swapped.claims)


def test_what_is_put_in_the_passive_or_listed_exchanges_nothing():
    cases = [
        ("Two photographs are submitted by applicants.", "Applicants submit two photographs."),
        ("The dish holds salt, pepper and garlic.", "The dish holds garlic, pepper and salt."),
        ("Claims above 500 euros are approved by Ada Lind.", "Ada Lind approves claims above 500 euros."),
    ]  # fmt: skip
    assert [
        (answer, evidence)
        for answer, evidence in cases
        if any(claim.hard for claim in check_answer(answer, [evidence]).claims)
    ] == []


SCHOOL = [
    "Rosa Lind teaches Greek on Mondays; Tom de Vries teaches carpentry on Fridays.",
    "In 2014 Norden Steel bought Ahlen Tools. Pia Ahlen stayed on as chair, her brother Nils Ahlen sued Norden Steel.",
    "The seal is replaced after 900 hours, the belt after 300 hours.",
    "The script moves files from the disk to the vault.",
]


def test_what_the_evidence_says_of_another_name_day_or_measure_is_hard():
    answers = [
        "Tom de Vries teaches Greek on Mondays.", "Rosa Lind teaches Greek on Fridays.",
        "Norden Steel was bought by Ahlen Tools in 2014.", "The seal is replaced after 300 hours.",
        "The script moves files from the vault to the disk.",
    ]  # fmt: skip
    assert [
        answer for answer in answers if not any(claim.hard for claim in check_answer(answer, SCHOOL).claims)
    ] == []


def test_other_orders_of_the_same_statement_are_not_hard():
    answers = [
        "On Mondays, Rosa Lind teaches Greek.", "Ahlen Tools was bought by Norden Steel in 2014.",
        "After 900 hours the seal is replaced.", "The script moves files to the vault from the disk.",
    ]  # fmt: skip
    assert [
        answer for answer in answers if any(claim.hard for claim in check_answer(answer, SCHOOL).claims)
    ] == []


def test_initials_are_no_other_name():
    answer = "RBCs carry oxygen to the tissue."
    evidence = ["Red Blood Cells carry oxygen to the tissue. RBCs are round."]
    assert not any(claim.hard for claim in check_answer(answer, evidence).claims)


LAMP = [
    "The lamp Vega was built in 1998 by the engineer Ada Quist, and its beam reaches 40 metres. It weighs 9 kg."
]


def test_a_part_that_no_passage_has_a_word_of_counts_however_much_is_held_beside_it():
    said = "The lamp Vega was built in 1998 by the engineer Ada Quist, and its beam reaches 40 metres."
    padded = said.replace(", and", ", explodes without warning, and")
    assert check_answer(said, LAMP).support == 1.0
    assert check_answer(padded, LAMP).support < 0.7


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


EVIDENCE = [
    "The ferry to Hven leaves at 9:40 and takes 25 minutes. Bicycles travel free of charge.",
    "The museum on the island shows Brahe's instruments. It closes in October.",
]
QUESTION = "When does the ferry to Hven leave, and may I bring a dog?"


def test_what_frames_greets_asks_again_or_tells_what_the_sources_lack_is_no_claim():
    talks = [
        "Of course! I hope this helps. Feel free to ask if you have any other questions.", "**Summary**",
        "Unfortunately, the provided context does not say whether dogs are allowed on board.",
        "There is no information about dogs in the passages.",
    ]  # fmt: skip
    assert [talk for talk in talks if check_answer(talk, EVIDENCE, question=QUESTION).claims != ()] == []


def test_what_is_planted_in_any_form_is_a_claim_without_support():
    planteds = [
        "# The captain was drunk", "**Bicycles are stolen daily**",
        "What a relief after the sinking of the old ship!",
        "The sources do not mention the price, and the mayor stole the money.",
    ]  # fmt: skip

    def check(planted):
        answer = f"The ferry takes 25 minutes.\n\n{planted}"
        claims = check_answer(answer, EVIDENCE, question=QUESTION).claims
        assert any(claim.support < ENOUGH for claim in claims)

    assert failing(check, planteds) == []


WORDS = st.lists(
    st.sampled_from(["ferry", "island", "captain", "drowned", "october", "mayor", "stole", "bicycles"]),
    min_size=1,
)
OPENERS = ["I hope {0}.", "Feel free to {0}.", "Here is {0}:", "# {0}", "Sure, {0}!", "Thanks, {0}?"]


@given(st.sampled_from(OPENERS), WORDS)
def test_what_is_exempt_holds_no_word_of_its_own(form, words):
    known = " ".join([*EVIDENCE, QUESTION]).lower()
    if not check_answer(form.format(" ".join(words)), EVIDENCE, question=QUESTION).claims:
        assert all(word in known for word in words)


@given(st.integers(1, 4))
def test_words_far_behind_in_a_sentence_are_looked_at(times):
    clause = "the ferry leaves at 9:40 and takes 25 minutes, bicycles travel free of charge, "
    answer = clause * 8 * times + "and vitriol cures seasickness."
    assert any(
        word.text == "vitriol" for claim in check_answer(answer, EVIDENCE).claims for word in claim.uncovered
    )


def test_a_denial_that_is_not_about_sources_reports_no_lack():
    clauses = ["The API does not list users.", "There is no lifeguard.", "It cannot be refunded."]
    assert [clause for clause in clauses if lack_of(clause) is not None] == []


SHELF = {"1": "The shelf is 80 cm wide and carries 30 kg. It is made in Oslo."}


def test_reports_of_what_the_sources_lack_are_no_claims_in_any_wording():
    answers = [
        "Neither passage mentions its price.",
        "Prices do not appear in the passages, so I cannot answer that.",
        "I can't tell from these passages where the shop is; they don't mention one.",
        "The supplied documents leave open whether a lamp is included.",
        "I could not find who designed it.",
    ]  # fmt: skip
    assert [answer for answer in answers if check_answer(answer, SHELF).claims != ()] == []


def test_what_a_report_takes_for_granted_beside_other_claims_is_one():
    answers = [
        "I could not find who stole it. The shelf carries 30 kg.",
        "The passages do not reveal how the designer drowned.", "It does not include screws.",
    ]  # fmt: skip
    assert [answer for answer in answers if check_answer(answer, SHELF).claims[0].support >= 0.9] == []


def test_a_frame_and_a_good_wish_cost_nothing():
    found = check_answer("Going by the supplied documents, the shelf is 80 cm wide. Enjoy your shelf!", SHELF)
    assert [claim.support for claim in found.claims] == [1.0]


def test_an_answer_is_read_as_a_reader_sees_it():
    answers = [
        "The shelf is <b>80</b> cm w&#105;de.", "It carries 3&#48; kg.", "It is made in Os\u200blo.",
        "It is made in ⓄⓢⓛⓄ.",
    ]  # fmt: skip

    def check(answer):
        (claim,) = check_answer(answer, SHELF).claims
        assert claim.text == answer
        assert round(claim.support, 1) == 1.0

    assert failing(check, answers) == []


def test_a_number_in_a_character_reference_is_held_against_the_evidence():
    (claim,) = check_answer("It carries 3&#57; kg.", SHELF).claims
    assert claim.hard
    assert [word.text for word in claim.uncovered] == ["3&#57; kg"]


def test_a_link_that_no_evidence_holds_is_cited_in_vain():
    cases = [
        ("It is made in Oslo, see www.shelf.example/buy.", True), ("https://shelf.example", True),
        ("Its page is https://oslo.example/shelf/.", False),
    ]  # fmt: skip

    def check(answer, invented):
        given = {"1": SHELF["1"] + " Its page: oslo.example/shelf"}
        plan = plan_response(answer, given, VerificationConfig(), ask=False)
        assert any(claim.phantom for claim in plan.claims) + plan.left_out == invented

    assert failing(check, cases) == []


PASSAGES = [
    (
        "The bridge over the Liffey was opened in 1816 by the city. It is not closed at night for walkers. "
        "The toll of the bridge, said Watson, was dropped after 103 years."
    ),
    (
        "The railway to Howth was built by the company between 1846 and 1847. Its director, Mr. Dargan, is buried in "
        "Dublin. The trains are painted green and they leave the station every hour."
    ),
    (
        "The lighthouse on the rock is tended by keepers called Murphy and Doyle. The lamp can reach ships 28 miles "
        "away. No keeper was lost there in the storm of February."
    ),
]


def test_a_quote_stands_in_its_passage_and_its_edit_does_not():
    made = list(edits(PASSAGES))
    assert made
    assert all(edit.quote in edit.passage and edit.edited not in edit.passage for edit in made)
    assert len({edit.kind for edit in made}) > 2


def test_the_same_passages_make_the_same_edits_in_any_order():
    assert list(edits(PASSAGES)) == list(edits(reversed(PASSAGES)))


def test_the_verifier_gives_every_edit_less_support_than_its_quote():
    for edit in edits(PASSAGES):
        quote, edited = (check_answer(text, [edit.passage]).support for text in (edit.quote, edit.edited))
        assert quote == 1.0 > edited
