"""What of an answer is no claim, and what only looks like it."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.support.score import ENOUGH
from groundwire.checks.support.verify import check_answer
from groundwire.epistemic.plan import plan_response
from groundwire.epistemic.types import VerificationConfig
from groundwire.text.refusals import lack_of
from tests.unit.checks.tables import failing

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
        assert any(draft.phantom for draft in plan.drafts) + plan.left_out == invented

    assert failing(check, cases) == []
