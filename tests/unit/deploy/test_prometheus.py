"""Prometheus takes its configuration and rules; each alert fires, clears and has a runbook of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "rules" / "groundwire.yml"
ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}


@pytest.mark.slow
def test_promtool_takes_configuration_and_rules_and_every_alert_does_in_time_what_its_test_says(run: Any):
    for arguments in (
        ("check", "config", PROMETHEUS / "prometheus.yml"),
        ("check", "rules", RULES),
        ("test", "rules", PROMETHEUS / "tests" / "groundwire.yml"),
    ):
        run("promtool", *arguments, package="apt-get install prometheus")


def test_every_alert_has_a_test_that_it_fires_and_that_it_clears_afterwards():
    def minutes(case: dict[str, Any]) -> int:
        number, unit = re.fullmatch(r"(\d+)([mh])", case["eval_time"]).groups()  # type: ignore[union-attr]
        return int(number) * (60 if unit == "h" else 1)

    shown: dict[str, list[bool]] = {}
    for test in yaml.safe_load((PROMETHEUS / "tests" / "groundwire.yml").read_text())["tests"]:
        for case in sorted(test["alert_rule_test"], key=minutes):
            shown.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert set(shown) == set(ALERTS)
    wrong = [name for name, firing in shown.items() if firing[0] or firing[-1] or True not in firing]
    assert wrong == []


def test_every_alert_has_a_severity_a_summary_and_a_runbook_and_every_runbook_an_alert():
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/run/operating.md#{name.lower()}"
    runbooks = (ROOT / "docs" / "run" / "operating.md").read_text("utf-8")
    assert sorted(re.findall(r"^### (Groundwire\w+)$", runbooks, re.MULTILINE)) == sorted(ALERTS)
