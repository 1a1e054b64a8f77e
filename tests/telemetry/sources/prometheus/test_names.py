"""The one table of names: complete, and without two meanings of one name."""

from __future__ import annotations

import re
from pathlib import Path

from telemetry.sources.prometheus.names import CANONICAL, HISTOGRAMS, LABELS, NAMES
from tests.telemetry.sources.prometheus.pages import real_page


def metrics() -> set[str]:
    """Returns the names on a real page."""
    return {re.split("[{ ]", line)[0] for line in real_page().splitlines()}


def test_a_real_page_has_each_column_of_a_plain_engine() -> None:
    there = metrics()
    found = {column for column, names in CANONICAL.items() if there & set(names)}
    needs_more = {
        "num_failed_transfers", "num_expired_requests", "num_kv_loads_in_progress",
        "num_kv_loads_completed", "num_drafted_tokens", "num_accepted_tokens",
    }  # fmt: skip
    assert set(CANONICAL) - found == needs_more


def test_a_real_page_has_the_histograms() -> None:
    there = metrics()
    for names in HISTOGRAMS.values():
        assert any(f"{name}_bucket" in there for name in names), names


def test_old_names_come_after_new_ones() -> None:
    names = CANONICAL["kv_cache_usage_ratio"]
    assert names.index("vllm:kv_cache_usage_perc") < names.index("vllm:gpu_cache_usage_perc")


def test_rays_second_spelling_of_a_counter_comes_after_the_first() -> None:
    names = CANONICAL["num_preemptions"]
    total, bare = "ray_vllm_num_preemptions_total", "ray_vllm_num_preemptions"
    assert names.index(total) < names.index(bare)


def test_a_name_means_one_column_unless_a_label_tells_them_apart() -> None:
    seen: dict[tuple[str, object], str] = {}
    for name, column, _, _, label in NAMES:
        assert seen.setdefault((name, label), column) == column


def test_sglangs_numbers_of_ended_requests_are_no_progress() -> None:
    names = {*CANONICAL["num_generation_tokens"], *CANONICAL["num_prompt_tokens"]}
    assert "sglang:generation_tokens_total" not in names
    assert "sglang:prompt_tokens_total" not in names
    assert LABELS["num_generation_tokens"]["sglang:realtime_tokens_total"] == ("mode", "decode")


def test_a_gauge_of_retractions_is_no_counter_of_them() -> None:
    assert "sglang:num_retracted_requests_total" in CANONICAL["num_preemptions"]
    assert "sglang:num_retracted_reqs" not in CANONICAL["num_preemptions"]


def test_the_documentation_names_each_column() -> None:
    page = (Path(__file__).parents[4] / "docs" / "sources.md").read_text()
    missing = [column for column in CANONICAL if f"`{column}`" not in page]
    assert missing == ["process_started"]  # no column: a restart is `is_reset`
