"""The deterministic verifier: what it makes of claims, and what never changes it (S4-05, S4-06, S4-57)."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.support.score import ENOUGH, TOLERATED, SupportVerdict, support_of
from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.answer import check_values
from groundwire.checks.values.statements import read_statements
from tests.unit.checks.tables import failing

EVIDENCE = (
    "The gateway retries failed requests 3 times. It waits 30 seconds between attempts.",
    "Marie Curie won the Nobel Prize in Physics in 1903. Pierre Curie shared the prize with her.",
    "Some users may export their reports. The scheduler increased the memory limit in March 2021.",
    "Tokens are not stored on disk. The cache is located in Dublin.",
)
SENTENCES = [sentence for text in EVIDENCE for sentence in text.replace(". ", ".\n").split("\n")]
TEXTS = st.lists(
    st.sampled_from([*SENTENCES, "Retries cost 5 euros!", "", "\x00", "\u200b", "| a | b |"]), max_size=5
)
ANY = st.text(max_size=120)


def only(answer, *evidence):
    (claim,) = check_answer(answer, evidence or EVIDENCE).claims
    return claim


def test_what_the_evidence_says_word_by_word_is_fully_supported():
    def check(sentence):
        claim = only(sentence)
        assert (claim.support, claim.verdict, claim.uncovered) == (1.0, SupportVerdict.SUPPORTED, ())

    assert failing(check, SENTENCES) == []


def test_the_same_in_another_form_is_supported():
    claims = [
        "Failed requests are retried 3 times.", "The gateway waits 30 s between attempts.",
        "In 1903, Marie Curie won the Nobel Prize in Physics.",
        "The scheduler's memory limit was increased in March 2021.", "Tokens aren't stored on disk.",
    ]  # fmt: skip
    assert [claim for claim in claims if only(claim).support < ENOUGH] == []


def test_what_the_evidence_does_not_say_or_says_otherwise_is_not_supported():
    claims = [
        "The gateway retries failed requests 5 times.",
        "Marie Curie won the Nobel Prize in Chemistry in 1911.", "Tokens are stored on disk.",
        "The scheduler decreased the memory limit in March 2021.",
        "The gateway encrypts every payload with a rotating key.",
    ]  # fmt: skip
    assert [claim for claim in claims if only(claim).support >= ENOUGH] == []


def test_a_verdict_names_in_which_way_support_is_missing():
    cases = [
        ("Tokens are stored on disk.", SupportVerdict.CONTRADICTED),
        ("The scheduler decreased the memory limit in March 2021.", SupportVerdict.CONTRADICTED),
        ("All users export their reports.", SupportVerdict.EXTRAPOLATED),
        ("The gateway retries failed requests with exponential backoff and jitter.", SupportVerdict.PARTIAL),
        ("Quarterly revenue exceeded analyst forecasts.", SupportVerdict.UNSUPPORTED),
    ]  # fmt: skip
    assert [(claim, got) for claim, verdict in cases if (got := only(claim).verdict) is not verdict] == []


def test_words_that_the_evidence_does_not_hold_are_shown_with_their_places():
    answer = "\u201cNote\u201d: the gateway retries failed requests 7 times in Berlin."
    found = [
        (word.text, answer[word.start : word.end])
        for word in check_answer(answer, EVIDENCE).claims[0].uncovered
    ]
    assert found == [("Note", "Note"), ("7 times", "7 times"), ("Berlin", "Berlin")]


def test_each_claim_names_the_passages_that_bind_its_words_best_first():
    named = dict(zip("abcd", EVIDENCE, strict=True))
    claims = check_answer(
        "The cache is in Dublin. Marie Curie won the prize; the gateway retries requests.", named
    )
    assert [claim.evidence_ids[0] for claim in claims.claims] == ["d", "b", "a"]


def test_talk_headings_and_lead_ins_are_no_claims():
    talks = ["I hope this helps!", "Here is a summary:", "## Conclusion", "Let me know."]
    assert [talk for talk in talks if check_answer(talk, EVIDENCE).claims != ()] == []


def test_a_short_answer_is_a_claim():
    def check(part):
        assert only(part).support < ENOUGH
        assert only(part, f"It is {part} indeed.").support >= ENOUGH

    assert failing(check, ["Paris", "42", "Alan Turing"]) == []


@given(ANY, st.lists(ANY, max_size=3))
def test_any_text_gets_scores_in_range_and_spans_of_its_own(answer, evidence):
    check = check_answer(answer, evidence)
    assert 0 <= check.support <= 1
    for claim in check.claims:
        assert 0 <= claim.support <= 1
        assert claim.text == answer[claim.start : claim.end]
        assert all(word.text == answer[word.start : word.end] for word in claim.uncovered)


@given(TEXTS.map(" ".join), st.permutations(EVIDENCE))
def test_a_permutation_of_the_evidence_changes_nothing(answer, order):
    named = {text: text for text in EVIDENCE}
    assert check_answer(answer, {text: text for text in order}) == check_answer(answer, named)


@given(st.sampled_from(SENTENCES), TEXTS, TEXTS)
def test_evidence_that_says_the_claim_never_lowers_its_support(claim, evidence, other):
    before = check_answer(claim, evidence)
    assert check_answer(claim, [*evidence, " ".join([*other, claim])]).support >= before.support


@given(st.sampled_from(SENTENCES[:4]), TEXTS)
def test_denying_a_claim_never_raises_its_support_where_nothing_denies_it(claim, extra):
    evidence = [text for text in extra if " not " not in text] + [claim]
    denied = f"It is not true that {claim[0].lower()}{claim[1:]}"
    assert check_answer(denied, evidence).support <= check_answer(claim, evidence).support


def test_a_common_word_is_bound_where_the_rare_ones_stand_in_long_evidence_too():
    filler = [f"The gateway retries failed requests, says page{number}." for number in range(2_000)]
    claim = "The gateway retries failed requests at the Dublin site."
    assert check_answer(claim, [*filler, claim.replace("at the", "on the")]).claims[0].support >= ENOUGH


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_support_falls_with_cost(one, other):
    low, high = sorted((one, other))
    assert 0 <= support_of(high) <= support_of(low) <= 1


def test_support_at_the_tolerated_cost_is_just_enough():
    assert support_of(TOLERATED) == pytest.approx(ENOUGH)
    assert support_of(0) == 1


def test_an_invented_name_is_flagged_in_a_long_claim_as_in_a_short_one():
    def check(words):
        said = " ".join(f"step{number}" for number in range(words))
        assert only(f"The gateway of Ulm takes {said}.", f"The gateway takes {said}.").support < ENOUGH

    assert failing(check, [5, 25]) == []


def test_a_long_claim_whose_words_stand_in_several_sentences_keeps_its_support():
    evidence = ["The gateway retries failed requests.", "Its scheduler logs every attempt in Dublin."]
    claim = "The gateway retries failed requests and logs every attempt."
    assert only(claim, " ".join(evidence)).support >= ENOUGH


def test_an_assent_that_the_evidence_does_not_give_costs_a_little():
    plain = only("The cache is located in Dublin, and no tokens are stored on disk.")
    assent = only("Yes, the cache is located in Dublin, and no tokens are stored on disk.")
    assert ENOUGH <= assent.support < plain.support


def test_one_reading_of_texts_serves_the_value_check_and_the_verifier_and_any_number_of_answers():
    times = Counter()

    @cache
    def read(text):
        times[text] += 1
        return read_statements(text)

    named = dict(zip("dcba", EVIDENCE, strict=True))
    answers = [*SENTENCES, "The gateway retries requests 5 times.", "Tokens are stored on disk."]
    for answer in answers:
        assert check_answer(answer, named, read=read) == check_answer(answer, named)
        assert check_values(answer, EVIDENCE, read=read) == check_values(answer, EVIDENCE)
    assert times - Counter({"": 1}) == Counter([*EVIDENCE, *answers]), "and the question, which is empty"


def test_a_short_claim_that_is_half_invented_is_flagged():
    claims = ["The gateway sleeps.", "Failed requests vanish quietly."]
    assert [claim for claim in claims if only(claim).support >= ENOUGH] == []


QUOTED = (
    "The old gateway in the harbour retries failed requests of every client until the scheduler stops them, and "
    "writes what it did into a journal that the operators read in the morning."
)


def test_an_ordinary_word_put_for_another_in_a_quotation_is_flagged_wherever_it_stands():
    def check(place):
        words = QUOTED.split()
        words[place] = "velvet" + "".join(char for char in words[place] if char in ",.")
        claim = only(" ".join(words), f"It rains. {QUOTED} Nobody minds.")
        assert claim.support < ENOUGH
        assert "velvet" in [word.text for word in claim.uncovered]

    assert failing(check, range(len(QUOTED.split()))) == []


def test_a_part_of_a_quotation_in_a_sentence_of_ones_own_is_held_to_its_words_too():
    saids = ["The journal says that {}", "In the morning {}", "So {}"]

    def check(said):
        part = "the old gateway in the harbour retries failed requests of every client until the scheduler stops them."
        evidence = f"{QUOTED} This is what the journal says."
        assert only(said.format(part), evidence).support >= ENOUGH
        for word in ("old", "requests"):
            assert only(said.format(part.replace(word, "velvet")), evidence).support < ENOUGH

    assert failing(check, saids) == []


def test_another_spelling_is_no_word_put_for_another():
    assert only(QUOTED.replace("harbour", "harbor"), QUOTED).support >= ENOUGH


def test_a_word_put_in_is_no_word_put_for_another():
    assert only(QUOTED.replace("the harbour", "the velvet harbour"), QUOTED).support >= ENOUGH


def test_a_word_put_for_one_that_the_claim_says_elsewhere_is_flagged_too():
    edited = QUOTED.replace("old gateway", "client gateway").replace("every client", "every velvet")
    assert only(edited, QUOTED).support < ENOUGH


def test_a_few_words_in_common_around_another_one_are_no_quotation():
    claim = "The scheduler stops failed requests of each client, and the shiny gateway in the harbour writes a journal."
    assert only(claim, QUOTED).support >= ENOUGH


def test_two_values_that_changed_places_in_a_quotation_are_flagged():
    quoted = "The gateway of the harbour retries failed requests 21 times within the hour, and waits 64 seconds then."
    edited = quoted.replace("64", "#").replace("21", "64").replace("#", "21")
    assert only(edited, quoted).verdict is SupportVerdict.CONTRADICTED


def test_a_word_of_another_sentence_in_a_quotation_is_flagged_too():
    edited = QUOTED.replace("harbour", "kitchen")
    assert only(edited, f"{QUOTED} The kitchen is closed.").support < ENOUGH


def test_a_quotation_shortened_or_with_a_word_of_the_same_meaning_or_in_another_form_is_supported():
    cases = [("old ", ""), ("stops", "halts"), ("journal", "journals"), ("the morning", "the mornings")]
    assert [(old, new) for old, new in cases if only(QUOTED.replace(old, new), QUOTED).support < ENOUGH] == []


def test_one_other_word_in_a_sentence_put_freely_is_no_replacement():
    claim = (
        "Until the scheduler stops them, failed requests of clients are eagerly retried by the old gateway."
    )
    assert only(claim, QUOTED).support >= ENOUGH


def test_two_function_words_in_one_are_no_content():
    saids = ["It's located in Dublin.", "That's located in Dublin.", "They're located in Dublin."]
    assert [said for said in saids if [word.text for word in only(said).uncovered] != []] == []


def test_an_appraisal_is_no_claim_beside_one_and_one_by_itself():
    talks = ["That's true.", "I agree.", "That is really interesting!"]

    def check(talk):
        claims = check_answer(f"{talk} {SENTENCES[0]}", EVIDENCE).claims
        assert [claim.text for claim in claims] == [SENTENCES[0]]
        assert len(check_answer(talk, EVIDENCE).claims) == 1

    assert failing(check, talks) == []


def test_a_denied_appraisal_is_a_claim():
    assert len(check_answer(f"That is not true. {SENTENCES[0]}", EVIDENCE).claims) == 2


def test_a_denial_weighs_less_where_the_evidence_speaks_of_a_part_of_the_claim_alone():
    claim = "The scheduler stores tokens of a client on the disk"
    claims = [f"{claim}.", f"{claim}, records, offsets, payloads and exports."]
    denying, plain = "The scheduler never stores tokens of a client on the disk.", f"{claim}."
    found = [only(text, denying) for text in claims]
    same, part = (other.cost - only(text, plain).cost for other, text in zip(found, claims, strict=True))
    assert same > 2 * part > 0
    assert {other.verdict for other in found} == {SupportVerdict.CONTRADICTED}
