"""Bad input of every kind becomes one error with a code and a field, and never a traceback."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages import decode as module
from groundwire.messages.base import InputRecord
from groundwire.messages.decode import (
    MAX_VALUE_BYTES,
    decode_claim,
    decode_either,
    decode_response,
    decode_review_decision,
    known_field,
    parse_json,
    validate,
)
from groundwire.messages.records import Claim, LlmResponse

GOOD = {"claim_id": "c1", "user_id": "ada", "content": "The API returns JSON"}


def raw(**changes):
    return json.dumps(GOOD | changes).encode()


def refused(value, decode=decode_claim):
    with pytest.raises(RecordError) as caught:
        decode(value if isinstance(value, bytes | None) else json.dumps(value).encode())
    return caught.value


def test_a_claim_needs_three_fields_and_fills_in_the_others():
    claim = decode_claim(raw())
    assert (claim.tenant_id, claim.memory_type, claim.source, claim.schema_version) == (
        "default",
        "fact",
        "ai_synthesis",
        "1.0",
    )
    assert (claim.source_id, claim.captured_at, claim.validity_horizon) == (None, None, None)
    assert (claim.derived_from, claim.metadata) == ([], {})
    assert claim.metadata is not decode_claim(raw()).metadata


def test_what_is_not_strict_json_is_invalid_json_in_words_of_its_own():
    for value, message in (
        (None, "the record has no value"),
        (b"", "not JSON: Expecting value at character 0"),
        (b'{"claim_id": "c1"', "not JSON: Expecting ',' delimiter at character 17"),
        (raw() + b"{}", "not JSON: Extra data at character"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (json.dumps(GOOD).encode("utf-16"), "not UTF-8 at byte 0"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark (BOM): save it as UTF-8 without one"),
        (b'{"claim_id": "\xed\xa0\x80"}', "not UTF-8 at byte 14"),
        (b'{"claim_id": "\xc0\x80"}', "not UTF-8 at byte 14"),
        (b'{"claim_id": "a\x00b"}', "not JSON: Invalid control character at character 15"),
        (b'{"claim_id": "c1",}', "not JSON: "),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": -1e999}', "a number is too large"),
        (b'{"metadata": {"x": ' + b"9" * 5000 + b"}}", "not JSON: "),
        (b'{"a": 1, "b": 2, "b": 3, "c": 4}', "the key 'b' stands twice in one object"),
        (rb'{"claim_id": "a", "\u0063laim_id": "b"}', "the key 'claim_id' stands twice in one object"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels"),
        (b"[" * 30_000 + b"]" * 30_000, "nested deeper than 64 levels"),
        (b'{"a":' * 30_000 + b"1" + b"}" * 30_000, "nested deeper than 64 levels"),
        (b"[" * 30_000, "nested deeper than 64 levels"),
        (rb'{"a": ["\ud800"]}', "a.0: holds half of a surrogate pair"),
        (rb'{"claim_id": "\udc00\ud800"}', "claim_id: holds half of a surrogate pair"),
        (rb'{"\udfff": 1}', "a key: holds half of a surrogate pair"),
    ):
        error = refused(value)
        assert (error.code, error.field) == (ErrorCode.INVALID_JSON, None)
        assert error.message.startswith(message), error.message
        assert "\n" not in error.message
        assert len(error.message) < 400


def test_a_value_above_900000_bytes_is_too_large_and_one_below_is_not():
    padding = " " * (MAX_VALUE_BYTES - len(raw()))
    assert decode_claim(raw() + padding.encode())
    error = refused(raw() + padding.encode() + b" ")
    assert (error.code, error.message) == (
        ErrorCode.TOO_LARGE,
        "the value has 900001 bytes, more than 900000",
    )
    assert refused(b"\xff" * 2_000_000).code == ErrorCode.TOO_LARGE


def test_what_is_no_claim_is_refused_with_its_field_named_and_none_of_its_text():
    """S0-152."""
    invalid = {
        # what is changed -> the field that the error names
        "claim_id of the wrong type": ({"claim_id": 5}, "claim_id"),
        "claim_id empty": ({"claim_id": ""}, "claim_id"),
        "claim_id too long": ({"claim_id": "x" * 201}, "claim_id"),
        "claim_id null": ({"claim_id": None}, "claim_id"),
        "user_id empty": ({"user_id": ""}, "user_id"),
        "user_id too long": ({"user_id": "x" * 201}, "user_id"),
        "user_id a list": ({"user_id": ["ada"]}, "user_id"),
        "content empty": ({"content": ""}, "content"),
        "content blank": ({"content": " \n\t\u00a0"}, "content"),
        "content invisible": ({"content": "\u200b\u2800\u2063\ue000"}, "content"),
        "content of markup alone": ({"content": "<b> </b><!-- it is -->&nbsp;"}, "content"),
        "content too long": ({"content": "x" * 20_001}, "content"),
        "content null": ({"content": None}, "content"),
        "content true": ({"content": True}, "content"),
        "tenant empty": ({"tenant_id": ""}, "tenant_id"),
        "tenant with a colon": ({"tenant_id": "a:b"}, "tenant_id"),
        "tenant with a line end": ({"tenant_id": "acme\n"}, "tenant_id"),
        "tenant of other letters": ({"tenant_id": "äcme"}, "tenant_id"),
        "tenant too long": ({"tenant_id": "x" * 101}, "tenant_id"),
        "tenant null": ({"tenant_id": None}, "tenant_id"),
        "memory type": ({"memory_type": "rumour"}, "memory_type"),
        "memory type in capitals": ({"memory_type": "Fact"}, "memory_type"),
        "memory type null": ({"memory_type": None}, "memory_type"),
        "source empty": ({"source": ""}, "source"),
        "source too long": ({"source": "x" * 101}, "source"),
        "source null": ({"source": None}, "source"),
        "source_id a number": ({"source_id": 3}, "source_id"),
        "captured_at null": ({"captured_at": None}, "captured_at"),
        "captured_at a number": ({"captured_at": 1_700_000_000}, "captured_at"),
        "captured_at naive": ({"captured_at": "2026-01-01T00:00:00"}, "captured_at"),
        "horizon a date": ({"validity_horizon": "2026-01-01"}, "validity_horizon"),
        "horizon before capture": (
            {"captured_at": "2026-01-02T00:00:00Z", "validity_horizon": "2026-01-01T00:00:00Z"},
            "validity_horizon",
        ),
        "derived_from null": ({"derived_from": None}, "derived_from"),
        "derived_from a string": ({"derived_from": "c0"}, "derived_from"),
        "derived_from with a number": ({"derived_from": ["c0", 5]}, "derived_from.1"),
        "derived_from with an empty id": ({"derived_from": [""]}, "derived_from.0"),
        "derived_from with a long id": ({"derived_from": ["x" * 201]}, "derived_from.0"),
        "51 parents": ({"derived_from": ["c0"] * 51}, "derived_from"),
        "metadata null": ({"metadata": None}, "metadata"),
        "metadata a list": ({"metadata": []}, "metadata"),
        "metadata of more than 16 kB": ({"metadata": {"x": "y" * 16_000}}, "metadata"),
        "version null": ({"schema_version": None}, "schema_version"),
        "version a number": ({"schema_version": 1.0}, "schema_version"),
        "an unknown field": ({"memorytype": "fact"}, "memorytype"),
        "a field of another record": ({"answer": "x"}, "answer"),
        "NUL in the content": ({"content": "a\0b"}, "content"),
        "NUL in an id": ({"claim_id": "a\0"}, "claim_id"),
        "NUL in the metadata": ({"metadata": {"a": ["\0"]}}, "metadata.a.0"),
        "NUL in a key": ({"metadata": {"a\0": 1}}, "metadata"),
        "NUL in a long path": ({"metadata": {"k" * 5_000: "\0"}}, ("metadata." + "k" * 5_000)[:200]),
        "a long unknown field": ({"k" * 5_000: 1}, "k" * 200),
    }
    for changes, field in invalid.values():
        error = refused(raw(**changes))
        assert (error.code, error.field) == (ErrorCode.INVALID_RECORD, field)
        assert error.message.startswith(field[:50])
        assert len(error.message) < 500
    for name in ["claim_id", "user_id", "content"]:
        value = {key: text for key, text in GOOD.items() if key != name}
        error = refused(json.dumps(value).encode())
        assert (error.code, error.field) == (ErrorCode.INVALID_RECORD, name)
    # never decided
    for version in ["", "1", "1.1", "2.0", "1.0 ", "v1.0", "9" * 1000]:
        error = refused(json.dumps({"schema_version": version, "new_field": 1}).encode())
        assert (error.code, error.field) == (ErrorCode.UNSUPPORTED_VERSION, "schema_version")
        assert len(error.message) < 200
    secret = "swordfish" * 10
    for changes in ({"content": 5, "source_id": secret}, {"content": secret * 1000}, {"user_id": [secret]}):
        assert "swordfish" not in refused(raw(**changes)).message
    # The path of each value in an error must not repeat the key: a worker would run out of memory
    key = "k" * 100_000
    with pytest.raises(RecordError):
        decode_claim(json.dumps({key: [""] * 100_000}).encode())


def test_what_a_claim_may_hold_is_accepted():
    accepted = {
        "longest content": {"content": "x" * 20_000},
        "longest content in characters, not bytes": {"content": "😀" * 20_000},
        "longest ids": {"claim_id": "x" * 200, "user_id": "ü" * 200, "tenant_id": "a" * 100},
        "fifty parents": {"derived_from": ["response:" + "r" * 190] * 50},
        "null where the type says so": {"source_id": None, "validity_horizon": None},
        "metadata of 16 kB": {"metadata": {"x": "y" * (16_000 - len('{"x":""}'))}},
        "metadata of anything": {"metadata": {"a": [1, -2.5, None, True, {"b": "c"}], "": 10**300}},
        "pairs of surrogates": {"content": "😀"},
        "horizon of the same instant": {
            "captured_at": "2026-01-02T01:00:00+01:00",
            "validity_horizon": "2026-01-02T00:00:00Z",
        },
    }
    for changes in accepted.values():
        assert isinstance(decode_claim(raw(**changes)), Claim)


@given(value=st.binary(max_size=200))
def test_any_bytes_give_a_record_or_an_error(value):
    errors = []
    for decode in (decode_claim, decode_response, decode_review_decision):
        try:
            decode(value)
        except RecordError as error:
            errors.append(error)
    codes = {error.code for error in errors}
    assert codes <= {ErrorCode.INVALID_JSON, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION}
    assert all(error.message.encode() for error in errors)


@given(data=st.data(), escape=st.booleans())
def test_any_json_object_gives_a_claim_or_an_error_that_names_a_field(data, escape):
    names = st.sampled_from([*Claim.model_fields, "response_id", "x"])
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
    changes = data.draw(st.dictionaries(names, values, max_size=4))
    text = json.dumps(GOOD | changes, ensure_ascii=escape)
    try:
        found = decode_claim(text.encode("utf-8", "surrogatepass")).claim_id == (GOOD | changes)["claim_id"]
    except RecordError as error:
        found = error.code in set(ErrorCode) and error.message.encode()
    assert found


def test_what_else_is_wrong_is_told_by_the_names_that_there_are():
    response = {"response_id": "r", "user_id": "u", "answer": None}
    for record, message in [
        (
            {"anwser": "x"},
            "anwser: there is no such field; did you mean answer? (also missing: response_id, user_id)",
        ),
        (response | {"zzz": 1}, "zzz: there is no such field"),
        (
            response | {"anwser": 1, "zzz": 1},
            "anwser: there is no such field; did you mean answer? (and 1 more)",
        ),
        (
            response | {"sources": [{"file": "a", "snipet": "x"}]},
            "sources.0.snipet: there is no such field; did you mean snippet?",
        ),
        (response | {"sources": [{"fil": "a"}]}, "sources.0.fil: there is no such field; did you mean file?"),
        ({"user_id": 1}, "response_id: field required (also missing: answer; and 1 more)"),
    ]:
        assert refused(record, decode_response).message == message
    response = {"response_id": "r", "user_id": "u", "answer": "Yes.", "confidence": 0.9}
    hint = "there is no such field; did you mean "
    without = {name: value for name, value in GOOD.items() if name != "claim_id"}
    assert refused(without | {"claimid": "c"}, decode_claim).message == f"claimid: {hint}claim_id?"
    assert refused(GOOD | {"claimid": "c"}, decode_claim).message == f"claimid: {hint}claim_id?"
    wrong = GOOD | {"claimid": "c", "claim_id": 5}
    assert refused(wrong, decode_claim).message == f"claimid: {hint}claim_id? (and 1 more)"
    other = {"claimid": "c", "user_id": "u"}
    assert refused(other, decode_claim).message == f"claimid: {hint}claim_id? (also missing: content)"
    sources = [{"fil": "a.py"}, {"file": "b.py"}, {}]
    message = refused(response | {"sources": sources}, decode_response).message
    assert message == f"sources.0.fil: {hint}file?", "the first member at fault is reported alone"
    message = refused(
        {"user_id": "u", "answer": "Yes.", "confidence": 0.9, "sources": [{}]}, decode_response
    ).message
    assert message == "response_id: field required (and 1 more)"
    assert refused({"sources": [{}], "confidence": 0.9, "answer": "Yes."}, decode_response).message == (
        "response_id: field required (also missing: user_id; and 1 more)"
    )


def test_a_path_in_a_log_holds_no_name_of_the_senders():
    """S1-39."""
    assert known_field("chunks.3.file") == "chunks.3.file"
    assert known_field("evidence.I feel hopeless.0") == "evidence.*.0"
    assert known_field("secret") == "*"
    assert known_field(None) is None


def test_what_has_a_response_id_or_an_answer_and_no_claim_id_is_a_response_and_all_else_a_claim() -> None:
    answered = {"response_id": "r", "user_id": "u", "answer": "Yes.", "confidence": 0.9}

    def as_json(**fields):
        return json.dumps(fields).encode()

    assert isinstance(decode_either(as_json(**GOOD)), Claim)
    assert isinstance(decode_either(as_json(**answered)), LlmResponse)
    without = {name: value for name, value in answered.items() if name != "response_id"}
    assert refused(as_json(**without), decode_either).message.startswith("response_id: ")
    assert refused(as_json(**GOOD, answer="Yes."), decode_either).message.startswith(
        "answer: there is no such field"
    )
    assert refused(as_json(**GOOD, response_id="r"), decode_either).message.startswith(
        "claim_id: there is no such field"
    )
    assert refused(as_json(user_id="u"), decode_either).message.startswith("claim_id: ")
    for value in (b'["answer"]', b'"response_id"', b"5", b"null", b"true"):
        assert refused(value, decode_either).message == "the value must be a JSON object"
    for fields in [GOOD, answered]:
        assert refused(as_json(**fields, metadata={"note": "a\0b"}), decode_either).field == "metadata.note"
    nul = refused(as_json(**GOOD, **{"a\0b": 1}), decode_either)
    assert (nul.field, nul.message) == (None, "a key: holds a NUL character")
    half = refused(as_json(**GOOD)[:-1] + b', "\\ud800": 1}', decode_either)
    assert half.message == "a key: holds half of a surrogate pair"
    for decode, value in ((decode_claim, answered), (decode_response, GOOD)):
        with pytest.raises(RecordError):
            decode(as_json(**value))


_texts = st.one_of(st.text(), st.text(alphabet='"\\\\[]{},:x'))
_documents = st.recursive(
    st.one_of(st.none(), st.integers(), _texts),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(_texts, inner)),
    max_leaves=40,
)


@given(_documents, st.sampled_from([(",", ":"), (" , ", " :\n")]))
def test_elements_and_depth_are_those_of_the_json_before_it_is_read(document, separators) -> None:
    containers, depth, level = [], 0, [document]
    while level := [one for one in level if isinstance(one, list | dict)]:
        containers += level
        depth += 1
        level = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]
    elements = sum(max(len(one), 1) for one in containers)
    value = json.dumps(document, separators=separators).encode()
    for name, found, error in (
        ("MAX_ELEMENTS", elements, f"the value has {elements} elements, more than {elements - 1}"),
        ("MAX_DEPTH", depth, f"nested deeper than {depth - 1} levels"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, found)
            assert parse_json(value) == document
            if found:
                patch.setattr(module, name, found - 1)
                assert refused(value, parse_json).message == error


def test_a_value_of_too_many_elements_is_refused_unread_as_too_large(monkeypatch) -> None:
    monkeypatch.setattr(module, "_DECODER", None)
    for part in (b"{}", b"1", b'""', b"[[]]"):
        value = b'{"response_id":"r","chunks":[' + b",".join([part] * 120_000) + b"]}"
        assert refused(value, decode_response).code == ErrorCode.TOO_LARGE


def test_of_thousands_of_faulty_members_the_first_alone_is_reported() -> None:
    error = refused(
        {"response_id": "r", "user_id": "u", "answer": "a", "chunks": [{}] * 9_000}, decode_response
    )
    assert error.message == "chunks.0.chunk_id: field required (and 4 more)"


def test_json_is_read_up_to_64_levels_however_many_parts_it_has() -> None:
    flat = [[]] * 100 + [{}] * 100
    assert parse_json(json.dumps(flat).encode()) == flat
    deepest: Any = "x"
    for _ in range(63):
        deepest = [deepest]
    both = [deepest, *flat]
    assert parse_json(json.dumps(both).encode()) == both
    assert refused(json.dumps([both]).encode(), parse_json).message == "nested deeper than 64 levels"
    assert parse_json(b'["\\ud83d\\ude00", "\\u00e9", "\\ue000", "\\\\ud800"]') == [
        "😀",
        "é",
        "\ue000",
        "\\ud800",
    ]


def test_a_nul_is_looked_for_in_what_is_escaped_and_told_by_no_more_of_its_path_than_is_shown() -> None:
    assert decode_claim(json.dumps(GOOD | {"content": "a\\u0000"}).encode()).content == "a\\u0000"
    long = {"k" * 150: {"l" * 150: "\0"}}
    path = f"metadata.{'k' * 150}.{'l' * 150}"[:200]
    assert refused(GOOD | {"metadata": long}, decode_claim).message == f"{path}: holds a NUL character"


def test_a_field_of_a_part_is_held_against_the_names_that_there_are_in_that_part() -> None:
    class Part(BaseModel):
        model_config = ConfigDict(extra="forbid")

        title: str = ""
        pages: int = 0

    class Shelf(InputRecord):
        books: dict[str, Part]

    def of(book: str, field: str) -> str:
        with pytest.raises(RecordError) as caught:
            validate(Shelf, {"books": {book: {field: 1}}})
        return caught.value.message

    assert of("Emma", "titel") == "books.Emma.titel: there is no such field; did you mean title?"
    assert of("Emma", "bookz") == "books.Emma.bookz: there is no such field"
    assert of("pages", "titel") == "books.pages.titel: there is no such field", (
        "no guess in what has no fields"
    )
