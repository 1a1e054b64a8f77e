"""The parts of the store's benchmark, at sizes that take a moment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import store
from benchmarks.storing import collectors, drain, generated, queries, sizes
from benchmarks.storing.drain import Comparison, Cost
from telemetry.store import open_log

NUM_STEPS, NUM_REQUESTS = 40, 8


def rows(log: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_log(log) as opened:
        return [tuple(row.values()) for row in opened.query(sql).to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return sizes.write_log(tmp_path, num_steps=NUM_STEPS, num_requests=NUM_REQUESTS)


def test_the_written_log_is_whole_and_of_one_day(log: Path) -> None:
    assert rows(log, "SELECT count(*) FROM steps") == [(NUM_STEPS,)]
    assert rows(log, "SELECT count(*) FROM step_requests") == [(NUM_STEPS * NUM_REQUESTS,)]
    assert {file.day for file in queries.day_files(log)} == {"2025-11-29"}


def test_a_log_is_weighed_by_its_files(log: Path) -> None:
    found = sizes.measure(log, num_steps=NUM_STEPS, num_dense_rows=NUM_STEPS * NUM_REQUESTS)
    files = [path for path in log.iterdir() if path.suffix == ".duckdb"]
    assert found.main_bytes + found.dense_bytes == sum(path.stat().st_size for path in files)
    assert found.bytes_per_step == found.main_bytes / NUM_STEPS


def test_a_grown_log_has_every_row_as_often(log: Path) -> None:
    tables = ("steps", "step_requests", "request_events", "request_arrivals")
    before = {table: rows(log, f"SELECT count(*) FROM {table}")[0][0] for table in tables}
    generated.grow(log, num_copies=3, span_ns=NUM_STEPS * sizes.NS_PER_STEP)
    after = {table: rows(log, f"SELECT count(*) FROM {table}")[0][0] for table in tables}
    assert after == {table: 4 * num for table, num in before.items()}


def test_the_copies_of_a_grown_log_follow_each_other(log: Path) -> None:
    generated.grow(log, num_copies=3, span_ns=NUM_STEPS * sizes.NS_PER_STEP)
    found = rows(log, "SELECT step, ts FROM steps ORDER BY ts")
    assert found == [
        (number, sizes.DAY + number * sizes.NS_PER_STEP) for number in range(4 * NUM_STEPS)
    ]


def test_the_copies_of_a_grown_log_join(log: Path) -> None:
    generated.grow(log, num_copies=3, span_ns=NUM_STEPS * sizes.NS_PER_STEP)
    orphans = "SELECT count(*) FROM step_requests ANTI JOIN steps USING (engine, step, ts)"
    assert rows(log, orphans) == [(0,)]


def test_a_copy_means_what_the_first_rows_mean(log: Path) -> None:
    generated.grow(log, num_copies=1, span_ns=NUM_STEPS * sizes.NS_PER_STEP)
    numbers = "num_wanted_tokens, num_scheduled_tokens, num_known_tokens, num_blocks"
    first, second = (
        rows(log, f"SELECT {numbers} FROM step_requests WHERE step {side} ORDER BY step, slot")
        for side in (f"< {NUM_STEPS}", f">= {NUM_STEPS}")
    )
    assert first == second


def test_every_question_can_be_asked(log: Path) -> None:
    for question in queries.QUESTIONS:
        for window in queries.WINDOWS:
            answer = queries.ask(log, question, window)
            assert (answer.question, answer.window) == (question, window)
            assert answer.cold_ms > 0 < answer.warm_ms


def test_another_interpreter_answers(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUESTIONS", dict([next(iter(queries.QUESTIONS.items()))]))
    answers = list(queries.ask_all(log, [sys.executable]))
    assert [answer.window for answer in answers] == list(queries.WINDOWS)


def test_a_round_is_drained_and_inserted_as_often(tmp_path: Path) -> None:
    found = drain.compare(tmp_path, steps_per_round=3, num_rounds=4, num_requests=NUM_REQUESTS)
    assert (len(found.drained), len(found.raw), found.rows_per_round) == (4, 4, 24)
    assert rows(tmp_path / "log", "SELECT count(*) FROM step_requests") == [(5 * 24,)]


def test_a_ratio_is_of_the_rounds() -> None:
    found = Comparison(100, drained=[Cost(200, 300)] * 5, raw=[Cost(100, 50)] * 5)
    assert found.ratio() == (0.5, 0.5, 0.5)
    assert found.rows_per_second(found.raw) == 1e9
    assert found.cpu_us_per_row(found.drained) == 0.003


def test_a_collector_is_measured_as_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "WARM_SECONDS", 0.2)
    monkeypatch.setattr(collectors, "_LOOKING_SECONDS", 1.5)
    load = collectors.measure(
        tmp_path, num_engines=2, seconds=4.5, rate=50, num_requests=256, shared_memory=tmp_path
    )
    assert load.is_complete
    assert load.num_steps_stored == load.num_steps_written > 0
    assert load.core_ratio > 0 < load.lag_seconds


def test_the_cpu_of_a_process_is_the_kernels() -> None:
    times = os.times()
    assert collectors.cpu_seconds(os.getpid()) == pytest.approx(times.user + times.system, abs=0.5)


def test_the_command_makes_a_log_and_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queries, "QUESTIONS", dict([next(iter(queries.QUESTIONS.items()))]))
    monkeypatch.setattr(store, "FIRST_COPY_STEPS", 20)
    words = ["store", "--only", "queries", "--rows", "20000", "--keep", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", words)
    assert store.main() == 0
    assert "about 20,000 dense rows" in capsys.readouterr().out
    assert rows(tmp_path / "kept" / "log", "SELECT count(*) FROM step_requests") == [(15360,)]
