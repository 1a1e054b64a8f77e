"""What holds in every run: random settings, requests, faults and disturbances, on both paths."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.records import RequestFinished, RequestPreempted
from telemetry.vocabulary import FinishReason
from tests.diagnose.logs import MemoryLog
from tests.engine.play.draws import FEATURES, FEATURES_OF_ROWS, scenarios
from tests.engine.play.kv_memory import KVMemory
from tests.engine.play.player import Player
from tests.engine.play.rows import rows_of
from tests.engine.play.scenario import Scenario
from tests.engine.play.watch import Watch
from tests.telemetry.log_builder import LogBuilder

BOTH_PATHS = pytest.mark.parametrize("array_path", [True, False], ids=["array", "plain"])
_SCALE = settings().max_examples / 100
"""How many times the examples of the default profile are tried; see tests/conftest.py."""


FEATURES_OF_PLAIN_LOSSES = tuple(
    name for name in FEATURES if name not in ("connector", "sessions", "speculation")
)
"""Without rejected drafts, failed loads and dropped turns, which are computed again as well."""


def examples(count: int) -> Callable[[Any], Any]:
    """Returns the settings of a property that tries so many examples by default."""
    return settings(
        max_examples=max(1, int(count * _SCALE)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@BOTH_PATHS
@examples(150)
@given(scenarios())
def test_every_output_keeps_the_budgets_and_every_request_ends_once(
    array_path: bool, scenario: Scenario
) -> None:
    play = Player(scenario, array_path=array_path, watchers=(Watch(),)).run()
    check_ends(play)
    check_nothing_is_kept(play)
    check_counters(play)
    check_tokens(play)


@BOTH_PATHS
@examples(60)
@given(scenarios())
def test_nobody_reads_a_block_that_does_not_hold_his_prefix(
    array_path: bool, scenario: Scenario
) -> None:
    if not can_be_followed(scenario):
        return
    Player(scenario, array_path=array_path, watchers=(KVMemory(),)).run()


@examples(150)
@given(scenarios(FEATURES_OF_ROWS))
def test_both_paths_decide_and_record_the_same_in_every_step(scenario: Scenario) -> None:
    array, plain = (Player(scenario, array_path=path).run() for path in (True, False))
    assert_same_steps(array.trace, plain.trace)
    assert_same_rows(array, plain)


@examples(100)
@given(scenarios(FEATURES_OF_ROWS))
def test_columns_that_nobody_looks_at_say_the_same_when_the_run_is_over(
    scenario: Scenario,
) -> None:
    array, plain = (Player(scenario, array_path=path, looks=False).run() for path in (True, False))
    assert_same_steps(array.trace, plain.trace)
    assert_same_rows(array, plain)
    check_ends(array)


@BOTH_PATHS
@examples(40)
@given(scenarios(), st.integers(0, 50))
def test_the_same_input_gives_the_same_output(
    array_path: bool, scenario: Scenario, num_others: int
) -> None:
    first = Player(scenario, array_path=array_path).run()
    # Other objects at other addresses: no order may come from where a request lies.
    others = [Player(scenario, array_path=array_path) for _ in range(num_others % 3)]
    second = Player(scenario, array_path=array_path).run()
    assert_same_steps(first.trace, second.trace)
    assert_same_rows(first, second)
    del others


@BOTH_PATHS
@examples(25)
@given(scenarios())
def test_every_lost_token_is_accounted_for(array_path: bool, scenario: Scenario) -> None:
    play = Player(scenario, array_path=array_path).run()
    log = MemoryLog([LogBuilder.of_recorder(play.recorder)])
    rows = log.query("SELECT * FROM preemptions").to_pylist()
    assert len(rows) == play.scheduler.num_preemptions
    for row in rows:
        assert row["num_computed_tokens_lost"] == sum(row[part] for part in PARTS_OF_A_LOSS), row
        assert row["num_tokens_pending"] == 0, "the run is over"


@examples(25)
@given(scenarios(FEATURES_OF_PLAIN_LOSSES))
def test_what_losses_say_is_recomputed_is_what_steps_recomputed(scenario: Scenario) -> None:
    play = Player(scenario).run()
    log = MemoryLog([LogBuilder.of_recorder(play.recorder)])
    (row,) = log.query("SELECT sum(num_tokens_recomputed) AS told FROM preemptions").to_pylist()
    computed = sum(step.num_recomputed_tokens or 0 for step in play.recorder.steps)
    assert (row["told"] or 0) == computed


PARTS_OF_A_LOSS = (
    "num_tokens_recomputed",
    "num_tokens_regained_from_prefix_cache",
    "num_tokens_regained_from_connector",
    "num_tokens_lost_again",
    "num_tokens_never_resumed",
    "num_tokens_pending",
)


def assert_same_steps(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Compares two traces, and names the first step and field that differ."""
    for index, (first, second) in enumerate(zip(one, other, strict=False)):
        for key in first:
            assert first[key] == second[key], f"{key} of entry {index}: {first}, {second}"
    assert len(one) == len(other)


def assert_same_rows(one: Player, other: Player) -> None:
    """Compares all that was recorded, but for times and salted keys."""
    assert_same_steps(rows_of(one), rows_of(other))


def can_be_followed(scenario: Scenario) -> bool:
    """Whether what a step computes is known when it is decided.

    Not where a step in flight runs on drafts or loads that the update before takes back; nor where
    a load is cut back behind a window: what lies left of it is gone (as the original has it).
    """
    config = scenario.config
    has_connector = config.kv_connector is not None
    if config.scheduler.max_concurrent_batches > 1:
        return not has_connector and not config.speculation.num_speculative_tokens
    has_windows = any(group.sliding_window for group in config.cache.kv_groups)
    return not (has_connector and has_windows)


def test_no_order_comes_from_the_hashes_of_strings() -> None:
    """Sets of ids have another order in every interpreter; decisions and rows have not."""
    command = [sys.executable, "-m", "tests.engine.play.digest"]
    told = {
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


def check_ends(play: Player) -> None:
    """Every request has one finished event, and one result unless it was aborted."""
    ends = Counter(e.request for e in play.recorder.events if isinstance(e, RequestFinished))
    assert ends == dict.fromkeys([r.number for r in play.requests.values()], 1)
    results = Counter(r.request_id for r in play.results if r.finish_reason and not r.is_turn)
    for name, request in play.requests.items():
        assert request.finish_reason is not None
        was_aborted = request.finish_reason is FinishReason.abort_client or name in play.aborted
        assert results[name] + was_aborted == 1, f"{name}: {request.finish_reason.name}"
    assert not play.stuck or play.scenario.has_holders, f"cannot move: {sorted(play.stuck)}"


def check_nothing_is_kept(play: Player) -> None:
    """All blocks, slots and references come back."""
    scheduler = play.scheduler
    assert scheduler.kv.pool.num_free == scheduler.kv.pool.num_usable
    assert not scheduler.requests
    assert not scheduler.running
    assert not scheduler.num_waiting
    assert not scheduler.kept
    assert not scheduler.skipped
    assert not scheduler.reserving
    if scheduler.encoder_cache is not None:
        size = play.scenario.config.encoder.cache_size  # type: ignore[union-attr]
        assert scheduler.encoder_cache.num_reclaimable == size


def check_counters(play: Player) -> None:
    """The record has every preemption that the scheduler counts."""
    recorded = [e for e in play.recorder.events if isinstance(e, RequestPreempted)]
    assert len(recorded) == play.scheduler.num_preemptions == play.recorder.num_preemptions
    assert len(recorded) == sum(r.num_preemptions for r in play.requests.values())


def check_tokens(play: Player) -> None:
    """The kinds of tokens in a row add up to what was scheduled."""
    for row in play.recorder.steps:
        parts = (
            row.num_prefill_tokens,
            row.num_decode_tokens,
            row.num_recomputed_tokens,
            row.num_draft_tokens,
            row.num_padding_tokens,
        )
        assert sum(part or 0 for part in parts) == row.num_scheduled_tokens
