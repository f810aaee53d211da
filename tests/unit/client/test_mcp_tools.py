"""What the tools of `groundwire mcp` say of decisions, and which keys and sources they take."""

from __future__ import annotations

from unittest.mock import AsyncMock

from click.testing import CliRunner
from mcp import Client

from groundwire.cli import mcp as command
from groundwire.keys.file import new_key
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.records import Claim, LlmResponse
from tests.unit.client.test_following import SAMPLES


async def called(producer, tool, **arguments):
    served = command.server(producer, command.Speaker("maria", "acme", "ai_synthesis", 1))
    async with Client(served) as client:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result
        return result.structured_content


async def test_a_long_answer_is_reported_with_the_claims_that_are_flagged_and_how_many_nobody_looked_at():
    claims = [
        {"claim_text": "It was bought by Globex.", "is_flagged": True},
        {"claim_text": "", "is_flagged": False},
    ]
    report = {"epistemic": {"claims": claims, "flagged_claims": 1, "unverified_claims": 7}}
    response = (SAMPLES / "decision.good.response-in-review.json").read_text()
    decision = Decision.model_validate_json(response).model_copy(update={"report": report})
    producer = AsyncMock(decided=AsyncMock(return_value=decision))
    said = await called(producer, "check_answer", answer="It was bought. " * 300, chunks=[])
    assert (said["unsupported"], said["unsupported_count"]) == (["It was bought by Globex."], 8)


async def test_where_answers_stand_can_be_asked_as_where_claims_do():
    for kind in Kind:
        producer = AsyncMock(status=AsyncMock(return_value=None))
        said = await called(producer, "recall_status", claim_id="r1", kind=str(kind))
        assert said["verdict"] == "unknown", "and not pending for ever"
        producer.status.assert_awaited_once_with(("acme", "maria", kind, "r1"), 1)


def test_claims_are_signed_answers_are_not_a_retrievers_key_is_refused_and_a_trusted_source_warned_of(
    tmp_path, monkeypatch
):
    served = []

    class Unserved:
        def __init__(self, producer, _):
            served.append(producer)

        run_stdio_async = AsyncMock()

    monkeypatch.setattr(command, "server", Unserved)
    monkeypatch.setattr(command.Producer, "__aenter__", AsyncMock())
    monkeypatch.setattr(command.Producer, "__aexit__", AsyncMock())
    keys = tmp_path / "keys.toml"
    for key_id, roles in (("agent", []), ("retriever", ["grounding"])):
        new_key(keys, key_id, tenants=["default"], sources=["documentation"], roles=roles)

    def run(key_id, *options):
        given = ["--user", "maria", "--attest", key_id, "--keys-file", str(keys), *options]
        return CliRunner().invoke(command.mcp, given)

    refused = run("retriever")
    assert (refused.exit_code, served, "grounding" in refused.output) == (2, [], True)
    for source, trusted in (("documentation", True), ("ai_synthesis", False)):
        result = run("agent", "--source", source)
        assert ("is trusted by default" in result.stderr) is trusted
        assert served[-1]._headers(Claim, b"x")
        assert served[-1]._headers(LlmResponse, b"x") == []
