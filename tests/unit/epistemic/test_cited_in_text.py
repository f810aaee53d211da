"""What an answer cites in brackets is there, or the claim is flagged without asking anybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.epistemic import VerificationConfig, detect_hallucinations
from groundwire.epistemic.cited import not_there

CONTEXT = {"doc-1": "The gateway retries failed requests 3 times.", "doc-2": "The cache lives in Dublin."}
TEXT = "The gateway retries failed requests 3 times"


@pytest.mark.parametrize(
    ("text", "ids", "missing"),
    [
        ("a [doc-9]", ["doc-1"], ("doc-9",)),
        ("a[DOC-9].", ["doc-1"], ("DOC-9",)),
        ("a [doc-1]", ["doc-1"], ()),
        ("a [Doc-1]", ["doc-1"], ()),
        ("a [doc-9, doc-1; doc-8] b [doc-9]", ["doc-1"], ("doc-9", "doc-8")),
        ("a [source: limits]", ["retries"], ("limits",)),
        ("a [Ref: `retries`]", ["retries"], ()),
        ("a [source:2] [source:3] [source:0]", ["a", "b"], ("3", "0")),
        ("a [source:7]", ["7"], ()),
        ("a [limits.md]", ["docs/retries.md"], ("limits.md",)),
        ("a [limits.md]", ["retries"], ()),
        ("a [3]", ["1", "2"], ("3",)),
        ("a [3]", ["a", "b"], ()),
        ("a [2024]", ["1", "2"], ()),
        ("a [citation needed] [sic] [...] [doc-9](http://x) [doc-9][x] [doc-9]: x", ["doc-1"], ()),
        ("a [doc-9]", [], ()),
        ("a [] [ ] [source:]", ["doc-1"], ()),
    ],
)
def test_a_citation_is_missed_where_it_says_that_it_is_one_or_looks_like_an_id(text, ids, missing):
    assert not_there(text, ids) == missing


@given(st.text(alphabet="ab1[]:;, \n-`source", max_size=80), st.sets(st.text("ab1-", min_size=1, max_size=4)))
def test_nothing_that_is_there_is_ever_missed(text, ids):
    missing = not_there(text, sorted(ids))
    assert not {name.casefold() for name in missing} & {name.casefold() for name in ids}
    assert len(set(missing)) == len(missing)


def test_a_claim_that_cites_what_is_not_there_is_a_phantom_and_nobody_is_asked_about_it():
    """S4-06, S4-24."""

    class Counting:
        prompts: list[str] = []  # noqa: RUF012 - of one test

        async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
            self.prompts.append(prompt)
            return "0.9"

    config = VerificationConfig(mode="full", evidence_scrubbing=False)
    text = f"{TEXT} [doc-9]. The cache lives in Dublin [doc-2]. {TEXT} [doc-1]."
    report = detect_hallucinations(text, CONTEXT, client=Counting(), config=config)
    assert [claim.flag_reason for claim in report.claims] == ["phantom_citation", None, None]
    assert report.claims[0].evidence_ids == ["doc-1", "doc-9"]
    assert (report.gaps[0].gap_type, report.gaps[0].suggested_action) == (
        "phantom_citation",
        "Cite a source that exists.",
    )
    assert len(Counting.prompts) == 2
