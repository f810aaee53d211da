"""Who does what to whom: the same words, with the two sides of a verb exchanged."""

from hypothesis import assume, given
from hypothesis import strategies as st

from groundwire.checks.support.verify import check_answer

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
