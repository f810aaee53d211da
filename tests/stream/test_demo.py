"""The demo as people run it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stream.harness import ROOT, until

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.embedded]


def _demo(*options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_in_json_gives_json_lines_alone_and_every_record_is_accounted_for(tmp_path: Path) -> None:
    process = _demo("--format", "json", TMPDIR=str(tmp_path))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    *records, last = [json.loads(line) for line in out.splitlines()]
    summary = last["summary"]
    assert summary["in"] == sum(summary[name] for name in ("approved", "review", "blocked", "dead_letter"))
    subjects = {(r["user_id"], r["subject_id"]) for r in records if "decision_id" in r}
    assert len(subjects) + sum("error" in r for r in records) == summary["in"]
    again = [r for r in records if r.get("subject_id") == "g-05"]
    assert len(again) == 2
    assert again[0] == again[1]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_run_that_misses_its_deadline_says_what_is_missing_and_shows_the_logs() -> None:
    process = _demo("--deadline", "1")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "the deadline passed; missing: " in err
    assert "--- worker claims" in err


async def test_a_run_that_is_told_to_end_leaves_no_process_and_no_folder_behind(tmp_path: Path) -> None:
    process = _demo(TMPDIR=str(tmp_path))
    assert process.stderr
    for line in process.stderr:
        if "starting workers" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert process.returncode != 0
    await until(lambda: not list(tmp_path.iterdir()), lambda: f"left: {list(tmp_path.iterdir())}")
