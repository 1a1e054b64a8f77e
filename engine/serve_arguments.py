"""The flags of `serve`, in the groups that its help shows. What they mean is `engine.settings`'."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.compilation import ATTENTION_BACKENDS
from engine.config import ConfigError
from engine.connectors.faults import Fault
from engine.connectors.settings import KVTransferConfig
from engine.lora.adapter_error import AdapterError
from engine.lora.module_spec import AdapterModule, parse_module
from engine.speculative_settings import SpeculativeSettings, parse_speculative_config

MAX_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's `--max-lora-rank` may be."""


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
    api.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="keys, one a line, of which callers of /v1 have to show one; yours alone (mode 600)",
    )
    api.add_argument(
        "--admin-token-file",
        type=Path,
        metavar="FILE",
        help="lets operators elsewhere in who show its token; without it only this machine may "
        "pause, reset and abort",
    )
    api.add_argument(
        "--max-num-queued-reqs",
        type=int,
        metavar="N",
        help="requests under way, waiting or running, beyond which another one is told to come "
        "again (503); no limit without it",
    )
    api.add_argument(
        "--max-logprobs",
        type=int,
        default=20,
        metavar="N",
        help="most log probabilities that are told of a token (%(default)s)",
    )
    _add_engine_arguments(parser.add_argument_group("engine"))
    _add_device_arguments(parser.add_argument_group("device"))
    _add_adapter_arguments(parser.add_argument_group("LoRA adapters"))
    _add_speculation(parser.add_argument_group("speculative decoding"))
    _add_connector(parser.add_argument_group("KV connector"))
    record = parser.add_argument_group("record")
    record.add_argument("--no-record", action="store_true", help="do not record this engine")
    record.add_argument(
        "--no-collector",
        action="store_true",
        help="record, but start no collector: one runs already, as a service or in a sidecar",
    )
    record.add_argument(
        "--no-analyst",
        action="store_true",
        help="start the collector without the analyst, which evaluates the rules every 10 s",
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


def _add_device_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--attention-backend",
        choices=ATTENTION_BACKENDS,
        help="kernel of attention on CUDA (the first in this order that is there and works: "
        "FLASHINFER, FLASH_ATTN, TORCH_SDPA)",
    )
    add(
        "--enforce-eager",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="launch each kernel alone: no CUDA graphs (off)",
    )
    add(
        "--cudagraph-capture-sizes",
        type=int,
        nargs="+",
        metavar="TOKENS",
        help="decode batches that CUDA graphs are captured for (1, 2, 4, 8, 16, ... "
        "--max-cudagraph-capture-size)",
    )
    add(
        "--max-cudagraph-capture-size",
        type=int,
        metavar="TOKENS",
        help="largest of them (what --max-num-seqs can come to, at most 512)",
    )


def _memory_size(text: str) -> int:
    """Returns bytes; K, M, G and T are powers of 1024, k, m, g and t of 1000, as in vLLM."""
    number, unit = text.strip(), ""
    if number and number[-1] in "kmgtKMGT":
        number, unit = number[:-1], number[-1]
    try:
        value = float(number)
        int(value)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no amount of memory: write bytes, or 500M, 4G"
        ) from None
    exponent = " kmgt".index(unit.lower() or " ")
    return int(value * (1024 if unit.isupper() else 1000) ** exponent)


def _add_adapter_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--enable-lora",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="serve LoRA adapters beside the model (off)",
    )
    add(
        "--lora-modules",
        type=_adapter_module,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=PATH",
        help="adapters by the name that requests choose them by; also as JSON: "
        '{"name": ..., "path": ..., "base_model_name": ...}',
    )
    add("--max-loras", type=int, default=1, help="different adapters in a step (%(default)s)")
    add(
        "--max-lora-rank",
        type=int,
        default=16,
        choices=MAX_LORA_RANKS,
        help="largest rank of an adapter (%(default)s)",
    )
    add(
        "--max-cpu-loras",
        type=int,
        help="adapters that stay in host memory besides those in use (--max-loras)",
    )


def _adapter_module(text: str) -> AdapterModule:
    try:
        return parse_module(text)
    except AdapterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
        help="share of a CUDA device for all that the engine puts there (%(default)s)",
    )
    add(
        "--kv-cache-memory-bytes",
        type=_memory_size,
        metavar="BYTES",
        help="memory for the KV cache; also 500M, 4G (powers of 1024), 4g (of 1000) (on CUDA what "
        "the utilised share leaves, on CPU 1 GiB)",
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


def _add_speculation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--speculative-config",
        type=_speculative_settings,
        metavar="JSON",
        help='who guesses next tokens, and how many: {"method": "ngram", "num_speculative_tokens": '
        '3}, or {"model": DIRECTORY, "num_speculative_tokens": 3} (off)',
    )


def _speculative_settings(text: str) -> SpeculativeSettings:
    try:
        return parse_speculative_config(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_connector(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--kv-transfer-config",
        type=_kv_transfer_config,
        metavar="JSON",
        help='where KV blocks are stored for later: {"kv_connector": "HostMemoryConnector", '
        '"kv_role": "kv_both"}, or SharedDirectoryConnector (off)',
    )
    add(
        "--inject",
        type=_fault,
        action="append",
        default=[],
        metavar="STAGE=KIND[:ARGS]",
        help="for drills, a fault of the connector: lookup, load, save or ack is delayed, stalls, "
        "is lost or fails (load=delay:2.5, load=fail_half:p=0.2,n=3); may be repeated",
    )


def _kv_transfer_config(text: str) -> KVTransferConfig:
    try:
        return KVTransferConfig.parse(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fault(text: str) -> Fault:
    try:
        return Fault.parse(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
