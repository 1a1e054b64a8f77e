"""The list of runs: what can be played, asked and told apart."""

from __future__ import annotations

import pytest

from benchmarks.whatif.playing import settings_of
from benchmarks.whatif.runs import RUNS, Run
from benchmarks.whatif.simulated import simulated
from diagnose.reading import read_row
from diagnose.replay.edits import changed_config
from diagnose.replay.settable import SETTINGS
from engine.config import EngineConfig
from telemetry.vocabulary import EventKind
from tests.benchmarks.whatif.runs import small_run

VLLM_CHANGES = ("max_num_seqs", "num_gpu_blocks")


def test_names_and_seeds_tell_runs_apart() -> None:
    assert len({run.name for run in RUNS}) == len({run.seed for run in RUNS}) == len(RUNS)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_change_is_one_that_an_engine_can_be_started_with(run: Run) -> None:
    name, _ = run.change
    known = settings_of(run, is_changed=True)
    del known["max_model_len"]
    assert changed_config(EngineConfig(), known) != changed_config(
        EngineConfig(), {**known, name: run.settings.get(name, _default(name))}
    )
    assert run.engine == "simulated" or SETTINGS[name].flag is not None
    assert run.engine != "vllm" or name in VLLM_CHANGES


def _default(name: str) -> object:
    config = EngineConfig()
    parts = (config.scheduler, config.cache, config.speculation)
    return next(getattr(part, name) for part in parts if hasattr(part, name))


def test_a_store_brings_back_what_it_kept_of_evicted_requests() -> None:
    run = small_run(connector="keeps", load_seconds=0.05)
    log = simulated(run, settings_of(run, is_changed=False))
    sql = f"""
        SELECT count(*) FILTER (kind = {int(EventKind.preempted)})::BIGINT AS num_evicted,
          count(*) FILTER (kind = {int(EventKind.load_finished)})::BIGINT AS num_loaded,
          count(*) FILTER (kind = {int(EventKind.save_finished)})::BIGINT AS num_saved
        FROM request_events
    """
    row = read_row(log, sql)
    assert row["num_evicted"] > 0
    assert 0 < row["num_loaded"] <= row["num_evicted"]
    assert row["num_saved"] >= row["num_loaded"]


def test_the_same_seed_gives_the_same_run() -> None:
    run = small_run()
    sql = "SELECT count(*) AS num_steps, max(ts) AS last_ts FROM steps"
    first, second = (simulated(run, settings_of(run, is_changed=False)) for _ in range(2))
    assert read_row(first, sql) == read_row(second, sql)
