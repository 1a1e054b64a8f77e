"""Each version's lines of numbers give the same metrics."""

from __future__ import annotations

import pytest

from telemetry.sources.vllm_log import iterations, stats

V0 = (
    "Avg prompt throughput: 11.2 tokens/s, Avg generation throughput: 33.4 tokens/s, "
    "Running: 5 reqs, Swapped: 1 reqs, Pending: 7 reqs, GPU KV cache usage: 99.1%, "
    "CPU KV cache usage: 12.5%."
)
NOW = (
    "Engine 003: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, "
    "Running: 3 reqs, Waiting: 9 reqs, Deferred: 4 reqs, KV fetch: 1 waiting to start, "
    "2 in progress, 3 completed waiting, Preemptions: 6, GPU KV cache usage: 50.0%, "
    "Prefix cache hit rate: 10.0%, External prefix cache hit rate: 20.0%, MM cache hit rate: 30.0%"
)


def values(message: str) -> dict[str, float]:
    line = stats.parse(message)
    assert line is not None
    return {sample.metric: sample.value for sample in line.samples}


def test_v0_has_two_kv_caches_of_which_the_first_is_the_engines() -> None:
    assert values(V0) == {
        "log:avg_prompt_throughput": 11.2,
        "log:avg_generation_throughput": 33.4,
        "log:running": 5,
        "log:swapped": 1,
        "log:pending": 7,
        "log:kv_cache_usage": pytest.approx(0.991),
        "log:cpu_kv_cache_usage": 0.125,
    }


def test_the_current_line_is_understood_in_all_its_parts() -> None:
    assert values(NOW) == {
        "log:avg_prompt_throughput": 1.0,
        "log:avg_generation_throughput": 2.0,
        "log:running": 3,
        "log:waiting": 9,
        "log:deferred": 4,
        "log:kv_fetch_waiting_to_start": 1,
        "log:kv_fetch_in_progress": 2,
        "log:kv_fetch_completed_waiting": 3,
        "log:preemptions": 6,
        "log:kv_cache_usage": 0.5,
        "log:prefix_cache_hit_rate": 0.1,
        "log:external_prefix_cache_hit_rate": 0.2,
        "log:mm_cache_hit_rate": 0.3,
    }


def test_the_engine_of_a_line_is_its_rank() -> None:
    line = stats.parse(NOW)
    assert line is not None
    assert line.engine == "3"


def test_a_line_about_all_engines_is_of_none() -> None:
    line = stats.parse("2 Engines Aggregated: " + V0)
    assert line is not None
    assert line.engine == "all"


def test_the_second_line_of_v0_tells_both_hit_rates() -> None:
    assert values("Prefix cache hit rate: GPU: 25.00%, CPU: 50.00%") == {
        "log:prefix_cache_hit_rate": 0.25,
        "log:cpu_prefix_cache_hit_rate": 0.5,
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Speculative metrics: Draft acceptance rate: 0.797, System efficiency: 0.640, Number "
            "of speculative tokens: 5, Number of accepted tokens: 80, Number of draft tokens: 100, "
            "Number of emitted tokens: 90.",
            {"draft_acceptance_rate": 0.797, "accepted_tokens": 80, "drafted_tokens": 100},
        ),
        (
            "SpecDecoding metrics: Draft acceptance rate: 38.8%, Mean acceptance length: 2.16, "
            "Accepted: 150 tokens, Drafted: 387 tokens, Per-position acceptance rate: 0.543, 0.357",
            {
                "draft_acceptance_rate": 0.388,
                "accepted_tokens": 150,
                "mean_acceptance_length": 2.16,
            },
        ),
        (
            "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 10.00 "
            "tokens/s, Drafted throughput: 20.00 tokens/s, Accepted: 30 tokens, Drafted: 60 "
            "tokens, Per-position acceptance rate: 0.900, 0.600, Avg Draft acceptance rate: 50.0%",
            {"draft_acceptance_rate": 0.5, "accepted_throughput": 10.0, "drafted_tokens": 60},
        ),
    ],
    ids=["V0", "V1 early", "0.32"],
)
def test_speculation_has_the_same_metrics_in_every_version(
    message: str, expected: dict[str, float]
) -> None:
    found = values(message)
    assert {name: found[f"log:spec_{name}"] for name in expected} == pytest.approx(expected)


def test_the_acceptance_of_each_position_is_labelled() -> None:
    line = stats.parse("SpecDecoding metrics: Per-position acceptance rate: 0.900, 0.600")
    assert line is not None
    positions = [s for s in line.samples if s.metric == "log:spec_position_acceptance_rate"]
    assert [(s.labels, s.value) for s in positions] == [
        ((("position", "0"),), 0.9),
        ((("position", "1"),), 0.6),
    ]


def test_what_is_not_a_number_is_not_measured() -> None:
    found = values("SpecDecoding metrics: Draft acceptance rate: nan%, Accepted: 0 tokens")
    assert found == {"log:spec_accepted_tokens": 0}


def test_transfers_of_a_connector_are_told() -> None:
    found = values("KV Transfer metrics: Num successful transfers=4, Throughput (MB/s)=1629.549")
    assert found == {
        "log:kv_transfer_num_successful_transfers": 4,
        "log:kv_transfer_throughput_mb_s": 1629.549,
    }


def test_a_number_of_a_later_version_is_kept_under_its_name() -> None:
    assert values("Avg prompt throughput: 1.0 tokens/s, Parked elsewhere: 7 reqs") == {
        "log:avg_prompt_throughput": 1.0,
        "log:parked_elsewhere": 7,
    }


@pytest.mark.parametrize("message", ["", "Added request cmpl-1.", "Running: 4 reqs"])
def test_other_lines_are_no_lines_of_numbers(message: str) -> None:
    assert stats.parse(message) is None
    assert not stats.looks_like(message)


def test_a_line_in_words_of_the_future_is_noticed() -> None:
    message = "Engine 000: Avg prompt throughput: many tokens/s"
    assert stats.parse(message) is None
    assert stats.looks_like(message)


ITERATION = (
    "Iteration(17): 2 context requests, 640 context tokens, 9 generation requests, "
    "1421 generation tokens, iteration elapsed time: 12.34 ms"
)


def test_the_iteration_line_is_understood_with_and_without_its_later_parts() -> None:
    early = iterations.parse(ITERATION)
    late = iterations.parse(
        f"Engine 001: {ITERATION} (dummy), GPU KV cache usage: 75.0%, encoder inputs: 2, "
        "encoder output embeddings: 576"
    )
    assert early is not None
    assert late is not None
    assert (early.engine, late.engine) == (None, "1")
    assert {s.metric: s.value for s in early.samples} == {
        "log:iteration": 17,
        "log:iteration_context_requests": 2,
        "log:iteration_context_tokens": 640,
        "log:iteration_generation_requests": 9,
        "log:iteration_generation_tokens": 1421,
        "log:iteration_elapsed_ms": 12.34,
    }
    more = {s.metric: s.value for s in late.samples[len(early.samples) :]}
    assert more == {
        "log:iteration_encoder_inputs": 2,
        "log:iteration_encoder_embeddings": 576,
        "log:iteration_kv_cache_usage": 0.75,
    }
    assert {s.labels for s in late.samples} == {(("dummy", "true"),)}
