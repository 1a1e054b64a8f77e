"""A directory of scrapes becomes samples and engines of a log: whole, once, odd things told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.pages import import_file
from tests.captured import captured_scrapes
from tests.telemetry.sources.prometheus.pages import (
    START,
    bring,
    engine,
    real_page,
    rows,
    sglang_page,
    vllm_page,
    write,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_captured_storm_is_in_the_log_as_it_was_scraped(tmp_path: Path, log: Path) -> None:
    told = bring(log, captured_scrapes("preemption_storm", tmp_path))
    assert (told.num_read, told.num_unread, told.num_rows) == (24, 0, 24 * 400)
    number = engine("preemption_storm")
    assert rows(log, "SELECT engine, num_usable_blocks, max_num_seqs FROM engines") == [
        (number, 63, None)
    ]
    preemptions = "SELECT ts, value FROM samples WHERE metric = 'vllm:num_preemptions_total'"
    found = rows(log, f"{preemptions} ORDER BY ts")
    assert found[0] == (1_795_953_150_309_000_000, 0.0)
    assert [value for _, value in found][-1] == 97.0
    assert rows(log, "SELECT DISTINCT source FROM samples") == [("prometheus",)]
    assert rows(log, "SELECT sum(num_preemptions)::INT FROM metric_intervals") == [(97,)]


def test_labels_and_buckets_are_as_scraped(tmp_path: Path, log: Path) -> None:
    bring(log, write(tmp_path / "t", real_page()))
    (labels,) = rows(
        log,
        "SELECT labels FROM samples WHERE metric = 'vllm:request_success_total' "
        "AND json_extract_string(labels, '$.finished_reason') = 'length'",
    )[0]
    assert list(json.loads(labels)) == ["engine", "finished_reason", "model_name"]
    buckets = rows(
        log,
        "SELECT json_extract_string(labels, '$.le') AS le FROM samples "
        "WHERE metric = 'vllm:time_to_first_token_seconds_bucket'",
    )
    assert len(buckets) == 23
    assert ("+Inf",) in buckets


def test_what_is_no_page_of_an_engine_is_counted_and_shown(tmp_path: Path, log: Path) -> None:
    directory = captured_scrapes("connector_stall", tmp_path)
    at = 1_795_954_100
    (directory / f"a_{at}.prom").write_text("<html>\x1b[31m502 Bad Gateway</html>\n")
    (directory / f"b_{at + 1}.prom").write_text("node_load1 3\n")
    (directory / f"c_{at + 2}.prom.gz").write_bytes(gzip.compress(real_page().encode())[:3000])
    (directory / f"d_{at + 3}.prom").write_text("")
    told = bring(log, directory)
    assert (told.num_read, told.num_unread) == (30, 4)
    reasons = [example.partition(": ")[2] for example in told.examples]
    assert reasons[0].startswith("no page of metrics: '<html>")
    assert reasons[1:] == [
        "no metric of vLLM or SGLang", "its compressed data are damaged or cut off", "empty",
    ]  # fmt: skip
    assert "\x1b" not in str(rows(log, "SELECT detail FROM imports"))


def test_a_page_that_was_cut_off_is_no_reset(tmp_path: Path, log: Path) -> None:
    page = real_page()
    cut = page[: page.index('finished_reason="abort"') + 30]
    told = bring(log, write(tmp_path / "t", page, cut, page))
    assert told.num_read == 3
    assert any("metrics_001" in note and "request_success" in note for note in told.notes)
    assert rows(log, "SELECT num_finished, is_reset FROM metric_intervals ORDER BY ts") == [
        (None, False), (None, False), (None, False),
    ]  # fmt: skip


def test_bad_lines_cost_themselves_alone(tmp_path: Path, log: Path) -> None:
    page = vllm_page(num_requests_running=1) + "what is this?\n" + vllm_page(num_requests_waiting=2)
    told = bring(log, write(tmp_path / "t", page))
    assert told.num_rows == 2
    assert "lines that are no samples: 1, like 'what is this?'" in told.notes


def test_a_restart_is_a_reset_and_the_engine_stays(tmp_path: Path, log: Path) -> None:
    pages = [
        vllm_page(num_preemptions_total=value) + f"process_start_time_seconds {began}\n"
        for value, began in ((5, 100), (9, 100), (2, 900), (4, 900))
    ]
    bring(log, write(tmp_path / "t", *pages))
    assert rows(log, "SELECT num_preemptions, is_reset FROM metric_intervals ORDER BY ts") == [
        (None, False), (4, False), (None, True), (2, False),
    ]  # fmt: skip
    assert rows(log, "SELECT engine, started_ts FROM engines") == [(engine("t"), 900 * 10**9)]


def test_directories_below_are_engines_of_their_own(tmp_path: Path, log: Path) -> None:
    write(tmp_path / "all" / "a", vllm_page(num_requests_running=1))
    write(tmp_path / "all" / "b", vllm_page(num_requests_running=2))
    (tmp_path / "all" / "b" / "config.json").write_text('{"max_num_seqs": 7}')
    told = bring(log, tmp_path / "all")
    assert told.kinds == {"a": 1, "b": 1}
    assert dict(rows(log, "SELECT engine, max_num_seqs FROM engines")) == {
        engine("a"): None,
        engine("b"): 7,
    }


def test_the_same_directory_is_refused_and_a_fuller_one_adds_what_is_new(
    tmp_path: Path, log: Path
) -> None:
    pages = [vllm_page(num_requests_running=number) for number in range(5)]
    directory = write(tmp_path / "t", *pages[:3])
    bring(log, directory)
    with pytest.raises(ImportRefused, match="already"):
        bring(log, directory)
    told = bring(log, write(directory, *pages))
    assert (told.num_read, told.num_rows) == (2, 2)
    assert any("had already, and that are not in it twice: 3" in note for note in told.notes)
    assert rows(log, "SELECT value FROM samples ORDER BY ts") == [(0,), (1,), (2,), (3,), (4,)]


def test_the_same_moments_of_another_engine_are_new(tmp_path: Path, log: Path) -> None:
    for name in ("t", "u"):
        bring(log, write(tmp_path / name, vllm_page(num_requests_running=1)))
    assert rows(log, "SELECT count(*), count(DISTINCT engine) FROM samples") == [(2, 2)]


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (
            "node_load1 3\nnode_cpu_seconds_total 1\n",
            "there are node_cpu_seconds_total, node_load1",
        ),
        ("garbage here\n", "no page of metrics: 'garbage here'"),
        ("", "empty"),
    ],
)
def test_a_directory_without_an_engine_is_refused_and_leaves_nothing(
    tmp_path: Path, log: Path, page: str, told: str
) -> None:
    with pytest.raises(ImportRefused, match=told):
        bring(log, write(tmp_path / "t", page, page))
    assert list(log.glob("*.duckdb")) == []


def test_a_hostile_page_is_text_and_bounded(tmp_path: Path, log: Path) -> None:
    name = r"\" }\n\\ \x1b[31m<script>"
    lines = [
        f'vllm:num_requests_running{{engine="0",model_name="{name}"}} 1',
        'vllm:num_requests_waiting{engine="\x1b]0;x\x07",model_name="m"} 2',
        'vllm:a{engine="0",x="' + "y" * 9_000_000 + '"} 1',
        *(f'vllm:b{{engine="0",x="{number}"}} 1' for number in range(20_000)),
    ]
    told = bring(log, write(tmp_path / "t", "\n".join(lines) + "\n"))
    assert told.num_rows == 20_002
    assert any(note.startswith("lines that are no samples: 1") for note in told.notes)
    models = {model for (model,) in rows(log, "SELECT model FROM engines")}
    assert models == {'" }\n\\ \\x1b[31m<script>', "m"}
    assert not any("\x1b" in note for note in told.notes)


def test_one_page_alone(tmp_path: Path, log: Path) -> None:
    directory = write(tmp_path / "host", vllm_page(num_requests_running=3))
    (page,) = directory.iterdir()
    told = import_file(log, page, "host", lambda done, total: None)
    assert told.num_rows == 1
    assert rows(log, "SELECT engine, ts, value FROM samples") == [
        (engine("host"), START * 10**9, 3.0)
    ]


def test_progress_is_told_page_by_page(tmp_path: Path, log: Path) -> None:
    from telemetry.sources.prometheus.pages import import_scrapes

    directory = write(tmp_path / "t", *[vllm_page(num_requests_running=1)] * 3)
    seen: list[tuple[int, int]] = []
    import_scrapes(log, directory, "t", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_spellings_of_all_kinds_mean_the_same(tmp_path: Path, log: Path) -> None:
    """Ray's, each counter twice; an old vLLM's."""
    labels = '{ReplicaId="r",engine="0"}'
    for count in (1, 4):
        names = (f"ray_vllm_num_preemptions{end}" for end in ("", "_total"))
        write_at(tmp_path / "all" / "ray", count, "".join(f"{n}{labels} {count}\n" for n in names))
        write_at(tmp_path / "all" / "old", count, vllm_page(gpu_cache_usage_perc=count / 10))
    bring(log, tmp_path / "all")
    found = rows(
        log,
        "SELECT engine, kv_cache_usage_ratio, num_preemptions FROM metric_intervals "
        f"WHERE ts = {START + 4}000000000",
    )
    assert set(found) == {(engine("ray", "r/0"), None, 3), (engine("old"), 0.4, None)}
    assert ("vllm:gpu_cache_usage_perc",) in rows(log, "SELECT DISTINCT metric FROM samples")


def test_an_sglang_is_read_once_a_rank_and_its_retractions_are_preemptions(
    tmp_path: Path, log: Path
) -> None:
    bring(log, write(tmp_path / "t", sglang_page(2), sglang_page(5)))
    assert rows(
        log,
        "SELECT num_running, num_waiting, kv_cache_usage_ratio, num_preemptions, num_finished, "
        "num_generation_tokens, num_prompt_tokens, num_prefix_queries, num_prefix_hits, "
        "num_waiting_deferred FROM metric_intervals ORDER BY ts DESC LIMIT 1",
    ) == [(8, 3, 0.5, 3, 3, 300, 60, 90, 15, None)]
    assert rows(log, "SELECT engine, source, model, num_kv_tokens FROM engines") == [
        (engine("t"), "sglang", "m", 50_000)
    ]


def write_at(directory: Path, second: int, page: str) -> None:
    """Writes one page, so many seconds after the start."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"m_{START + second}.prom").write_text(page)
