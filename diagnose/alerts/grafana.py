"""A Grafana dashboard as its JSON model: rows of panels, laid out in order, the same each time.

What is on it is `panels`' business. Nothing here knows a metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "table"]

SCHEMA_VERSION = 39
"""Of Grafana's dashboard model, as Grafana 10.4 writes it; later ones migrate it."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8
"""Columns of Grafana's grid, and the height of a panel in its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One query, and what its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart. `unit` is Grafana's: `percentunit`, `s`, `short`, ...

    `thresholds` are values from which it turns orange, then red.
    """

    title: str
    targets: tuple[Target, ...]
    unit: str = "short"
    note: str = ""
    kind: Kind = "timeseries"
    width: int = 8
    stacked: bool = False
    thresholds: tuple[float, ...] = ()
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice at the top: the values that a label has on a series."""

    name: str
    label: str
    query: str


def dashboard_json(title: str, uid: str, variables: Sequence[Variable], rows: Sequence[Row]) -> str:
    """Returns the text of a dashboard."""
    document = {
        "uid": uid,
        "title": title,
        "tags": ["stepscope", "vllm", "llm-inference"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": [_alerts_annotation()]},
        "templating": {"list": [_datasource_variable(), *map(_variable, variables)]},
        "panels": list(_laid_out(rows)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _alerts_annotation() -> dict[str, Any]:
    """Draws a line where an alert of ours begins to fire."""
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": DATASOURCE,
        "expr": 'ALERTS{alertname=~"Stepscope.+",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
    }


def _datasource_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": variable.query, "refId": f"variable-{variable.name}"},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left = top + HEIGHT, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += panel.width
        top += HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.note,
        "datasource": DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": target.expr,
                "legendFormat": target.legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                **({"format": "table"} if panel.kind == "table" else {}),
            }
            for index, target in enumerate(panel.targets)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
    }


def _field(panel: Panel) -> dict[str, Any]:
    colours = ("green", "orange", "red")
    steps = [
        {"color": colour, "value": value}
        for colour, value in zip(colours, (None, *panel.thresholds), strict=False)
    ]
    field: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        field["max"] = panel.most
    if panel.thresholds:
        field["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        lines: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 20 if panel.stacked else 0}
        lines["showPoints"] = "never"
        lines["spanNulls"] = False  # a gap in the scrapes is shown, never bridged
        if panel.stacked:
            lines["stacking"] = {"mode": "normal", "group": "A"}
        if panel.thresholds:
            lines["thresholdsStyle"] = {"mode": "line"}
        field["custom"] = lines
    return field


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name"}
    return {"showHeader": True}
