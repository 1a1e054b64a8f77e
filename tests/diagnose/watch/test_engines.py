"""Engines that come and go are told between the findings, once each."""

from __future__ import annotations

from typing import Any

from diagnose.reading import NS
from diagnose.text.lines import Report
from diagnose.watch.engines import Engines
from diagnose.watch.rests import REST_NS
from diagnose.words import time_of_day
from telemetry.vocabulary import EventKind, Phase
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


POOL: dict[str, Any] = {"num_blocks_free_unhashed": 60, "num_blocks_free_cached": 3}


def at(log: LogBuilder, phase: Phase, age_ns: int, beat_ns: int) -> LogBuilder:
    """The engine beats once more, this long after the start, so long in a phase."""
    return log._add(
        "heartbeats", {"ts": START + beat_ns, "phase": int(phase), "phase_age_ns": age_ns}
    )


def states(engines: Engines, log: LogBuilder) -> list[str]:
    """Returns the lines but those of the attachment, from their sign on."""
    lines = told(engines, log_of(log))
    return [line[line.index("●") :] for line in lines if "attached" not in line]


def test_rest_and_work_are_told_when_they_change() -> None:
    engines, log = Engines(), living()
    log.step(num_running=28, num_waiting=4, **POOL)
    at(log, Phase.forward, 0, NS)
    assert states(engines, log) == ["● live      28 running, 4 waiting"]
    at(log, Phase.idle, 3 * NS, 5 * NS)
    assert states(engines, log) == []  # for a moment only
    at(log, Phase.idle, REST_NS, 2 * NS + REST_NS)
    assert states(engines, log) == ["● idle      0 requests finished, 63 of 63 blocks free"]
    assert states(engines, log) == []
    at(log, Phase.forward, 0, 3 * NS + REST_NS)
    assert states(engines, log) == ["● live      28 running, 4 waiting"]


def test_an_idle_engine_is_told_with_the_moment_it_came_to_rest() -> None:
    log = at(living(), Phase.idle, 2 * REST_NS, NS)
    line = told(Engines(), log_of(log))[-1]
    assert line == f"{time_of_day(START + NS - 2 * REST_NS)}  ● idle      nothing to do"


def test_requests_that_finished_in_between_are_counted() -> None:
    engines, log = Engines(), living()
    at(log, Phase.forward, 0, -NS)
    states(engines, log)
    for request in range(3):
        log.arrived(request).finished(request)
    at(log, Phase.idle, REST_NS, REST_NS)
    assert states(engines, log) == ["● idle      3 requests finished"]


def test_a_beat_without_a_phase_says_nothing() -> None:
    assert states(Engines(), living()) == []


def test_one_that_has_ended_rests_no_more() -> None:
    engines, log = Engines(), at(living(), Phase.forward, 0, NS)
    states(engines, log)
    log.event(EventKind.engine_stopped)
    at(log, Phase.idle, REST_NS, 2 * NS)
    assert states(engines, log) == ["● stopped   engine 0000000000000001"]
