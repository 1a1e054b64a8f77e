"""The pages as a real Prometheus takes them: scraped, stored, and asked with PromQL."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from telemetry.exporters.metrics_server import MetricsServer
from telemetry.exporters.prometheus import render
from telemetry.exporters.status import read_status
from telemetry.store.posting import post_findings
from telemetry.store.presence import find_collector
from tests.telemetry.collector.builders import (
    RINGS,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.exporters.test_prometheus import Numbers
from tests.telemetry.posts import change, saying

ENGINE = "tests.whole_line.storming_engine"
PROMETHEUS = shutil.which("prometheus")
METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
QUERY = next(
    line for line in METRICS_PAGE.read_text().splitlines() if line.startswith("sum by (model)")
)
"""The query that the documentation shows."""
STOPS = "SELECT stop_reason, sum(num_repeats)::BIGINT FROM admission_stops GROUP BY stop_reason"
MODEL = 'a "quoted\\ model\nof two lines'

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="no prometheus binary: apt-get install prometheus"
)


class Prometheus:
    """A server of this test's own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, promql: str) -> list[dict[str, Any]]:
        """Returns what a query gives now."""
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': promql})}") as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        result: list[dict[str, Any]] = told["data"]["result"]
        return result

    def by(self, label: str, promql: str) -> dict[str, float]:
        """Returns what a query gives, by one label."""
        return {each["metric"][label]: float(each["value"][1]) for each in self.ask(promql)}

    def number(self, promql: str) -> float | None:
        """Returns the one number that a query gives; None where it gives nothing."""
        found = self.ask(promql)
        return float(found[0]["value"][1]) if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(
    directory: Path, targets: dict[str, str], *, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes `targets` (address by job) four times a second."""
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 250ms}\n"
        + ("" if rules is None else f"rule_files: ['{rules}']\n")
        + "scrape_configs:\n"
        + "".join(
            f"- job_name: {job}\n  static_configs: [{{targets: ['{address}']}}]\n"
            for job, address in targets.items()
        )
    )
    port = free_port()
    assert PROMETHEUS is not None
    process = subprocess.Popen(
        [
            PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: server.is_ready)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a storm, by a real scheduler."""
    directory = tmp_path_factory.mktemp("scrape")
    log = directory / "log"
    log.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_RING_DIR", str(directory / RINGS))
        patch.setenv("STEPSCOPE_METRICS_PORT", str(free_port()))
        subprocess.run(
            [sys.executable, "-m", ENGINE, str(log), "--requests", "40"],
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        yield log


def page_of(log: Path) -> str:
    """Returns the address of the page that the log's collector serves."""

    def read() -> str | None:
        notice = find_collector(log)
        status = notice and read_status(log, notice.pid)
        return status.metrics_url if status else None

    url: str = wait_until(read)
    return url.removeprefix("http://").removesuffix("/metrics")


def check_findings(log: Path, server: Prometheus) -> None:
    """A finding has no series before it was found; of an engine that has ended it is 0."""
    name = 'stepscope_finding_active{rule="kv-preemption-pressure",severity="high"}'
    assert server.ask("stepscope_finding_active") == []
    ((engine,),) = rows(log, "SELECT engine FROM engines")
    post_findings(log, [change(engine=engine)])
    wait_until(lambda: server.ask(name))
    assert server.number(name) == 0


def test_a_finding_is_one_until_it_is_silenced_or_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("STEPSCOPE_METRICS_PORT", str(port))
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    alert = 'stepscope_finding_active{silenced="false"}'
    with prometheus(tmp_path, {"stepscope": f"127.0.0.1:{port}"}) as server, collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(3,)])
        ((engine,),) = rows(log, "SELECT engine FROM engines")
        post_findings(log, [change(engine=engine)])
        wait_until(lambda: server.number(alert) == 1)
        until_ts = time.time_ns() + 3600 * 10**9
        post_findings(log, [saying("silenced", engine=engine, until_ts=until_ts)])
        wait_until(lambda: server.number(alert) == 0)
        assert server.number('stepscope_finding_active{silenced="true"}') == 1
        post_findings(log, [saying("unsilenced", engine=engine)])
        wait_until(lambda: server.number(alert) == 1)
        over = {"event": "cleared", "status": "cleared", "cleared_ts": time.time_ns()}
        post_findings(log, [change(engine=engine, **over)])
        wait_until(lambda: server.number(alert) == 0)
    ring.close()


def test_promql_on_the_collectors_page_equals_sql(log: Path, tmp_path: Path) -> None:
    """Also after the collector was restarted: its counters go on, they are not reset."""
    port = os.environ["STEPSCOPE_METRICS_PORT"]
    targets = {"stepscope": f"127.0.0.1:{port}"}
    with prometheus(tmp_path, targets) as server, collector_process(log):
        page_of(log)
        wait_until(lambda: rows(log, "SELECT closed FROM drains") == [(True,)])
        counted = dict(rows(log, "SELECT cause, count(*) FROM preemptions GROUP BY cause"))
        lost = rows(log, "SELECT sum(num_computed_tokens_lost)::BIGINT FROM preemptions")
        stops = dict(rows(log, STOPS))
        assert counted["kv_full"] > 5
        wait_until(lambda: server.number('up{job="stepscope"}') == 1)
        by_cause = "sum by (cause) (stepscope_preemptions_total) > 0"
        wait_until(lambda: server.by("cause", by_cause) == counted)
        assert [(server.number("sum(stepscope_tokens_lost_total)"),)] == lost
        by_reason = "sum by (stop_reason) (stepscope_steps_total)"
        assert server.by("stop_reason", by_reason) == stops
        assert server.number("max(stepscope_preemption_unattributed)") == 0
        assert server.number("max(stepscope_recorder_blind)") == 0
        check_findings(log, server)
        (by_model,) = wait_until(lambda: server.ask(QUERY))
        assert by_model["metric"] == {"model": "scripted"}
        (info,) = server.ask("stepscope_engine_info")
        ((engine,),) = rows(log, "SELECT format('{:016x}', engine) FROM engines")
        assert info["metric"]["engine"] == engine
    with prometheus(tmp_path, targets) as server, collector_process(log):
        page_of(log)
        begun = time.time()
        again = f"timestamp(stepscope_build_info) > {begun}"
        wait_until(lambda: server.ask(again))
        assert server.by("cause", by_cause) == counted
        assert server.number("sum(resets(stepscope_preemptions_total[5m]))") == 0


def test_prometheus_takes_the_engines_page_with_a_hostile_name(tmp_path: Path) -> None:
    page = MetricsServer("127.0.0.1", 0, lambda: render(Numbers(model_name=MODEL)))
    try:
        address = page.url.removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, {"engine": address}) as server:
            wait_until(lambda: server.ask("vllm:num_preemptions_total"))
            (running,) = server.ask("vllm:num_requests_running")
            assert (running["metric"]["model_name"], running["value"][1]) == (MODEL, "3")
            quantile = "histogram_quantile(0.5, vllm:time_to_first_token_seconds_bucket)"
            assert server.number(quantile) == 1.0
    finally:
        page.close()
