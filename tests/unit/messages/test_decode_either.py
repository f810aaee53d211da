"""A record that says itself what it is, and the words for what is wrong where there is no name for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groundwire.errors import RecordError
from groundwire.messages.decode import decode_claim, decode_either, decode_response
from groundwire.messages.records import Claim, LlmResponse

CLAIM = {"claim_id": "c", "user_id": "u", "content": "Snow is white."}
RESPONSE = {"response_id": "r", "user_id": "u", "answer": "Snow is white.", "confidence": 0.9}


def as_json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def refused(value: bytes) -> RecordError:
    with pytest.raises(RecordError) as caught:
        decode_either(value)
    return caught.value


def test_what_has_a_response_id_or_an_answer_and_no_claim_id_is_a_response_and_all_else_a_claim() -> None:
    assert isinstance(decode_either(as_json(**CLAIM)), Claim)
    assert isinstance(decode_either(as_json(**RESPONSE)), LlmResponse)
    without = {name: value for name, value in RESPONSE.items() if name != "response_id"}
    assert refused(as_json(**without)).message.startswith("response_id: ")
    assert refused(as_json(**CLAIM, answer="Yes.")).message.startswith("answer: there is no such field")
    assert refused(as_json(**CLAIM, response_id="r")).message.startswith("claim_id: there is no such field")
    assert refused(as_json(user_id="u")).message.startswith("claim_id: ")
    for value in (b'["answer"]', b'"response_id"', b"5", b"null", b"true"):
        assert refused(value).message == "the value must be a JSON object"


def test_a_nul_is_refused_in_whatever_a_record_turns_out_to_be() -> None:
    for fields in [CLAIM, RESPONSE]:
        assert refused(as_json(**fields, metadata={"note": "a\0b"})).field == "metadata.note"


def test_what_is_wrong_with_a_key_of_the_record_itself_names_no_field() -> None:
    nul = refused(as_json(**CLAIM, **{"a\0b": 1}))
    assert (nul.field, nul.message) == (None, "a key: holds a NUL character")
    half = refused(as_json(**CLAIM)[:-1] + b', "\\ud800": 1}')
    assert half.message == "a key: holds half of a surrogate pair"


def test_a_record_of_another_kind_is_not_read_as_the_kind_that_is_asked_for() -> None:
    for decode, value in ((decode_claim, RESPONSE), (decode_response, CLAIM)):
        with pytest.raises(RecordError):
            decode(as_json(**value))
