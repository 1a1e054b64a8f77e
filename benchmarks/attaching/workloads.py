"""Loads that keep a vLLM in one state for hundreds of steps: some decode, many wait.

Nobody comes, ends or is evicted meanwhile, so two steps in a row differ in nothing but whether they
are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Equal requests; the adapter is a name, or None for the model itself."""

    number: int
    num_prompt_tokens: int
    max_tokens: int
    adapter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What runs and what waits behind it, with the server's flags that make it so."""

    name: str
    summary: str
    flags: tuple[str, ...]
    running: Requests
    waiting: Requests | None


def _limits(max_num_seqs: int, num_blocks: int) -> tuple[str, ...]:
    return (
        *("--max-num-seqs", str(max_num_seqs), "--num-gpu-blocks-override", str(num_blocks)),
        *("--max-model-len", "4096"),
    )


WORKLOADS = (
    Workload(
        name="nobody waits",
        summary="16 decode",
        flags=_limits(16, 2048),
        running=Requests(number=16, num_prompt_tokens=64, max_tokens=1500),
        waiting=None,
    ),
    Workload(
        name="slots",
        summary="16 decode, 64 wait: max_num_seqs is 16",
        flags=_limits(16, 2048),
        running=Requests(number=16, num_prompt_tokens=64, max_tokens=1500),
        waiting=Requests(number=64, num_prompt_tokens=16, max_tokens=1),
    ),
    Workload(
        name="kv",
        summary="4 decode, 64 wait: the first one's whole prompt does not fit into the pool",
        flags=_limits(128, 129),
        running=Requests(number=4, num_prompt_tokens=64, max_tokens=880),
        waiting=Requests(number=64, num_prompt_tokens=4000, max_tokens=1),
    ),
    Workload(
        name="set aside",
        summary="8 decode with one adapter, 64 with another wait and are looked at in each step",
        flags=(*_limits(128, 2048), "--enable-lora", "--max-loras", "1", "--max-lora-rank", "8"),
        running=Requests(number=8, num_prompt_tokens=64, max_tokens=1500, adapter="ada"),
        waiting=Requests(number=64, num_prompt_tokens=16, max_tokens=1, adapter="bert"),
    ),
)
