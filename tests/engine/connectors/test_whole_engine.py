"""A whole engine with a connector: settings in, tokens out, and nothing left when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.config import ConfigError, KVConnectorConfig, KVGroupConfig
from engine.connectors.building import check_kv_groups
from engine.connectors.faults import Fault
from engine.connectors.settings import KVTransferConfig
from engine.llm import LLM
from engine.sampling import SamplingParams
from engine.server import engine_process
from engine.settings import EngineSettings
from engine.speculative_settings import parse_speculative_config
from telemetry.recorder import ListRecorder
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.connectors.real_engine import prompts, transfer
from tests.engine.runner.builders import engine_config
from tests.engine.server.in_process import serving_in_process
from tests.engine.server.server_process import wait_until

PROMPTS = prompts(4, seed=9)
GREEDY = SamplingParams(max_tokens=10, ignore_eos=True)
Start = Callable[..., LLM]


@pytest.fixture
def start(small_checkpoint: Path) -> Iterator[Start]:
    engines: list[LLM] = []

    def new(settings: KVTransferConfig | None, *faults: str, **how: Any) -> LLM:
        engines.append(
            LLM(
                EngineSettings(
                    model=how.pop("model", small_checkpoint),
                    num_gpu_blocks_override=128,
                    block_size=8,
                    kv_transfer_config=settings,
                    inject=[Fault.parse(text) for text in faults],
                    **how,
                ),
                recorder=ListRecorder(),
            )
        )
        return engines[-1]

    yield new
    for llm in engines:
        llm.close()


def tokens(llm: LLM) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in llm.generate(PROMPTS, GREEDY)]


def kinds(llm: LLM) -> list[EventKind]:
    recorder: Any = llm.core._recorder
    return [EventKind(event.kind) for event in recorder.events]


def test_a_restarted_engine_finds_what_the_first_stored(start: Start, tmp_path: Path) -> None:
    settings = transfer(tmp_path / "kv")
    first = start(settings)
    expected = tokens(first)
    first.close()  # stores the blocks of those that ended last
    second = start(settings)
    assert tokens(second) == expected
    assert kinds(second).count(EventKind.load_finished) == len(PROMPTS)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_drafts_and_loads_that_fail_half_way_change_no_token(
    start: Start, tmp_path: Path, is_async: bool
) -> None:
    settings = transfer(tmp_path / "kv", load_async=is_async)
    expected = tokens(start(None))
    speculation = parse_speculative_config('{"method": "ngram", "num_speculative_tokens": 3}')
    first = start(settings, speculative_config=speculation)
    assert tokens(first) == expected
    first.close()
    second = start(settings, "load=fail_half", speculative_config=speculation)
    assert tokens(second) == expected
    assert EventKind.load_failed in kinds(second)


def test_offline_a_load_under_way_is_no_standstill(start: Start, tmp_path: Path) -> None:
    settings = transfer(tmp_path / "kv")
    first = start(settings)
    expected = tokens(first)
    first.close()
    assert tokens(start(settings, "lookup=delay:0.05", "load=delay:0.1")) == expected


def test_the_policy_fail_is_told_to_the_caller(start: Start, tmp_path: Path) -> None:
    settings = transfer(tmp_path / "kv", policy="fail")
    first = start(settings)
    tokens(first)
    first.close()
    ends = start(settings, "load=fail:n=1").generate(PROMPTS, GREEDY)
    errors = [end for end in ends if end.finish_reason is FinishReason.error]
    assert len(errors) == 1
    assert errors[0].error


def test_its_threads_end_with_the_engine(start: Start, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    llm = start(transfer(tmp_path / "kv", num_threads=3), "load=delay:3600", "ack=lose")
    tokens(llm)
    assert any(thread.name.startswith("kv-transfer") for thread in threading.enumerate())
    llm.close()
    assert set(threading.enumerate()) <= before


def test_a_runner_without_a_model_takes_a_connector_too(start: Start) -> None:
    llm = start(transfer(), "load=fail_half:n=1", model=None, scripted_step_seconds=0.0)
    first = tokens(llm)
    while llm.core.has_work():
        llm.core.step()
        llm.core.wait_for_transfers()
    assert llm.core.scheduler.reset_prefix_cache()
    assert tokens(llm) == first
    assert EventKind.load_failed in kinds(llm)


def test_the_end_of_a_transfer_wakes_a_served_engine(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is under way, and by itself the loop would not look for an hour."""
    monkeypatch.setattr(engine_process, "STUCK_WAIT_SECONDS", 3600.0)
    llm = start(transfer(), "load=delay:0.05", model=None, scripted_step_seconds=0.0)
    prompt = {"model": "tiny-llama", "prompt": list(range(1, 65)), "max_tokens": 2}
    with serving_in_process(llm.core) as url:
        answers = []
        for _ in range(2):
            answers.append(httpx.post(f"{url}/v1/completions", json=prompt, timeout=60.0))
            wait_until(lambda: httpx.post(f"{url}/reset_prefix_cache").json()["success"])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert EventKind.load_finished in kinds(llm)


@pytest.mark.parametrize(
    "groups",
    [
        (KVGroupConfig("full", 8), KVGroupConfig("sliding_window", 8, 16)),
        (KVGroupConfig("sliding_window", 8, 16),),
    ],
)
def test_a_model_with_windows_is_refused(groups: tuple[KVGroupConfig, ...]) -> None:
    config = replace(engine_config(groups=groups), kv_connector=KVConnectorConfig())
    with pytest.raises(ConfigError, match="sliding_window 16"):
        check_kv_groups(config)
