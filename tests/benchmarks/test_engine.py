"""The engines' comparison with our side alone, and what it makes of rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import engine
from benchmarks.serving.comparison import agreement_of, compare, ratio_of
from benchmarks.serving.loads import Load, loads
from benchmarks.serving.measuring import DifferentWorkError, Round

LOAD = Load(concurrency=2, num_requests=4, num_prompt_tokens=3, max_tokens=5, vocab_size=50)


class PlayedSide:
    """A side whose rounds are made up."""

    def __init__(self, name: str, rate: float, num_tokens: int = 20) -> None:
        self.name = name
        self.seeds: list[int] = []
        self._rate, self._num_tokens = rate, num_tokens

    def play(self, load: Load, seed: int) -> Round:
        self.seeds.append(seed)
        return Round(
            num_tokens=self._num_tokens,
            seconds=self._num_tokens / self._rate,
            cpu_seconds=0.1,
            ttft_seconds=[0.01],
            itl_seconds=[0.002],
        )

    def outputs(self, load: Load, seed: int) -> list[list[int]]:
        return [[1, 2, 3]] * load.num_requests


def test_our_side_alone_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--rounds", "1", "--waves", "1", "--max-tokens", "4", "--transformers-rounds", "0"]
    assert engine.main([*flags, "--concurrency", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    ours = row["sides"]["ours"]
    assert ours["tokens_per_second"][0] > 0
    assert ours["itl_p50_ms"] > 0
    assert ours["agreement"]["equal_ratio"] == 1


def test_every_side_gets_the_same_rounds_and_one_that_is_slow_fewer() -> None:
    sides = [PlayedSide("ours", 100), PlayedSide("slow", 10)]
    outcome = compare(LOAD, sides, 4, {"slow": 1})
    assert sorted(sides[0].seeds) == [0, 1, 2, 3]
    assert sides[1].seeds == [0]
    assert outcome.throughput_ratio("ours", "slow").median == pytest.approx(10)


def test_a_side_that_gave_other_numbers_of_tokens_is_named() -> None:
    with pytest.raises(DifferentWorkError, match="short gave 19 tokens at concurrency 2 where 20"):
        compare(LOAD, [PlayedSide("short", 100, num_tokens=19)], 1, {})


def test_an_interval_encloses_its_median_and_is_narrow_where_rounds_agree() -> None:
    wide, narrow = ratio_of(np.array([0.5, 1.0, 1.5, 2.0])), ratio_of(np.full(4, 1.25))
    assert wide.low < wide.median < wide.high
    assert narrow.low == narrow.high == 1.25


def test_texts_agree_up_to_their_first_difference() -> None:
    agreement = agreement_of([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 9, 4], [5, 6, 7, 8]])
    assert agreement.equal_ratio == 0.5
    assert agreement.shared_ratio == 6 / 8


def test_rounds_share_no_prompt() -> None:
    (load,) = loads([4], num_prompt_tokens=8, max_tokens=1, vocab_size=1000)
    prompts = [tuple(prompt) for seed in range(5) for prompt in load.prompts(seed)]
    assert len(set(prompts)) == len(prompts) == 5 * load.num_requests
