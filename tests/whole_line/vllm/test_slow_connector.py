"""A vLLM whose KV connector is slow: who waits for a load, and what it does to the others."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.whole_line.vllm.load import Stretch, completion
from tests.whole_line.vllm.recording import Installed, RecordedVllm, recorded_vllm

CONNECTOR = {
    "kv_connector": "SlowKVConnector",
    "kv_connector_module_path": "slow_kv_connector",
    "kv_role": "kv_both",
}
NUM_LOADS = 6
LOAD_TOKENS = 64
LOAD_PROMPT_TOKENS = 100
LOAD_SECONDS = 1.0
NUM_OTHERS = 4
KINDS = ("lookup_pending", "load_started", "load_finished")


@pytest.fixture(scope="module")
def vllm(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedVllm]:
    flags = (
        *("--max-model-len", "1024", "--max-num-seqs", "32", "--num-gpu-blocks-override", "64"),
        *("--kv-transfer-config", json.dumps(CONNECTOR)),
    )
    with recorded_vllm(installed, tmp_path_factory.mktemp("vllm"), flags) as running:
        yield running


@pytest.fixture(scope="module")
def stall(vllm: RecordedVllm) -> Stretch:
    """Requests that wait for their KV, and others that the engine serves meanwhile."""
    load = {"slow_tokens": LOAD_TOKENS, "slow_seconds": LOAD_SECONDS, "slow_answers": 2}
    waiting = [
        completion(n, LOAD_PROMPT_TOKENS, 20, kv_transfer_params=load) for n in range(NUM_LOADS)
    ]
    return vllm.play(waiting + [completion(100 + n, 64, 120) for n in range(NUM_OTHERS)])


def test_requests_wait_for_the_connector_and_for_nothing_else(
    vllm: RecordedVllm, stall: Stretch
) -> None:
    reasons = vllm.skip_reasons(stall)
    assert reasons >= {"remote_kv_lookup_pending", "remote_kv_loading"}
    assert reasons <= {"remote_kv_lookup_pending", "remote_kv_loading", "load_started"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_load_has_its_stages(vllm: RecordedVllm, stall: Stretch, kind: str) -> None:
    (row,) = vllm.rows(
        "SELECT count(DISTINCT request) AS n FROM request_events "
        f"WHERE kind = event_kind('{kind}') AND {stall.where}"
    )
    assert row["n"] == NUM_LOADS


def test_loads_take_as_long_as_the_connector_took(vllm: RecordedVllm, stall: Stretch) -> None:
    loads = vllm.rows(
        "SELECT count(*) AS n, min(load_ns) AS shortest, sum(num_tokens)::BIGINT AS tokens "
        f"FROM connector_loads WHERE {stall.where}"
    )
    (row,) = loads
    assert (row["n"], row["tokens"]) == (NUM_LOADS, NUM_LOADS * LOAD_TOKENS)
    assert row["shortest"] >= LOAD_SECONDS * 1e9


def test_steps_say_how_many_loads_are_under_way(vllm: RecordedVllm, stall: Stretch) -> None:
    (row,) = vllm.rows(
        "SELECT max(num_loads_in_flight) AS loads, max(oldest_load_ns) AS oldest, "
        f"max(num_kv_holding_waiting) AS holding FROM steps WHERE {stall.where}"
    )
    assert (row["loads"], row["holding"]) == (NUM_LOADS, NUM_LOADS)
    assert row["oldest"] >= 0.9 * LOAD_SECONDS * 1e9


def test_what_was_loaded_is_not_counted_as_computed(vllm: RecordedVllm, stall: Stretch) -> None:
    (admitted,) = vllm.rows(
        "SELECT sum(num_external_tokens)::BIGINT AS external FROM request_events "
        f"WHERE kind = event_kind('admitted') AND {stall.where}"
    )
    (steps,) = vllm.rows(
        f"SELECT sum(num_prefill_tokens)::BIGINT AS prefill FROM steps WHERE {stall.where}"
    )
    assert admitted["external"] == NUM_LOADS * LOAD_TOKENS
    assert steps["prefill"] == NUM_LOADS * (LOAD_PROMPT_TOKENS - LOAD_TOKENS) + NUM_OTHERS * 64


def test_our_scheduler_decides_the_same_in_every_step(vllm: RecordedVllm, stall: Stretch) -> None:
    """With the connector's answers and the ends of its loads from the log alone."""
    (found,) = vllm.replay_differences().values()
    assert found == []


def test_the_connector_is_named(vllm: RecordedVllm, stall: Stretch) -> None:
    assert vllm.rows("SELECT kv_connector FROM engines") == [{"kv_connector": "SlowKVConnector"}]
