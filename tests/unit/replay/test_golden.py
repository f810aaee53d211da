"""What the gate publishes can be derived again; decisions of each version stay so, or are of another engine.

A folder for each version: `python tests/unit/replay/test_golden.py` writes that of this one, for a release.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire import __version__
from groundwire.replay.store import FileRecords, decision_lines
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.state.policies import PolicyStore
from tests.unit.replay.town import town

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.mark.parametrize("version", VERSIONS)
async def test_decisions_of_a_version_verify_or_are_of_another_engine(version):
    folder = GOLDEN / version
    with FileRecords(folder / "records.jsonl", folder / "decisions.jsonl") as records:
        verifier = Verifier(records, PolicyStore(folder / "policies", None))
        findings = [await verifier.verify(value) for _, value in decision_lines(folder / "decisions.jsonl")]
    expected = VerifyStatus.EQUAL if version == __version__ else VerifyStatus.OTHER_ENGINE
    assert {finding.status for finding in findings} == {expected}, (
        "the same engine decides otherwise: raise the version, or, before it is released, write them anew"
    )


def test_this_version_has_its_decisions_of_every_kind():
    lines = (GOLDEN / __version__ / "decisions.jsonl").read_bytes().splitlines()
    kinds = {(d["kind"], min(d["revision"], 2)) for d in map(json.loads, lines)}
    assert kinds == {(kind, revision) for kind in ("claim", "response") for revision in range(3)}


@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
async def test_whatever_the_gate_publishes_follows_from_records_policies_and_facts(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    place = town(folder, seed)
    await place.live(8)
    decisions, records, policies = place.write(folder)
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        for number, value in decision_lines(decisions):
            finding = await verifier.verify(value)
            assert finding.status is VerifyStatus.EQUAL, (number, finding, value)


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory() as scratch:
        place = town(Path(scratch), 12)  # a seed that brings every kind
        asyncio.run(place.live(12))
        place.write(folder)
        shutil.copytree(Path(scratch) / "policies", folder / "policies")


if __name__ == "__main__":
    write(GOLDEN / __version__)
