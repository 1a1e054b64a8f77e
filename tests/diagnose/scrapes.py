"""Scrapes to diagnose, built by hand: a list of values a series, one page a value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from telemetry.sources.prometheus.directory import find_scrapes, read_page_file
from telemetry.sources.prometheus.engines import Engines
from telemetry.sources.prometheus.page import PageReader, whole_lines
from telemetry.sources.prometheus.storing import sample_rows
from tests.telemetry.log_builder import LogBuilder

NS = 1_000_000_000
Values = Sequence[float | None]

GAUGES: dict[str, tuple[str, dict[str, str]]] = {
    "running": ("vllm:num_requests_running", {}),
    "waiting": ("vllm:num_requests_waiting", {}),
    "capacity": ("vllm:num_requests_waiting_by_reason", {"reason": "capacity"}),
    "deferred": ("vllm:num_requests_waiting_by_reason", {"reason": "deferred"}),
    "loading": ("vllm:num_requests_kv_fetch_by_stage", {"stage": "in_progress"}),
    "loaded": ("vllm:num_requests_kv_fetch_by_stage", {"stage": "completed_waiting"}),
    "kv": ("vllm:kv_cache_usage_perc", {}),
    "started": ("process_start_time_seconds", {}),
}
COUNTERS: dict[str, tuple[str, dict[str, str]]] = {
    "preempt": ("vllm:num_preemptions_total", {}),
    "finished": ("vllm:request_success_total", {"finished_reason": "length"}),
    "aborted": ("vllm:request_success_total", {"finished_reason": "abort"}),
    "hits": ("vllm:prefix_cache_hits_total", {}),
    "queries": ("vllm:prefix_cache_queries_total", {}),
    "failed": ("vllm:nixl_num_failed_transfers_total", {}),
    "expired": ("vllm:nixl_num_kv_expired_reqs_total", {}),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total", {}),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", {}),
    "prompts": ("vllm:prompt_tokens_total", {}),
    "outputs": ("vllm:generation_tokens_total", {}),
}
RATES = {"prompt_tps": "prompts", "gen_tps": "outputs"}
"""Tokens a second, which become the counters of these names."""
LABELS = {"engine": "0", "model_name": "tiny-llama"}


def scraped(
    engine: int = 1,
    *,
    interval_s: float = 10,
    settings: Mapping[str, Any] | None = None,
    first_tokens: float = 0,
    **series: Values,
) -> LogBuilder:
    """An engine of which only scrapes are known; `settings` are columns of `engines`."""
    log = LogBuilder(engine)
    log._add("engines", {"started_ts": log.now, "source": "vllm", "model": "tiny-llama"} | {
        **(settings or {})
    })  # fmt: skip
    totals = dict.fromkeys(RATES.values(), first_tokens)
    for index in range(max(len(values) for values in series.values())):
        for name, values in series.items():
            if index < len(values) and (value := values[index]) is not None:
                if name in RATES:
                    totals[RATES[name]] += value * interval_s
                    value = totals[RATES[name]]
                metric, labels = _named(RATES.get(name, name))
                sample(log, metric, value, labels)
        log.advance(round(interval_s * NS))
    return log


def _named(name: str) -> tuple[str, dict[str, str]]:
    return GAUGES[name] if name in GAUGES else COUNTERS[name]


def sample(
    log: LogBuilder,
    metric: str,
    value: float,
    labels: Mapping[str, str] | None = None,
    *,
    source: str = "prometheus",
) -> LogBuilder:
    """Adds one sample at the builder's moment."""
    text = json.dumps({**LABELS, **(labels or {})}, sort_keys=True)
    row = {"ts": log.now, "source": source, "metric": metric, "labels": text, "value": value}
    return log._add("samples", row)


def histogram(
    log: LogBuilder, family: str, upto: Mapping[str, float], *, source: str = "prometheus"
) -> LogBuilder:
    """Adds the cumulative buckets of a histogram at the builder's moment."""
    for le, value in upto.items():
        sample(log, f"{family}_bucket", value, {"le": le}, source=source)
    return log


def steady(num: int, value: float) -> list[float]:
    """The same value at every scrape."""
    return [value] * num


def calm(num: int = 8, **series: Values) -> LogBuilder:
    """Eight requests that run and nobody waits, but for what is said otherwise."""
    own: dict[str, Values] = {
        "running": steady(num, 8),
        "waiting": steady(num, 0),
        "kv": steady(num, 0.3),
        "gen_tps": steady(num, 240),
        "prompt_tps": steady(num, 20),
        "preempt": steady(num, 0),
        "finished": [3 * i for i in range(num)],
    }
    return scraped(**(own | series))  # type: ignore[arg-type]


def storm(num: int = 8, **series: Values) -> LogBuilder:
    """A full pool: 12 preemptions and 10 requests that end between two scrapes."""
    own: dict[str, Values] = {
        "waiting": steady(num, 12),
        "kv": [0.98, 1.0] * (num // 2),
        "preempt": [12 * i for i in range(num)],
        "finished": [10 * i for i in range(num)],
        "prompt_tps": steady(num, 60),
    }
    return calm(num, **(own | series))


def read_scrapes(directory: Path) -> list[LogBuilder]:
    """What the importer reads in a directory of scrapes, without a log on disk."""
    scrapes = find_scrapes(directory, directory.name)
    engines, reader = Engines(directory.name, scrapes.flags.get(directory.name)), PageReader()
    rows: list[Mapping[str, Any]] = []
    for page in scrapes.pages:
        lines, _ = whole_lines(read_page_file(page.path))
        samples = [(series, value) for series, value, _ in reader.read(lines)]
        for series, value in samples:
            engines.learn(series, value)
        rows += sample_rows(engines, page.ts, samples)
    builders = {}
    for engine, row in engines.rows(scrapes.pages[0].ts).items():
        builders[engine] = LogBuilder(engine)._add("engines", asdict(row))
    for told in rows:
        builders[told["engine"]].rows["samples"].append(dict(told))
    return list(builders.values())
