"""A replay under the recorded settings follows a record with transfers, and clients in a loop."""

from __future__ import annotations

import pytest

from benchmarks.whatif.playing import settings_of
from benchmarks.whatif.simulated import simulated
from diagnose.replay import Workload, read_workload, simulate, with_settings
from tests.benchmarks.whatif.runs import small_run

TOLD = ("num_preemptions", "num_tokens_lost", "num_tokens_recomputed")


def _load(**more: object) -> Workload:
    run = small_run(**more)
    return read_workload(simulated(run, settings_of(run, is_changed=False)), 1)


@pytest.mark.parametrize("seed", [31, 32, 33])
@pytest.mark.parametrize("connector", ["brings", "keeps"])
def test_a_replay_loads_and_evicts_as_was_recorded(connector: str, seed: int) -> None:
    load = _load(connector=connector, load_seconds=0.2, seed=seed)
    measures = simulate(load).measures
    assert load.recorded.num_preemptions
    for name in TOLD:
        recorded = load.recorded.value(name)
        assert measures.value(name) == pytest.approx(recorded, rel=0.05), name


def test_a_loop_of_clients_is_replayed_in_the_order_of_its_pauses() -> None:
    load = _load(seed=34)
    assert load.clients.kind == "closed"
    measures = simulate(load).measures
    assert [measures.value(name) for name in TOLD] == [load.recorded.value(name) for name in TOLD]


def test_a_store_holds_nothing_for_who_is_no_longer_evicted() -> None:
    load = _load(connector="keeps", load_seconds=0.2)
    assert simulate(load).num_tokens_recomputed < simulate(load).num_tokens_lost
    roomy = simulate(with_settings(load, num_gpu_blocks=400))
    assert roomy.num_preemptions == roomy.num_tokens_recomputed == 0
