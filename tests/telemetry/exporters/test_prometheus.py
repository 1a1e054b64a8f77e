"""The metrics page, read with Prometheus' own parser and held against vLLM's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, Metric
from prometheus_client.parser import text_string_to_metric_families

from telemetry.exporters.prometheus import HISTOGRAMS, metrics_app, render

CATALOG = Path(__file__).parents[3].parent / "shared" / "vllm" / "metrics_catalog.json"


@dataclass
class Buckets:
    bounds: tuple[float, ...] = (0.5, 1.0)
    counts: tuple[int, ...] = (1, 2, 3)
    total: float = 9.5


@dataclass
class Adapters:
    seconds: float = 1.8e9
    max_loras: int = 2
    running: tuple[str, ...] = ("sql", "chat")
    waiting: tuple[str, ...] = ("legal",)


@dataclass
class Drafts:
    num_drafts: int = 10
    num_draft_tokens: int = 28
    num_accepted_tokens: int = 12
    num_accepted_tokens_per_pos: tuple[int, ...] = (7, 5, 0)


@dataclass
class Numbers:
    """A snapshot that is no engine's: whatever has these fields can be rendered."""

    engine: str = "0"
    model_name: str = 'a "model"'
    started_seconds: float = 1.7e9
    num_running: int = 3
    num_waiting_capacity: int = 4
    num_waiting_deferred: int = 1
    kv_cache_usage_ratio: float = 0.75
    num_preemptions: int = 11
    num_prompt_tokens: int = 100
    num_prompt_tokens_cached: int = 10
    num_generation_tokens: int = 50
    num_prefix_cache_queries: int = 90
    num_prefix_cache_hits: int = 16
    num_finished: dict[str, int] = field(
        default_factory=lambda: {"stop": 2, "length": 3, "abort_client": 1, "abort_api": 1}
    )
    num_admission_rejections: int = 5
    histograms: dict[str, Buckets] = field(
        default_factory=lambda: {name: Buckets() for name in HISTOGRAMS}
    )
    cache_config: dict[str, str] = field(default_factory=lambda: {"block_size": "16"})
    adapters: Adapters | None = None
    drafts: Drafts | None = None


def families(page: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def value_of(page: bytes, sample_name: str, **labels: str) -> float:
    for family in families(page).values():
        for sample in family.samples:
            if sample.name == sample_name and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"{sample_name} {labels} is not on the page")


def test_gauges_and_counters_carry_the_snapshots_numbers() -> None:
    page = render(Numbers())
    assert value_of(page, "vllm:num_requests_running") == 3
    assert value_of(page, "vllm:num_requests_waiting") == 5
    assert value_of(page, "vllm:num_requests_waiting_by_reason", reason="deferred") == 1
    assert value_of(page, "vllm:kv_cache_usage_perc") == 0.75
    assert value_of(page, "vllm:num_preemptions_total") == 11
    assert value_of(page, "vllm:prefix_cache_hits_total") == 16


def test_all_aborts_are_one_finished_reason_and_none_is_missing() -> None:
    page = render(Numbers())
    by_reason = {
        reason: value_of(page, "vllm:request_success_total", finished_reason=reason)
        for reason in ("stop", "length", "abort", "error")
    }
    assert by_reason == {"stop": 2, "length": 3, "abort": 2, "error": 0}


def test_buckets_add_up() -> None:
    page = render(Numbers())
    name = "vllm:time_to_first_token_seconds"
    assert [value_of(page, f"{name}_bucket", le=le) for le in ("0.5", "1.0", "+Inf")] == [1, 3, 6]
    assert value_of(page, f"{name}_count") == 6
    assert value_of(page, f"{name}_sum") == 9.5


def test_a_model_name_with_quotes_survives() -> None:
    sample = families(render(Numbers()))["vllm:num_requests_running"].samples[0]
    assert sample.labels == {"engine": "0", "model_name": 'a "model"'}


def test_drafts_are_counted_as_vllm_counts_them() -> None:
    page = render(Numbers(drafts=Drafts()))
    assert value_of(page, "vllm:spec_decode_num_drafts_total") == 10
    assert value_of(page, "vllm:spec_decode_num_draft_tokens_total") == 28
    assert value_of(page, "vllm:spec_decode_num_accepted_tokens_total") == 12
    by_place = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [value_of(page, by_place, position=str(n)) for n in range(3)] == [7, 5, 0]


def test_an_engine_without_speculation_says_nothing_of_drafts() -> None:
    assert not any("spec_decode" in name for name in families(render(Numbers())))


def test_adapters_are_labels_and_the_value_is_when_that_was_so() -> None:
    samples = families(render(Numbers(adapters=Adapters())))["vllm:lora_requests_info"].samples
    (only,) = samples
    assert only.value == 1.8e9
    assert only.labels == {
        "max_lora": "2",
        "waiting_lora_adapters": "legal",
        "running_lora_adapters": "sql,chat",
    }


def test_an_engine_without_adapters_says_nothing_of_them() -> None:
    assert "vllm:lora_requests_info" not in families(render(Numbers()))


def test_two_pages_do_not_meet_in_a_global_registry() -> None:
    before = {family.name for family in REGISTRY.collect()}
    render(Numbers())
    render(Numbers(num_running=9))
    assert {family.name for family in REGISTRY.collect()} == before


@pytest.mark.skipif(not CATALOG.is_file(), reason="vLLM's catalog of metrics is not here")
def test_every_family_has_the_type_and_labels_that_vllm_gives_it() -> None:
    catalog = {entry["family"]: entry for entry in json.loads(CATALOG.read_text())}
    page = families(render(Numbers(drafts=Drafts())))
    assert len(page) > 20
    for name, family in page.items():
        if name.startswith("vllm:spec_decode_"):
            continue  # the catalog is of a vLLM without drafts
        theirs = catalog[name]
        assert family.type == theirs["type"], name
        labels = {label for sample in family.samples for label in sample.labels}
        if name == "vllm:cache_config_info":
            assert labels <= set(theirs["labels"])
        else:
            assert labels == set(theirs["labels"]), name


@pytest.mark.skipif(not CATALOG.is_file(), reason="vLLM's catalog of metrics is not here")
def test_the_engines_buckets_are_vllms() -> None:
    stats = pytest.importorskip("engine.stats")
    catalog = {entry["family"]: entry for entry in json.loads(CATALOG.read_text())}
    for name, bounds in stats.HISTOGRAM_BOUNDS.items():
        theirs = [float(bound) for bound in catalog[f"vllm:{name}"]["buckets"]]
        assert [*bounds, float("inf")] == theirs, name


def ask(read: Any) -> tuple[int, bytes]:
    """Returns status and body of a scrape."""
    sent: list[MutableMapping[str, Any]] = []

    async def scrape() -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request"}

        await metrics_app(read)({"type": "http"}, receive, send)

    asyncio.run(scrape())
    return sent[0]["status"], sent[1]["body"]


def test_a_scrape_reads_the_engine_anew() -> None:
    async def read() -> Numbers:
        return Numbers(num_running=42)

    status, body = ask(read)
    assert (status, value_of(body, "vllm:num_requests_running")) == (200, 42)


def test_an_engine_that_does_not_answer_fails_the_scrape() -> None:
    async def read() -> Numbers:
        raise RuntimeError("the engine is gone")

    status, body = ask(read)
    assert status == 503
    assert b"the engine is gone" in body
