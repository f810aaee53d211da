"""Prometheus takes its configuration and rules; each alert fires, clears and has a runbook of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "run" / "operating.md"
PROMTOOL = {"package": "apt-get install prometheus"}


@pytest.fixture(scope="module")
def alerts() -> dict[str, Any]:
    rules = yaml.safe_load((PROMETHEUS / "rules" / "groundwire.yml").read_text())
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}


def test_promtool_takes_the_configuration_and_the_rules(run: Any):
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml", **PROMTOOL)
    run("promtool", "check", "rules", PROMETHEUS / "rules" / "groundwire.yml", **PROMTOOL)


@pytest.mark.slow
def test_every_alert_does_in_time_what_its_test_says(run: Any):
    run("promtool", "test", "rules", PROMETHEUS / "tests" / "groundwire.yml", **PROMTOOL)


def test_of_every_alert_it_is_tested_that_it_fires_and_that_it_clears_afterwards(alerts: dict[str, Any]):
    tests = yaml.safe_load((PROMETHEUS / "tests" / "groundwire.yml").read_text())["tests"]
    shown: dict[str, list[bool]] = {}
    for test in tests:
        for case in sorted(test["alert_rule_test"], key=lambda case: _minutes(case["eval_time"])):
            shown.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert set(shown) == set(alerts)
    for name, firing in shown.items():
        assert True in firing, name
        assert not firing[-1], f"{name} is not shown to clear"
        assert not firing[0], f"{name} is not shown to be silent before"


def test_every_alert_says_how_urgent_it_is_and_where_its_runbook_stands(alerts: dict[str, Any]):
    for name, rule in alerts.items():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/run/operating.md#{name.lower()}"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(alerts: dict[str, Any]):
    titles = re.findall(r"^### (Groundwire\w+)$", RUNBOOKS.read_text("utf-8"), re.MULTILINE)
    assert sorted(titles) == sorted(alerts)
    assert len(set(titles)) == len(titles)


def _minutes(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([mh])", text).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit == "h" else 1)
