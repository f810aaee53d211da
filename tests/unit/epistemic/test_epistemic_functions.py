"""The functions and the report: rules alone, and with a model that is counted; the checkpoint behind a generator.

Requirements S4-01..S4-15, S4-18..S4-47, S4-55, S4-56, S4-60, C-57..C-63, C-68.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groundwire.checks.marks import Citable
from groundwire.epistemic.claims import is_critical_text, is_sampled
from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import ClaimVerification, VerificationConfig, evidence_gap_bits, gap_band
from groundwire.gate.response_checks import check_claims, evidence_of
from groundwire.library.epistemic import (
    audit_reasoning,
    detect_hallucinations,
    evidence_dependence,
    verify_claim,
    verify_response,
)
from groundwire.messages.records import LlmResponse

from .clients import ALONE, FULL, Judge

CONTEXT = {
    "retries": "The gateway retries failed requests 3 times and waits 30 seconds between attempts.",
    "cache": "Tokens are not stored on disk. The cache of the gateway is located in Dublin.",
}
RESPONSE = (
    "The gateway retries failed requests 3 times. It waits 30 seconds between attempts. "
    "Tokens are stored on disk. The cache is located in Dublin."
)


class Stub:
    def __init__(self, reply="1.0 stated", prior="0.1 unknown"):
        self.reply, self.prior = reply, prior
        self.prompts = []

    async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
        self.prompts.append(prompt)
        reply = self.reply if '"evidence"' in prompt else self.prior
        if isinstance(reply, Exception):
            raise reply
        return reply


def claim(support=0.9, bits=-1.0, reason=None, **other):
    given = {"claim_id": "c", "claim_text": "one two", "evidence_ids": [], "evidence_support": support}
    given |= {"evidence_dependence": 1.0, "consistency_score": 1.0, "confidence_justified": True}
    given |= {"evidence_gap_bits": bits, "is_flagged": reason is not None, "flag_reason": reason}
    return ClaimVerification(**(given | other))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_gap_is_required_less_observed_bits_and_more_support_never_means_a_larger_one(one, other, prior):
    low, high = sorted((one, other))
    assert evidence_gap_bits(high, prior) <= evidence_gap_bits(low, prior)
    for p1, p0, bits in [(0.99, 0.02, -0.43), (0.7, 0.02, 2.0), (0.01, 0.9, 3.23), (0.95, 0.02, 0.0)]:
        assert evidence_gap_bits(p1, p0) == pytest.approx(bits, abs=0.005)


def test_bands_of_gaps_have_fixed_edges_and_a_gap_is_critical_above_the_threshold_but_for_independence():
    bands = {-0.01: "supported", 0: "minor", 2: "minor", 2.01: "suspicious", 10: "suspicious"}
    bands[10.01] = "likely_hallucination"
    assert {bits: gap_band(bits) for bits in bands} == bands
    for bits, reason in [(2.0, "unsupported"), (2.01, "unsupported"), (9.0, "evidence_independent")]:
        report = build_report("r", [claim(0.1, bits, reason)], VerificationConfig(on_failure="retry"))
        assert report.has_critical_gaps is report.should_retry is (bits == 2.01)


def test_a_number_out_of_range_or_an_argument_of_another_type_is_refused_by_name():
    for bad in [-0.1, 1.1, math.nan, True]:
        with pytest.raises(ValueError, match="p1"):
            evidence_gap_bits(bad)
    for bad in [-0.01, 1.01, math.nan]:
        for name in ["evidence_support", "evidence_dependence", "consistency_score"]:
            with pytest.raises(ValidationError, match=name):
                claim(**{name: bad})
    for bad in ["0.9", None, math.nan, -0.1, 1.1, True]:
        with pytest.raises(ValueError, match=r"^threshold must be"):
            verify_claim("a", "a", bad)
    for call, name in [
        (lambda: verify_claim("a", {"a": 7}), "evidence 'a'"),
        (lambda: verify_claim("a", None), "evidence"),
        (lambda: verify_claim("a", b"text"), "evidence"),
        (lambda: verify_claim("a", ["text", 7]), "evidence 2"),
        (lambda: verify_claim(None, "text"), "claim"),
        (lambda: detect_hallucinations("a", None), "context"),
        (lambda: detect_hallucinations("a", ["text"]), "context"),
        (lambda: detect_hallucinations("a", {1: "text"}), "id 1 of context"),
        (lambda: detect_hallucinations("a", {"a": None}), "context 'a'"),
        (lambda: audit_reasoning(None, {}), "steps"),
        (lambda: audit_reasoning({"claim": "a", "cites": []}, {}), "steps"),
        (lambda: audit_reasoning([], [("a", "text")]), "sources"),
    ]:
        with pytest.raises(TypeError, match=f"^{name}: "):
            call()


def test_a_claim_is_flagged_below_the_support_threshold_and_not_at_it():
    text, evidence = "The gateway retries requests twice.", "The gateway retries failed requests."
    support = verify_claim(text, evidence).evidence_support
    at, above = (VerificationConfig(support_threshold=value) for value in (support, min(1, support + 0.01)))
    assert not verify_claim(text, evidence, config=at).is_flagged
    assert verify_claim(text, evidence, config=above).is_flagged

    for text, evidence in (("", "text"), ("Retries are on.", [])):
        assert verify_claim(text, evidence).flag_reason == "unsupported"
    found = verify_claim("The cache is located in Dublin.", list(CONTEXT.values()))
    assert (found.evidence_ids, found.is_flagged) == (["2"], False)


def test_each_step_of_reasoning_is_held_against_what_it_cites_alone():
    cited = ["cache"], ["retries"], ["cache", "nowhere"], []
    steps = [{"claim": "The cache is located in Dublin.", "cites": cites} for cites in cited]
    stub = Stub()
    found = audit_reasoning(steps, CONTEXT, client=stub, config=FULL)
    assert [step.flag_reason for step in found][0::2] == [None, "phantom_citation"]
    assert found[1].is_flagged
    assert found[3].flag_reason == "unsupported"
    assert [step.evidence_ids for step in found] == [step["cites"] for step in steps]
    # twice with evidence, once without; neither phantom nor uncited is asked about
    assert len(stub.prompts) == 3
    for step in ["text", {"cites": []}, {"claim": 5}, {"claim": "a", "cites": "b"}]:
        with pytest.raises(ValueError, match="step 2"):
            audit_reasoning([{"claim": "a", "cites": []}, step], {})


def test_a_report_counts_claims_and_names_gaps():
    report = detect_hallucinations(RESPONSE, CONTEXT)
    assert report.total_claims == 4
    assert [gap.gap_type for gap in report.gaps] == ["contradicted"]
    assert report.gaps[0].claim_text == "Tokens are stored on disk."
    assert report.max_gap_bits == report.gaps[0].gap_bits > 2
    assert report.has_critical_gaps
    assert not report.should_retry
    assert "Tokens are stored on disk." in report.retry_guidance

    claims = [claim(0.9, claim_text="one two three"), claim(0.5, claim_text="one")]
    mean = build_report("r", claims, FULL).overall_confidence
    assert mean == pytest.approx((3 * 0.9 + 0.5) / 4), "weighted by words"


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.text(max_size=80), max_size=3))
def test_whatever_is_said_counts_add_up_and_scores_stay_in_range(response, context):
    report = detect_hallucinations(response, context)
    assert report.verified_claims + report.flagged_claims + report.unverified_claims == report.total_claims
    assert 0 <= report.overall_confidence <= 1
    assert len(report.gaps) == report.flagged_claims


def test_a_model_lowers_a_verdict_and_raises_it_or_shrinks_a_gap_only_where_configured():
    doubtful = Stub("0.2 not stated")
    assert verify_claim(CONTEXT["retries"], CONTEXT["retries"], client=doubtful).evidence_support == 0.2
    sure = Stub("0.99 stated")
    false = "Tokens are stored on a disk in the cellar."
    assert verify_claim(false, CONTEXT["retries"], client=sure).is_flagged
    clearing = VerificationConfig(model_scope="all", model_may_clear=True)
    assert not verify_claim(false, CONTEXT["retries"], client=sure, config=clearing).is_flagged
    # C-59: what is likely without evidence is less of a surprise, but the evidence says otherwise all the same
    wrong = CONTEXT["retries"].replace("3 times", "5 times")
    rules = verify_claim(wrong, CONTEXT["retries"])
    sure = Stub("0.99", "0.9")
    held = verify_claim(wrong, CONTEXT["retries"], client=sure)
    assert held.evidence_gap_bits == rules.evidence_gap_bits > 2
    assert held.prior_support == 0.9
    clearing = VerificationConfig(model_scope="all", model_may_clear=True)
    assert verify_claim(wrong, CONTEXT["retries"], client=sure, config=clearing).evidence_gap_bits < 2
    unsure = verify_claim(CONTEXT["retries"], CONTEXT["retries"], client=Stub("0.8", "0.3"))
    # of what the rules do not flag the measured one
    assert unsure.evidence_gap_bits == evidence_gap_bits(0.8, 0.3)


def test_dependence_is_what_the_evidence_adds_and_below_its_threshold_flagged():
    text = CONTEXT["retries"]
    same = verify_claim(text, text, client=Stub("0.9", "0.7"))
    assert (same.evidence_dependence, same.flag_reason) == (pytest.approx(0.2), "evidence_independent")
    assert verify_claim(text, text, client=Stub("0.9", "0.6")).flag_reason is None
    assert same.prior_support == 0.7
    question = "Where is the cache of the gateway?"
    assert evidence_dependence(question, "It is located in Dublin.", CONTEXT["cache"]) == 1
    assert evidence_dependence(question, "It is on the moon.", CONTEXT["cache"]) == 0
    assert evidence_dependence(question, "The cache of the gateway.", CONTEXT["cache"]) == 0

    # S4-07, S4-18: with a model, one less the similarity of its answers
    question, answer = "Where is it?", "It is located in Dublin."
    assert evidence_dependence(question, answer, "text", client=Stub(prior=answer)) == 0
    assert evidence_dependence(question, answer, "text", client=Stub(prior="Nobody can tell.")) == 1
    with pytest.raises(RuntimeError):
        evidence_dependence(question, answer, "text", client=Stub(prior=OSError()))


async def test_the_same_claim_and_evidence_are_asked_about_once_also_inside_a_running_loop():
    stub = Stub()
    first = detect_hallucinations(RESPONSE, CONTEXT, client=stub, config=FULL)
    asked = len(stub.prompts)
    second = detect_hallucinations(RESPONSE, CONTEXT, client=stub, config=FULL)
    assert (asked, len(stub.prompts)) == (8, 8)
    assert second.claims == first.claims
    assert (second.cost_usd, all(call.cached for call in second.calls)) == (0, True)


def test_beyond_the_limit_of_claims_below_a_hundred_characters_and_without_evidence_no_model_is_asked():
    config = VerificationConfig(model_scope="all", mode="full", max_claims_per_response=3)
    report = detect_hallucinations(RESPONSE, CONTEXT, client=Stub(), config=config)
    assert [found.method for found in report.claims] == ["model", "model", "model", "deterministic"]
    assert (report.model_claims, report.model_truncated, report.total_claims) == (3, 1, 4)
    for length, asked in [(99, 0), (100, 2)]:
        stub = Stub()
        response = "The gateway retries failed requests " + "very " * 20
        detect_hallucinations(response[: length - 1] + ".", CONTEXT, client=stub, config=FULL)
        assert len(stub.prompts) == asked
    stub = Stub()
    assert detect_hallucinations(RESPONSE, {}, client=stub, config=FULL).flagged_claims == 4
    assert stub.prompts == []


def test_the_sample_is_about_its_share_and_always_the_same():
    ids = [f"r{number}#1" for number in range(10_000)]
    share = [is_sampled(name, 0.3) for name in ids]
    assert 0.27 <= sum(share) / len(ids) <= 0.33
    assert share == [is_sampled(name, 0.3) for name in ids] != [is_sampled(name, 0.3, "seed") for name in ids]


def test_critical_only_asks_about_markers_numbers_citations_negations_and_steps_called_critical():
    for text in ["It may retry.", "It takes 3 s.", "It retries [source:1].", "It never retries."]:
        assert is_critical_text(text)
    assert not is_critical_text("The gateway retries.")
    model = Stub()
    config = VerificationConfig(model_scope="all", mode="critical_only", evidence_scrubbing=False)
    step = {"claim": "The cache of the gateway is located in Dublin.", "cites": ["cache"]}
    steps = [step | {"critical": critical} for critical in (False, True)]
    audit_reasoning(steps[:1], CONTEXT, client=model, config=config)
    assert not model.prompts
    audit_reasoning(steps, CONTEXT, client=model, config=config)
    assert len(model.prompts) == 1
    with pytest.raises(ValueError, match="step 1: critical: must be true or false"):
        audit_reasoning([{"claim": "It is.", "cites": [], "critical": 1}], CONTEXT)


GOOD = f"{CONTEXT['retries']} It waits 30 seconds."
BAD = GOOD.replace("3 times", "9 times")


class Generator:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, query, flagged):
        self.asked.append((query, [claim.claim_text for claim in flagged]))
        return self.answers.pop(0)


async def test_what_is_skipped_comes_back_as_it_is_without_a_model_call():
    for query, answer, context, options, why in [
        *(("q", nothing, CONTEXT, {}, "no_answer") for nothing in (None, " ")),
        ("q", BAD, CONTEXT, {"enabled": False}, "disabled"),
        ("/simple q", BAD, CONTEXT, {}, "bypassed"),
        ("q", BAD, {}, {}, "no_evidence"),
    ]:
        client, generator = Stub(), Generator()
        config = VerificationConfig(model_scope="all", mode="full", on_failure="retry", **options)
        given = {"client": client, "config": config, "regenerate": generator}
        found = await verify_response(query, answer, context, **given)
        assert (found.answer, found.report, found.retries, found.skipped) == (answer, None, 0, why)
        assert (client.prompts, generator.asked) == ([], [])
    found = await verify_response("q", "It retries 9 times.", CONTEXT, client=client, config=FULL)
    assert (found.skipped, found.report.flagged_claims) == ("too_short", 1), "checked by the rules alone"
    assert client.prompts == []


async def test_flagged_claims_are_annotated_where_they_stand_or_another_answer_is_asked_for_until_one_holds():
    generator = Generator(BAD, GOOD)
    config = VerificationConfig(on_failure="retry")
    found = await verify_response("q", BAD, CONTEXT, config=config, regenerate=generator)
    assert (found.answer, found.retries, found.report.has_critical_gaps) == (GOOD, 2, False)
    assert generator.asked == [("q", [BAD[: BAD.index(" It")]])] * 2
    # S4-31: retries end at their limit
    generator = Generator(BAD, BAD, GOOD)
    found = await verify_response("q", BAD, CONTEXT, config=config, regenerate=generator)
    assert (found.retries, len(generator.answers)) == (2, 1)
    assert "[contradicted]" in found.answer
    # under ask the answer is left to a person
    found = await verify_response("q", BAD, CONTEXT, config=VerificationConfig(on_failure="ask"))
    assert (found.answer, found.report.flagged_claims) == (BAD, 1)
    found = await verify_response("q", BAD, CONTEXT)
    first, rest = BAD.split(". ", 1)
    assert found.answer == f"{first}. [contradicted] {rest}"
    assert (await verify_response("q", GOOD, CONTEXT)).answer == GOOD


def test_defaults_are_the_published_ones():
    config = VerificationConfig()
    assert (config.enabled, config.support_threshold, config.dependence_threshold) == (True, 0.7, 0.3)
    assert (config.gap_threshold_bits, config.on_failure, config.max_retries) == (2.0, "flag", 2)
    assert (config.input_price, config.output_price) == (0.25, 1.25)
    assert (config.verification_model, config.max_claims_per_response) == ("haiku", 10)
    assert (config.parallel_verification, config.mode, config.sample_rate) == (True, "sample", 0.3)
    for wrong in [{"support_threshold": 1.1}, {"on_failure": "block"}, {"sample_rate": -1}, {"unknown": 1}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            VerificationConfig(**wrong)


DOCUMENTS = {"doc-1": "The gateway retries failed requests 3 times.", "doc-2": "The cache lives in Dublin."}
RETRIES = "The gateway retries failed requests 3 times"


def test_a_citation_is_missed_where_it_says_that_it_is_one_or_looks_like_an_id():
    for text, ids, missing in [
        ("a [doc-9]", ["doc-1"], ("doc-9",)),
        ("a[DOC-9].", ["doc-1"], ("DOC-9",)),
        ("a [doc-1]", ["doc-1"], ()),
        ("a [Doc-1]", ["doc-1"], ()),
        ("a [doc-9, doc-1; doc-8] b [doc-9]", ["doc-1"], ("doc-9", "doc-8")),
        ("a [source: limits]", ["retries"], ("limits",)),
        ("a [Ref: `retries`]", ["retries"], ()),
        ("a [source:2] [source:3] [source:0]", ["a", "b"], (3, 0)),
        ("a [source:7]", ["7"], ()),
        ("a [limits.md]", ["docs/retries.md"], ("limits.md",)),
        ("a [1] b [3]", ["10", "11"], (3,)),
        ("a [retries.md]", ["docs/retries.md"], ()),
        ("a [3]", ["1", "2"], (3,)),
        ("a [3]", ["a", "b"], (3,)),
        ("a [2024]", ["1", "2"], ()),
        ("a [citation needed] [sic] [...] [x](http://x)", ["doc-1"], ()),
        ("a [] [ ] [source:]", ["doc-1"], ()),
    ]:
        assert Citable(ids, len(ids)).missing(text) == missing


@given(st.text(alphabet="ab1[]:;, \n-`source", max_size=80), st.sets(st.text("ab1-", min_size=1, max_size=4)))
def test_nothing_that_is_there_is_ever_missed(text, ids):
    missing = Citable(ids, len(ids)).missing(text)
    assert not {str(name).casefold() for name in missing} & {name.casefold() for name in ids}
    assert len(set(missing)) == len(missing)


def test_a_claim_that_cites_what_is_not_there_is_a_phantom_and_nobody_is_asked_about_it():
    """S4-06, S4-24."""
    judge = Judge()
    text = f"{RETRIES} [doc-9]. The cache lives in Dublin [doc-2]. {RETRIES} [doc-1]."
    report = detect_hallucinations(text, DOCUMENTS, client=judge, config=ALONE)
    assert [claim.flag_reason for claim in report.claims] == ["phantom_citation", None, None]
    assert report.claims[0].evidence_ids == ["doc-1", "doc-9"]
    assert report.gaps[0].gap_type == "phantom_citation"
    assert report.gaps[0].suggested_action == "Cite a source that exists."
    assert len(judge.requests) == 2
    for answer in ["[doc-9] says so.", "I don't know.\n\nSources: rates.pdf"]:
        assert detect_hallucinations(answer, DOCUMENTS).is_flagged, "a phantom beside what is no claim"


def test_at_the_gate_chunks_may_be_cited_by_number_id_and_file():
    context, lines = {"context": DOCUMENTS}, {"start_line": 1, "end_line": 1}
    brought = [
        {"chunk_id": name, "file": f"docs/{name}.md", "content": DOCUMENTS[name]} for name in DOCUMENTS
    ]
    chunks = {"chunks": [each | lines for each in brought]}
    for cited, brought, reason in [
        ("[doc-9]", context, "phantom_citation"),
        ("[source: docs/missing.md]", chunks, "phantom_citation"),
        ("[source: doc-1.md:3-7, docs/doc-2.md#L4]", chunks, None),
        ("[source:9]", chunks, "phantom_citation"),
        ("[rates.pdf#page=4]", chunks, "phantom_citation"),
        ("[doc-1.md#page=4]", chunks, None),
    ]:
        record = {"response_id": "r", "user_id": "u", "answer": f"{RETRIES} {cited}."} | brought
        response = LlmResponse.model_validate(record)
        report = check_claims(response, evidence_of(response), VerificationConfig())
        assert [claim.flag_reason for claim in report.report.claims] == [reason]
