"""The runs: loads, engines, seeds, and the change that each is asked about.

All are chosen before the first is played, and none is left out afterwards. Sizes were tried with
other seeds on the simulated clock: enough requests for a hundred preemptions and more where the
load allows, so that one of them is no 5 %. Requests of open loops come at least twice as fast as
they can be answered: how many are evicted then hardly depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.workload.presets import Preset

EngineKind = Literal["simulated", "served", "vllm"]
ConnectorKind = Literal["brings", "keeps"]
BROUGHT_RATIO = 0.5
"""Share of each prompt that a KV connector brings from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `clients` wait for their answers; None: requests come when they come.

    `settings` are the engine's, by the names of `diagnose.replay.settable`; `change` is one of
    those with its other value. `num_adapters` are drawn in turn, `num_drafts` are proposed in each
    step. A KV connector `brings` half of each prompt from elsewhere, or `keeps` what evicted and
    ended requests had computed; `load_seconds` is how long a load takes.
    """

    name: str
    engine: EngineKind
    seed: int
    load: Preset
    clients: int | None
    settings: Mapping[str, Any]
    change: tuple[str, Any]
    num_adapters: int = 0
    connector: ConnectorKind | None = None
    load_seconds: float = 0.0
    num_drafts: int = 0
    step_ms: float = 12.0
    """How long a step of the simulated engine takes at least."""


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


AT_ONCE = 1000.0

STORM = load(240, 8.0, (48, 96), (120, 200))
MIXED = load(240, 8.0, (48, 96), (120, 200), priorities=(0, 0, 5))
SHARED = load(240, 8.0, (160, 224), (120, 200), shared=128)
LORAS = load(240, 6.0, (48, 96), (120, 200))
UNEVEN = load(240, AT_ONCE, (32, 160), (60, 260))
PULLED = load(400, 7.0, (96, 160), (100, 180))
DRAFTED = load(360, AT_ONCE, (48, 96), (120, 200))

FAST_STORM = load(200, 25.0, (48, 96), (120, 200))
FAST_MIXED = load(200, 25.0, (48, 96), (120, 200), priorities=(0, 0, 5))
FAST_SHARED = load(200, AT_ONCE, (160, 224), (120, 200), shared=128)
LOOP = load(160, AT_ONCE, (64, 64), (160, 160))
FAST_UNEVEN = load(320, AT_ONCE, (32, 160), (60, 200))

POOL = {"num_gpu_blocks": 128, "block_size": 16, "max_num_seqs": 32, "max_model_len": 1024}
SMALL = {"num_gpu_blocks": 64, "block_size": 32, "max_num_seqs": 32, "max_model_len": 1024}
SIZED = {"num_gpu_blocks": 160, "block_size": 16, "max_num_seqs": 32, "max_model_len": 1024}

RUNS: tuple[Run, ...] = (
    # ------------------------------------------------------------- our engine on a simulated clock
    Run(
        name="sim-open", engine="simulated", seed=211, load=STORM, clients=None, settings=POOL,
        change=("max_num_seqs", 12),
    ),
    Run(
        name="sim-priority", engine="simulated", seed=212, load=MIXED, clients=None,
        settings={**POOL, "policy": "priority"}, change=("policy", "fcfs"),
    ),
    Run(
        name="sim-loop", engine="simulated", seed=213, load=UNEVEN, clients=20, settings=POOL,
        change=("num_gpu_blocks", 192),
    ),
    Run(
        name="sim-prefix", engine="simulated", seed=214, load=SHARED, clients=None, settings=SIZED,
        change=("enable_prefix_caching", False),
    ),
    Run(
        name="sim-lora", engine="simulated", seed=215, load=LORAS, clients=None, num_adapters=6,
        settings={**POOL, "max_loras": 2}, change=("max_loras", 4),
    ),
    Run(
        name="sim-brought", engine="simulated", seed=216, load=PULLED, clients=None, settings=POOL,
        connector="brings", load_seconds=1.5, change=("watermark", 0.1),
    ),
    Run(
        name="sim-kept", engine="simulated", seed=217, load=UNEVEN, clients=24, settings=POOL,
        connector="keeps", load_seconds=0.3, change=("max_num_seqs", 10),
    ),
    Run(
        name="sim-drafts", engine="simulated", seed=218, load=DRAFTED, clients=14,
        settings={**POOL, "num_speculative_tokens": 3}, num_drafts=3,
        change=("num_speculative_tokens", 1),
    ),
    # ------------------------------------------------------------------ our engine, served, in time
    Run(
        name="served-loop", engine="served", seed=221, load=LOOP, clients=28, settings=POOL,
        change=("max_num_seqs", 14),
    ),
    Run(
        name="served-open", engine="served", seed=222, load=FAST_STORM, clients=None,
        settings=SIZED, change=("num_gpu_blocks", 240),
    ),
    Run(
        name="served-priority", engine="served", seed=223, load=FAST_MIXED, clients=None,
        settings={**SIZED, "policy": "priority"}, change=("max_num_seqs", 15),
    ),
    Run(
        name="served-prefix", engine="served", seed=224, load=FAST_SHARED, clients=20,
        settings=SIZED, change=("watermark", 0.1),
    ),
    Run(
        name="served-kept", engine="served", seed=225, load=LOOP, clients=24, settings=POOL,
        connector="keeps", load_seconds=0.3, change=("max_num_seqs", 11),
    ),
    Run(
        name="served-uneven", engine="served", seed=226, load=FAST_UNEVEN, clients=13,
        settings=POOL, change=("max_num_seqs", 11),
    ),
    # ----------------------------------------------------------------------------------- vLLM, CPU
    Run(
        name="vllm-loop", engine="vllm", seed=231, load=LOOP, clients=28, settings=SMALL,
        change=("max_num_seqs", 11),
    ),
    Run(
        name="vllm-open", engine="vllm", seed=232, load=FAST_STORM, clients=None, settings=SMALL,
        change=("num_gpu_blocks", 112),
    ),
    Run(
        name="vllm-priority", engine="vllm", seed=233, load=FAST_MIXED, clients=None,
        settings={**SMALL, "policy": "priority"}, change=("max_num_seqs", 10),
    ),
    Run(
        name="vllm-prefix", engine="vllm", seed=234, load=FAST_SHARED, clients=20, settings=SMALL,
        change=("num_gpu_blocks", 96),
    ),
    Run(
        name="vllm-brought", engine="vllm", seed=235, load=LOOP, clients=24, settings=SMALL,
        connector="brings", load_seconds=0.5, change=("max_num_seqs", 12),
    ),
)  # fmt: skip


def chosen(names: list[str]) -> list[Run]:
    """Returns the runs of these names, or all.

    Raises:
        KeyError: there is no such run.
    """
    known = {run.name: run for run in RUNS}
    return [known[name] for name in names] if names else list(RUNS)
