"""The line of every step, with `--enable-logging-iteration-details`.

    Engine 000: Iteration(17): 1 context requests, 64 context tokens, 9 generation requests, ...

What it calls generation is everything that is not a prompt's first computation: a request that
lost its blocks and computes all of its tokens again counts with them as generation.
"""

from __future__ import annotations

import re

from telemetry.sources.vllm_log.stats import Sample, StatsLine

_LINE = re.compile(
    r"(?:Engine (?P<engine>\d{1,4}): )?Iteration\((?P<iteration>\d+)\): "
    r"(?P<context_requests>\d+) context requests, (?P<context_tokens>\d+) context tokens, "
    r"(?P<generation_requests>\d+) generation requests, "
    r"(?P<generation_tokens>\d+) generation tokens, "
    r"iteration elapsed time: (?P<elapsed_ms>\d+(?:\.\d+)?) ms(?P<dummy> \(dummy\))?"
    r"(?:, \w+ KV cache usage: (?P<kv_cache_usage>\d+(?:\.\d+)?)%)?"
    r"(?:, encoder inputs: (?P<encoder_inputs>\d+), "
    r"encoder output embeddings: (?P<encoder_embeddings>\d+))?"
)
_COUNTS = (
    "context_requests",
    "context_tokens",
    "generation_requests",
    "generation_tokens",
    "elapsed_ms",
    "encoder_inputs",
    "encoder_embeddings",
)


def parse(message: str) -> StatsLine | None:
    """Returns the samples of an iteration line; None where the message is none."""
    match = _LINE.match(message)
    if match is None:
        return None
    labels = (("dummy", "true"),) if match["dummy"] else ()
    samples = [Sample("log:iteration", float(match["iteration"]), labels)]
    for name in _COUNTS:
        if (text := match[name]) is not None:
            samples.append(Sample(f"log:iteration_{name}", float(text), labels))
    if (text := match["kv_cache_usage"]) is not None:
        samples.append(Sample("log:iteration_kv_cache_usage", float(text) / 100, labels))
    engine = match["engine"]
    rank = None if engine is None else str(int(engine))
    return StatsLine(rank, tuple(samples), is_iteration=True)


def looks_like(message: str) -> bool:
    """Returns whether a message is meant as an iteration line."""
    return message.startswith("Iteration(") or ": Iteration(" in message[:24]
