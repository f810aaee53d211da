"""`python -m deploy.grafana write|check`: the dashboard's JSON, from `panels.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from deploy.grafana.panels import ROWS, Panel

PATH: Final = Path(__file__).parent / "dashboards" / "overview.json"

_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_WIDE: Final = 8
_HIGH: Final = 8
_COLUMNS: Final = 24


def dashboard() -> dict[str, Any]:
    return {
        "uid": "groundwire",
        "title": "Groundwire",
        "tags": ["groundwire"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": []},
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        for at, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(at, _COLUMNS // _WIDE)
            place = {"x": column * _WIDE, "y": top + line * _HIGH, "w": _WIDE, "h": _HIGH}
            yield {"id": number, "gridPos": place, **_graph(panel)}
        top += -(-len(row.panels) // (_COLUMNS // _WIDE)) * _HIGH


def _graph(panel: Panel) -> dict[str, Any]:
    custom = {
        "fillOpacity": 20 if panel.stacked else 0,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for at, query in enumerate(panel.queries)
        ],
    }


@click.command()
@click.argument("what", type=click.Choice(["write", "check"]))
def main(what: str) -> None:
    if what == "write":
        PATH.write_text(text(), "utf-8")
    elif PATH.read_text("utf-8") != text():
        raise click.ClickException("the dashboard is not what panels.py says: python -m deploy.grafana write")


if __name__ == "__main__":
    main(prog_name="python -m deploy.grafana")
