"""`python -m deploy.grafana write|check`: the dashboard's JSON, from `panels.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from deploy.grafana.panels import ROWS, Panel

PATH: Final = Path(__file__).parent / "dashboards" / "overview.json"

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_ALL: Final = ".*"
"""Chosen where nothing is: also of series without the label, as where one deployment is scraped without a name."""
_LABELS: Final = ("deployment", "role", "instance")
"""Labels of which a person chooses values; each variable offers those that go with the choices before it."""
_METRIC: Final = re.compile(r"\b((?:groundwire|process)_\w+)(?:\{([^}]*)\})?")
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
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def chosen(expr: str, labels: Sequence[str] = _LABELS) -> str:
    """Return a query of what the variables choose; what other exporters count has none of the labels."""
    own = [f'{label}=~"${label}"' for label in labels]
    return _METRIC.sub(lambda found: f"{found[1]}{{{', '.join([*filter(None, [found[2]]), *own])}}}", expr)


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    for at, label in enumerate(_LABELS):
        series = chosen('process_start_time_seconds{job="groundwire"}', _LABELS[:at])
        yield {
            "name": label,
            "label": label.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({series}, {label})", "refId": label},
            "refresh": 2,  # with the range of times
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": _ALL,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


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
                "expr": chosen(query.expr),
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
