"""`serve`'s flags: vLLM's names with vLLM's defaults, and what they become."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

import pytest

from engine.commands import add_commands, engine_settings
from engine.compilation import CompilationConfig
from engine.config import ConfigError
from engine.settings import EngineSettings

FLAGS = Path(__file__).parents[2].parent / "shared" / "vllm" / "flags.json"


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(), [])
    return parser.parse_args(["serve", *arguments])


@pytest.mark.skipif(not FLAGS.is_file(), reason="vLLM's list of flags is not here")
def test_flags_that_vllm_has_too_have_its_defaults() -> None:
    theirs = {
        flag: entry["default"]
        for entry in json.loads(FLAGS.read_text())["flags"]
        for flag in entry["flags"]
        if entry["default"] is not None
    }
    options = vars(parse())
    shared = {name for name in options if f"--{name.replace('_', '-')}" in theirs}
    assert {"gpu_memory_utilization", "watermark", "scheduling_policy", "dtype"} <= shared
    for name in shared:
        assert options[name] == theirs[f"--{name.replace('_', '-')}"], name


OUR_OWN = {"allow_oversize", "inject", "scripted_step_seconds", "step_pipe"}
OF_VLLMS_SERVER = {"lora_modules"}
"""Flags of `vllm serve` that the list, which has the engine's, leaves out."""


@pytest.mark.skipif(not FLAGS.is_file(), reason="vLLM's list of flags is not here")
def test_settings_have_the_names_that_vllm_gives_them() -> None:
    theirs = {flag for entry in json.loads(FLAGS.read_text())["flags"] for flag in entry["flags"]}
    ours = {field.name for field in fields(EngineSettings)} - OUR_OWN - OF_VLLMS_SERVER
    assert {name for name in ours if f"--{name.replace('_', '-')}" not in theirs} == set()


def test_defaults_of_the_command_line_are_those_of_the_settings() -> None:
    assert engine_settings(parse()) == EngineSettings()


def test_every_setting_reaches_the_configuration() -> None:
    settings = engine_settings(
        parse(
            *("--max-model-len", "300", "--block-size", "8", "--max-num-seqs", "5"),
            *("--max-num-active-seqs", "4", "--max-num-batched-tokens", "400"),
            *("--max-num-scheduled-tokens", "350", "--scheduling-policy", "priority"),
            *("--no-enable-chunked-prefill", "--no-enable-prefix-caching"),
            *("--no-scheduler-reserve-full-isl", "--watermark", "0.1", "--allow-oversize"),
            *("--gpu-memory-utilization", "0.5", "--long-prefill-token-threshold", "9"),
        )
    )
    config = settings.config(num_gpu_blocks=77, max_position=4096)
    scheduler, cache = config.scheduler, config.cache
    assert (scheduler.policy, scheduler.max_num_seqs, scheduler.active_seqs) == ("priority", 5, 4)
    assert (scheduler.max_num_batched_tokens, scheduler.scheduled_tokens) == (400, 350)
    assert (scheduler.max_model_len, scheduler.watermark) == (300, 0.1)
    assert (scheduler.enable_chunked_prefill, scheduler.scheduler_reserve_full_isl) == (False,) * 2
    assert scheduler.long_prefill_token_threshold == 9
    assert (cache.block_size, cache.num_gpu_blocks, cache.num_usable_blocks) == (8, 77, 76)
    assert (cache.enable_prefix_caching, cache.gpu_memory_utilization) == (False, 0.5)
    assert config.allow_oversize


def test_settings_of_the_device_reach_the_configuration() -> None:
    settings = engine_settings(
        parse(
            *("--attention-backend", "FLEX_ATTENTION", "--enforce-eager"),
            *("--cudagraph-capture-sizes", "1", "4", "--max-cudagraph-capture-size", "8"),
            *("--kv-cache-memory-bytes", "2M"),
        )
    )
    config = settings.config(num_gpu_blocks=10, max_position=2048)
    assert config.compilation == CompilationConfig(
        enforce_eager=True,
        cudagraph_capture_sizes=(1, 4),
        max_cudagraph_capture_size=8,
        attention_backend="FLEX_ATTENTION",
    )
    assert config.cache.kv_cache_memory_bytes == 2 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("1.5G", 3 << 29), ("1.5g", 1_500_000_000), ("2k", 2000), ("1T", 1 << 40)],
)
def test_memory_may_be_written_short(text: str, expected: int) -> None:
    assert parse("--kv-cache-memory-bytes", text).kv_cache_memory_bytes == expected


@pytest.mark.parametrize("text", ["", "G", "4GB", "many", "nan", "inf"])
def test_what_is_no_amount_of_memory_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse("--kv-cache-memory-bytes", text)
    assert "no amount of memory" in capsys.readouterr().err


def test_the_model_decides_what_was_left_open() -> None:
    config = EngineSettings().config(num_gpu_blocks=10, max_position=2048)
    assert config.scheduler.max_model_len == 2048


def test_a_setting_that_contradicts_another_is_refused() -> None:
    settings = EngineSettings(enable_chunked_prefill=False, max_num_batched_tokens=100)
    with pytest.raises(ConfigError, match="without chunked prefill"):
        settings.config(num_gpu_blocks=10, max_position=2048)


def test_no_setting_is_without_a_flag() -> None:
    assert {field.name for field in fields(EngineSettings)} <= set(vars(parse()))
