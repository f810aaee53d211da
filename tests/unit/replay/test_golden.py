"""Decisions of each version stay verifiable, or are said to be of another engine.

A folder for each version: `python tests/unit/replay/test_golden.py` writes that of this one, for a release.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from groundwire.policies import PolicyStore
from groundwire.replay.files import FileRecords, decision_lines
from groundwire.replay.verify import Status, Verifier
from groundwire.version import __version__
from tests.unit.replay.town import town

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.mark.parametrize("version", VERSIONS)
async def test_decisions_of_a_version_verify_or_are_of_another_engine(version):
    folder = GOLDEN / version
    with FileRecords(folder / "records.jsonl", folder / "decisions.jsonl") as records:
        verifier = Verifier(records, PolicyStore(folder / "policies", None))
        findings = [await verifier.verify(value) for _, value in decision_lines(folder / "decisions.jsonl")]
    expected = Status.EQUAL if version == __version__ else Status.OTHER_ENGINE
    assert {finding.status for finding in findings} == {expected}, (
        "the same engine decides otherwise: raise the version, or, before it is released, write them anew"
    )


def test_this_version_has_its_decisions_of_every_kind():
    lines = (GOLDEN / __version__ / "decisions.jsonl").read_bytes().splitlines()
    kinds = {(d["kind"], min(d["revision"], 2)) for d in map(json.loads, lines)}
    assert kinds == {
        ("claim", 0),
        ("claim", 1),
        ("claim", 2),
        ("response", 0),
        ("response", 1),
        ("response", 2),
    }


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory() as scratch:
        place = town(Path(scratch), 8)
        asyncio.run(place.live(12))
        place.write(folder)
        shutil.copytree(Path(scratch) / "policies", folder / "policies")


if __name__ == "__main__":
    write(GOLDEN / __version__)
