"""A log that lacks what a replay needs says what, and what to do."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from diagnose.replay import ReplayError, read_workload
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import log_of
from tests.diagnose.replay.loads import recording, settings, storm
from tests.telemetry.log_builder import LogBuilder


def rows() -> LogBuilder:
    return recording(settings(), storm(Random(1), rate=1.0, seconds=10.0)).rows()


def read(builder: LogBuilder, **window: Any) -> None:
    read_workload(log_of(builder), builder.engine, **window)


def test_missing_steps_are_counted() -> None:
    builder = rows()
    del builder.rows["steps"][20:25]
    with pytest.raises(ReplayError, match=r"5 steps are missing .*stepscope doctor"):
        read(builder)


def test_dropped_records_are_counted() -> None:
    builder = rows()
    loss = {"region": "events", "first_lost": 4, "last_lost": 9, "step": 30}
    ts = builder.rows["steps"][30]["ts"]
    builder._event("request_events", loss | {"kind": EventKind.records_dropped, "ts": ts})
    with pytest.raises(ReplayError, match=r"6 records were dropped .*STEPSCOPE_RING_MB"):
        read(builder)


def test_scrapes_alone_are_not_enough() -> None:
    builder = rows()
    builder.rows["engines"][0]["settings"] = None
    with pytest.raises(ReplayError, match=r"scraped metrics alone cannot be replayed: record with"):
        read(builder)


def test_no_arrivals_are_named() -> None:
    builder = rows()
    builder.rows["request_arrivals"].clear()
    with pytest.raises(ReplayError, match="its steps and not what requests arrived"):
        read(builder)


def test_no_steps_are_named() -> None:
    builder = rows()
    builder.rows["steps"].clear()
    with pytest.raises(ReplayError, match="the log has no step of it"):
        read(builder)


def test_a_stretch_without_steps_is_refused() -> None:
    builder = rows()
    first = builder.rows["request_arrivals"][0]["ts"]
    with pytest.raises(ReplayError, match="did nothing in this stretch"):
        read(builder, end_ts=first - 1)


def test_too_few_steps_to_learn_from_are_counted() -> None:
    builder = rows()
    end = builder.rows["steps"][8]["ts"]
    with pytest.raises(ReplayError, match="20 are the least"):
        read(builder, end_ts=end)
