"""Dashboard and rules agree with what is counted, and each alert has a test and a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from deploy.embedded.process import find_program
from deploy.grafana.__main__ import PATH, chosen, dashboard, text
from deploy.grafana.panels import ROWS
from groundwire import metrics  # noqa: F401 - importing registers what workers count
from tests.services.fixtures import or_skip

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
RULES = PROMETHEUS / "rules" / "groundwire.yml"


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def test_the_dashboard_is_what_its_panels_say_and_asks_for_what_somebody_counts():
    assert PATH.read_text("utf-8") == text(), "python -m deploy.grafana write"
    families = list(REGISTRY.collect())
    counted = {sample.name for family in families for sample in family.samples}
    counted |= {f"{family.name}{end}" for family in families for end in ("_total", "_bucket", "_sum", "")}
    of_redis = ("memory_used_bytes", "memory_max_bytes", "commands_processed_total")
    counted |= {"kafka_consumergroup_lag", *(f"redis_{name}" for name in of_redis)}
    gauges = "".join(path.read_text() for path in (ROOT / "src" / "groundwire" / "console").glob("*.py"))
    queries = [query.expr for row in ROWS for panel in row.panels for query in panel.queries]
    name = re.compile(r"\b(?:groundwire|redis|kafka|process)_\w+")
    asked = {one for expr in queries for one in name.findall(expr)}
    unknown = {one for one in asked - counted if f'"{one}"' not in gauges}
    assert {one for one in unknown if not one.startswith("groundwire_reviewed_by_")} == set()


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_grafana_finds_a_source_and_the_folder_of_the_dashboard_and_each_query_asks_for_what_is_chosen():
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "deployment", "role", "instance"]
    named = {panel["datasource"]["uid"] for panel in dashboard()["panels"] if "datasource" in panel}
    assert named == {"${datasource}"}
    sources = load(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    assert variables["datasource"]["query"] in {source["type"] for source in sources}
    wanted = 'deployment=~"$deployment", role=~"$role", instance=~"$instance"}'
    assert chosen("sum(groundwire_paused)") == f"sum(groundwire_paused{{{wanted})"
    assert chosen("rate(process_x{a='b'}[5m])") == f"rate(process_x{{a='b', {wanted}[5m])"
    assert chosen("redis_memory_used_bytes") == "redis_memory_used_bytes"
    provider = load(GRAFANA / "provisioning" / "dashboards" / "groundwire.yml")
    grafana = load(ROOT / "docker-compose.yml")["services"]["grafana"]
    mounted = {mount.split(":")[1]: mount.split(":")[0] for mount in grafana["volumes"]}
    folder = provider["providers"][0]["options"]["path"]
    assert mounted[folder] == "./deploy/grafana/dashboards"
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/{PATH.name}"


@pytest.mark.slow
def test_promtool_takes_configuration_rules_and_queries_and_every_alert_does_in_time_what_its_test_says(
    tmp_path: Path,
):
    promtool = or_skip(lambda: find_program("promtool", "prometheus: apt-get install prometheus"))
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"shown:{at}", "expr": expr.replace("$__rate_interval", "5m")}
        for at, expr in enumerate(queries)
    ]
    (tmp_path / "shown.yml").write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}))
    for arguments in (
        ("check", "rules", tmp_path / "shown.yml"),
        ("check", "config", PROMETHEUS / "prometheus.yml"),
        ("check", "rules", RULES),
        ("test", "rules", PROMETHEUS / "tests" / "groundwire.yml"),
    ):
        done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_severity_a_runbook_and_a_test_that_it_fires_and_clears_afterwards():
    alerts = {rule["alert"]: rule for group in load(RULES)["groups"] for rule in group["rules"]}
    for name, rule in alerts.items():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/run/operating.md#{name.lower()}"
    runbooks = (ROOT / "docs" / "run" / "operating.md").read_text("utf-8")
    assert sorted(re.findall(r"^### (Groundwire\w+)$", runbooks, re.MULTILINE)) == sorted(alerts)

    def minutes(case: dict[str, Any]) -> int:
        number, unit = re.fullmatch(r"(\d+)([mh])", case["eval_time"]).groups()  # type: ignore[union-attr]
        return int(number) * (60 if unit == "h" else 1)

    shown: dict[str, list[bool]] = {}
    for test in load(PROMETHEUS / "tests" / "groundwire.yml")["tests"]:
        for case in sorted(test["alert_rule_test"], key=minutes):
            shown.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert set(shown) == set(alerts)
    assert [name for name, firing in shown.items() if firing[0] or firing[-1] or True not in firing] == []
