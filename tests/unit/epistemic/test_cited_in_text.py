"""What an answer cites in brackets is there, or the claim is flagged without asking anybody."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.marks import Citable
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate.response_checks import check_claims, evidence_of
from groundwire.library.epistemic import detect_hallucinations
from groundwire.messages.records import LlmResponse

from .clients import ALONE, Judge

CONTEXT = {"doc-1": "The gateway retries failed requests 3 times.", "doc-2": "The cache lives in Dublin."}
TEXT = "The gateway retries failed requests 3 times"


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
    text = f"{TEXT} [doc-9]. The cache lives in Dublin [doc-2]. {TEXT} [doc-1]."
    report = detect_hallucinations(text, CONTEXT, client=judge, config=ALONE)
    assert [claim.flag_reason for claim in report.claims] == ["phantom_citation", None, None]
    assert report.claims[0].evidence_ids == ["doc-1", "doc-9"]
    assert report.gaps[0].gap_type == "phantom_citation"
    assert report.gaps[0].suggested_action == "Cite a source that exists."
    assert len(judge.requests) == 2
    for answer in ["[doc-9] says so.", "I don't know.\n\nSources: rates.pdf"]:
        assert detect_hallucinations(answer, CONTEXT).is_flagged, "a phantom beside what is no claim"


def test_at_the_gate_chunks_may_be_cited_by_number_id_and_file():
    context, lines = {"context": CONTEXT}, {"start_line": 1, "end_line": 1}
    brought = [{"chunk_id": name, "file": f"docs/{name}.md", "content": CONTEXT[name]} for name in CONTEXT]
    chunks = {"chunks": [each | lines for each in brought]}
    for cited, brought, reason in [
        ("[doc-9]", context, "phantom_citation"),
        ("[source: docs/missing.md]", chunks, "phantom_citation"),
        ("[source: doc-1.md:3-7, docs/doc-2.md#L4]", chunks, None),
        ("[source:9]", chunks, "phantom_citation"),
        ("[rates.pdf#page=4]", chunks, "phantom_citation"),
        ("[doc-1.md#page=4]", chunks, None),
    ]:
        record = {"response_id": "r", "user_id": "u", "answer": f"{TEXT} {cited}."} | brought
        response = LlmResponse.model_validate(record)
        report = check_claims(response, evidence_of(response), VerificationConfig())
        assert [claim.flag_reason for claim in report.report.claims] == [reason]
