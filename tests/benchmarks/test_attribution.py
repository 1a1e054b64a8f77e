"""Shares against truth, one small run; the whole of it is `python -m benchmarks.attribution`."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.attributing.mixes import CALM_SECONDS, MIXES, Mix
from benchmarks.attribution import POINTS, Judged, judge, table

MIX = Mix(
    name="more slots x longer prompts",
    causes=("config_change", "longer_prompts"),
    max_num_seqs_before=10,
    prompt_factor=2.0,
)


@pytest.fixture(scope="module")
def judged() -> Judged:
    return judge(MIX, seed=1)


def test_the_shares_of_a_run_are_near_the_truth(judged: Judged) -> None:
    assert judged.num_preemptions >= 20
    assert judged.miss is not None
    assert judged.miss <= POINTS, judged


def test_truth_and_shares_sum_to_all_preemptions(judged: Judged) -> None:
    assert sum(judged.true) == pytest.approx(1)
    assert judged.said is not None
    assert sum(judged.said) + judged.others == pytest.approx(1)


def test_the_table_has_a_row_for_each_mix(judged: Judged) -> None:
    lines = table([judged]).splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("| more slots x longer prompts |")


@pytest.mark.parametrize("mix", MIXES, ids=[mix.name for mix in MIXES])
def test_leaving_a_cause_out_changes_nothing_but_what_it_is_about(mix: Mix) -> None:
    both = list(mix.calls(Random(3), frozenset(mix.causes)))
    none = list(mix.calls(Random(3), frozenset()))
    kept = {call.at: call for call in none}
    assert kept.keys() <= {call.at for call in both}
    before = [call for call in both if call.at < CALM_SECONDS]
    assert before == [call for call in none if call.at < CALM_SECONDS]
    assert both != none or {"smaller_pool", "config_change"} & set(mix.causes)
