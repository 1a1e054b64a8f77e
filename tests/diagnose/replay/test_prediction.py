"""A prediction compares replays, says how far they can be trusted, and names gain and price."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from diagnose.replay import Workload, simulate, with_settings
from diagnose.replay.measures import QUANTITIES
from diagnose.replay.prediction import Prediction, Trust, predict, trust_in
from diagnose.replay.smallest import smallest_changes
from diagnose.replay.whatif_json import whatif_json
from diagnose.replay.whatif_text import write_prediction
from diagnose.replay.whatif_words import headline
from tests.diagnose.replay.loads import recording, settings, storm, workload_of

NUM_REPLAYS = 3


@pytest.fixture(scope="module")
def load() -> Workload:
    return workload_of(recording(settings(), storm(Random(7), seconds=20.0)))


@pytest.fixture(scope="module")
def fewer(load: Workload) -> Prediction:
    return predict(load, {"max_num_seqs": 5}, num_replays=NUM_REPLAYS)


@pytest.mark.parametrize(
    ("error", "trust"),
    [
        (0.0, Trust.FINE),
        (-0.10, Trust.FINE),
        (0.11, Trust.DIRECTION),
        (-0.25, Trust.DIRECTION),
        (0.26, Trust.WITHHELD),
        (None, Trust.NOT_MEASURED),
    ],
)
def test_an_error_says_what_may_be_told(error: float | None, trust: Trust) -> None:
    assert trust_in(error) is trust


def test_the_back_test_is_of_the_record_and_the_prediction_of_the_replay(
    load: Workload, fewer: Prediction
) -> None:
    count = fewer.of("num_preemptions")
    assert count.recorded == load.recorded.num_preemptions
    assert count.replayed == simulate(load, seed=0).num_preemptions
    changed = with_settings(load, max_num_seqs=5)
    others = [simulate(changed, seed=seed).num_preemptions for seed in range(NUM_REPLAYS)]
    assert (count.predicted, count.low, count.high) == (others[0], min(others), max(others))
    assert count.change == pytest.approx(count.predicted / count.replayed - 1)


def test_a_quantity_that_the_replay_gets_wrong_is_withheld_with_the_reason(
    load: Workload,
) -> None:
    wrong = replace(load, recorded=replace(load.recorded, ttft_p95=99.0))
    prediction = predict(wrong, {"max_num_seqs": 5}, num_replays=1)
    ttft = prediction.of("ttft_p95")
    assert (ttft.trust, ttft.predicted, ttft.low) == (Trust.WITHHELD, None, None)
    text = write_prediction(wrong, prediction, is_full=False).text()
    assert "replay error over 25 %, nothing is predicted: first token p95" in text


def test_what_was_not_recorded_is_not_predicted(load: Workload) -> None:
    unknown = replace(load, recorded=replace(load.recorded, num_tokens_recomputed=None))
    prediction = predict(unknown, {"max_num_seqs": 5}, num_replays=1)
    assert prediction.of("num_tokens_recomputed").trust is Trust.NOT_MEASURED
    assert prediction.of("num_tokens_recomputed").predicted is None


def test_gain_comes_first_and_the_price_second(fewer: Prediction) -> None:
    said = headline(fewer)
    assert said.startswith("max_num_seqs 32 → 5 would avoid ")
    assert said.index("would avoid") < said.index("The price: ")


def test_a_price_that_outweighs_the_gain_is_called_so(load: Workload) -> None:
    alone = predict(load, {"max_num_seqs": 1}, num_replays=1)
    assert alone.of("num_preemptions").predicted == 0
    assert alone.costs_more_than_it_gains
    assert "not zero preemptions" in headline(alone)


def test_more_memory_has_no_price_in_the_replay(load: Workload) -> None:
    more = predict(load, {"num_gpu_blocks": 2000}, num_replays=1)
    assert headline(more).endswith("No price shows in the replay.")


def test_steps_larger_than_any_recorded_are_told(load: Workload) -> None:
    more = predict(load, {"num_gpu_blocks": 2000, "max_num_seqs": 200}, num_replays=1)
    assert any("is extrapolated" in note for note in more.notes)


def test_a_pool_that_lets_nobody_in_is_told(load: Workload) -> None:
    tiny = predict(load, {"num_gpu_blocks": 4}, num_replays=1)
    assert any("never end under these settings" in note for note in tiny.notes)


def test_the_smallest_change_reaches_its_goal(load: Workload) -> None:
    steps = smallest_changes(load, ("max_num_seqs",), num_replays=1)
    assert [step.goal for step in steps] == [0.5, 0.8, 1.0]
    values = [step.value for step in steps]
    assert values == sorted(values, reverse=True)
    for step in steps:
        change = step.prediction.of("num_preemptions").change
        assert change is not None
        assert -change >= step.goal - 1e-9
        assert step.needs == "restart"


def test_more_blocks_need_more_memory(load: Workload) -> None:
    steps = smallest_changes(load, ("num_gpu_blocks",), num_replays=1)
    ratio = (steps[-1].value - 1) / load.config.cache.num_usable_blocks
    assert steps[-1].needs == f"restart, {ratio:.2g} x KV memory"


def test_json_has_every_quantity_with_its_back_test(load: Workload, fewer: Prediction) -> None:
    (told,) = whatif_json(load, [fewer])["predictions"]
    assert [each["name"] for each in told["quantities"]] == [q.name for q in QUANTITIES]
    assert told["changes"] == [{"name": "max_num_seqs", "before": 32, "after": 5}]
    assert told["flags"] == "--max-num-seqs 5"
