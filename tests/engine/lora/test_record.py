"""What the step log says about adapters: it comes from an engine that really served them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from engine.llm import LLM
from engine.lora.adapter_error import AdapterError
from engine.lora.module_spec import AdapterModule
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from telemetry.collector import Collector
from telemetry.recorder import Recorder
from telemetry.records import RunClock
from telemetry.ring import RingRecorder
from telemetry.store import open_log
from tests.engine.lora.builders import THREE, change_config, save_adapter
from tests.engine.runner.builders import reference_tokens

PROMPTS = [[n + 3] * 20 for n in range(8)]
NAMES = [None, "sql", "chat", "legal"] * 2
SAMPLING = SamplingParams(max_tokens=10, ignore_eos=True)


@pytest.fixture(scope="module")
def adapters(
    small_reference: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> dict[str | None, tuple[Path, LlamaForCausalLM]]:
    directory = tmp_path_factory.mktemp("adapters")
    return {
        name: (
            directory / name,
            save_adapter(small_reference, directory / name, seed, **options),
        )
        for seed, (name, options) in enumerate(THREE.items())
    }


def make_llm(
    checkpoint: Path,
    adapters: dict[str | None, tuple[Path, LlamaForCausalLM]],
    recorder: Recorder | None = None,
    clock: RunClock | None = None,
) -> LLM:
    settings = EngineSettings(
        model=checkpoint,
        num_gpu_blocks_override=40,
        enable_lora=True,
        max_loras=1,
        lora_modules=[
            AdapterModule(name=name, path=path) for name, (path, _) in adapters.items() if name
        ],
    )
    return LLM(settings, recorder=recorder, clock=clock)


@pytest.fixture
def log(
    small_checkpoint: Path,
    adapters: dict[str | None, tuple[Path, LlamaForCausalLM]],
    tmp_path: Path,
) -> Path:
    """The log of eight requests for a slot and three adapters."""
    rings = tmp_path / "rings"
    rings.mkdir()
    with Collector(tmp_path / "log", directories=[rings]) as collector:
        collector.open()
        clock = RunClock.start()
        recorder = RingRecorder(rings, clock, ring_bytes=8 << 20)
        llm = make_llm(small_checkpoint, adapters, recorder, clock)
        llm.generate(PROMPTS, SAMPLING, adapter=NAMES)
        recorder.close()
        collector.drain()
    return tmp_path / "log"


def test_requests_name_their_adapter_and_steps_count_them(log: Path) -> None:
    with open_log(log) as opened:
        named = opened.query("SELECT adapter FROM requests")["adapter"].to_pylist()
        counts = opened.query("SELECT DISTINCT num_adapters AS n FROM steps")["n"].to_pylist()
        waits = opened.query("SELECT DISTINCT reason FROM request_intervals")["reason"].to_pylist()
    assert Counter(named) == Counter(NAMES)
    assert set(counts) <= {0, 1}
    assert 1 in counts
    assert "lora_slots" in waits


def test_an_llm_gives_the_tokens_of_each_adapter(
    small_checkpoint: Path,
    small_reference: LlamaForCausalLM,
    adapters: dict[str | None, tuple[Path, LlamaForCausalLM]],
) -> None:
    completions = make_llm(small_checkpoint, adapters).generate(PROMPTS, SAMPLING, adapter=NAMES)
    models = {None: small_reference, **{name: model for name, (_, model) in adapters.items()}}
    assert [list(each.token_ids) for each in completions] == [
        reference_tokens(models[name], prompt, 10)[0]
        for name, prompt in zip(NAMES, PROMPTS, strict=True)
    ]


def test_an_adapter_that_is_not_there_starts_nothing(
    small_checkpoint: Path, adapters: dict[str | None, tuple[Path, LlamaForCausalLM]]
) -> None:
    llm = make_llm(small_checkpoint, adapters)
    with pytest.raises(AdapterError, match="'poems' is not loaded: sql, chat, legal is"):
        llm.generate(PROMPTS[:2], SAMPLING, adapter=["sql", "poems"])
    assert not llm.core.adapters_in_use()


def test_an_engine_does_not_start_with_an_adapter_that_cannot_be_served(
    small_checkpoint: Path, small_reference: LlamaForCausalLM, tmp_path: Path
) -> None:
    save_adapter(small_reference, tmp_path, **THREE["sql"])
    change_config(tmp_path, use_dora=True)
    broken = AdapterModule(name="sql", path=tmp_path)
    with pytest.raises(AdapterError, match="DoRA"):
        LLM(EngineSettings(model=small_checkpoint, enable_lora=True, lora_modules=[broken]))
