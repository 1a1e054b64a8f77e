"""Small runs on a simulated clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.whatif.runs import Run, load

POOL = {"num_gpu_blocks": 33, "block_size": 16, "max_num_seqs": 16, "max_model_len": 512}


def small_run(**more: Any) -> Run:
    """Returns a run whose pool holds four of the requests that it would let in."""
    run = Run(
        name="small",
        engine="simulated",
        seed=3,
        load=load(24, 1000.0, (32, 64), (40, 80)),
        clients=10,
        settings=POOL,
        change=("max_num_seqs", 3),
    )
    return replace(run, **more)
