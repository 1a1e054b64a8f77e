"""Which engines there are behind pages, and what is known of each."""

from __future__ import annotations

import json

import pytest

from telemetry.errors import ImportRefused
from telemetry.records import EngineRow
from telemetry.sources.prometheus.engines import Engines
from telemetry.sources.prometheus.page import PageReader, whole_lines
from telemetry.sources.prometheus.series import Series
from tests.telemetry.sources.prometheus.pages import START, engine, real_page

NS = 10**9


def learnt(text: str, engines: Engines | None = None) -> tuple[Engines, dict[str, Series]]:
    """Returns what a page tells, and its series by name."""
    engines = engines or Engines("host:8000")
    found = {}
    for series, value, _ in PageReader().read(whole_lines(text)[0]):
        engines.learn(series, value)
        found[series.metric] = series
    return engines, found


def only_row(engines: Engines) -> EngineRow:
    (row,) = engines.rows(START * NS).values()
    return row


def test_a_real_page_describes_its_engine() -> None:
    engines, _ = learnt(real_page())
    assert set(engines.rows(0)) == {engine("host:8000")}
    row = only_row(engines)
    assert (row.source, row.model, row.dp_rank, row.api_url) == (
        "vllm",
        "tiny-llama",
        0,
        "host:8000",
    )
    assert (row.block_size, row.num_usable_blocks, row.has_null_block) == (32, 63, True)
    assert (row.num_kv_tokens, row.enable_prefix_caching) == (2048, True)
    assert (row.gpu_memory_utilization, row.memory_kv_bytes) == (0.92, 1 << 30)
    assert row.started_ts // NS == 1_795_953_110
    assert json.loads(row.settings or "")["num_gpu_blocks"] == "64"


def test_flags_fill_what_pages_do_not_say_and_pages_go_first() -> None:
    flags = {"max_num_seqs": 8, "block_size": 16, "num_gpu_blocks": 10, "dp": 2}
    row = only_row(learnt(real_page(), Engines("host:8000", flags))[0])
    assert (row.max_num_seqs, row.block_size, row.num_usable_blocks) == (8, 32, 63)
    settings = json.loads(row.settings or "")
    assert (settings["dp"], settings["max_num_seqs"]) == (2, 8)


def test_the_pool_can_be_known_from_the_flags_alone() -> None:
    flags = {"block_size": 16, "num_gpu_blocks_override": 50}
    row = only_row(learnt("vllm:num_requests_running 1\n", Engines("t", flags))[0])
    assert (row.block_size, row.num_usable_blocks, row.has_null_block) == (16, 49, True)


def test_ranks_are_engines_and_process_and_server_are_each_of_theirs() -> None:
    engines, found = learnt(
        'vllm:a{engine="0"} 1\nvllm:b{engine="1"} 2\nvllm:c_total 3\nprocess_start_time_seconds 5\n'
    )
    both = (engine("host:8000", "0"), engine("host:8000", "1"))
    assert engines.numbers(found["vllm:a"]) == both[:1]
    assert engines.numbers(found["vllm:b"]) == both[1:]
    assert engines.numbers(found["vllm:c_total"]) == both
    assert engines.numbers(found["process_start_time_seconds"]) == both
    assert [row.dp_rank for row in engines.rows(0).values()] == [0, 1]
    assert {row.started_ts for row in engines.rows(0).values()} == {5 * NS}


def test_a_page_without_ranks_is_the_same_engine_once_it_names_one() -> None:
    engines, found = learnt("vllm:a 1\n")
    before = engines.numbers(found["vllm:a"])
    assert before == (engine("host:8000", "0"),)
    learnt('vllm:b{engine="0"} 1\n', engines)
    assert engines.numbers(found["vllm:a"]) == before
    assert list(engines.rows(0)) == list(before)


def test_what_sglang_counts_for_all_ranks_is_of_none_of_them() -> None:
    engines, found = learnt(
        'sglang:num_running_reqs{dp_rank="0"} 1\nsglang:num_queue_reqs{dp_rank="1"} 1\n'
        "sglang:num_requests_total 9\n"
    )
    assert engines.numbers(found["sglang:num_requests_total"]) == (engine("host:8000", ""),)
    assert {row.dp_rank for row in engines.rows(0).values()} == {None, 0, 1}


def test_an_sglang_is_described() -> None:
    engines, _ = learnt(
        'sglang:num_running_reqs{model_name="m"} 1\nsglang:max_total_num_tokens{} 5e4\n'
        "sglang_page_size 16\nsglang:context_len 8192\n"
    )
    row = only_row(engines)
    assert (row.source, row.model, row.num_kv_tokens) == ("sglang", "m", 50_000)
    assert (row.block_size, row.max_model_len, row.has_null_block) == (16, 8192, None)


def test_labels_may_be_known_before_values() -> None:
    engines = Engines("host:8000")
    ((series, value, _),) = PageReader().read(['sglang:max_total_num_tokens{model_name="m"} 500'])
    engines.learn(series, None)
    assert (only_row(engines).model, only_row(engines).num_kv_tokens) == ("m", None)
    engines.learn(series, value)
    assert only_row(engines).num_kv_tokens == 500


def test_instances_are_targets() -> None:
    engines, _ = learnt(
        'vllm:a{instance="h1:8000",engine="0"} 1\nvllm:a{instance="h2:8000",engine="0"} 1\n'
    )
    assert set(engines.rows(0)) == {engine("h1:8000"), engine("h2:8000")}


def test_replicas_of_ray_are_engines() -> None:
    engines, _ = learnt(
        'ray_vllm_a{ReplicaId="x",engine="0"} 1\nray_vllm_a{ReplicaId="y",engine="0"} 1\n'
    )
    assert set(engines.rows(0)) == {engine("host:8000", "x/0"), engine("host:8000", "y/0")}


def test_a_restart_is_the_same_engine_that_began_later() -> None:
    engines, _ = learnt("vllm:a 1\nprocess_start_time_seconds 100\n")
    before = engines.num_changes
    learnt("process_start_time_seconds 900\n", engines)
    assert engines.num_changes > before
    assert only_row(engines).started_ts == 900 * NS


def test_without_a_start_it_began_when_it_was_first_seen() -> None:
    engines, _ = learnt("vllm:a 1\nprocess_start_time_seconds NaN\n")
    assert only_row(engines).started_ts == START * NS
    learnt("vllm:b 1\n", engines)
    (row,) = engines.rows((START + 60) * NS).values()
    assert row.started_ts == START * NS


def test_too_many_engines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.sources.prometheus.engines.MOST_ENGINES", 3)
    monkeypatch.setattr("telemetry.sources.prometheus.engines.MOST_TARGETS", 3)
    for label, what in (("engine", "engines"), ("instance", "targets")):
        text = "".join(f'vllm:a{{{label}="{number}"}} 1\n' for number in range(4))
        with pytest.raises(ImportRefused, match=f"more than 3 {what}"):
            learnt(text)
