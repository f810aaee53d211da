"""The dashboard is what its panels say, and asks for metrics that somebody counts."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

from deploy.grafana.__main__ import PATH, dashboard, text
from deploy.grafana.panels import ROWS
from groundwire import metrics  # noqa: F401 - what workers count registers itself

ROOT = Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "deploy" / "grafana"
CONSOLE = (ROOT / "src" / "groundwire" / "console" / "gauges.py").read_text()
OTHERS = {
    "redis_memory_used_bytes",
    "redis_memory_max_bytes",
    "redis_commands_processed_total",
    "kafka_consumergroup_lag",
}


def test_the_dashboard_in_the_repository_is_what_its_panels_say():
    assert PATH.read_text("utf-8") == text(), "python -m deploy.grafana write"


def test_every_query_asks_for_what_somebody_counts():
    counted = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    counted |= {
        f"{family.name}{end}" for family in REGISTRY.collect() for end in ("_total", "_bucket", "_sum", "")
    }
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                for name in re.findall(r"\b(?:groundwire|redis|kafka|process)_\w+", query.expr):
                    assert (
                        name in counted | OTHERS
                        or f'"{name}"' in CONSOLE
                        or name.startswith("groundwire_reviewed_by_")
                    )


def test_panels_have_ids_of_their_own_and_lie_side_by_side():
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
    assert mounted[provider["providers"][0]["options"]["path"]] == "./deploy/grafana/dashboards"
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['providers'][0]['options']['path']}/{PATH.name}"
