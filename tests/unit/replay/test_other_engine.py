"""Decisions of an engine before stay what they were, and a replay tells what new rules would have changed."""

from __future__ import annotations

import json

import pytest

from groundwire import __version__
from groundwire.policy import Policy
from groundwire.replay.reading import Rate
from groundwire.replay.report import FileWriter, as_json, as_table
from groundwire.replay.run import Replayer, Task
from groundwire.replay.store import FileRecords, Job, ReplayOrder, decision_lines
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.unit.gate.world import TOPIC, adr_folder, verifier
from tests.unit.replay.town import Town, town

BEFORE = "0.0.9"
ORDER = ReplayOrder("again", [TOPIC], "earliest", "latest", None, simulate=False, output="out")


@pytest.fixture
async def place(tmp_path) -> Town:
    """A log that an engine decided which knew nothing of denied citations, under a policy that is not at hand."""
    place = town(tmp_path)
    place.policy = Policy(version="of before")
    place.verifier = verifier(adr_folder(tmp_path / "own", ADR_003="# Redis"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.gate.record.__version__", BEFORE)
        patch.setattr("groundwire.gate.build.__version__", BEFORE)
        patch.setattr("groundwire.checks.citations.denied", lambda *_: False)
        await place.send(
            place.claim("kept", "Per ADR-003, sessions are in Redis"),
            place.claim("denied", "Unlike ADR-003, sessions are in cookies"),
        )
    return place


async def test_verify_names_the_engine_of_a_decision_and_this_one(place, tmp_path):
    decisions, records, policies = place.write(tmp_path)
    with FileRecords(records, decisions) as found:
        check = Verifier(found, PolicyStore(policies, None))
        findings = [await check.verify(value) for _, value in decision_lines(decisions)]
    assert [finding.status for finding in findings] == [VerifyStatus.OTHER_ENGINE] * 2
    assert {finding.detail for finding in findings} == {f"engine {BEFORE}, this is {__version__}"}


async def test_a_replay_under_a_policy_of_now_tells_which_verdicts_new_rules_would_have_changed(
    place, tmp_path
):
    now = Policy(version="of now")
    task = Task("again", KnownPolicies([now], PolicyStore(None, None)), now)
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        writer = FileWriter(tmp_path / "out")
        summary = await Replayer(job, task, writer, Rate(None), lambda *_: None).run()
        writer.close()
        report = json.loads("".join(as_json(job, "again", summary)))
        table = "\n".join(as_table(job, summary))
    changes = [(change["before"], change["after"]) for change in report["changed"]]
    told = [(old["subject_id"], old["reason_code"], new["reason_code"]) for old, new in changes]
    assert told == [("denied", "verified_citation", "citation_unverified")]
    assert "2  of another engine" in table
