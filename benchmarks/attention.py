"""CPU time of one layer's attention in a decode step: gathered from its blocks, and mirrored.

    OMP_NUM_THREADS=1 python -m benchmarks.attention [--context 192] [--dtype bfloat16 ...]

Both in turns in one process, over the same paged cache, with the heads of the tiny Llama, of Gemma
3 270M and of a Llama with 32 heads. `torch` is what torch's fused attention alone takes where keys
and values lie side by side already: what gathering adds is the difference. µs of the thread's CPU,
medians; ratios are medians by turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from engine.runner.attention_metadata import AttentionMetadata
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_mirror import DecodeMirrors, MirroredStep
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.layer_groups import LayerGroup

BLOCK_SIZE = 16
TURNS, CALLS_A_TURN = 15, 8
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Heads:
    """A model's attention: query heads, key heads, elements of each."""

    model: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


MODELS = (
    Heads("tiny Llama", 8, 4, 32),
    Heads("Gemma 3 270M", 4, 1, 256),
    Heads("32/8 heads", 32, 8, 64),
)


class Decodes:
    """Sequences of one length in a paged cache, that decode one token."""

    def __init__(self, heads: Heads, batch: int, context: int, dtype: torch.dtype) -> None:
        num_blocks = -(-(context + 1) // BLOCK_SIZE)
        size = (batch * num_blocks + 1, BLOCK_SIZE, heads.num_kv_heads, 2 * heads.head_dim)
        self.cache = PagedKVCache(
            [torch.randn(size).to(dtype)], (LayerGroup((0,)),), heads.head_dim
        )
        blocks = np.random.default_rng(0).permutation(np.arange(1, size[0]))
        self.tables = blocks.reshape(1, batch, num_blocks).astype(np.int32)
        self.query = torch.randn(batch, heads.num_heads, heads.head_dim).to(dtype)
        self.context = context

    def inputs(self, seq_len: int) -> BatchInputs:
        """Returns a step after which each sequence has so many tokens."""
        batch = self.tables.shape[1]
        positions = np.full(batch, seq_len - 1)
        slots = self.tables[:, :, (seq_len - 1) // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE
        return BatchInputs(
            request_ids=tuple(map(str, range(batch))),
            rows=np.arange(batch),
            token_ids=positions,
            positions=positions,
            slot_mapping=slots + positions % BLOCK_SIZE,
            query_start=np.arange(batch + 1),
            seq_lens=positions + 1,
            block_tables=self.tables,
            sampling_seqs=np.arange(batch),
            num_drafts=np.zeros(batch, np.int64),
        )

    def gathered(self, inputs: BatchInputs) -> StepAttention:
        return AttentionMetadata.build(inputs, self.cache, torch.device("cpu"))

    def mirrored(self) -> StepAttention | None:
        """Returns a step that is mirrored; None where the engine would not do that."""
        mirrors = DecodeMirrors(self.cache)
        for seq_len in (self.context - 1, self.context):
            inputs = self.inputs(seq_len)
            step = mirrors.step(inputs, lambda: self.gathered(inputs))  # noqa: B023
        return step if isinstance(step, MirroredStep) else None

    def side_by_side(self) -> Callable[[], torch.Tensor]:
        """Returns torch's fused attention over keys and values that need no gathering."""
        batch, num_heads, head_dim = self.query.shape
        num_kv_heads = self.cache.layers[0].shape[2]
        folded = self.query.view(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)
        keys = torch.randn(batch, num_kv_heads, self.context, head_dim).to(self.query.dtype)
        return lambda: F.scaled_dot_product_attention(folded, keys, keys)


def measure(heads: Heads, batch: int, context: int, dtype: torch.dtype) -> str:
    """Returns a row of the table."""
    decodes = Decodes(heads, batch, context, dtype)
    call, query = LayerCall(0), decodes.query
    gathered, mirrored = decodes.gathered(decodes.inputs(context)), decodes.mirrored()
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "gathered": lambda: gathered.attend(call, query),
        "torch": decodes.side_by_side(),
    }
    if mirrored is not None:
        ways["mirrored"] = lambda: mirrored.attend(call, query)
    turns = [{name: _us(way) for name, way in ways.items()} for _ in range(TURNS + 1)][1:]
    us = {name: float(np.median([turn[name] for turn in turns])) for name in ways}
    told = ["-", "-"]
    if mirrored is not None:
        ratio = float(np.median([turn["mirrored"] / turn["gathered"] for turn in turns]))
        told = [f"{us['mirrored']:,.0f}", f"{ratio:.2f}"]
    return f"{us['gathered']:,.0f} | {us['torch']:,.0f} | {told[0]} | {told[1]}"


def _us(way: Callable[[], torch.Tensor]) -> float:
    began = time.thread_time_ns()
    for _ in range(CALLS_A_TURN):
        way()
    return (time.thread_time_ns() - began) / CALLS_A_TURN / 1000


@torch.inference_mode()
def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=192, help="tokens of each sequence (192)")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    args = parser.parse_args(argv)
    print(f"µs of CPU, {args.context} tokens a sequence\n")
    print("| model, dtype, batch | gathered | torch | mirrored | mirrored / gathered |")
    print("|---|---|---|---|---|")
    for heads in MODELS:
        for name in args.dtype:
            for batch in args.batch:
                row = measure(heads, batch, args.context, DTYPES[name])
                print(f"| {heads.model}, {name}, {batch} | {row} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
