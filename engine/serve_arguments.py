"""The flags of `serve`, in the groups that its help shows. What they mean is `engine.settings`'."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `serve` takes, in groups; flags are vLLM's."""
    add = parser.add_argument
    add(
        "model",
        nargs="?",
        type=Path,
        metavar="MODEL",
        help="local directory of a transformers checkpoint, a GGUF file, or gemma3-270m (once its "
        "package is installed); without it a tiny Llama is made",
    )
    api = parser.add_argument_group("API")
    api.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    api.add_argument("--port", type=int, default=8000, help="0 takes a free one (%(default)s)")
    api.add_argument("--served-model-name", metavar="NAME", help="the model's name in the API")
    api.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template of chats (the model's)"
    )
    api.add_argument(
        "--live-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="/live fails after so long without progress (%(default)s)",
    )
    _add_engine_arguments(parser.add_argument_group("engine"))
    record = parser.add_argument_group("record")
    record.add_argument("--no-record", action="store_true", help="do not record this engine")
    record.add_argument(
        "--no-collector",
        action="store_true",
        help="record, but start no collector: one runs already, as a service or in a sidecar",
    )
    record.add_argument(
        "--detail",
        metavar="steps|transitions|full|sampled=N",
        help="what is kept; full keeps each request's row of each step, sampled=N of every Nth "
        "($STEPSCOPE_DETAIL, else transitions)",
    )
    record.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="the collector stays so long after the last engine (%(default)s)",
    )
    parser.add_argument("--scripted-step-seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--step-pipe", type=Path, help=argparse.SUPPRESS)


def _add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    switch = argparse.BooleanOptionalAction
    add(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="of weights and KV cache; auto is the checkpoint's (%(default)s)",
    )
    add("--seed", type=int, default=0, help="of draws of requests without one (%(default)s)")
    add(
        "--max-model-len",
        type=int,
        metavar="TOKENS",
        help="longest prompt and output together (the model's positions)",
    )
    add("--block-size", type=int, default=16, help="tokens of a KV block (%(default)s)")
    add(
        "--num-gpu-blocks-override",
        type=int,
        metavar="BLOCKS",
        help="KV blocks, the null block among them (what fits)",
    )
    add(
        "--gpu-memory-utilization",
        type=float,
        default=0.92,
        metavar="RATIO",
        help="share of a CUDA device for weights and KV cache (%(default)s)",
    )
    add("--max-num-seqs", type=int, default=256, help="running requests (%(default)s)")
    add(
        "--max-num-active-seqs",
        type=int,
        help="running requests up to which more are admitted (--max-num-seqs)",
    )
    add("--max-num-batched-tokens", type=int, default=2048, help="of a step (%(default)s)")
    add("--max-num-scheduled-tokens", type=int, help="of a step (--max-num-batched-tokens)")
    add(
        "--long-prefill-token-threshold",
        type=int,
        default=0,
        help="cap of one request's tokens in a step; 0 is off (%(default)s)",
    )
    add(
        "--scheduling-policy",
        default="fcfs",
        choices=("fcfs", "priority"),
        help="who is served first, and evicted last (%(default)s)",
    )
    add(
        "--enable-chunked-prefill",
        action=switch,
        default=True,
        help="let a step take part of a prompt (on)",
    )
    add(
        "--enable-prefix-caching",
        action=switch,
        default=True,
        help="use the KV blocks of equal beginnings again (on)",
    )
    add(
        "--scheduler-reserve-full-isl",
        action=switch,
        default=True,
        help="admit a request only when its whole prompt fits (on)",
    )
    add(
        "--watermark",
        type=float,
        default=0.0,
        help="share of the KV pool that admissions leave free (%(default)s)",
    )
    add(
        "--allow-oversize",
        action="store_true",
        help="queue requests that can never fit, instead of refusing them",
    )
