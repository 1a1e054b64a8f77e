from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.config import EngineConfig
from engine.runner.device_profile import MeteredCapturer, profile_device
from engine.runner.graphs import Capturer, GraphCaptureError, RerunCapturer, Run, shapes_to_record
from engine.runner.largest_step import largest_step, run_largest_step, with_two_blocks
from engine.runner.memory_profile import MemoryProfile, estimated_graph_bytes, profile_memory
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from tests.engine.runner.builders import engine_config


@dataclass
class Device:
    """A device's books: 1,000 bytes, of which others than torch hold 50."""

    tensors: int = 300
    cached: int = 0
    highest: int = 0
    recorded: list[str] = field(default_factory=list)

    def take(self, count: int) -> None:
        self.tensors += count
        self.highest = max(self.highest, self.tensors)

    def drop(self, count: int) -> None:
        self.tensors -= count
        self.cached += count

    def total(self) -> int:
        return 1000

    def free(self) -> int:
        return 1000 - 50 - self.reserved()

    def reserved(self) -> int:
        return self.tensors + self.cached

    def allocated(self) -> int:
        return self.tensors

    def begin_peak(self) -> None:
        self.highest = self.tensors

    def peak(self) -> int:
        return self.highest

    def give_back(self) -> None:
        self.cached = 0


def test_each_part_of_the_memory_is_told_apart() -> None:
    device = Device(cached=70)

    def step() -> None:
        device.take(120)
        device.drop(40)
        device.take(10)
        device.drop(90)

    profile = profile_memory(device, step, lambda: 33)
    assert profile == MemoryProfile(
        total_bytes=1000,
        weights_bytes=300,
        activation_bytes=120,
        non_torch_bytes=50,
        graph_bytes=33,
    )


def test_the_kv_cache_gets_what_is_left_of_the_utilised_share() -> None:
    profile = MemoryProfile(
        total_bytes=1000,
        weights_bytes=300,
        activation_bytes=120,
        non_torch_bytes=50,
        graph_bytes=33,
    )
    assert profile.kv_budget(0.92) == 920 - 503
    assert profile.kv_budget(0.5) < 0


@pytest.mark.parametrize(
    ("measured", "num_graphs", "expected"),
    [([], 0, 0), ([100], 1, 100), ([100, 3], 35, 100 + 34 * 3), ([100, 0], 35, 100)],
)
def test_further_graphs_cost_what_the_second_did(
    measured: list[int], num_graphs: int, expected: int
) -> None:
    assert estimated_graph_bytes(measured, num_graphs) == expected


CONFIG = engine_config(budget=100, max_num_seqs=12, max_model_len=64)


def test_the_largest_step_fills_budget_and_rows() -> None:
    step = largest_step(CONFIG)
    assert step.total_num_scheduled_tokens == sum(step.num_scheduled_tokens.values()) == 100
    assert len(step.scheduled_new_reqs) == 12


def test_a_budget_beyond_all_sequences_is_not_filled() -> None:
    step = largest_step(engine_config(budget=500, max_num_seqs=3, max_model_len=64))
    assert sorted(step.num_scheduled_tokens.values()) == [64, 64, 64]


def test_a_runner_forgets_the_largest_step(small_model: LoadedModel) -> None:
    small = with_two_blocks(CONFIG)
    runner = ModelRunner(small_model, small)
    run_largest_step(runner, small)
    assert not runner.batch.request_ids
    run_largest_step(runner, small)  # the same requests are new again


def profile(
    model: LoadedModel, make_capturer: type[RerunCapturer] | type[Refusing] | None
) -> tuple[MemoryProfile, str | None]:
    def make(config: EngineConfig) -> ModelRunner:
        assert config.cache.num_gpu_blocks == 2
        return ModelRunner(model, config)

    profiled = profile_device(CONFIG, make, Device(), make_capturer)
    return profiled.memory, profiled.no_graphs_because


class Refusing:
    def capture(self, run: Run) -> Run:
        raise GraphCaptureError("a step waits for the device")


def test_a_model_is_profiled_with_its_own_runner(small_model: LoadedModel) -> None:
    memory, no_graphs_because = profile(small_model, RerunCapturer)
    assert (memory.weights_bytes, memory.graph_bytes) == (300, 0)
    assert no_graphs_because is None


def test_why_there_are_no_graphs_is_told(small_model: LoadedModel) -> None:
    assert profile(small_model, Refusing)[1] == "a step waits for the device"
    assert profile(small_model, None)[1] is None


def test_each_graph_is_metered(small_model: LoadedModel) -> None:
    device = Device()

    class Growing:
        def capture(self, run: Run) -> Run:
            device.take(7)
            return run

    capturer: Capturer = Growing()
    metered = MeteredCapturer(capturer, device)
    runner = ModelRunner(small_model, CONFIG)
    runner.capture_graphs(metered, at_most=2)
    assert metered.taken == [7, 7]
    runner.capture_graphs(metered)
    assert len(metered.taken) == 2 + len(shapes_to_record(CONFIG))
