"""The commands on a recorded run, as a person types them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from telemetry.collector import start_collector
from tests.whole_line.test_kills import rings, wait_until


def stepscope(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )


def record(log: Path, *flags: str, **popen: Any) -> subprocess.CompletedProcess[str]:
    """Runs a recorded engine to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tests.whole_line.storming_engine", str(log), *flags],
        capture_output=True,
        text=True,
        check=True,
        **popen,
    )


def collect(log: Path) -> None:
    start_collector(log, linger_seconds=0.5)
    wait_until(lambda: not rings(log) and not (log / "collector.json").exists())


def diagnosed(log: Path) -> dict[str, Any]:
    return json.loads(stepscope("diagnose", "--log", log, "--json").stdout)


def test_a_storm_is_named_and_accounted_for(log: Path) -> None:
    record(log, "--requests", "80")
    collect(log)
    seen = diagnosed(log)
    assert seen["verdict"]["rule"] == "kv-preemption-pressure"
    assert seen["accounting"]["preemptions"]["unattributed"] == 0
    assert seen["accounting"]["tokens"]["identity_holds"] is True
    result = stepscope("diagnose", "--log", log, "--fail-on", "high")
    assert result.returncode == 1
    assert f"with each command: --log {log}" in result.stdout
    assert stepscope("diagnose", "--log", log).returncode == 0


def test_the_same_load_in_an_ample_pool_is_healthy(log: Path) -> None:
    record(log, "--requests", "80", "--blocks", "2000")
    collect(log)
    result = stepscope("diagnose", "--log", log, "--fail-on", "info")
    assert result.returncode == 0, result.stdout
    assert "no-scheduler-fault" in result.stdout


def test_a_run_limited_by_its_slots_names_them_and_not_kv(log: Path) -> None:
    slow = ("--step-seconds", "0.01")
    record(log, "--requests", "80", "--blocks", "2000", "--max-num-seqs", "4", *slow)
    collect(log)
    seen = diagnosed(log)
    assert [finding["rule"] for finding in seen["findings"]] == ["seq-slot-limit"]


def test_what_a_ring_too_small_has_lost_is_unattributed(log: Path) -> None:
    """Nobody collects while 1 MiB of ring holds only the end of a long storm."""
    record(
        log, "--requests", "3000", "--step-seconds", "0",
        env={**os.environ, "STEPSCOPE_RING_MB": "1"},
    )  # fmt: skip
    collect(log)
    seen = diagnosed(log)
    preemptions = seen["accounting"]["preemptions"]
    assert preemptions["unattributed"] > 0
    assert preemptions["unattributed"] == preemptions["counter"] - preemptions["recorded"]
    assert seen["data_quality"]["num_steps_missing"] > 0


def test_without_room_for_a_ring_the_engine_runs_on_with_one_warning(log: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = record(log, "--requests", "40", preexec_fn=small_files_only)
    assert len(result.stdout.split()) > 30
    assert result.stderr.count("runs unrecorded") == 1
    assert not rings(log)


def test_a_step_is_worked_out_by_hand(log: Path) -> None:
    record(log, "--requests", "40")
    collect(log)
    said = stepscope("step", "3", "--log", log).stdout
    assert "step 3" in said
    assert "--detail full" in said


def test_a_query_prints_rows(log: Path) -> None:
    record(log, "--requests", "40")
    collect(log)
    sql = "SELECT count(*) AS n FROM requests"
    result = stepscope("query", sql, "--log", log, "--format", "json")
    assert json.loads(result.stdout) == [{"n": 40}]


def test_an_engine_that_cannot_start_leaves_its_reason_in_the_log(log: Path) -> None:
    result = stepscope(
        *("serve", "--log", log, "--port", "0", "--linger", "0.5"),
        *("--scripted-step-seconds", "0", "--no-enable-chunked-prefill"),
    )
    assert result.returncode == 2
    wait_until(lambda: not rings(log) and not (log / "collector.json").exists())
    sql = "SELECT text FROM request_events WHERE kind = event_kind('engine_failed')"
    said = json.loads(stepscope("query", sql, "--log", log, "--format", "json").stdout)
    assert len(said) == 1
    assert "without chunked prefill" in said[0]["text"]


def test_a_log_that_cannot_be_one_is_told_before_the_engine_starts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    result = stepscope("serve", "--log", path, "--port", "0")
    assert result.returncode == 2
    assert "cannot be a log directory" in result.stderr
    assert result.stdout == ""


def test_what_the_machine_refuses_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    result = stepscope("query", "SELECT 1", "--log", tmp_path / ("long" * 100))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
