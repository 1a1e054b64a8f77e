"""A reading of all numbers, and the page that it becomes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from telemetry.exporters import metrics
from telemetry.exporters.attributes import LONGEST_LABEL
from telemetry.exporters.exports import LentLog
from telemetry.exporters.metrics import METRICS, Metric, Sample
from telemetry.exporters.numbers import MOST_ENDED, REMEMBERED_SECONDS, Numbers
from telemetry.exporters.page import render_page
from telemetry.exporters.sights import RingSights
from tests.telemetry.collector.builders import collecting, record, ring_for
from tests.telemetry.exporters.traced import ConnectionLog
from tests.telemetry.log_builder import LogBuilder, connect

MINUTE = 60 * 1_000_000_000


class Page:
    """A log, and the page on it."""

    def __init__(self, *logs: LogBuilder, own: Iterable[tuple[Metric, Sample]] = ()) -> None:
        self.connection = connect(*logs)
        self.sights = RingSights()
        self.numbers = Numbers(
            ConnectionLog(self.connection), self.sights, lambda: own, version="9.9"
        )

    def drained(self, engine: int, *, age_ns: int = 0, closed: bool = False) -> None:
        self.connection.execute(
            "INSERT INTO drains BY NAME SELECT ?::UBIGINT AS engine, ?::BIGINT AS ts, "
            "0 AS num_commits, 0 AS num_steps, 0 AS num_events, 0 AS num_step_requests, "
            "0 AS description, ? AS closed",
            [engine, time.time_ns() - age_ns, closed],
        )

    def finding(self, engine: int, name: str, ts: int, **columns: Any) -> None:
        values = {
            "rule": "kv-preemption-pressure",
            "severity": "high",
            "cleared_ts": None,
        } | columns
        self.connection.execute(
            "INSERT INTO findings BY NAME SELECT ?::UBIGINT AS engine, ? AS finding, ? AS ts, "
            "? AS rule, 1 AS rule_version, ? AS severity, ?::BIGINT AS cleared_ts",
            [engine, name, ts, values["rule"], values["severity"], values["cleared_ts"]],
        )

    def silenced(self, rule: str, seconds: int) -> None:
        """Somebody silences a rule for so long; in the past, if that is negative."""
        now = time.time_ns()
        self.connection.execute(
            "INSERT INTO findings BY NAME SELECT 'silenced' AS event, ? AS rule, ? AS ts, "
            "?::BIGINT AS until_ts, 'dana' AS author",
            [rule, now - 10**12, now + seconds * 10**9],
        )

    def values(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Returns the samples of a metric, as a scraper's parser reads them."""
        text = render_page(self.numbers.read()).decode()
        return {
            tuple(sample.labels[name] for name in metric.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric.prometheus_name
        }


HEX = f"{1:016x}"


def test_an_engine_that_has_ended_stays_for_a_while() -> None:
    page = Page(LogBuilder().described())
    page.drained(1, age_ns=REMEMBERED_SECONDS * 10**9 - MINUTE, closed=True)
    assert page.values(metrics.UP) == {(HEX,): 0}
    assert page.values(metrics.BLOCKS) == {}


def test_an_engine_that_ended_long_ago_is_not_on_the_page() -> None:
    page = Page(LogBuilder().described())
    page.drained(1, age_ns=REMEMBERED_SECONDS * 10**9 + MINUTE, closed=True)
    assert page.values(metrics.UP) == {}
    assert page.values(metrics.BUILD_INFO) != {}


def test_a_crash_loop_does_not_flood_the_page() -> None:
    page = Page()
    for engine in range(1, MOST_ENDED + 20):
        page.drained(engine, age_ns=engine * MINUTE // 10, closed=True)
    assert len(page.values(metrics.UP)) == MOST_ENDED
    assert (HEX,) in page.values(metrics.UP)


def test_an_engine_is_sixteen_hex_digits() -> None:
    page = Page(LogBuilder(2**64 - 1).described())
    page.drained(2**64 - 1)
    assert set(page.values(metrics.UP)) == {("f" * 16,)}


def test_no_finding_is_no_series_and_not_zero() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    assert page.values(metrics.FINDING_ACTIVE) == {}


def test_a_finding_is_one_while_it_is_open_and_zero_afterwards() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    page.finding(1, "kvp-1", 10)
    page.finding(1, "pin-1", 10, rule="priority-inversion")
    page.finding(1, "pin-1", 20, rule="priority-inversion", cleared_ts=20)
    page.finding(1, "ssl-1", 10, rule="seq-slot-limit", severity="medium")
    page.finding(1, "ssl-1", 20, rule="seq-slot-limit", severity="high")
    assert page.values(metrics.FINDING_ACTIVE) == {
        (HEX, "kv-preemption-pressure", "high", "false"): 1,
        (HEX, "priority-inversion", "high", "false"): 0,
        (HEX, "seq-slot-limit", "medium", "false"): 0,
        (HEX, "seq-slot-limit", "high", "false"): 1,
    }


def test_nothing_is_active_of_an_engine_that_has_ended() -> None:
    page = Page(LogBuilder().described())
    page.drained(1, closed=True)
    page.finding(1, "kvp-1", 10)
    assert list(page.values(metrics.FINDING_ACTIVE).values()) == [0]


def test_nothing_is_active_of_an_engine_whose_ring_is_gone() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    page.finding(1, "kvp-1", 10)
    page.sights.observe([])
    assert list(page.values(metrics.FINDING_ACTIVE).values()) == [0]


@pytest.mark.parametrize(("seconds", "silenced"), [(60, True), (-60, False)])
def test_a_silence_moves_a_finding_to_a_series_of_its_own(seconds: int, silenced: bool) -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    page.finding(1, "kvp-1", 10)
    page.finding(1, "ssl-1", 10, rule="seq-slot-limit")
    page.silenced("kv-preemption-pressure", seconds)
    values = page.values(metrics.FINDING_ACTIVE)
    pressure = {key[3]: value for key, value in values.items() if key[1] != "seq-slot-limit"}
    assert pressure == ({"false": 0, "true": 1} if silenced else {"false": 1})
    assert values[HEX, "seq-slot-limit", "high", "false"] == 1


def test_what_was_never_measured_is_not_on_the_page() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    for metric in (metrics.TOKENS_SCHEDULED, metrics.UNATTRIBUTED, metrics.DRAIN_LAG):
        assert page.values(metric) == {}


def test_a_name_from_outside_is_escaped_and_bounded() -> None:
    hostile = 'a"b\\c\n\x1b[31m<script>{}=' + "x" * 500
    page = Page(LogBuilder().described(model=hostile, host=None))
    page.drained(1)
    ((engine, model, _, _, host),) = page.values(metrics.ENGINE_INFO)
    assert (engine, host) == (HEX, "")
    assert model.startswith('a"b\\c\\n\\x1b[31m<script>{}=x')
    assert len(model) == LONGEST_LABEL


def test_a_ring_that_is_lost_is_blindness_once_the_collector_has_looked() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    assert page.values(metrics.BLIND) == {(HEX,): 0}
    page.sights.observe([])
    page.numbers._read_at = float("-inf")
    assert page.values(metrics.BLIND) == {(HEX,): 1}
    page.connection.execute("UPDATE drains SET closed = true")
    page.numbers._read_at = float("-inf")
    assert page.values(metrics.BLIND) == {(HEX,): 0}


def test_numbers_of_the_exporters_themselves_are_there_too() -> None:
    page = Page(own=[(metrics.EXPORT_FAILURES, Sample(("traces",), 3))])
    assert page.values(metrics.EXPORT_FAILURES) == {("traces",): 3}


def test_no_label_holds_a_request() -> None:
    assert not any("request" in label for metric in METRICS for label in metric.labels)


def test_two_who_ask_at_once_share_a_reading() -> None:
    page = Page(LogBuilder().described())
    page.drained(1)
    assert page.numbers.read() is page.numbers.read()


def test_a_living_engine_is_on_the_page_with_its_blocks_and_its_lag(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 10)
    with collecting(log) as collector:
        collector.drain()
        page = Page()
        page.numbers._log = LentLog(collector._lend)
        page.sights.observe(collector._rings.values())
        engine = f"{ring.engine:016x}"
        assert page.values(metrics.UP) == {(engine,): 1}
        assert page.values(metrics.BLIND) == {(engine,): 0}
        assert page.values(metrics.DRAIN_LAG)[engine,] < 60
        assert page.values(metrics.HEARTBEAT_AGE)[engine,] < 60
        assert page.values(metrics.RECORDER_ERRORS) == {(engine,): 0}
        assert sum(page.values(metrics.STEPS).values()) == 10
    ring.close()
