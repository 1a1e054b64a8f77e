"""The Grafana dashboard: current, the same each time, and made of queries that show something."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.alerts.alert import metrics_in
from diagnose.alerts.panels import ROWS, VARIABLES, dashboard_text
from telemetry.exporters.metrics import METRICS, Sample
from telemetry.exporters.metrics_server import MetricsServer
from telemetry.exporters.page import render_page
from tests.captured import captured_scrapes
from tests.deploy.lines import DEPLOY, load
from tests.diagnose.alerts.metric_names import known, matched_labels, regrouped_labels
from tests.diagnose.alerts.test_promtool import needs_promtool, promtool
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.exporters.test_scrape import prometheus

EXPRESSIONS = [target.expr for row in ROWS for panel in row.panels for target in panel.targets]
NOT_ON_THE_PAGE = {"vllm:nixl_", "vllm:spec_decode_", "ALERTS"}
"""What the captured engine does not count: it has no such connector, drafts nothing, alerts not."""


def asked(expr: str, interval: str = "5m") -> str:
    """Returns a query as Grafana sends it when everything is chosen."""
    return re.sub(r"\$(model|instance|engine|start)\b", ".*", expr).replace(
        "$__rate_interval", interval
    )


def document() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(dashboard_text())
    return told


def test_it_is_the_same_each_time() -> None:
    assert dashboard_text() == dashboard_text()


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_series_and_label_of_a_query_exists(expr: str) -> None:
    names = set(metrics_in(expr))
    assert names <= set(known())
    assert names or "ALERTS" in expr
    for series, labels in matched_labels(asked(expr)):
        if series != "ALERTS":
            assert labels <= known()[series]
    if names:
        assert regrouped_labels(expr) <= set().union(*(known()[name] for name in names))


def test_every_variable_reads_a_label_that_exists() -> None:
    for variable in VARIABLES:
        match = re.fullmatch(r"label_values\(([\w:]+)(\{.*\})?, (\w+)\)", variable.query)
        assert match is not None
        assert match[3] in known()[match[1]]


def test_every_variable_is_used() -> None:
    text = " ".join(EXPRESSIONS)
    assert all(f"${variable.name}" in text for variable in VARIABLES)


@needs_promtool
def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": asked(expr)}
        for number, expr in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap_and_keep_to_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in document()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_ids_and_titles_are_unique() -> None:
    panels = document()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_every_query_asks_the_chosen_prometheus() -> None:
    for panel in document()["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_a_gap_is_never_bridged() -> None:
    for panel in document()["panels"]:
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False


def test_compose_mounts_the_dashboard_where_grafana_looks_for_it() -> None:
    mounts = load("compose.yaml")["services"]["grafana"]["volumes"]
    places = dict(mount.removesuffix(":ro").rsplit(":", 1) for mount in mounts)
    assert all((DEPLOY / source).exists() for source in places)
    (provider,) = load("grafana/provisioning/dashboards/stepscope.yml")["providers"]
    assert places["./grafana/stepscope.json"] == f"{provider['options']['path']}/stepscope.json"


def test_the_provisioned_datasource_is_the_composed_prometheus() -> None:
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in load("compose.yaml")["services"]


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus binary: apt-get install prometheus"
)
def test_every_query_shows_something_of_real_pages(tmp_path: Path) -> None:
    """A real vLLM's captured page and the collector's own, scraped by a real Prometheus."""
    page = sorted(captured_scrapes("connector_stall", tmp_path).glob("*.prom"))[15].read_bytes()
    own = render_page(
        {metric.name: [Sample(("x",) * len(metric.labels), 1.0)] for metric in METRICS}
    )
    engine = MetricsServer("127.0.0.1", 0, lambda: page)
    collector = MetricsServer("127.0.0.1", 0, lambda: own)
    try:
        targets = {
            job: server.url.removeprefix("http://").removesuffix("/metrics")
            for job, server in (("engine", engine), ("collector", collector))
        }
        with prometheus(tmp_path, targets) as server:
            settled = "count_over_time(vllm:num_requests_running[1m]) > 4"
            wait_until(lambda: server.ask(settled))
            wait_until(lambda: server.ask("count_over_time(stepscope_engine_up[1m]) > 4"))
            empty = {expr for expr in EXPRESSIONS if not server.ask(without_filter(expr))}
    finally:
        engine.close()
        collector.close()
    unexpected = {expr for expr in empty if not any(name in expr for name in NOT_ON_THE_PAGE)}
    assert not unexpected


def without_filter(expr: str) -> str:
    """Returns a query over pages that stand still: their rates are 0, and `> 0` would hide them."""
    return asked(expr, "1m").replace(" > 0)", " >= 0)")
