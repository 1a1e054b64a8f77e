"""Whole logs of real servers: what they tell, and what they cannot."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterator

import pytest

from tests.telemetry.sources.vllm_log.builders import CAPTURED, Imported, import_file

SCRAPES = CAPTURED.parent / "scrapes" / "preemption_storm.tar.xz"
NAMES = ("capture", "cls", "dp2", "gemma", "kv", "probe")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Imported]:
    """All captured logs, each in a step log of its own."""
    folder = tmp_path_factory.mktemp("logs")
    return {name: import_file(CAPTURED / f"serve_{name}.log.gz", folder / name) for name in NAMES}


@pytest.fixture(scope="module")
def storm(logs: dict[str, Imported]) -> Imported:
    """The log of the server that went through the preemption storm."""
    return logs["capture"]


def lines_with(name: str, words: str) -> list[str]:
    text = gzip.decompress((CAPTURED / f"serve_{name}.log.gz").read_bytes()).decode()
    return [line for line in text.splitlines() if words in line]


def counter_of_the_scrapes() -> Iterator[int]:
    """Yields vLLM's own counter of preemptions, page by page."""
    with tarfile.open(SCRAPES) as pages:
        for member in sorted(pages.getnames()):
            file = pages.extractfile(member) if member.endswith(".prom") else None
            if file is not None:
                text = file.read().decode()
                (value,) = re.findall(r"^vllm:num_preemptions_total\{.*\} ([\d.]+)$", text, re.M)
                yield int(float(value))


@pytest.mark.parametrize("name", NAMES)
def test_hardly_a_line_is_not_understood(logs: dict[str, Imported], name: str) -> None:
    told = logs[name].told()
    assert logs[name].code == 0
    assert told["num_unread"] <= 14
    assert told["num_read"] + told["num_unread"] == len(lines_with(name, ""))


def test_every_iteration_line_is_read(storm: Imported) -> None:
    lines = lines_with("capture", "Iteration(")
    assert len(lines) == 1244
    rows = storm.rows(
        "SELECT count(*) AS n, min(value) AS first, max(value) AS last, "
        "count(DISTINCT ts) AS moments FROM samples WHERE metric = 'log:iteration'"
    )
    assert rows == [{"n": 1244, "first": 0.0, "last": 1243.0, "moments": 1244}]


def test_sums_of_the_iterations_equal_those_of_the_text(storm: Imported) -> None:
    pattern = re.compile(r"(\d+) context tokens, \d+ generation requests, (\d+) generation tokens")
    found = [
        match for line in lines_with("capture", "Iteration(") if (match := pattern.search(line))
    ]
    expected = [sum(int(match[group]) for match in found) for group in (1, 2)]
    sums = storm.rows(
        "SELECT metric, sum(value) AS n FROM samples WHERE metric LIKE 'log:iteration_%_tokens' "
        "GROUP BY metric ORDER BY metric"
    )
    assert [row["n"] for row in sums] == expected


def test_iterations_keep_their_order(storm: Imported) -> None:
    rows = storm.rows(
        "SELECT count(*) AS n FROM (SELECT value - lag(value) OVER (ORDER BY ts) AS more "
        "FROM samples WHERE metric = 'log:iteration') WHERE more <> 1"
    )
    assert rows == [{"n": 0}]


def test_of_the_storms_preemptions_the_log_tells_none_and_the_counter_97(storm: Imported) -> None:
    told_by_log = storm.rows(
        "SELECT (SELECT count(*) FROM samples WHERE metric LIKE '%preempt%')"
        " + (SELECT count(*) FROM log_lines WHERE kind = 'preempted') AS n"
    )
    assert told_by_log == [{"n": 0}]
    assert list(counter_of_the_scrapes())[-1] == 97
    (note,) = (note for note in storm.told()["notes"] if note.startswith("preemptions"))
    assert "no sign that there were none" in note
    assert "vllm:num_preemptions_total" in note


def test_the_storm_is_in_the_log_as_a_full_cache_and_as_steps_that_recompute(
    storm: Imported,
) -> None:
    (row,) = storm.rows(
        "SELECT max(value) FILTER (metric = 'log:iteration_kv_cache_usage') AS most_used, "
        "max(value) FILTER (metric = 'log:iteration_generation_tokens') AS most_tokens, "
        "max(value) FILTER (metric = 'log:iteration_generation_requests') AS most_requests "
        "FROM samples"
    )
    assert row["most_used"] == 1.0
    assert row["most_tokens"] == 1421  # by 14 requests: recomputation, which vLLM calls generation
    assert row["most_tokens"] > row["most_requests"]
    assert any("recomputation" in note for note in storm.told()["notes"])


def test_a_lower_bound_of_what_was_recomputed_follows_from_the_iterations(storm: Imported) -> None:
    (row,) = storm.rows(
        "SELECT sum(tokens - requests)::BIGINT AS recomputed FROM ("
        "  SELECT max(value) FILTER (metric = 'log:iteration_generation_tokens') AS tokens,"
        "    max(value) FILTER (metric = 'log:iteration_generation_requests') AS requests"
        "  FROM samples WHERE metric LIKE 'log:iteration%' GROUP BY engine, ts)"
    )
    assert row == {"recomputed": 7756}


def test_the_engine_of_the_storm_is_known_by_its_start(storm: Imported) -> None:
    engine = storm.engine()
    expected = {
        "source": "vllm",
        "version": "0.32.0",
        "model": "tiny-llama",
        "device": "cpu",
        "max_num_seqs": 32,
        "max_model_len": 1024,
        "block_size": 32,
        "num_usable_blocks": 63,
        "num_kv_tokens": 2048,
        "enable_prefix_caching": True,
        "pid": 7200,
        "api_url": "http://127.0.0.1:8100",
    }
    assert {name: engine[name] for name in expected} == expected


def test_two_ranks_are_two_engines(logs: dict[str, Imported]) -> None:
    rows = logs["dp2"].rows(
        "SELECT dp_rank, model, device, num_usable_blocks FROM engines ORDER BY dp_rank"
    )
    assert rows == [
        {"dp_rank": rank, "model": "tiny-llama", "device": "cpu", "num_usable_blocks": 63}
        for rank in (0, 1)
    ]


def test_a_connector_is_known_and_its_hit_rate_told(logs: dict[str, Imported]) -> None:
    assert logs["kv"].engine()["kv_connector"] == "SlowKV"
    assert logs["kv"].engine()["role"] == "both"
    assert logs["kv"].values()["log:external_prefix_cache_hit_rate"] == pytest.approx(0.49)


def test_a_queue_is_told_by_the_line_of_every_ten_seconds(logs: dict[str, Imported]) -> None:
    (row,) = logs["probe"].rows(
        "SELECT max(num_waiting) AS waiting, max(kv_cache_usage_ratio) AS used, "
        "max(num_preemptions) AS preemptions FROM metric_intervals"
    )
    assert row == {"waiting": 16, "used": pytest.approx(0.952), "preemptions": None}


@pytest.mark.parametrize("name", NAMES)
def test_no_engine_died_where_it_was_only_shut_down(logs: dict[str, Imported], name: str) -> None:
    assert set(logs[name].kinds()) <= {"engine_starting", "engine_ready", "cache_reset", "shutdown"}
    assert logs[name].kinds()[-1] == "shutdown"


@pytest.mark.parametrize("name", NAMES)
def test_no_parameter_of_a_request_is_kept(logs: dict[str, Imported], name: str) -> None:
    text = logs[name].everything()
    assert "SamplingParams" not in text
    assert "cmpl-load" not in text
