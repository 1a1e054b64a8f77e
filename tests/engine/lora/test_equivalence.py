"""Tokens with adapters equal those of PEFT over `transformers`, whatever happens meanwhile."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine.config import SpeculationConfig
from engine.kv_cache.hashing import extend_block_keys
from engine.request import Request
from engine.runner.model_runner import ModelRunner
from engine.runner.ngram_drafter import NgramDrafter
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import SchedulerOutput
from telemetry.recorder import ListRecorder
from telemetry.records import RequestAdmitted
from telemetry.vocabulary import EventKind, SkipReason
from tests.engine.lora.builders import ALL_LINEAR, THREE, Served, serve_adapters, with_max_loras
from tests.engine.runner.builders import (
    SIZES,
    engine_config,
    plain_choices,
    reference_tokens,
    request,
    run_all,
    save_model,
    very_small_llama,
)
from tests.engine.runner.test_families import GPT2_SIZES, MIXED, saved

TIE = 1e-4
"""Two best logits nearer than this may change places with the order of additions."""

NAMES = (None, "sql", "chat", "legal")
RESET_AFTER_STEP = 30

GPT2_ADAPTERS: dict[str, dict[str, Any]] = {
    "sql": {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True},
    "chat": {**ALL_LINEAR, "fan_in_fan_out": True},
    "legal": {"r": 2, "target_modules": ["c_fc", "mlp.c_proj"], "fan_in_fan_out": True},
}

FAMILIES: dict[str, tuple[Callable[[], Any], dict[str, dict[str, Any]], int]] = {
    "llama, a slot": (very_small_llama, THREE, 1),
    "llama, two slots": (very_small_llama, THREE, 2),
    "llama, more slots than adapters": (very_small_llama, THREE, 5),
    "qwen3": (lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES)), THREE, 2),
    "gemma 3 with a sliding window": (
        lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**SIZES, **MIXED)),
        THREE,
        2,
    ),
    "gpt2, whose layers are transposed": (
        lambda: t.GPT2LMHeadModel(t.GPT2Config(**GPT2_SIZES)),
        GPT2_ADAPTERS,
        2,
    ),
}


def requests() -> list[Request]:
    """Returns requests of all adapters and none, of which many begin alike across adapters."""
    rng = random.Random(1)
    prefix = [rng.randrange(3, 96) for _ in range(24)]
    sampling = SamplingParams(max_tokens=30, ignore_eos=True)
    made = []
    for n in range(16):
        own = [rng.randrange(3, 96) for _ in range(5 + 2 * n)]
        prompt = [*prefix, *own] if n % 8 < 5 else own
        made.append(replace(request(n, prompt, sampling), adapter=NAMES[n % 4]))
    return made


def pressed(served: Served, max_loras: int) -> tuple[dict[str, list[int]], ListRecorder, int]:
    """Runs the requests in small steps and a pool too small for them; one reset takes it all away.

    Returns:
        The outputs, the record, and how often an adapter was copied to the device.
    """
    groups = served.model.kv_groups(8)
    num_blocks = sum(24 if group.kind == "full" else 10 for group in groups)
    config = with_max_loras(
        engine_config(
            num_blocks=num_blocks, budget=24, max_num_seqs=8, max_model_len=128, groups=groups
        ),
        max_loras,
    )
    recorder = ListRecorder()
    scheduler = Scheduler(config, recorder=recorder)
    runner = ModelRunner(served.model, config, adapters=served.store)

    def after_step(output: SchedulerOutput) -> None:
        scheduler.check_integrity()
        if output.step == RESET_AFTER_STEP:
            assert scheduler.reset_prefix_cache(reset_running=True)

    tokens = run_all(scheduler, runner, requests(), arrivals_per_step=2, after_step=after_step)
    assert runner.adapters is not None
    return tokens, recorder, runner.adapters.num_placed


def count_ties(served: Served, tokens: dict[str, list[int]]) -> int:
    """Returns how many outputs differ from PEFT's at a tie; any other difference is an error."""
    num_ties = 0
    for each in requests():
        outputs = tokens[each.request_id]
        reference = served.references[each.adapter]
        choices, margins = plain_choices(reference, list(each.prompt_token_ids), outputs)
        apart = [i for i, pair in enumerate(zip(outputs, choices, strict=True)) if len({*pair}) > 1]
        assert all(margins[i] <= TIE for i in apart), f"{each.request_id} differs at {apart}"
        num_ties += len(apart)
    return num_ties


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_under_pressure_give_pefts_tokens(family: str, tmp_path: Path) -> None:
    make, adapters, max_loras = FAMILIES[family]
    checkpoint = saved(make, tmp_path)
    base = t.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    served = serve_adapters(checkpoint, base, tmp_path, adapters, max_loras=max_loras)

    tokens, recorder, num_placed = pressed(served, max_loras)
    assert count_ties(served, tokens) <= 3
    assert sum(event.kind == EventKind.preempted for event in recorder.events) >= 2
    admissions = [event for event in recorder.events if isinstance(event, RequestAdmitted)]
    assert sum(bool(event.num_hit_tokens) for event in admissions) >= 1
    set_aside = [e for e in recorder.events if e.reason == SkipReason.lora_slots]
    assert bool(set_aside) == (max_loras < 3)
    assert (num_placed > max_loras) == (max_loras < 3)


def test_a_batch_of_all_adapters_gives_the_tokens_of_merged_weights(tmp_path: Path) -> None:
    base = very_small_llama()
    served = serve_adapters(save_model(base, tmp_path), base, tmp_path, max_loras=3)
    config = with_max_loras(engine_config(), 3)
    prompt = list(range(20, 32))
    sampling = SamplingParams(max_tokens=12, ignore_eos=True)
    together = [replace(request(n, prompt, sampling), adapter=name) for n, name in enumerate(NAMES)]
    tokens = run_all(
        Scheduler(config), ModelRunner(served.model, config, adapters=served.store), together
    )
    merged = {
        name: model if name is None else model.merge_and_unload()  # type: ignore[operator]
        for name, model in served.references.items()
    }
    expected = [reference_tokens(merged[name], prompt, 12)[0] for name in NAMES]
    assert list(tokens.values()) == expected
    assert len({tuple(each) for each in expected}) == 4


def test_a_preempted_request_is_told_nothing_twice_and_keeps_its_adapter(tmp_path: Path) -> None:
    base = very_small_llama()
    served = serve_adapters(save_model(base, tmp_path), base, tmp_path, max_loras=3)
    sampling = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=7)

    def run(num_blocks: int) -> tuple[dict[str, list[int]], int]:
        config = with_max_loras(engine_config(num_blocks=num_blocks, max_num_seqs=4), 3)
        wanted = [
            replace(request(n, [n + 3] * 20, sampling), adapter=NAMES[n % 4]) for n in range(8)
        ]
        runner = ModelRunner(served.model, config, adapters=served.store)
        tokens = run_all(Scheduler(config), runner, wanted)
        return tokens, sum(each.num_preemptions for each in wanted)

    calm, num_calm = run(512)
    crowded, num_crowded = run(16)
    assert (num_calm, num_crowded > 0) == (0, True)
    assert crowded == calm


def test_drafts_change_no_token_of_an_adapter(tmp_path: Path) -> None:
    base = very_small_llama()
    served = serve_adapters(save_model(base, tmp_path), base, tmp_path, max_loras=3)
    config = with_max_loras(
        replace(engine_config(), speculation=SpeculationConfig(num_speculative_tokens=3)), 3
    )
    drafter = NgramDrafter(
        num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=4, max_model_len=512
    )
    runner = ModelRunner(served.model, config, adapters=served.store, drafter=drafter)
    recorder = ListRecorder()
    tokens = run_all(Scheduler(config, recorder=recorder), runner, requests())
    assert count_ties(served, tokens) <= 3
    assert sum(step.num_accepted or 0 for step in recorder.steps) > 4


def test_adapters_that_take_turns_in_a_slot_share_no_block(tmp_path: Path) -> None:
    base = very_small_llama()
    served = serve_adapters(save_model(base, tmp_path), base, tmp_path, max_loras=1)
    config = with_max_loras(engine_config(), 1)
    recorder = ListRecorder()
    scheduler = Scheduler(config, recorder=recorder)
    runner = ModelRunner(served.model, config, adapters=served.store)
    prompt, sampling = [5] * 33, SamplingParams(max_tokens=6, ignore_eos=True)
    said = [
        run_all(scheduler, runner, [replace(request(n, prompt, sampling), adapter=name)])[f"r{n}"]
        for n, name in enumerate([*NAMES, *NAMES])
    ]
    assert said == 2 * [reference_tokens(served.references[name], prompt, 6)[0] for name in NAMES]
    assert runner.adapters is not None
    assert runner.adapters.num_placed == 6
    admissions = [event for event in recorder.events if isinstance(event, RequestAdmitted)]
    assert [event.num_hit_tokens for event in admissions] == [0] * 4 + [32] * 4


def test_blocks_of_other_weights_under_the_same_name_have_other_keys() -> None:
    first: list[Any] = []
    second: list[Any] = []
    tokens = array("i", range(16))
    extend_block_keys(first, tokens, 8, adapter="sql\0aa")
    extend_block_keys(second, tokens, 8, adapter="sql\0bb")
    assert not set(first) & set(second)
