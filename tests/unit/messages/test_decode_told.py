"""What is said of a record that is refused, word for word, and what is not refused for looking like it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import InputRecord
from groundwire.messages.decode import decode_claim, decode_response, parse_json, validate

CLAIM = {"claim_id": "c", "user_id": "u", "content": "Snow is white."}


def told(decode: Any, value: bytes | dict[str, Any]) -> str:
    with pytest.raises(RecordError) as caught:
        decode(value if isinstance(value, bytes) else json.dumps(value).encode())
    return caught.value.message


def test_each_way_not_to_be_strict_json_has_its_words() -> None:
    for value, message in [
        (None, "the record has no value"),
        (b" " * 900_001, "the value has 900001 bytes, more than 900000"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b"\xef\xbb\xbf{}", "not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at character 0"),
        (b'{"a": }', "not JSON: Expecting value at character 6"),
        (b'{"a": 1, "b": 2, "b": 3, "c": 4}', "the key 'b' stands twice in one object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "a number is too large"),
        (b'{"a": -1e999}', "a number is too large"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 64 levels"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels"),
        (b'{"a": ["\\ud800"]}', "a.0: holds half of a surrogate pair"),
        (b'{"\\udfff": 1}', "a key: holds half of a surrogate pair"),
    ]:
        with pytest.raises(RecordError) as caught:
            parse_json(value)
        assert caught.value.message == message
        assert caught.value.code in {ErrorCode.INVALID_JSON, ErrorCode.TOO_LARGE}


def test_json_is_read_up_to_64_levels_however_many_parts_it_has() -> None:
    flat = [[]] * 100 + [{}] * 100
    assert parse_json(json.dumps(flat).encode()) == flat
    deepest: Any = "x"
    for _ in range(63):
        deepest = [deepest]
    both = [deepest, *flat]
    assert parse_json(json.dumps(both).encode()) == both
    assert told(parse_json, json.dumps([both]).encode()) == "nested deeper than 64 levels"


def test_characters_that_are_escaped_are_read_where_they_are_whole() -> None:
    assert parse_json(b'["\\ud83d\\ude00", "\\u00e9", "\\ue000", "\\\\ud800"]') == [
        "😀",
        "é",
        "\ue000",
        "\\ud800",
    ]


def test_a_nul_is_looked_for_in_what_is_escaped_and_told_by_no_more_of_its_path_than_is_shown() -> None:
    assert decode_claim(json.dumps(CLAIM | {"content": "a\\u0000"}).encode()).content == "a\\u0000"
    long = {"k" * 150: {"l" * 150: "\0"}}
    path = f"metadata.{'k' * 150}.{'l' * 150}"[:200]
    assert told(decode_claim, CLAIM | {"metadata": long}) == f"{path}: holds a NUL character"


# --- what else is wrong


def test_a_misspelt_field_explains_only_the_one_that_is_missing_because_of_it() -> None:
    response = {"response_id": "r", "user_id": "u", "answer": "Yes.", "confidence": 0.9}
    hint = "there is no such field; did you mean "
    without = {name: value for name, value in CLAIM.items() if name != "claim_id"}
    assert told(decode_claim, without | {"claimid": "c"}) == f"claimid: {hint}claim_id?"
    assert told(decode_claim, CLAIM | {"claimid": "c"}) == f"claimid: {hint}claim_id?"
    wrong = CLAIM | {"claimid": "c", "claim_id": 5}
    assert told(decode_claim, wrong) == f"claimid: {hint}claim_id? (and 1 more)"
    other = {"claimid": "c", "user_id": "u"}
    assert told(decode_claim, other) == f"claimid: {hint}claim_id? (also missing: content)"
    sources = [{"fil": "a.py"}, {"file": "b.py"}, {}]
    message = told(decode_response, response | {"sources": sources})
    assert message == f"sources.0.fil: {hint}file? (and 1 more)", (
        "the file that the third one lacks is another"
    )


def test_only_fields_of_the_record_itself_are_named_as_missing_too() -> None:
    message = told(decode_response, {"user_id": "u", "answer": "Yes.", "confidence": 0.9, "sources": [{}]})
    assert message == "response_id: field required (and 1 more)"
    assert told(decode_response, {"sources": [{}], "confidence": 0.9, "answer": "Yes."}) == (
        "response_id: field required (also missing: user_id; and 1 more)"
    )


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str = ""
    pages: int = 0


class Shelf(InputRecord):
    books: dict[str, Part]


def test_a_field_of_a_part_is_held_against_the_names_that_there_are_in_that_part() -> None:
    def of(book: str, field: str) -> str:
        with pytest.raises(RecordError) as caught:
            validate(Shelf, {"books": {book: {field: 1}}})
        return caught.value.message

    assert of("Emma", "titel") == "books.Emma.titel: there is no such field; did you mean title?"
    assert of("Emma", "bookz") == "books.Emma.bookz: there is no such field"
    assert of("pages", "titel") == "books.pages.titel: there is no such field", (
        "no guess in what has no fields"
    )
