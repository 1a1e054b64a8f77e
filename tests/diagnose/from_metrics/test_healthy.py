"""Healthy engines of all kinds, scraped: bursts, idle times, long prompts. Nothing may be found."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.diagnosis import diagnose
from tests.diagnose.logs import log_of
from tests.diagnose.scrapes import scraped
from tests.telemetry.log_builder import LogBuilder

POOL = 1_000_000
BUDGET = 8_000
SETTINGS = {"max_num_seqs": 1024, "block_size": 16, "num_usable_blocks": POOL // 16}


def healthy(seed: int) -> LogBuilder:
    """Requests that arrive at random, are prefilled and decode; a second at a time."""
    rng = np.random.default_rng(seed)
    interval_s = int(rng.choice([5, 10, 15, 30]))
    rate, mean_prompt = rng.uniform(0.05, 2), rng.choice([50, 500, 4000])
    mean_output, pace = rng.choice([30, 200, 1000]), rng.uniform(10, 40)
    comes_in_bursts, is_on = rng.random() < 0.5, True
    columns: dict[str, list[float | None]] = {
        name: [] for name in ("running", "waiting", "kv", "prompts", "outputs", "finished")
    }
    requests: list[list[float]] = []  # prompt, output, computed of each
    prompts = outputs = finished = 0.0
    for second in range(40 * interval_s):
        if second % 120 == 0:
            is_on = not comes_in_bursts or rng.random() < 0.6
        arrivals = rng.poisson(rate) if is_on else 0
        requests += [
            [rng.exponential(mean_prompt) + 5, rng.exponential(mean_output) + 2, 0.0, 0.0]
            for _ in range(arrivals)
        ]
        budget = float(BUDGET)
        for request in requests:
            if request[2] < request[0]:
                chunk = min(request[0] - request[2], budget)
                request[2], budget, prompts = request[2] + chunk, budget - chunk, prompts + chunk
            else:
                given = min(pace, request[1] - request[3])
                request[3], outputs = request[3] + given, outputs + given
        left = [request for request in requests if request[3] < request[1] - 1e-9]
        finished, requests = finished + len(requests) - len(left), left
        if (second + 1) % interval_s == 0:
            used = sum(request[2] + request[3] for request in requests) / POOL
            now = (len(requests), 0, min(used, 0.8), round(prompts), round(outputs), finished)
            for name, value in zip(columns, now, strict=True):
                columns[name].append(value)
    columns["preempt"] = [0.0] * 40
    return scraped(interval_s=interval_s, settings=SETTINGS, **columns)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_found_in_a_healthy_engine(seed: int) -> None:
    diagnosis = diagnose(log_of(healthy(seed)))
    assert diagnosis.findings == ()
    assert diagnosis.verdict.rule == "no-scheduler-fault"
