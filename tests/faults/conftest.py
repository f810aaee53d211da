"""The fault suite is run on purpose only: `pytest -m faults tests/faults`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: breaks a whole deployment, for minutes; only with -m faults")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = "faults" in config.option.markexpr
    return True if collection_path.name == "test_faults_short.py" and not wanted else None
