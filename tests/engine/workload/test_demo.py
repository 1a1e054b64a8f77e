"""What the demo says at its end: commands that can be typed, and a change that the storm wants."""

from __future__ import annotations

import shlex
from pathlib import Path

from diagnose.replay.settable import parse_setting
from engine.config import CacheConfig
from engine.workload.demo import BLOCK_SIZE, NUM_GPU_BLOCKS, next_steps, num_held
from engine.workload.presets import find_preset


def commands() -> list[list[str]]:
    lines = next_steps(Path("/tmp/log")).removeprefix("next").splitlines()
    return [shlex.split(line) for line in lines]


def test_each_next_step_is_a_command_on_the_log_of_the_demo() -> None:
    assert [words[:2] for words in commands()] == [
        ["stepscope", name] for name in ("whatif", "dashboard", "diagnose", "query")
    ]
    assert all(words[words.index("--log") + 1] == "/tmp/log" for words in commands())


def test_the_change_to_try_is_as_many_requests_as_the_pool_holds() -> None:
    (_, value) = parse_setting(commands()[0][-1])
    preset = find_preset("demo")
    blocks = -(-(preset.prompt_tokens[1] + preset.output_tokens[1]) // BLOCK_SIZE)
    assert value == num_held()
    assert value * blocks <= NUM_GPU_BLOCKS - 1 < (value + 1) * blocks


def test_the_block_size_is_the_engines_own() -> None:
    assert CacheConfig(num_gpu_blocks=NUM_GPU_BLOCKS).block_size == BLOCK_SIZE
