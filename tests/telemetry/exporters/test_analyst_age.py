"""The age of the analyst's last evaluation, as the collector's page has it."""

from __future__ import annotations

import os
from pathlib import Path

from telemetry.exporters.analyst import analyst_age_seconds
from telemetry.store.analyst_status import AnalystStatus, take_analyst_lock

S = 10**9


def publish(log: Path, *, started_ts: int = 100 * S, evaluated_ts: int | None = None) -> None:
    AnalystStatus(
        pid=1,
        period_seconds=10.0,
        every_seconds=10.0,
        started_ts=started_ts,
        evaluated_ts=evaluated_ts,
    ).publish(log)


def test_it_counts_from_the_last_evaluation(tmp_path: Path) -> None:
    publish(tmp_path, evaluated_ts=130 * S)
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=0) == 12.0


def test_before_the_first_it_counts_from_the_start(tmp_path: Path) -> None:
    publish(tmp_path)
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=0) == 42.0


def test_a_collector_that_never_had_one_has_no_age(tmp_path: Path) -> None:
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=0) is None


def test_one_of_an_earlier_collector_that_is_gone_has_no_age(tmp_path: Path) -> None:
    publish(tmp_path, evaluated_ts=110 * S)
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=120 * S) is None


def test_one_of_an_earlier_collector_that_lives_has(tmp_path: Path) -> None:
    publish(tmp_path, evaluated_ts=110 * S)
    held = take_analyst_lock(tmp_path)
    assert held is not None
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=120 * S) == 32.0
    os.close(held)


def test_a_file_that_is_none_has_no_age(tmp_path: Path) -> None:
    (tmp_path / "analyst.json").write_text("{")
    assert analyst_age_seconds(tmp_path, 142 * S, since_ns=0) is None
