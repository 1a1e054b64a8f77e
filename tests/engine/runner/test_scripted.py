from __future__ import annotations

import subprocess
import sys

import pytest

from engine.runner.batch_error import BatchError
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import SchedulerOutput
from tests.engine.runner.builders import (
    engine_config,
    new,
    request,
    resumed,
    run_all,
    running,
    step,
)


def count_up(_: str, n: int) -> int:
    return 100 + n


def test_the_script_is_told_which_output_it_is() -> None:
    runner = ScriptedRunner(count_up)
    first = runner.execute(step({"a": 2}, new("a", [1, 2], [1])))
    second = runner.execute(step({"a": 1}, running("a", 2, 1)))
    assert first.sampled_token_ids == {"a": [100]}
    assert second.sampled_token_ids == {"a": [101]}


def test_a_chunk_short_of_the_newest_token_gives_none() -> None:
    runner = ScriptedRunner(count_up)
    assert runner.execute(step({"a": 2}, new("a", [1, 2, 3], [1]))).sampled_token_ids == {}
    assert runner.execute(step({"a": 1}, running("a", 2, 0))).sampled_token_ids == {"a": [100]}


def test_a_resumed_request_goes_on_counting() -> None:
    runner = ScriptedRunner(count_up)
    runner.execute(step({"a": 2}, new("a", [1, 2], [1])))
    runner.execute(step({}, preempted=["a"]))
    assert runner.request_ids == frozenset()
    output = runner.execute(step({"a": 3}, resumed("a", [1, 2, 100], 1, [4])))
    assert output.sampled_token_ids == {"a": [101]}


@pytest.mark.parametrize(
    "output",
    [
        step({"b": 1}),
        step({"b": 1}, running("b", 0, 0)),
        step({"a": 1}, running("a", 1, 1)),
        step({"a": 2}, running("a", 2, 1)),
        step({"a": 2}, new("a", [1, 2], [1])),
        step({}, preempted=["b"]),
    ],
)
def test_a_delta_that_contradicts_its_state_is_refused(output: SchedulerOutput) -> None:
    runner = ScriptedRunner(count_up)
    runner.execute(step({"a": 2}, new("a", [1, 2], [1])))
    with pytest.raises(BatchError, match="have diverged"):
        runner.execute(output)


def test_a_step_takes_as_long_as_it_is_told_to() -> None:
    runner = ScriptedRunner(
        count_up, step_seconds=lambda output: 0.002 * len(output.num_scheduled_tokens)
    )
    output = runner.execute(step({"a": 1, "b": 1}, new("a", [1], [1]), new("b", [1], [2])))
    assert output.forward_ns is not None
    assert output.forward_ns >= 4_000_000


def test_the_scheduler_under_pressure_gets_every_scripted_token() -> None:
    sampling = SamplingParams(max_tokens=20, ignore_eos=True)
    requests = [request(n, list(range(n, n + 12)), sampling) for n in range(20)]
    scheduler = Scheduler(engine_config(num_blocks=21, budget=32))
    tokens = run_all(scheduler, ScriptedRunner(count_up), requests)
    assert scheduler.num_preemptions > 0
    assert all(outputs == list(range(100, 120)) for outputs in tokens.values())


def test_importing_it_loads_no_model_library() -> None:
    code = (
        "import sys, engine.runner.scripted; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [
        ("OMP_WAIT_POLICY", None, "PASSIVE"),
        ("OMP_WAIT_POLICY", "active", "active"),
        ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", None, "16"),
        ("LRU_CACHE_CAPACITY", "64", "64"),
    ],
)
def test_threads_sleep_and_caches_are_small_unless_told_otherwise(
    name: str, chosen: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv(name, chosen)
    code = f"import os, engine.runner; print(os.environ['{name}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
