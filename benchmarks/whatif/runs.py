"""The runs: loads, engines, seeds, and the change that each is asked about.

All were chosen before the first was played. None was left out afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.workload.presets import Preset

EngineKind = Literal["simulated", "served", "vllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `clients` wait for their answers; None: requests come when they come.

    `settings` are the engine's, by the names of `diagnose.replay.settable`; `change` is one of
    those with its other value. `num_adapters` are drawn in turn, `load_seconds` is how long a KV
    connector takes to bring half of each prompt, `num_drafts` are proposed in each step.
    """

    name: str
    engine: EngineKind
    seed: int
    load: Preset
    clients: int | None
    settings: Mapping[str, Any]
    change: tuple[str, Any]
    num_adapters: int = 0
    load_seconds: float | None = None
    num_drafts: int = 0
    step_ms: float = 12.0
    """How long a step of the simulated engine takes at least."""
    more: Mapping[str, Any] = field(default_factory=dict)


def load(
    num_requests: int,
    rate: float,
    prompt: tuple[int, int],
    output: tuple[int, int],
    *,
    shared: int = 0,
    priorities: tuple[int, ...] = (),
) -> Preset:
    """Returns a load in a few numbers."""
    return Preset(
        name="whatif",
        summary="of the what-if benchmark",
        num_requests=num_requests,
        rate=rate,
        prompt_tokens=prompt,
        output_tokens=output,
        shared_prefix=shared,
        priorities=priorities,
    )


STORM = load(96, 8.0, (48, 96), (120, 200))
MIXED = load(96, 8.0, (48, 96), (120, 200), priorities=(0, 0, 5))
SHARED = load(96, 8.0, (160, 224), (120, 200), shared=128)
LORAS = load(96, 6.0, (48, 96), (120, 200))
LOOP = load(84, 1000.0, (64, 64), (160, 160))
UNEVEN = load(96, 1000.0, (32, 160), (60, 260))
CALM = load(96, 4.0, (32, 96), (24, 64))
PULLED = load(96, 7.0, (96, 160), (100, 180))

POOL = {"num_gpu_blocks": 128, "block_size": 16, "max_num_seqs": 32, "max_model_len": 1024}
SMALL = {"num_gpu_blocks": 64, "block_size": 32, "max_num_seqs": 32, "max_model_len": 1024}
SIZED = {"num_gpu_blocks": 160, "block_size": 16, "max_num_seqs": 32, "max_model_len": 1024}

RUNS: tuple[Run, ...] = (
    # ------------------------------------------------------------- our engine on a simulated clock
    Run(
        name="sim-open", engine="simulated", seed=11, load=STORM, clients=None, settings=POOL,
        change=("max_num_seqs", 10),
    ),
    Run(
        name="sim-priority", engine="simulated", seed=12, load=MIXED, clients=None,
        settings={**POOL, "policy": "priority"}, change=("policy", "fcfs"),
    ),
    Run(
        name="sim-loop", engine="simulated", seed=13, load=UNEVEN, clients=20, settings=POOL,
        change=("num_gpu_blocks", 192),
    ),
    Run(
        name="sim-prefix", engine="simulated", seed=14, load=SHARED, clients=None, settings=SIZED,
        change=("enable_prefix_caching", False),
    ),
    Run(
        name="sim-lora", engine="simulated", seed=15, load=LORAS, clients=None, num_adapters=6,
        settings={**POOL, "max_loras": 2}, change=("max_loras", 4),
    ),
    Run(
        name="sim-connector", engine="simulated", seed=16, load=PULLED, clients=None,
        settings=POOL, load_seconds=1.5, change=("watermark", 0.1),
    ),
    Run(
        name="sim-drafts", engine="simulated", seed=17, load=STORM, clients=12,
        settings={**POOL, "num_speculative_tokens": 3}, num_drafts=3,
        change=("num_speculative_tokens", 1),
    ),
    # ------------------------------------------------------------------ our engine, served, in time
    Run(
        name="served-loop", engine="served", seed=0, load=LOOP, clients=28, settings=POOL,
        change=("max_num_seqs", 14),
    ),
    Run(
        name="served-open", engine="served", seed=1, load=STORM, clients=None, settings=SIZED,
        change=("num_gpu_blocks", 240),
    ),
    Run(
        name="served-priority", engine="served", seed=2, load=MIXED, clients=None,
        settings={**SIZED, "policy": "priority"}, change=("max_num_seqs", 12),
    ),
    Run(
        name="served-prefix", engine="served", seed=3, load=SHARED, clients=20, settings=SIZED,
        change=("watermark", 0.1),
    ),
    Run(
        name="served-connector", engine="served", seed=4, load=LOOP, clients=24, settings=POOL,
        load_seconds=0.3, change=("max_num_seqs", 11),
    ),
    Run(
        name="served-calm", engine="served", seed=5, load=CALM, clients=None, settings=POOL,
        change=("max_num_seqs", 4),
    ),
    # ----------------------------------------------------------------------------------- vLLM, CPU
    Run(
        name="vllm-loop", engine="vllm", seed=0, load=LOOP, clients=28, settings=SMALL,
        change=("max_num_seqs", 11),
    ),
    Run(
        name="vllm-open", engine="vllm", seed=1, load=STORM, clients=None, settings=SMALL,
        change=("num_gpu_blocks", 112),
    ),
    Run(
        name="vllm-priority", engine="vllm", seed=2, load=MIXED, clients=None,
        settings={**SMALL, "policy": "priority"}, change=("max_num_seqs", 10),
    ),
    Run(
        name="vllm-prefix", engine="vllm", seed=3, load=SHARED, clients=20, settings=SMALL,
        change=("num_gpu_blocks", 96),
    ),
    Run(
        name="vllm-connector", engine="vllm", seed=4, load=LOOP, clients=24, settings=SMALL,
        load_seconds=0.5, change=("max_num_seqs", 12),
    ),
)  # fmt: skip


def chosen(names: list[str]) -> list[Run]:
    """Returns the runs of these names, or all.

    Raises:
        KeyError: there is no such run.
    """
    known = {run.name: run for run in RUNS}
    return [known[name] for name in names] if names else list(RUNS)
