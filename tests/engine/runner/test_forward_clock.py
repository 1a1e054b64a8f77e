from __future__ import annotations

from dataclasses import dataclass

from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from tests.engine.runner.builders import engine_config, new, step


@dataclass
class DeviceTime:
    """A device that was busy with each forward pass for so long, whatever the host did."""

    busy_ns: int
    marks: tuple[str, ...] = ()

    def begin(self) -> None:
        self.marks += ("begin",)

    def end(self) -> None:
        self.marks += ("end",)

    def elapsed_ns(self) -> int | None:
        self.marks += ("asked",)
        return self.busy_ns


def test_the_devices_own_time_is_the_forward_pass(small_model: LoadedModel) -> None:
    runner = ModelRunner(small_model, engine_config())
    clock = runner.forward_pass.clock = DeviceTime(busy_ns=7)
    result = runner.execute(step({"a": 3}, new("a", [3, 4, 5], [1])))
    assert clock.marks == ("begin", "end", "asked")
    assert result.forward_ns == 7
    assert result.sample_ns is not None
    assert result.sample_ns > 0


def test_a_device_that_is_ahead_of_the_host_leaves_no_time_below_zero(
    small_model: LoadedModel,
) -> None:
    runner = ModelRunner(small_model, engine_config())
    runner.forward_pass.clock = DeviceTime(busy_ns=10**12)
    result = runner.execute(step({"a": 3}, new("a", [3, 4, 5], [1])))
    assert (result.forward_ns, result.sample_ns) == (10**12, 0)
