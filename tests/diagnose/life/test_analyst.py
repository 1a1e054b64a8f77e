"""The analyst as it runs: beside a collector, on the log of a real scheduler in a storm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.analyst import MAX_SHARE, Analyst
from diagnose.life.machine import Change
from diagnose.life.rows import read_lives
from diagnose.life.shares import shares_in
from telemetry.collector import find_collector
from telemetry.doctor.analyst import analyst_checks
from telemetry.store import open_log
from telemetry.store.analyst_status import has_analyst, read_analyst, take_analyst_lock
from telemetry.store.posting import post_findings
from tests.telemetry.collector.builders import (
    RINGS,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.posts import change

ENGINE = "tests.whole_line.storming_engine"
EVENTS = "SELECT rule, event FROM finding_changes ORDER BY ts"
PRESSURE = "kv-preemption-pressure"


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The live log of a storm that is over."""
    folder = tmp_path_factory.mktemp("analyst")
    log = folder / "log"
    log.mkdir()
    environ = {**os.environ, "STEPSCOPE_RING_DIR": str(folder / RINGS)}
    subprocess.run(
        [sys.executable, "-m", ENGINE, str(log), "--requests", "60"],
        env=environ, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT closed FROM drains") == [(True,)])
        yield log


def test_it_posts_what_it_finds_and_goes_on_where_the_last_one_was(storm: Path) -> None:
    first = Analyst(storm)
    first.evaluate()
    assert first.status.error is None
    told = rows(storm, EVENTS)
    assert (PRESSURE, "opened") in told
    stored = rows(storm, "SELECT json_extract_string(body, '$.id') = finding FROM findings")
    assert stored == [(True,)] * len(told)
    again = Analyst(storm)
    again.evaluate()
    assert again.status.num_evaluations == 1
    assert [each for each in rows(storm, EVENTS) if each[1] != "cleared"] == [
        each for each in told if each[1] != "cleared"
    ]


SHARES = """
SELECT len(json_extract(body, '$.shares')::JSON[]) AS num,
  list_sum(list_transform(json_extract(body, '$.shares[*].ratio'), r -> r::DOUBLE)) AS total
FROM finding_states WHERE rule = 'kv-preemption-pressure'
"""


def test_what_made_it_is_worked_out_after_it_was_told(storm: Path) -> None:
    analyst = Analyst(storm)
    analyst._explanations.ask(read_lives_of(storm))
    analyst.evaluate()
    told = rows(storm, EVENTS)
    assert "explained" not in [event for _, event in told]
    assert analyst.explain(60.0)
    assert [event for rule, event in rows(storm, EVENTS) if rule == PRESSURE][-1] == "explained"
    ((num, total),) = rows(storm, SHARES)
    assert num >= 2
    assert total == pytest.approx(1)
    assert not analyst.explain(60.0)  # once
    ((_, reason),) = rows(
        storm,
        "SELECT status, reason FROM finding_states WHERE rule = 'kv-preemption-pressure'",
    )
    assert "%" in reason


def test_one_that_starts_again_keeps_what_replays_told(storm: Path) -> None:
    again = Analyst(storm)
    again.evaluate()
    (life,) = [life for life in again._lives.values() if life.told.sighting.rule == PRESSURE]  # type: ignore[union-attr]
    bare = replace(life.told, sighting=replace(life.told.sighting, body="{}"))
    assert shares_in(json.loads(again._explanations.carried(bare).sighting.body))
    other = replace(bare, num_openings=bare.num_openings + 1)
    assert again._explanations.carried(other) == other


def read_lives_of(log: Path) -> list[Change]:
    """Returns the newest change of every finding."""
    with open_log(log) as opened:
        return [life.told for life in read_lives(opened).values()]


def test_a_log_that_cannot_be_read_is_told_and_tried_again(tmp_path: Path) -> None:
    analyst = Analyst(tmp_path)
    analyst.evaluate()
    assert analyst.status.error is not None
    assert "nobody collects" in analyst.status.error
    assert analyst.status.num_evaluations == 0


def test_an_evaluation_that_takes_long_makes_the_next_one_late(storm: Path) -> None:
    analyst = Analyst(storm, period_seconds=1e-6)
    analyst.evaluate()
    took = analyst.status.took_seconds
    assert took is not None
    assert analyst.status.is_stretched
    assert analyst.status.every_seconds == took / MAX_SHARE


def test_a_log_has_one_analyst(tmp_path: Path) -> None:
    lock = take_analyst_lock(tmp_path)
    assert lock is not None
    assert has_analyst(tmp_path)
    command = [sys.executable, "-m", "diagnose.analyst", "--log", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "has an analyst already" in done.stderr) == (0, True)
    os.close(lock)
    assert not has_analyst(tmp_path)


@contextmanager
def collector_with_analyst(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A collector that keeps an analyst; what it leaves behind is ended."""
    command = [sys.executable, "-m", "telemetry.collector", "--log", str(log), "--linger", "600"]
    environ = {**os.environ, "STEPSCOPE_RING_DIR": str(log.parent / RINGS)}
    process = subprocess.Popen(
        [*command, "--analyst", "diagnose.analyst"], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_collector(log)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def pid_of(log: Path) -> int:
    """Returns the process of the log's analyst, once it has said so."""
    status = wait_until(lambda: read_analyst(log))
    return int(status.pid)


def doctor_says(log: Path) -> list[str]:
    return [check.text for check in analyst_checks(log, find_collector(log))]


def test_a_collector_starts_its_analyst_and_ends_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collector_with_analyst(log):
        pid_of(log)
        wait_until(lambda: read_analyst(log).num_evaluations)  # type: ignore[union-attr]
        (text,) = doctor_says(log)
        assert "1 evaluations, the last" in text
    assert not has_analyst(log)
    assert doctor_says(log) == []


def test_one_that_is_killed_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collector_with_analyst(log):
        first = pid_of(log)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not has_analyst(log))
        wait_until(lambda: (found := read_analyst(log)) and found.pid != first)


def test_one_whose_collector_is_killed_is_kept_by_the_next(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collector_with_analyst(log) as collector:
        pid = pid_of(log)
        collector.kill()
        collector.wait(timeout=30)
    with collector_with_analyst(log):
        post_findings(log, [change()])
        assert pid_of(log) == pid
    wait_until(lambda: not has_analyst(log))


def test_a_collector_without_an_analyst_says_so(storm: Path) -> None:
    (text,) = doctor_says(storm)
    assert text.startswith("none: findings are not followed")


def test_an_engine_at_rest_costs_a_single_query(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) > 1 FROM heartbeats") == [(True,)])
        analyst = Analyst(log)
        analyst.evaluate()
        assert (analyst.status.error, analyst.status.newest_ts) == (None, -1)
        record(ring, 0, 3)
        wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(3,)])
        analyst.evaluate()
        (newest,) = rows(log, "SELECT max(ts) FROM steps")
        assert (analyst.status.newest_ts or 0) >= newest[0]
    ring.close()
