"""A stock vLLM with nothing installed in it, whose page alone a collector scrapes.

What the log then says of a storm is compared with vLLM's own counters and with the answers that the
clients got; what no scrape knows must be named as not measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.runner.tiny_llama import tiny_llama
from telemetry.store import open_log
from tests.whole_line.vllm.load import Stretch, completion, send
from tests.whole_line.vllm.recording import Installed
from tests.whole_line.vllm.server import VllmServer, serving, wait_until

INTERVAL_SECONDS = 0.5
SECONDS = 60.0
FLAGS = ("--max-model-len", "1024", "--max-num-seqs", "32", "--num-gpu-blocks-override", "64")


@dataclass(frozen=True, slots=True)
class ScrapedStorm:
    """A storm, seen by scrapes; the server has ended since."""

    log: Path
    target: str
    stretch: Stretch
    counted: dict[str, float]
    """vLLM's own counters after it."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with open_log(self.log) as opened:
            return [tuple(row.values()) for row in opened.query(sql).to_pylist()]


@contextmanager
def scraping(log: Path, url: str) -> Iterator[None]:
    """Runs `stepscope collect --scrape` as a user would."""
    command = [sys.executable, "-m", "stepscope", "collect", "--log", str(log)]
    command += ["--scrape", url, "--scrape-interval", str(INTERVAL_SECONDS)]
    with log.with_suffix(".out").open("wb") as output:
        collector = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        collector.terminate()
        collector.wait(timeout=SECONDS)


def latest(log: Path, metric: str) -> float | None:
    """Returns the newest value of a metric in a log that is being written."""
    with open_log(log) as opened:
        sql = f"SELECT arg_max(value, ts) AS value FROM samples WHERE metric = '{metric}'"
        value: float | None = opened.query(sql).to_pylist()[0]["value"]
        return value


@pytest.fixture(scope="module")
def storm(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> ScrapedStorm:
    folder = tmp_path_factory.mktemp("scraped")
    log = folder / "log"
    log.mkdir()
    with scraping(log, "http://127.0.0.1:1"):  # a log that can be opened before the server is up
        wait_until(lambda: bool(list(log.glob("*.duckdb"))), SECONDS)
    vllm = serving(installed.python, tiny_llama(), folder / "vllm.log", FLAGS, {})
    with vllm as server, scraping(log, server.url):
        wait_until(lambda: latest(log, "vllm:num_requests_running") is not None, SECONDS)
        stretch = send(server.url, [completion(seed, 64, 160) for seed in range(140)], at_once=28)
        wait_until(server.is_idle, SECONDS)
        counted = counters(server)
        tokens = "vllm:generation_tokens_total"
        wait_until(lambda: latest(log, tokens) == counted[tokens], SECONDS)
        server.process.terminate()
        wait_until(lambda: latest(log, "up") == 0, SECONDS)
    return ScrapedStorm(log, server.url.removeprefix("http://"), stretch, counted)


def counters(server: VllmServer) -> dict[str, float]:
    names = ("generation_tokens", "prompt_tokens", "num_preemptions", "request_success")
    return {name: server.metric(name) for name in (f"vllm:{name}_total" for name in names)}


def test_every_request_was_answered(storm: ScrapedStorm) -> None:
    assert {result.failure for result in storm.stretch.results} == {None}
    assert storm.counted["vllm:num_preemptions_total"] > 20


def test_the_increases_add_up_to_vllms_own_counters(storm: ScrapedStorm) -> None:
    sums = ", ".join(
        f"sum({name})::DOUBLE"
        for name in (
            "num_generation_tokens",
            "num_prompt_tokens",
            "num_preemptions",
            "num_finished",
        )
    )
    assert storm.rows(f"SELECT {sums} FROM metric_intervals WHERE {ENGINE}") == [
        tuple(storm.counted.values())
    ]
    assert storm.counted["vllm:generation_tokens_total"] == 140 * 160


ENGINE = "engine IN (SELECT engine FROM engines WHERE model IS NOT NULL)"


def test_its_settings_are_what_a_page_says_of_them(storm: ScrapedStorm) -> None:
    settings = "api_url, source, block_size, num_usable_blocks, max_num_seqs"
    assert storm.rows(f"SELECT {settings} FROM engines WHERE model = 'tiny-llama'") == [
        (storm.target, "vllm", 32, 63, None)
    ]


def test_its_end_is_a_gap_and_not_a_zero(storm: ScrapedStorm) -> None:
    last_up = "SELECT max(ts) FROM samples WHERE metric = 'up' AND value = 1"
    after = storm.rows(
        f"SELECT DISTINCT metric, value FROM samples WHERE {ENGINE} AND ts > ({last_up})"
    )
    assert after == [("up", 0.0)]


def test_the_diagnosis_names_the_pressure_and_what_it_cannot_know(storm: ScrapedStorm) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "stepscope", "diagnose", "--json", "--log", str(storm.log)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    report = json.loads(told.stdout)
    assert report["verdict"]["rule"] in {"kv-preemption-pressure", "kv-preemption-thrash"}
    missing = [name for each in report["not_measured"] for name in each["missing"]]
    assert any(name.startswith("steps.") for name in missing)
