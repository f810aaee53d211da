"""Which checks of a response run, what takes their place where they do not, and what counts as compared."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.gate.response_checks import (
    DISABLED,
    NOT_PROVIDED,
    Broken,
    CheckInputs,
    read_again,
    read_response,
    result_of,
)
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from tests.unit.gate.builders import (
    claims_of,
    clean_reading,
    entities_of,
    fields_of,
    index_of,
    quotes_of,
    relations_of,
    sources_of,
    tags_of,
    values_of,
    versions_of,
)

WHOLE: dict[str, Any] = {
    "response_id": "r",
    "user_id": "u",
    "confidence": 1.0,
    "answer": "`user.name` is 5 [source:1].",
    "chunks": [
        {
            "chunk_id": "k",
            "file": "a.py",
            "content": "user.name is 5",
            "start_line": 1,
            "end_line": 1,
            "revision": "a1",
        }
    ],
    "sources": [{"file": "a.py"}],
    "current_revisions": {"a.py": "a1"},
    "evidence": {"mood": ["I slept well"]},
    "transcript": "I slept well",
    "entities": [{"id": "Ada"}],
    "corpus_index": {"Ada": {"confidence": 0.9}},
    "claims": [{"subject": "a", "relation": "b", "object": "c"}],
    "relations": [{"subject": "a", "relation": "b", "object": "c"}],
}


NEEDS = {
    "sources": {"sources", "chunks"},
    "index": {"current_revisions", "chunks"},
    "versions": {"chunks"},
    "fields": {"answer", "chunks"},
    "source_tags": {"answer", "chunks"},
    "quotes": {"evidence", "transcript"},
    "entities": {"entities", "corpus_index"},
    "relations": {"claims", "relations"},
    "values": {"answer", "chunks"},
}
"""Check -> the fields without any one of which it does not run."""


@pytest.mark.parametrize("missing", [None, *sorted(set().union(*NEEDS.values()))])
def test_a_check_is_skipped_where_one_of_its_parts_is_not_given_and_runs_where_all_are(
    missing: str | None,
) -> None:
    fields = {name: value for name, value in WHOLE.items() if name != missing}
    if missing == "answer":
        fields["answer"] = None
    response = LlmResponse.model_validate(fields)
    reading = read_response(response, Policy())
    for check, needs in NEEDS.items():
        found = getattr(reading, check)
        assert (found == NOT_PROVIDED) == (missing in needs), check
        assert not isinstance(found, Broken), check
    resolved = read_response(response, Policy(), CheckInputs(WHOLE["corpus_index"], WHOLE["relations"]))
    assert (resolved.entities == NOT_PROVIDED) == (missing == "entities")
    assert (resolved.relations == NOT_PROVIDED) == (missing == "claims")


def test_what_the_policy_switches_off_is_skipped_as_that_whatever_is_given() -> None:
    off = Policy(evidence_quote_validation_enabled=False, check_values=False)
    for fields in (WHOLE, {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": "Yes."}):
        reading = read_response(LlmResponse.model_validate(fields), off)
        assert (reading.quotes, reading.values) == (DISABLED, DISABLED)


def test_tags_that_are_not_there_are_looked_for_only_where_the_policy_requires_them() -> None:
    response = LlmResponse.model_validate(WHOLE | {"answer": "It calls `f()`."})
    assert read_response(response, Policy()).source_tags == NOT_PROVIDED
    required = result_of(read_response(response, Policy(require_source_tags=True)).source_tags)
    assert required is not None
    assert required.missing


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("corpus", [True, False])
def test_what_a_response_carries_can_only_lower_what_the_corpus_says(*, own: bool, corpus: bool) -> None:
    given = {} if own else {"corpus_index": {}, "relations": []}
    answered = (WHOLE["corpus_index"], WHOLE["relations"]) if corpus else ({}, [])
    reading = read_response(LlmResponse.model_validate(WHOLE | given), Policy(), CheckInputs(*answered))
    entities, relations = result_of(reading.entities), result_of(reading.relations)
    assert entities is not None
    assert relations is not None
    assert (bool(entities.missing), bool(relations.violations)) == ((not (own and corpus),) * 2)


def test_a_check_that_is_known_to_have_broken_does_not_run_and_keeps_its_error() -> None:
    response = LlmResponse.model_validate(WHOLE)
    reading = read_response(response, Policy(), CheckInputs(error="fields=KeyError"))
    assert dict(reading.broken) == {"fields": Broken("KeyError")}
    inputs = CheckInputs({}, [], error="relations=StateUnavailable")
    again = read_again(reading, ("entities", "relations"), response, Policy(), inputs)
    assert dict(again.broken) == {"fields": Broken("KeyError"), "relations": Broken("StateUnavailable")}


@pytest.mark.parametrize(
    ("check", "something", "nothing"),
    [
        ("sources", [sources_of([("p", 1, 0)]), sources_of([("a", 1, 1)])], sources_of([])),
        ("fields", [fields_of(0, 1), fields_of(1, 0)], fields_of(0, 0)),
        ("source_tags", [tags_of([7], 1, 0), tags_of([1], 1, 0)], tags_of([], 1, 1)),
        ("quotes", [quotes_of(0, 1, 0), quotes_of(1, 0, 0)], quotes_of(0, 0, 0)),
        ("entities", [entities_of(1, 0), entities_of(0, 1)], entities_of(0, 0)),
        ("relations", [relations_of(1, 0, 0), relations_of(0, 0, 1)], relations_of(0, 0, 0)),
        ("values", [values_of(1, 0, 0), values_of(0, 1, 0)], values_of(0, 0, 0)),
        ("claims", [claims_of(0, 1, 0), claims_of(1, 0, 0)], claims_of(0, 0, 0)),
        ("index", [], index_of(["a"], ["b"])),
        ("versions", [], versions_of(["d"])),
    ],
)
def test_a_check_has_compared_something_whether_that_held_or_not_and_freshness_compares_nothing(
    check: str, something: list[Any], nothing: Any
) -> None:
    for section in something:
        assert clean_reading(**{"fields": NOT_PROVIDED, check: section}).grounded_on_something
    assert not clean_reading(**{"fields": NOT_PROVIDED, check: nothing}).grounded_on_something
    assert not clean_reading(**{"fields": NOT_PROVIDED, check: Broken("KeyError")}).grounded_on_something


def test_where_no_file_has_both_revisions_the_index_is_not_told_as_current() -> None:
    response = LlmResponse.model_validate(WHOLE | {"current_revisions": {"other.py": "a1"}})
    assert read_response(response, Policy()).index == NOT_PROVIDED


@pytest.mark.parametrize(("file", "reason"), [("lib/s9.py", None), ("lib/s8.py", "phantom_citation")])
def test_an_answer_may_cite_the_file_of_a_source_beside_its_context(file: str, reason: str | None) -> None:
    text = "The gateway retries failed requests 3 times"
    given = {"context": {"span": f"{text}."}, "sources": [{"file": "lib/s9.py"}]}
    record = {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": f"{text} [ref: {file}]."}
    claims = result_of(read_response(LlmResponse.model_validate(record | given), Policy()).claims)
    assert claims is not None
    assert [claim.flag_reason for claim in claims.report.claims] == [reason]
