"""What the tools of `groundwire mcp` say of decisions, and which keys and sources they take."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from mcp import Client

from groundwire.cli import mcp as command
from groundwire.client.mcp import Speaker, server
from groundwire.keys.file import new_key
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.records import Claim, LlmResponse
from tests.unit.client.test_followed_table import SAMPLES


class Producing:
    """A producer for which all is decided."""

    def __init__(self, decision):
        self.decision, self.asked = decision, []

    async def response(self, *_, **__):
        return None

    async def decided(self, *_):
        return self.decision

    async def status(self, subject, _):
        self.asked.append(subject)
        return self.decision


async def told(producer, tool, **arguments):
    async with Client(server(producer, Speaker("maria", "acme", "ai_synthesis", 1))) as client:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result
        return result.structured_content


async def test_a_long_answer_is_told_with_the_claims_that_are_flagged_and_how_many_nobody_looked_at():
    claims = [
        {"claim_text": "It was bought by Globex.", "is_flagged": True},
        {"claim_text": "", "is_flagged": False},
    ]
    report = {"epistemic": {"claims": claims, "flagged_claims": 1, "unverified_claims": 7}}
    response = (SAMPLES / "decision.good.response-in-review.json").read_text()
    producer = Producing(Decision.model_validate_json(response).model_copy(update={"report": report}))
    said = await told(producer, "check_answer", answer="It was bought. " * 300, chunks=[])
    assert (said["unsupported"], said["unsupported_count"]) == (["It was bought by Globex."], 8)


async def test_where_answers_stand_can_be_asked_as_where_claims_do():
    for kind in Kind:
        producer = Producing(None)
        said = await told(producer, "recall_status", claim_id="r1", kind=str(kind))
        assert (said["verdict"], producer.asked) == ("pending", [("acme", "maria", kind, "r1")])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command, and return what it says, without serving."""
    served = []

    class Unserved:
        def __init__(self, producer, _):
            self.producer = producer

        async def run_stdio_async(self):
            served.append(self.producer)

    async def nothing(*_):
        return None

    monkeypatch.setattr(command, "server", Unserved)
    monkeypatch.setattr(command.Producer, "__aenter__", nothing)
    monkeypatch.setattr(command.Producer, "__aexit__", nothing)

    def invoke(*options, roles=()):
        keys = tmp_path / "keys.toml"
        new_key(keys, "agent", tenants=["default"], sources=["documentation"], roles=list(roles))
        given = ["--user", "maria", "--attest", "agent", "--keys-file", str(keys), *options]
        return CliRunner().invoke(command.mcp, given), served

    return invoke


def test_a_key_that_vouches_for_evidence_is_refused(run):
    result, served = run(roles=["grounding"])
    assert (result.exit_code, served) == (2, []), result.output
    assert "grounding" in result.output


def test_claims_are_signed_answers_are_not_and_a_source_that_is_trusted_by_default_is_warned_of(run):
    result, served = run("--source", "documentation")
    assert "is trusted by default" in result.stderr
    assert served[0]._headers(Claim, b"x")
    assert served[0]._headers(LlmResponse, b"x") == []


def test_a_source_that_is_not_trusted_is_not_warned_of(run):
    result, served = run("--source", "ai_synthesis")
    assert served
    assert "is trusted by default" not in result.stderr
