"""A real Prometheus evaluates the rules on real pages without an error in any of them.

What `promtool` cannot see: series of several targets that a rule would match many to many.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from diagnose.alerts.rules_file import rules_text
from telemetry.exporters.metrics import METRICS, Sample
from telemetry.exporters.metrics_server import MetricsServer
from telemetry.exporters.page import render_page
from telemetry.exporters.prometheus import render
from tests.captured import captured_scrapes
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.exporters.test_prometheus import Adapters, Drafts, Numbers
from tests.telemetry.exporters.test_scrape import Prometheus, prometheus

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus binary: apt-get install prometheus"
)

OLD_ADAPTERS = b"""
vllm:lora_requests_info{max_lora="2",running_lora_adapters="x",waiting_lora_adapters=""} 5
"""
"""What stays on a page of adapters that ran before."""


def rules_of(server: Prometheus) -> list[dict[str, Any]]:
    with urlopen(f"{server.url}/api/v1/rules") as answer:
        groups = json.load(answer)["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_rule_is_evaluated_without_an_error(tmp_path: Path) -> None:
    captured = sorted(captured_scrapes("connector_stall", tmp_path).glob("*.prom"))
    ours = render(Numbers(cache_config={}, adapters=Adapters(), drafts=Drafts()))
    own = render_page(
        {metric.name: [Sample(("x",) * len(metric.labels), 1.0)] for metric in METRICS}
    )
    text = captured[15].read_bytes()
    other = text.replace(b'engine="0"', b'engine="1"')
    pages = {"vllm": text, "rank": other, "ours": ours + OLD_ADAPTERS, "stepscope-collector": own}
    servers = {
        job: MetricsServer("127.0.0.1", 0, lambda page=page: page) for job, page in pages.items()
    }
    rules = tmp_path / "rules.yml"
    rules.write_text(rules_text(max_num_seqs=32).replace("interval: 15s", "interval: 1s"))
    targets = {
        job: server.url.removeprefix("http://").removesuffix("/metrics")
        for job, server in servers.items()
    }
    try:
        with prometheus(tmp_path, targets, rules=rules) as server:
            wait_until(lambda: len(server.ask("count_over_time(up[1m]) > 8")) == len(targets))
            wait_until(lambda: all(rule["health"] != "unknown" for rule in rules_of(server)))
            wrong = {
                rule["name"]: rule.get("lastError")
                for rule in rules_of(server)
                if rule["health"] != "ok"
            }
            slots = server.by("job", "stepscope:max_num_seqs")
            active = server.ask('ALERTS{alertname="StepscopeFindingActive"}')
    finally:
        for each in servers.values():
            each.close()
    assert wrong == {}
    assert slots == {"vllm": 32, "rank": 32, "ours": 32}
    assert active == []  # severity x is neither high nor critical
