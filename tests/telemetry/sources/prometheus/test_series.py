"""Which series are kept, and of which engine each tells."""

from __future__ import annotations

import pytest

from telemetry.sources.prometheus.series import series_of


@pytest.mark.parametrize(
    "metric",
    [
        "vllm:num_requests_running", "ray_vllm_num_requests_running", "vllm_num_requests_running",
        "sglang:token_usage", "sglang_token_usage", "lmcache:num_hit_tokens", "up",
        "process_start_time_seconds", "vllm:time_to_first_token_seconds_bucket",
    ],
)  # fmt: skip
def test_kept(metric: str) -> None:
    assert series_of(metric, {}) is not None


@pytest.mark.parametrize(
    "metric",
    [
        "python_gc_objects_collected_total", "http_requests_total", "process_open_fds",
        "vllm:num_preemptions_created", "node_load1", "ray_node_cpu_utilization",
    ],
)  # fmt: skip
def test_left_out(metric: str) -> None:
    assert series_of(metric, {}) is None


@pytest.mark.parametrize(
    ("metric", "labels", "rank"),
    [
        ("vllm:a", {"engine": "3"}, "3"),
        ("vllm:a", {}, None),
        ("sglang:a", {"dp_rank": "2", "tp_rank": "0"}, "2"),
        ("ray_vllm_a", {"ReplicaId": "x", "WorkerId": "w", "engine": "0"}, "x/0"),
        ("ray_vllm_a", {"ReplicaId": "", "WorkerId": "w"}, "w/0"),
        ("process_start_time_seconds", {"engine": "3"}, None),
    ],
)
def test_the_engine_in_its_target(metric: str, labels: dict[str, str], rank: str | None) -> None:
    series = series_of(metric, labels)
    assert series is not None
    assert series.rank == rank


def test_of_tensor_parallel_ranks_the_first_is_kept() -> None:
    assert series_of("sglang:num_running_reqs", {"tp_rank": "0"}) is not None
    assert series_of("sglang:num_running_reqs", {"tp_rank": "1"}) is None


def test_the_target_is_the_instance_that_a_prometheus_names() -> None:
    series = series_of("vllm:a", {"instance": "10.0.0.1:8000", "job": "vllm"})
    assert series is not None
    assert series.target == "10.0.0.1:8000"
