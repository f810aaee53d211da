"""The dashboard is what its panels say, and asks for metrics that somebody counts."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

from deploy.grafana.__main__ import PATH, dashboard, text
from deploy.grafana.panels import ROWS
from groundwire import metrics  # noqa: F401 - importing registers what workers count

ROOT = Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "deploy" / "grafana"


def test_the_dashboard_in_the_repository_is_what_its_panels_say():
    assert PATH.read_text("utf-8") == text(), "python -m deploy.grafana write"


def test_every_query_asks_for_what_somebody_counts():
    families = list(REGISTRY.collect())
    counted = {sample.name for family in families for sample in family.samples}
    counted |= {f"{family.name}{end}" for family in families for end in ("_total", "_bucket", "_sum", "")}
    counted |= {
        f"redis_{name}" for name in ("memory_used_bytes", "memory_max_bytes", "commands_processed_total")
    }
    counted |= {"kafka_consumergroup_lag"}
    gauges = (ROOT / "src" / "groundwire" / "console" / "gauges.py").read_text()
    queries = [query.expr for row in ROWS for panel in row.panels for query in panel.queries]
    asked = {
        name for expr in queries for name in re.findall(r"\b(?:groundwire|redis|kafka|process)_\w+", expr)
    }
    unknown = {name for name in asked - counted if f'"{name}"' not in gauges}
    assert {name for name in unknown if not name.startswith("groundwire_reviewed_by_")} == set()


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


def test_grafana_finds_the_source_that_panels_name_and_the_folder_that_holds_them():
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())
    named = {panel["datasource"]["uid"] for panel in dashboard()["panels"] if "datasource" in panel}
    assert named == {source["uid"] for source in sources["datasources"]}
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "groundwire.yml").read_text())
    grafana = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
    mounted = {mount.split(":")[1]: mount.split(":")[0] for mount in grafana["volumes"]}
    folder = provider["providers"][0]["options"]["path"]
    assert mounted[folder] == "./deploy/grafana/dashboards"
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/{PATH.name}"
