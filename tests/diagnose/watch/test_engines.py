"""Engines that come and go are told between the findings, once each."""

from __future__ import annotations

from diagnose.text.lines import Report
from diagnose.watch.engines import Engines
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import MemoryLog, log_of
from tests.telemetry.log_builder import START, LogBuilder


def told(engines: Engines, log: MemoryLog) -> list[str]:
    report = Report()
    engines.write(report, log, START)
    return ["".join(piece for piece, _ in line) for line in report.lines]


def living(**columns: object) -> LogBuilder:
    log = LogBuilder().described(model="tiny\x1b[31m", max_num_seqs=32, num_usable_blocks=63)
    log._add("heartbeats", {"ts": START} | columns)
    return log


def test_an_engine_is_attached_once() -> None:
    engines, log = Engines(), log_of(living())
    (line,) = told(engines, log)
    assert "● attached  engine 0000000000000001  tiny?[31m" in line
    assert line.endswith(", 63 KV blocks, 32 slots")
    assert told(engines, log) == []


def test_one_that_lived_long_ago_is_not_told() -> None:
    assert told(Engines(), log_of(living(ts=START - 16 * 10**9))) == []


def test_an_end_is_told_once_and_nothing_comes_back() -> None:
    engines, log = Engines(), living()
    told(engines, log_of(log))
    log.event(EventKind.engine_died)
    ended = log_of(log)
    (line,) = told(engines, ended)
    assert line.endswith("● died      engine 0000000000000001")
    assert told(engines, ended) == []
