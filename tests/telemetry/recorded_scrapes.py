"""What the `/metrics` of a vLLM would have shown of the recorded incident, every half second.

Made of what was recorded: the state after the last step before each scrape, the counters so far,
and the time to first token of those who had one. vLLM's counter of preemptions lags; this does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from telemetry.store import Log

EVERY_NS = 500_000_000
BOUNDS = ("0.1", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf")
"""Upper bounds of the histogram, in seconds."""

STEPS = f"""
SELECT s.engine, max(s.ts) AS ts, arg_max(s.num_running, s.ts) AS running,
       arg_max(s.num_waiting, s.ts) AS waiting, arg_max(k.usage_ratio, s.ts) AS used,
       max(s.num_preemptions_total) AS preempted,
       sum(t.num_useful_prefill_tokens)::BIGINT AS prompts,
       sum(t.num_useful_decode_tokens)::BIGINT AS outputs
FROM steps s JOIN kv_pressure k USING (engine, step) JOIN token_work t USING (engine, step)
GROUP BY s.engine, s.ts // {EVERY_NS} ORDER BY s.engine, ts
"""
REQUESTS = "SELECT engine, ts, ttft_ns, finished_ts FROM requests"


def scrape_rows(log: Log) -> Iterator[dict[str, Any]]:
    """Yields the samples of every scrape."""
    requests = log.query(REQUESTS).to_pylist()
    totals: dict[tuple[int, str], int] = {}
    for step in log.query(STEPS).to_pylist():
        engine, ts = step["engine"], step["ts"]
        for name in ("prompts", "outputs"):
            totals[engine, name] = totals.get((engine, name), 0) + step[name]
        own = [each for each in requests if each["engine"] == engine]
        ended = sum(each["finished_ts"] is not None and each["finished_ts"] <= ts for each in own)
        for metric, value in (
            ("num_requests_running", step["running"]),
            ("num_requests_waiting", step["waiting"]),
            ("kv_cache_usage_perc", step["used"]),
            ("num_preemptions_total", step["preempted"]),
            ("prompt_tokens_total", totals[engine, "prompts"]),
            ("generation_tokens_total", totals[engine, "outputs"]),
            ("request_success_total", ended),
        ):
            yield _row(engine, ts, metric, float(value))
        yield from _first_tokens(engine, ts, own)


def _first_tokens(engine: int, ts: int, requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    waited = [
        each["ttft_ns"]
        for each in requests
        if each["ttft_ns"] is not None and each["ts"] + each["ttft_ns"] <= ts
    ]
    for bound in BOUNDS:
        upto = sum(ns <= float(bound) * 1e9 for ns in waited)
        yield _row(engine, ts, "time_to_first_token_seconds_bucket", float(upto), le=bound)


def _row(engine: int, ts: int, metric: str, value: float, **labels: str) -> dict[str, Any]:
    told = {"engine": "0", "model_name": "tiny-llama", **labels}
    return {
        "engine": engine,
        "ts": ts,
        "source": "prometheus",
        "metric": f"vllm:{metric}",
        "labels": json.dumps(told, sort_keys=True),
        "value": value,
    }
