"""`python -m`: what runs, and what it loads before it is told what to do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from agents.__main__ import main
from groundwire import __version__

ROOT = Path(__file__).resolve().parents[2]


def python(*words: str) -> str:
    """Run Python on the house's modules, and return what it says."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return done.stdout


@pytest.mark.slow
def test_python_m_groundwire_is_the_command() -> None:
    assert __version__ in python("-m", "groundwire", "--version")


def test_who_only_asks_what_a_worker_does_loads_none_of_it() -> None:
    loaded = python("-c", "import sys, agents.__main__; print(*sys.modules)").split()
    assert "agents.__main__" in loaded
    assert {"faust", "aiokafka", "redis", "pydantic", "agents.process"}.isdisjoint(loaded)


def test_the_collector_rests_while_a_worker_is_loaded_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []

    class Process(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name != "run":
                raise AttributeError(name)
            seen.append(("loaded", gc.isenabled()))
            return lambda role, **_options: seen.append((role, gc.isenabled()))

    monkeypatch.setitem(sys.modules, "agents.process", Process("agents.process"))
    try:
        assert CliRunner().invoke(main, ["claims"], catch_exceptions=False).exit_code == 0
    finally:
        gc.unfreeze()
    assert seen == [("loaded", False), ("claims", True)]
