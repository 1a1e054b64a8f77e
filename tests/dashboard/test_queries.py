"""The statements: right numbers, reduced in SQL, on logs built by hand and on a recorded storm."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.queries import header, panels, preemptions, reduction, requests
from diagnose.reading import NS, Scope
from telemetry.vocabulary import EventKind, SkipReason, StopReason
from tests.dashboard import logs
from tests.diagnose.logs import MemoryLog, log_of
from tests.telemetry.log_builder import MS, START, LogBuilder

LONG = Scope(1, START, START + 10 * NS)


def rows(log: MemoryLog, sql: str, params: Any = None) -> list[dict[str, Any]]:
    return log.query(sql, params).to_pylist()


@pytest.fixture(scope="module")
def storm() -> MemoryLog:
    return logs.memory(logs.storm())


@pytest.fixture(scope="module")
def storm_scope(storm: MemoryLog) -> Scope:
    first = rows(storm, header.ENGINES)[0]
    return Scope(first["engine"], first["first_ts"], first["newest_ts"])


# -------------------------------------------------------------------------------------- reduction


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(7.2, NS // 5), (7, NS // 10), (60, NS), (70 * 31, 60 * NS), (86_400, 1800 * NS)],
)
def test_a_bin_is_a_seventieth_rounded_up_to_a_round_length(seconds: float, expected: int) -> None:
    assert reduction.bin_ns(Scope(1, 0, int(seconds * NS))) == expected


def test_stretches_keep_a_panel_under_its_points() -> None:
    scope = Scope(1, 0, 86_400 * NS)
    for num_series in (1, 4, 10):
        length = reduction.grain_ns(scope, num_series)
        assert num_series * (scope.duration_ns / length) <= reduction.MAX_POINTS


def test_bins_stay_where_they_are_when_the_window_moves_on() -> None:
    log = LogBuilder().described().step(num_scheduled_tokens=1)
    memory = log_of(log)
    moments = set()
    for later in (0, 130 * MS, 500 * MS):
        scope = Scope(1, START - NS + later, START + NS)
        x = rows(memory, panels.token_work(scope, NS))[0]["x"]
        moments.add(round(scope.start_ts / 1e6 + x))
    assert len(moments) == 1


# ----------------------------------------------------------------------------------------- panels


def test_states_are_run_length_encoded() -> None:
    log = LogBuilder().described()
    for _ in range(50):
        log.step(num_blocks_running=10, num_blocks_waiting=0, num_blocks_free_cached=2)
    log.step(num_blocks_running=11, num_blocks_waiting=0, num_blocks_free_cached=2)
    runs = [r for r in rows(log_of(log), panels.blocks_runs(LONG)) if r["series"] == "running"]
    assert [(r["x"], r["y2"]) for r in runs] == [(0.0, 10), (500.0, 11)]


def test_layers_of_blocks_stand_on_each_other() -> None:
    log = (
        LogBuilder()
        .described()
        .step(
            num_blocks_running=10,
            num_blocks_waiting=3,
            num_blocks_finished=1,
            num_blocks_deferred_free=1,
            num_blocks_free_cached=5,
        )
    )
    runs = {r["series"]: (r["y"], r["y2"]) for r in rows(log_of(log), panels.blocks_runs(LONG))}
    assert runs == {"running": (0, 10), "waiting": (10, 13), "ended": (13, 15), "cached": (15, 20)}


def test_a_run_is_not_drawn_across_missing_steps() -> None:
    log = LogBuilder().described()
    for step in (0, 1, 5, 6):
        log.step(step=step, num_blocks_running=10, num_blocks_waiting=0, num_blocks_free_cached=0)
    runs = [r for r in rows(log_of(log), panels.blocks_runs(LONG)) if r["series"] == "running"]
    assert [r["x"] for r in runs] == [0.0, 20.0]
    assert rows(log_of(log), header.gaps(LONG)) == [{"x": 19.0, "x2": 20.0, "num_missing": 3}]


def test_repeated_steps_are_no_gap() -> None:
    log = LogBuilder().described()
    log.step(step=0, num_repeats=5, num_running=0, num_waiting=0)
    log.step(step=5, num_running=0, num_waiting=0)
    assert rows(log_of(log), header.gaps(LONG)) == []
    window = rows(log_of(log), header.window(LONG))[0]
    assert (window["num_steps"], window["num_rows"], window["num_missing"]) == (6, 2, 0)


def test_waiting_stands_upon_running_and_names_those_behind_the_head() -> None:
    log = LogBuilder().described()
    log.arrived(0).arrived(1).arrived(2)
    log.step(
        num_running=4,
        num_waiting=3,
        num_admitted=0,
        num_resumed=0,
        stop_reason=StopReason.kv_blocks_whole_prompt,
        head_request=0,
    )
    runs = {r["series"]: (r["y"], r["y2"]) for r in rows(log_of(log), panels.waiting_runs(LONG))}
    assert runs == {
        "running": (0, 4),
        "kv_blocks_whole_prompt": (4, 5),
        "behind kv_blocks_whole_prompt": (5, 7),
    }


def test_waiting_adds_up_to_the_queue_in_every_step(storm: MemoryLog, storm_scope: Scope) -> None:
    log, scope = storm, storm_scope
    sql = panels.waiting_stretches(scope, 100 * MS)
    stacked: dict[float, float] = {}
    for row in rows(log, sql):
        stacked[row["x"]] = stacked.get(row["x"], 0.0) + row["y2"] - row["y"]
    means = rows(
        log,
        f"SELECT (ts // {100 * MS} * {100 * MS} - {scope.start_ts}) / 1e6 AS x, "
        f"avg(num_running + num_waiting) AS n FROM steps WHERE {scope.where()} GROUP BY ALL",
    )
    expected = {row["x"]: pytest.approx(row["n"]) for row in means}
    assert {x: stacked[x] for x in expected} == expected


def test_more_reasons_than_can_be_drawn_are_drawn_together() -> None:
    log = LogBuilder().described()
    for number, reason in enumerate(SkipReason):
        log.arrived(number)
        log.skipped(number, reason, step=0)
    log.arrived(20)
    log.step(
        num_running=0,
        num_waiting=len(SkipReason) + 1,
        num_skipped_waiting=len(SkipReason),
        num_admitted=0,
        num_resumed=0,
        stop_reason=StopReason.max_num_seqs,
        head_request=20,
    )
    names = {r["series"] for r in rows(log_of(log), panels.waiting_runs(LONG))}
    assert panels.REST in names
    assert len(names) <= panels.MAX_SERIES + 2


def test_stops_are_one_row_a_run_and_their_shares_sum_to_one() -> None:
    log = LogBuilder().described()
    for reason in (StopReason.queue_empty,) * 3 + (StopReason.kv_blocks_chunk,):
        log.step(stop_reason=reason)
    memory = log_of(log)
    runs = rows(memory, panels.stop_runs(LONG))
    assert [(r["x"], r["x2"], r["stop_reason"]) for r in runs] == [
        (0.0, 30.0, "queue_empty"),
        (30.0, None, "kv_blocks_chunk"),
    ]
    shares = rows(memory, panels.stop_shares(LONG, NS))
    assert {r["stop_reason"]: r["share"] for r in shares if r["x2"] is not None} == {
        "queue_empty": 0.75,
        "kv_blocks_chunk": 0.25,
    }


def test_a_preemption_that_only_the_step_counted_is_unattributed() -> None:
    log = LogBuilder().described().arrived(0).arrived(1)
    log.step(num_preempted=2).preempted(1, lost=32, beneficiary=0)
    bars = rows(log_of(log), panels.preemptions_per_bin(LONG, NS))
    assert {r["cause"]: r["n"] for r in bars} == {"kv_full": 1, "unattributed": 1}


def test_a_cache_reset_between_steps_is_not_set_off_against_what_steps_counted() -> None:
    log = LogBuilder().described().arrived(0).arrived(1)
    log.step(num_preempted=1)
    log.event(EventKind.preempted, 0, cause=3, num_computed_tokens_lost=16)
    bars = rows(log_of(log), panels.preemptions_per_bin(LONG, NS))
    assert {r["cause"]: r["n"] for r in bars} == {"cache_reset": 1, "unattributed": 1}


def test_the_bars_of_a_storm_hold_every_preemption(storm: MemoryLog, storm_scope: Scope) -> None:
    bars = rows(storm, panels.preemptions_per_bin(storm_scope, 100 * MS))
    total = rows(storm, "SELECT max(num_preemptions_total) AS n FROM steps")[0]["n"]
    assert sum(r["n"] for r in bars) == total > 50


def test_token_work_holds_every_scheduled_token(storm: MemoryLog, storm_scope: Scope) -> None:
    bars = rows(storm, panels.token_work(storm_scope, 100 * MS))
    total = rows(storm, "SELECT sum(num_scheduled_tokens)::BIGINT AS n FROM steps")[0]["n"]
    assert sum(r["useful"] + r["recomputed"] + r["rejected"] + r["padding"] for r in bars) == total


@pytest.mark.parametrize(
    "statement",
    [
        panels.arrivals,
        panels.blocks_runs,
        panels.need_runs,
        panels.waiting_runs,
        panels.stop_runs,
        header.readouts,
        header.gaps,
        header.events,
    ],
)
def test_no_statement_of_a_panel_gives_more_points_than_it_may(
    storm: MemoryLog, storm_scope: Scope, statement: Any
) -> None:
    assert len(rows(storm, statement(storm_scope))) <= reduction.MAX_POINTS + 1


def test_the_cursor_stops_at_preempting_steps_first(storm: MemoryLog, storm_scope: Scope) -> None:
    stops = rows(storm, header.readouts(storm_scope))
    preempting = rows(
        storm,
        f"SELECT count(DISTINCT {reduction.bin_of(_stop_ns(storm_scope))}) AS n "
        "FROM steps WHERE num_preempted > 0",
    )[0]["n"]
    assert len(stops) <= reduction.MAX_STOPS
    assert sum(1 for r in stops if r["num_preempted"]) == preempting


def _stop_ns(scope: Scope) -> int:
    return -(-scope.duration_ns // reduction.MAX_STOPS)


# ------------------------------------------------------------------------------------ preemptions


def test_places_are_arrival_numbers_while_priorities_are_equal() -> None:
    log = LogBuilder().described().arrived(0).arrived(1)
    log.step(num_preempted=1).preempted(1, lost=32, beneficiary=0)
    mark = rows(log_of(log), preemptions.marks(LONG, 10))[0]
    assert (mark["request_place"], mark["beneficiary_place"], mark["by_priority"]) == (1, 0, False)


def test_places_follow_priority_first_where_it_differs() -> None:
    log = LogBuilder().described().arrived(0, priority=5).arrived(1, priority=1)
    log.step(num_preempted=1).preempted(0, lost=32, beneficiary=1)
    mark = rows(log_of(log), preemptions.marks(LONG, 10))[0]
    assert (mark["request_place"], mark["beneficiary_place"], mark["by_priority"]) == (1, 0, True)


def test_the_grid_holds_every_preemption(storm: MemoryLog, storm_scope: Scope) -> None:
    cells = rows(storm, preemptions.grid(storm_scope, 40))
    marks = rows(storm, preemptions.marks(storm_scope, 1000))
    assert sum(cell["n"] for cell in cells) == len(marks)
    assert sum(cell["lost"] for cell in cells) == sum(mark["lost"] for mark in marks)


def test_victims_come_worst_first_with_who_got_their_blocks() -> None:
    log = LogBuilder().described().arrived(0).arrived(1).arrived(2)
    log.step().preempted(1, lost=16, beneficiary=0).preempted(2, lost=64, beneficiary=0)
    log.step().resumed(1).step().preempted(1, lost=32, beneficiary=1)
    victims = rows(log_of(log), preemptions.victims(LONG))
    assert [(r["request"], r["times"], r["tokens_lost"], r["went_to"]) for r in victims] == [
        (1, 2, 48, "0 1"),
        (2, 1, 64, "0"),
    ]


# --------------------------------------------------------------------------------------- requests


def test_the_list_finds_by_number_or_part_of_an_id() -> None:
    log = LogBuilder().described()
    log.arrived(0, request_id="chat-Alpha").arrived(1, request_id="chat-beta%").step()
    memory = log_of(log)
    sql = requests.worst_first(LONG)
    found = {
        pattern: [r["request"] for r in rows(memory, sql, {"pattern": pattern})]
        for pattern in ("", "alpha", "1", "beta%", "'; DROP TABLE steps; --")
    }
    assert found == {
        "": [0, 1],
        "alpha": [0],
        "1": [1],
        "beta%": [1],
        "'; DROP TABLE steps; --": [],
    }


def test_a_request_that_ended_before_the_window_is_not_listed() -> None:
    log = LogBuilder().described().arrived(0).step().finished(0)
    log.advance(5 * NS).arrived(1).step()
    late = Scope(1, START + NS, START + 10 * NS)
    found = rows(log_of(log), requests.worst_first(late), {"pattern": ""})
    assert [r["request"] for r in found] == [1]


def test_a_story_is_in_the_order_of_events() -> None:
    log = LogBuilder().described().arrived(0).step().admitted(0).first_token(0)
    log.step().preempted(0, lost=32).step().resumed(0).step().caught_up(0).finished(0)
    kinds = [r["kind"] for r in rows(log_of(log), requests.story(1, 0))]
    assert kinds == [
        "arrived",
        "admitted",
        "first_token",
        "preempted",
        "resumed",
        "caught_up",
        "finished",
    ]


@pytest.mark.parametrize(
    "statement", [panels.blocks_runs, panels.need_runs, panels.waiting_runs, panels.stop_runs]
)
def test_the_state_before_a_window_holds_when_it_begins(statement: Any) -> None:
    log = LogBuilder().described()
    state = {
        "num_blocks_running": 0,
        "num_blocks_waiting": 0,
        "num_blocks_free_cached": 4,
        "num_blocks_free_unhashed": 59,
        "num_running": 0,
        "num_waiting": 0,
        "stop_reason": StopReason.queue_empty,
    }
    log.step(**state).advance(5 * NS).step(**state | {"num_blocks_free_unhashed": 58})
    late = Scope(1, START + NS, START + 10 * NS)
    memory = log_of(log)
    before = rows(memory, header.window(late))[0]["before_ts"]
    assert before == START
    assert min(r["x"] for r in rows(memory, statement(late, before))) == 0.0


@pytest.mark.parametrize(
    ("statement", "column"),
    [
        (panels.blocks_stretches, "y2"),
        (panels.need_stretches, "free"),
        (panels.waiting_stretches, "y2"),
    ],
)
def test_after_a_stretch_its_last_state_holds_and_not_its_average(
    statement: Any, column: str
) -> None:
    log = LogBuilder().described()
    busy = {"num_running": 8, "num_blocks_running": 60, "num_blocks_free_unhashed": 3}
    idle = {"num_running": 0, "num_blocks_running": 0, "num_blocks_free_unhashed": 63}
    rest = {"num_waiting": 0, "num_blocks_waiting": 0, "num_blocks_free_cached": 0}
    log.step(**busy | rest).step(**idle | rest)
    last = rows(log_of(log), statement(LONG, NS))[-1]
    expected = 63 if column == "free" else 0
    assert last["x"] > 0
    assert last[column] == expected


def test_after_a_stretch_its_last_stop_reason_holds_until_the_next() -> None:
    log = LogBuilder().described()
    log.step(stop_reason=StopReason.kv_blocks_chunk).step(stop_reason=StopReason.queue_empty)
    log.advance(5 * NS).step(stop_reason=StopReason.token_budget)
    shares = rows(log_of(log), panels.stop_shares(LONG, NS))
    quiet = [r for r in shares if r["x2"] is not None and r["x2"] - r["x"] > 1000]
    assert [(r["stop_reason"], r["share"]) for r in quiet] == [("queue_empty", 1.0)]


def test_a_story_tells_arrival_and_end_once() -> None:
    log = LogBuilder().described()
    log.arrived(0).step().admitted(0).first_token(0).finished(0)
    told = rows(log_of(log), requests.story(log.engine, 0))
    kinds = [row["kind"] for row in told]
    assert kinds.count("arrived") == kinds.count("finished") == 1
