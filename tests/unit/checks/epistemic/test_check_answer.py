"""The deterministic verifier: what it makes of claims, and what never changes it (S4-05, S4-06, S4-57)."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.reading.statements import read_statements
from groundwire.checks.support.score import ENOUGH, TOLERATED, SupportVerdict, support_of
from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.answer import check_values
from tests.unit.checks.tables import differing, failing

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


def test_the_same_in_another_form_is_supported_and_what_evidence_does_not_say_or_says_otherwise_is_not():
    several = "The gateway retries failed requests. Its scheduler logs every attempt in Dublin."
    cases = [
        ("Failed requests are retried 3 times.", EVIDENCE, True),
        ("The gateway waits 30 s between attempts.", EVIDENCE, True),
        ("In 1903, Marie Curie won the Nobel Prize in Physics.", EVIDENCE, True),
        ("The scheduler's memory limit was increased in March 2021.", EVIDENCE, True),
        ("Tokens aren't stored on disk.", EVIDENCE, True),
        ("The gateway retries failed requests and logs every attempt.", [several], True),
        ("The gateway retries failed requests 5 times.", EVIDENCE, False),
        ("Marie Curie won the Nobel Prize in Chemistry in 1911.", EVIDENCE, False),
        ("Tokens are stored on disk.", EVIDENCE, False),
        ("The scheduler decreased the memory limit in March 2021.", EVIDENCE, False),
        ("The gateway encrypts every payload with a rotating key.", EVIDENCE, False),
        # half invented
        ("The gateway sleeps.", EVIDENCE, False), ("Failed requests vanish quietly.", EVIDENCE, False),
        # a word put for another in a quotation: one that the claim says elsewhere, or another sentence
        (QUOTED.replace("old gateway", "client gateway").replace("every client", "every velvet"), [QUOTED], False),
        (QUOTED.replace("harbour", "kitchen"), [f"{QUOTED} The kitchen is closed."], False),
        # no word put for another: another spelling, a word put in, or left out, or of the same meaning, another form
        (QUOTED.replace("harbour", "harbor"), [QUOTED], True),
        (QUOTED.replace("the harbour", "the velvet harbour"), [QUOTED], True),
        *((QUOTED.replace(old, new), [QUOTED], True) for old, new in (
            ("old ", ""), ("stops", "halts"), ("journal", "journals"), ("the morning", "the mornings"),
        )),
        # put freely
        ("The scheduler stops failed requests of each client, and the shiny gateway in the harbour writes a journal.",
         [QUOTED], True),
        ("Until the scheduler stops them, failed requests of clients are eagerly retried by the old gateway.",
         [QUOTED], True),
    ]  # fmt: skip
    assert differing(lambda claim, evidence: only(claim, *evidence).support >= ENOUGH, cases) == []


def test_a_verdict_names_in_which_way_support_is_missing_and_words_their_places():
    # a verdict names in which way support is missing
    cases = [
        ("Tokens are stored on disk.", SupportVerdict.CONTRADICTED),
        ("The scheduler decreased the memory limit in March 2021.", SupportVerdict.CONTRADICTED),
        ("All users export their reports.", SupportVerdict.EXTRAPOLATED),
        ("The gateway retries failed requests with exponential backoff and jitter.", SupportVerdict.PARTIAL),
        ("Quarterly revenue exceeded analyst forecasts.", SupportVerdict.UNSUPPORTED),
    ]  # fmt: skip
    assert [(claim, got) for claim, verdict in cases if (got := only(claim).verdict) is not verdict] == []
    # words that the evidence does not hold are shown with their places
    answer = "\u201cNote\u201d: the gateway retries failed requests 7 times in Berlin."
    found = [
        (word.text, answer[word.start : word.end])
        for word in check_answer(answer, EVIDENCE).claims[0].uncovered
    ]
    assert found == [("Note", "Note"), ("7 times", "7 times"), ("Berlin", "Berlin")]
    shortened = ["It's located in Dublin.", "That's located in Dublin.", "They're located in Dublin."]
    assert [said for said in shortened if only(said).uncovered != ()] == []
    # each claim names the passages that bind its words best first
    named = dict(zip("abcd", EVIDENCE, strict=True))
    claims = check_answer(
        "The cache is in Dublin. Marie Curie won the prize; the gateway retries requests.", named
    )
    assert [claim.evidence_ids[0] for claim in claims.claims] == ["d", "b", "a"]


def test_a_short_answer_is_a_claim_and_an_appraisal_beside_one_is_none():
    # a short answer is a claim
    def check(part):
        assert only(part).support < ENOUGH
        assert only(part, f"It is {part} indeed.").support >= ENOUGH

    assert failing(check, ["Paris", "42", "Alan Turing"]) == []
    # an appraisal is no claim beside one and one by itself
    talks = ["That's true.", "I agree.", "That is really interesting!"]

    def check(talk):
        claims = check_answer(f"{talk} {SENTENCES[0]}", EVIDENCE).claims
        assert [claim.text for claim in claims] == [SENTENCES[0]]
        assert len(check_answer(talk, EVIDENCE).claims) == 1

    assert failing(check, talks) == []
    assert len(check_answer(f"That is not true. {SENTENCES[0]}", EVIDENCE).claims) == 2


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
    assert (support_of(0), support_of(TOLERATED)) == (1, pytest.approx(ENOUGH))


def test_what_costs_support_in_long_and_short_claims():
    # an invented name is flagged in a long claim as in a short one
    def check(words):
        said = " ".join(f"step{number}" for number in range(words))
        assert only(f"The gateway of Ulm takes {said}.", f"The gateway takes {said}.").support < ENOUGH

    assert failing(check, [5, 25]) == []
    # an assent that the evidence does not give costs a little
    plain = only("The cache is located in Dublin, and no tokens are stored on disk.")
    assent = only("Yes, the cache is located in Dublin, and no tokens are stored on disk.")
    assert ENOUGH <= assent.support < plain.support
    # a denial weighs less where the evidence speaks of a part of the claim alone
    claim = "The scheduler stores tokens of a client on the disk"
    claims = [f"{claim}.", f"{claim}, records, offsets, payloads and exports."]
    denying, plain = "The scheduler never stores tokens of a client on the disk.", f"{claim}."
    found = [only(text, denying) for text in claims]
    same, part = (other.cost - only(text, plain).cost for other, text in zip(found, claims, strict=True))
    assert same > 2 * part > 0
    assert {other.verdict for other in found} == {SupportVerdict.CONTRADICTED}
    # two values that changed places in a quotation are flagged
    quoted = "The gateway of the harbour retries failed requests 21 times within the hour, and waits 64 seconds then."
    edited = quoted.replace("64", "#").replace("21", "64").replace("#", "21")
    assert only(edited, quoted).verdict is SupportVerdict.CONTRADICTED


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


QUOTED = (
    "The old gateway in the harbour retries failed requests of every client until the scheduler stops them, and "
    "writes what it did into a journal that the operators read in the morning."
)


def test_a_word_put_for_another_in_a_quotation_is_flagged():
    # an ordinary word put for another in a quotation is flagged wherever it stands
    def check(place):
        words = QUOTED.split()
        words[place] = "velvet" + "".join(char for char in words[place] if char in ",.")
        claim = only(" ".join(words), f"It rains. {QUOTED} Nobody minds.")
        assert claim.support < ENOUGH
        assert "velvet" in [word.text for word in claim.uncovered]

    assert failing(check, range(len(QUOTED.split()))) == []
    # a part of a quotation in a sentence of ones own is held to its words too
    saids = ["The journal says that {}", "In the morning {}", "So {}"]

    def check(said):
        part = "the old gateway in the harbour retries failed requests of every client until the scheduler stops them."
        evidence = f"{QUOTED} This is what the journal says."
        assert only(said.format(part), evidence).support >= ENOUGH
        for word in ("old", "requests"):
            assert only(said.format(part.replace(word, "velvet")), evidence).support < ENOUGH

    assert failing(check, saids) == []
