"""The process in vLLM's Python: takes commands, runs courses, answers. `peer` is the other end.

    VENV/bin/python -m benchmarks.scheduling.serving

One JSON command a line on standard input, one JSON answer a line on standard output.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from benchmarks.scheduling.course import Course, Side
from benchmarks.scheduling.workloads import Workload

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 65_536,
    "torch_dtype": "float32",
}
"""A configuration that vLLM accepts; no weights are ever made for it."""


def serve(
    commands: TextIO, answers: TextIO, version: str, make_side: Callable[[Workload], Side]
) -> None:
    """Answers commands until there are no more: `open` a workload, `measure` a block, `close`."""
    course: Course | None = None

    def say(**reply: object) -> None:
        print(json.dumps(reply), file=answers, flush=True)

    say(version=version)
    for line in commands:
        command = json.loads(line)
        if command["do"] == "open":
            course = Course(Workload(**command["workload"]), make_side)
            say(checksum=course.warm_up())
        elif command["do"] == "measure":
            say(block=asdict(course.measure()))
        else:
            course = None
            gc.collect()
            say(closed=True)


def main() -> None:
    """Serves. What vLLM prints goes to standard error, so that it does not mix with answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    from vllm import __version__
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    from benchmarks.scheduling.theirs import TheirSide

    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory)
        (model / "config.json").write_text(json.dumps(MODEL))
        serve(sys.stdin, answers, __version__, lambda load: TheirSide(load, model))


if __name__ == "__main__":
    main()
