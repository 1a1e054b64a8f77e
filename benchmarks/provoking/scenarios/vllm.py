"""A stock vLLM under a storm, short of slots, and in good health; few, for each takes a minute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.provoking.scenario import Scenario
from benchmarks.provoking.served import Clients, LiveRun, Traffic, call_of
from benchmarks.provoking.stock_vllm import serving_vllm

COMMON = ("--max-model-len", "1024", "--max-num-batched-tokens", "2048")


def _small_pool(random: Random, folder: Path) -> Sequence[str]:
    blocks = str(random.randint(56, 72))
    return (*COMMON, "--num-gpu-blocks-override", blocks, "--max-num-seqs", "32")


def _few_slots(random: Random, folder: Path) -> Sequence[str]:
    slots = str(random.randint(4, 7))
    return (*COMMON, "--num-gpu-blocks-override", "1024", "--max-num-seqs", slots)


def _with_room(random: Random, folder: Path) -> Sequence[str]:
    return (*COMMON, "--num-gpu-blocks-override", "1024", "--max-num-seqs", "32")


def _traffic(random: Random, load: float, number: int, at_once: int) -> Traffic:
    calls = [
        call_of(random, random.randint(48, 80), random.randint(100, 160))
        for _ in range(round(number * load))
    ]
    return Traffic(clients=[Clients(calls, at_once)])


RUNS = (
    (
        LiveRun(
            name="vllm-storm",
            flags=_small_pool,
            traffic=lambda random, load: _traffic(random, load, 100, 28),
            serving=serving_vllm,
        ),
        "kv-preemption-pressure",
    ),
    (
        LiveRun(
            name="vllm-few-slots",
            flags=_few_slots,
            traffic=lambda random, load: _traffic(random, load, 120, 28),
            serving=serving_vllm,
        ),
        "seq-slot-limit",
    ),
    (
        LiveRun(
            name="vllm-busy",
            flags=_with_room,
            traffic=lambda random, load: _traffic(random, load, 120, 16),
            serving=serving_vllm,
        ),
        None,
    ),
)
SCENARIOS = tuple(
    scenario
    for run, expected in RUNS
    for scenario in (
        Scenario(name=run.name, source="vllm", expected=expected, provoke=run.log),
        Scenario(name=f"{run.name}-scraped", source="vllm", expected=expected, provoke=run.scrapes),
    )
)
