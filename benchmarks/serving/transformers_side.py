"""What `transformers` brings itself: its continuous batching, in a process of its own.

    python -m benchmarks.serving.transformers_side MODEL DTYPE

It is no server: prompts come as a line of JSON, and an answer goes back when all of them are done.
So no time of it goes into an API or a client, and there is no closed loop: a round is as many waves
as each client would ask for, one after the other.

Source: `transformers`, generation/continuous_batching/continuous_api.py (`generate_batch`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any

from benchmarks.serving.loads import Load
from benchmarks.serving.measuring import Round
from tests.whole_line.vllm.processes import pin_threads

PAGE_SIZE = 32
NUM_PAGES = 512
MAX_BATCH_TOKENS = 2048


class TransformersError(RuntimeError):
    """The process ended, or did not give what it was asked for."""


@dataclass(slots=True)
class TransformersSide:
    """The process at the other end of two pipes."""

    process: subprocess.Popen[str]
    name: str = "transformers"

    def play(self, load: Load, seed: int) -> Round:
        """Runs a round, wave after wave."""
        answers = [self._ask(wave, load.max_tokens) for wave in _waves(load, seed)]
        return Round(
            num_tokens=sum(len(ids) for each in answers for ids in each["token_ids"]),
            seconds=sum(each["seconds"] for each in answers),
            cpu_seconds=sum(each["cpu_seconds"] for each in answers),
            ttft_seconds=[ttft for each in answers for ttft in each["ttft_seconds"]],
            itl_seconds=[gap for each in answers for gap in each["itl_seconds"]],
        )

    def outputs(self, load: Load, seed: int) -> list[list[int]]:
        """Returns what a round's requests give."""
        waves = (self._ask(wave, load.max_tokens) for wave in _waves(load, seed))
        return [ids for each in waves for ids in each["token_ids"]]

    def _ask(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}))
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise TransformersError("transformers' process ended: its words stand above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _waves(load: Load, seed: int) -> Iterator[list[list[int]]]:
    prompts = load.prompts(seed)
    for start in range(0, len(prompts), load.concurrency):
        yield prompts[start : start + load.concurrency]


@contextlib.contextmanager
def transformers_side(model: Path, dtype: str) -> Iterator[TransformersSide]:
    """Runs the process on the first processor core, as what computes on the other sides does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serving.transformers_side", str(model), dtype],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise TransformersError("transformers' process did not start: its words stand above")
        pin_threads(process.pid, {min(os.sched_getaffinity(0))})
        yield TransformersSide(process)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def answer_all(model: Path, dtype: str) -> None:
    """Answers each line of standard input on standard output, after a first one that says ready."""
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    getLogger("ContinuousBatchingLogger").setLevel("ERROR")
    module: Any = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype), local_files_only=True, attn_implementation="sdpa"
    ).eval()
    batching = ContinuousBatchingConfig(
        num_blocks=NUM_PAGES, page_size=PAGE_SIZE, max_batch_tokens=MAX_BATCH_TOKENS
    )
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed there must not come between the answers
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        greedy = GenerationConfig(
            max_new_tokens=asked["max_tokens"], do_sample=False, eos_token_id=-1
        )
        wall, cpu = time.perf_counter(), time.process_time()
        results = module.generate_batch(
            asked["prompts"],
            generation_config=greedy,
            continuous_batching_config=batching,
            record_timestamps=True,
            persistent_manager=True,
        )
        seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
        told = _told(list(results.values()))
        print(
            json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, **told}),
            file=answers,
            flush=True,
        )
    os._exit(0)  # its batching thread would be waited for


def _told(results: Sequence[Any]) -> dict[str, Any]:
    """Returns what the requests gave, in the order of their prompts."""
    return {
        "token_ids": [result.generated_tokens for result in results],
        "ttft_seconds": [result.timestamps[0] - result.created_time for result in results],
        "itl_seconds": [
            later - earlier
            for result in results
            for earlier, later in zip(result.timestamps, result.timestamps[1:], strict=False)
        ],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("dtype")
    args = parser.parse_args()
    answer_all(args.model, args.dtype)
