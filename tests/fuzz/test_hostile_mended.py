"""What the fuzzer found, each in the smallest input that shows it."""

from __future__ import annotations

import json
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from groundwire.config import load_settings
from groundwire.epistemic.model import ModelFault, ModelRequest
from groundwire.errors import UsageError
from groundwire.gate.types import DeadLetter, Decided
from groundwire.keys.attestation import Keys
from groundwire.library.evaluate import BadRow, read_labelled
from groundwire.messages.headers import InboundRecord, deferred_headers, deferred_record
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcome, stored_outcomes
from groundwire.replay.review_closures import ReviewClosures
from groundwire.review.board import Board
from groundwire.review.records import TopicRecord
from groundwire.review.tokens import Tokens
from groundwire.verify.adr import AdrFolder
from groundwire.verify.citations import load_sources
from groundwire.verify.results import MAX_TEXT
from tests.fuzz.answers import Wire, Wires, model_of
from tests.fuzz.console import asked
from tests.unit.console.rooms import make_decision, make_room
from tests.unit.gate.world import TOPIC, World
from tests.unit.verify.model_service import document


async def test_a_deferred_record_whose_origin_no_log_has_is_decided_as_the_record_that_carries_it():
    for value in (b"{", b'{"claim_id": "c", "user_id": "u", "content": "It is so."}'):
        first = InboundRecord(TOPIC, 0, 1, 1_770_000_000_000, b"default:u", value)
        for name, number in product(("partition", "offset"), (2**53, -(2**53), 10**18)):
            headers = deferred_headers(first)
            odd = tuple(
                (key, b"%d" % number if key == f"gw-origin-{name}" else held) for key, held in headers
            )
            place = ("groundwire.deferred", 3, 4, 1_770_000_000_000, b"default:u", value)
            record = deferred_record(InboundRecord(*place, odd))
            assert (record.partition, record.offset) == (3, 4)
            (result,) = await World().results(record)
            assert isinstance(result, Decided | DeadLetter)


def test_a_file_of_keys_tokens_or_tenants_that_no_reader_can_follow_is_a_usage_error(tmp_path):
    path = tmp_path / "tenants.toml"
    tenants = partial(load_sources, load_settings().model_copy(update={"tenants_file": path}))
    tracker = '[tenants.a.tracker]\nkind = "github"\nurl = "https://[::1"\nproject = "a/b"\n'
    for text, why in (
        ("a = " + "[" * 5_000, "nested too deeply"),
        ("a = " + "9" * 5_000, "not TOML: "),
        (tracker, r"tenants\.a\.tracker"),
    ):
        path.write_text(text)
        others = [partial(kind.parse, text.encode(), Path("keys.toml")) for kind in (Keys, Tokens)]
        for read in (tenants, *(others if text is not tracker else [])):
            with pytest.raises(UsageError, match=why):
                read()


def test_a_cell_that_is_too_long_to_read_is_a_bad_row_that_says_what_is_left_out():
    data = b'claim,evidence,label\na,b,true\n"' + b"x\n" * 70_000
    good, bad = read_labelled(data, "csv")
    assert (good.line, bad.line) == (2, 3)
    assert isinstance(bad, BadRow)
    assert "nothing behind it is read" in bad.error.message


async def answered(api: str, *said: bytes):
    wires = Wires()
    wires.reply = lambda: Wire(b"HTTP/1.1 " + b"\r\n".join(said), 65_536, endless=False)
    return await model_of(api, wires).answer(ModelRequest("x", "haiku"))


async def test_a_server_that_answers_what_no_model_can_mean_is_read_as_far_as_it_can_be():
    """Counts of tokens, log probabilities, and redirects to no address."""

    async def read(api: str, answer: object):
        body = json.dumps(answer).encode()
        return await answered(api, b"200 OK", b"content-length: %d" % len(body), b"", body)

    for api, tokens in product(("openai", "anthropic"), (2**53, 10**40, True, -1, 1.5)):
        answer = await read(api, document(api, sent=tokens, received=tokens))
        assert answer.output_tokens is None
        assert answer.input_tokens in {None, 100 + tokens - 200}
    odd = document("openai")
    token = {"token": "a", "logprob": 10**400, "top_logprobs": []}
    odd["choices"][0]["logprobs"] = {"content": [token]}
    assert (await read("openai", odd)).tokens == ()
    for place in (b"http://[::1", b"http:a"):
        with pytest.raises(ModelFault) as raised:
            await answered("openai", b"302 Found", b"location: " + place, b"content-length: 0", b"", b"")
        assert raised.value.code in {"unreachable", "rejected"}


async def test_of_many_files_for_one_record_no_more_is_read_than_is_looked_at(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"ADR-3-{number:02}.md").write_text("a" * MAX_TEXT)
    read = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *a, **k: read.append(path) or real(path, *a, **k))
    check = (await AdrFolder(tmp_path).check(["3"], want_text=True))["3"]
    assert check.text == "a" * MAX_TEXT
    assert len(read) == 1


async def test_an_address_with_bytes_beyond_ascii_is_refused_and_no_fault():
    room = make_room()
    room.add(make_decision("c"))
    bearer = [(b"host", b"127.0.0.1:8700"), (b"authorization", b"Bearer lead-token")]
    for path in (b"/api/status", b"/api/queue", b"/"):
        status, answer = await asked(room, "GET", path + b"?days=\xff", bearer, b"")
        assert (status, b"ASCII" in answer) == (400, True)


async def test_a_decision_that_no_gate_wrote_keeps_no_other_from_coming_back():
    for change in (
        {"reason_code": "no such code"},
        {"kind": "response", "report": {"regenerate": "x"}},
        {"kind": "response", "report": {}, "reason_code": "x"},
    ):

        async def values(change=change):
            for one in (make_decision("odd", **change), make_decision("plain")):
                yield json.dumps(one).encode()

        outcomes = stored_outcomes(values(), Policy(), ReviewClosures())
        assert [outcome.subject.subject_id async for outcome in outcomes] == ["plain"]


def test_a_revision_that_no_subject_comes_to_is_no_decision():
    for revision in (2**31, 2**63, 10**30):
        value = json.dumps(make_decision("c", revision=1) | {"revision": revision}).encode()
        board = Board()
        board.add([TopicRecord(TopicName.REVIEW, 0, 0, 0, b"acme:ana", value)])
        assert board.candidates() == []
        board.close()
        assert stored_outcome(value, Policy()) is None
