"""Who held which blocks in a step, and the free blocks after each visit: sums that must balance."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dashboard.charts.blocks import LOW_HEIGHT, MAX_BARS, MAX_SQUARES, block_chart, choose
from dashboard.charts.phases import BETWEEN, TINTS, phase_bar
from dashboard.step_blocks import BlockMap, Visit, block_map
from dashboard.step_words import evictions, grouped, phases, rules, title, who
from telemetry.step_facts import PHASES, StepFacts, read_step
from tests.dashboard import logs
from tests.diagnose.logs import MemoryLog, log_of
from tests.telemetry.log_builder import LogBuilder
from tests.telemetry.test_step import facts_of, storm


def mapped(log: LogBuilder, step: int) -> BlockMap:
    found = block_map(facts_of(log, step))
    assert found is not None
    return found


def plain(count: int, num_given: int = 0) -> BlockMap:
    visits = tuple(
        Visit(request=i, num_kept=2, num_free=3, num_given=num_given) for i in range(count)
    )
    return BlockMap(visits=visits, num_free=3, has_before=True)


# ------------------------------------------------------------------------------------- the visits


def test_each_one_fed_got_a_block_and_each_victim_lost_all() -> None:
    visits = mapped(storm(), 1).visits
    assert [visit.num_given for visit in visits] == [0, *[1] * 20, *[0] * 7]
    assert [visit.num_taken for visit in visits] == [*[0] * 21, *[2] * 7]
    assert [visit.request for visit in visits if visit.is_out] == list(range(21, 28))


def test_free_blocks_fall_with_each_visit_and_rise_with_each_eviction() -> None:
    blocks = mapped(storm(), 1)
    assert blocks.num_free == 6
    free = [visit.num_free for visit in blocks.visits]
    assert free[:9] == [6, 5, 4, 3, 2, 1, 0, 1, 0]
    assert free[21:] == [None] * 7


def test_an_eviction_stands_where_its_beneficiary_was_visited() -> None:
    evicting = {v.request: v.evicts for v in mapped(storm(), 1).visits if v.evicts}
    assert evicting == dict(zip(range(7, 20, 2), ((n,) for n in range(27, 20, -1)), strict=True))


def test_without_dense_rows_there_is_no_map() -> None:
    assert block_map(facts_of(storm(dense=False), 1)) is None


def test_without_the_step_before_nothing_is_said_to_be_given() -> None:
    log = storm()
    log.rows["step_requests"] = [row for row in log.rows["step_requests"] if row["step"] == 1]
    blocks = mapped(log, 1)
    assert not blocks.has_before
    assert blocks.num_free is None
    assert sum(visit.num_given for visit in blocks.visits) == 0


def test_a_walk_that_contradicts_an_eviction_is_left_out() -> None:
    log = storm()
    event = next(row for row in log.rows["request_events"] if row.get("num_blocks_freed"))
    event["num_blocks_free_before"] = 5
    blocks = mapped(log, 1)
    assert blocks.num_free is None
    assert [visit.num_free for visit in blocks.visits] == [None] * 28


@pytest.fixture(scope="module")
def recorded() -> MemoryLog:
    return log_of(logs.dense_builder(logs.storm(num_requests=40)))


def test_the_walk_ends_at_the_free_blocks_that_were_recorded(recorded: MemoryLog) -> None:
    """Every tenth step of a real storm, and each that preempted."""
    numbers = recorded.query(
        "SELECT step FROM steps WHERE num_preempted > 0 OR step % 25 = 0 ORDER BY step"
    )["step"].to_pylist()
    assert len(numbers) > 20
    for number in numbers:
        facts = read_step(recorded, number, logs.ENGINE)
        assert facts is not None
        blocks = block_map(facts)
        if blocks is None:
            assert not facts.requests
            continue
        last = [visit.num_free for visit in blocks.visits if visit.num_free is not None][-1]
        assert last == facts.num_blocks_free


# -------------------------------------------------------------------------------------- the chart


@pytest.mark.parametrize(("count", "squares"), [(MAX_SQUARES, True), (MAX_SQUARES + 1, False)])
def test_up_to_forty_requests_are_squares(count: int, squares: bool) -> None:
    assert choose(plain(count), 1300).are_squares is squares


def test_squares_that_would_be_too_thin_are_bars() -> None:
    assert not choose(plain(MAX_SQUARES), 300).are_squares


def test_beyond_two_hundred_only_what_changed_is_drawn() -> None:
    still, moved = plain(MAX_BARS - 5), plain(6, num_given=1)
    both = BlockMap(visits=(*still.visits, *moved.visits), num_free=3, has_before=True)
    drawn = choose(both, 1300)
    assert len(drawn.visits) == 6
    chart = block_chart(both, drawn, width=1300, theme="dark", block_size=16)
    assert "6 of 201 requests: those whose blocks changed" in json.dumps(chart.to_dict())


def test_a_map_without_a_walk_has_no_second_panel() -> None:
    blocks = BlockMap(visits=plain(3).visits, num_free=None, has_before=False)
    chart = block_chart(blocks, choose(blocks, 900), width=900, theme="light", block_size=None)
    assert len(chart.to_dict()["vconcat"]) == 1


def test_who_evicts_whom_is_written_over_the_visit() -> None:
    blocks = mapped(storm(), 1)
    chart = block_chart(blocks, choose(blocks, 1300), width=1300, theme="dark", block_size=32)
    told = json.dumps(chart.to_dict())
    assert "evicts 27" in told
    assert "the scan ends here: 21 to 27 are gone" in told
    assert "one square = one block of 32 tokens" in told


def test_the_end_of_the_scan_is_written_inside_a_low_panel() -> None:
    visited = plain(20).visits
    cut = BlockMap(
        visits=(*visited, *(replace(each, num_free=None) for each in plain(10).visits)),
        num_free=3,
        has_before=True,
    )
    chart = block_chart(cut, choose(cut, 1300), width=1300, theme="dark", block_size=32).to_dict()
    rows = [row for rows in chart["datasets"].values() for row in rows]
    (word,) = [row for row in rows if "the scan ends here" in str(row.get("text"))]
    assert 0 < word["py"] < chart["vconcat"][1]["height"] == LOW_HEIGHT


def test_every_phase_has_a_colour() -> None:
    assert set(TINTS) == {*PHASES, BETWEEN}


def test_the_bar_of_time_is_as_long_as_the_step() -> None:
    parts = phases(facts_of(storm(), 1))
    assert parts[-1][0] == BETWEEN
    (rows,) = phase_bar(parts, width=300, theme="dark").to_dict()["datasets"].values()
    assert rows[-1]["x2"] == 9_000_000


# -------------------------------------------------------------------------------------- the words


def test_the_headline_is_the_arithmetic_of_the_step() -> None:
    assert title(facts_of(storm(), 1)).startswith("Step 1: 27 requests needed one more block each")


def test_what_was_not_measured_is_a_dash_not_a_hyphen() -> None:
    log = LogBuilder().step().preempted(4, beneficiary=2, num_blocks_needed=None)
    assert "– blocks" in title(facts_of(log))


def test_victims_are_chosen_by_a_rule() -> None:
    log = LogBuilder().step().preempted(4, beneficiary=2).preempted(5)
    assert len(evictions(facts_of(log))) == 2
    told = rules(facts_of(log)).replace("\\", "")
    assert told == "victims chosen by: running_tail 1, itself 1; 1 in vain"


def waiting(*rows: tuple[int, str, int]) -> list[dict[str, object]]:
    return [{"request": r, "wait_reason": why, "times": n} for r, why, n in rows]


def test_equal_neighbours_in_the_queue_are_one_line() -> None:
    rows = waiting((3, "behind_head", 0), (4, "behind_head", 0), (9, "kv_blocks_chunk", 2))
    lines = grouped(rows, head=9)
    assert [who(line, 9) for line in lines] == ["9 (head)", "3 to 4"]


def test_a_line_that_leaves_out_some_says_how_many() -> None:
    (line,) = grouped(waiting((3, "lora_slots", 0), (7, "lora_slots", 0)), head=None)
    assert who(line, None) == "3 to 7, 2 of them"


def test_facts_can_be_kept_in_a_cache() -> None:
    import pickle

    facts = facts_of(storm(), 1)
    again: StepFacts = pickle.loads(pickle.dumps(facts))
    assert again == facts
