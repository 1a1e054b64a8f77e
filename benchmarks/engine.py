"""The engine against vLLM on the same CPU, and against `transformers`' own continuous batching.

    python benchmarks/engine.py --vllm-python VENV/bin/python [--model tiny|gemma|both]
        [--concurrency 1 8 32] [--rounds N] [--json]

Output tokens a second, TTFT and ITL at each concurrency; what counts are ratios within a round, in
which the sides take turns: only one of them is busy at a time. Same model directory, prompts,
number of tokens (greedy, the end of text ignored; checked), dtype and flags; recording is off, as
vLLM keeps no such record. The engines have a processor core for themselves, APIs and client the
other (`benchmarks.serving.sides`). Without `--vllm-python` the others run alone.

vLLM runs operation by operation, as `--enforce-eager` has it; `--vllm-compiled` compares with its
default. What an environment with a vLLM needs stands in `benchmarks/scheduler.py`;
`tests/vllm_venv.py` makes one. Gemma 3 270M is unpacked first where that has not been done, and
needs its package (`README.md`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a file: then its folder is on the path, and the house is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.serving import table
from benchmarks.serving.comparison import Outcome, compare
from benchmarks.serving.loads import loads
from benchmarks.serving.measuring import DifferentWorkError
from benchmarks.serving.sides import Side, client_beside, our_side, vllm_side
from benchmarks.serving.transformers_side import TransformersError, transformers_side
from engine.runner.checkpoints import find_checkpoint
from engine.runner.model_error import ModelError
from tests.whole_line.vllm.server import ServerError

FLAGS = (
    *("--max-model-len", "1024", "--max-num-seqs", "32", "--num-gpu-blocks-override", "512"),
    *("--max-num-batched-tokens", "2048", "--block-size", "32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that is served. `name` is a packaged one's; None is the tiny Llama."""

    title: str
    name: str | None
    vocab_size: int
    has_goal: bool


SUBJECTS = {
    "tiny": Subject(title="tiny Llama", name=None, vocab_size=256, has_goal=True),
    "gemma": Subject(title="Gemma 3 270M", name="gemma3-270m", vocab_size=200_000, has_goal=False),
}


def outcomes(subject: Subject, args: argparse.Namespace) -> Iterator[Outcome]:
    """Yields what each concurrency gave, all sides being up meanwhile."""
    name = None if subject.name is None else Path(subject.name)
    model = args.model_directory or find_checkpoint(name, dtype=getattr(torch, args.dtype))
    flags = [*FLAGS, "--dtype", args.dtype]
    with ExitStack() as stack:
        sides: list[Side] = [stack.enter_context(our_side(model, flags))]
        if args.vllm_python:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            peer = vllm_side(
                args.vllm_python, model, flags, compiled=args.vllm_compiled, folder=folder
            )
            sides.append(stack.enter_context(peer))
        if args.transformers_rounds:
            sides.append(stack.enter_context(transformers_side(model, args.dtype)))
        stack.enter_context(client_beside())
        for load in loads(
            args.concurrency,
            num_prompt_tokens=args.prompt_tokens,
            max_tokens=args.max_tokens,
            vocab_size=subject.vocab_size,
            waves=args.waves,
        ):
            fewer = {"transformers": args.transformers_rounds}
            yield compare(load, sides, args.rounds, fewer)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm-python", type=Path, help="the Python of an environment with vLLM")
    parser.add_argument("--vllm-compiled", action="store_true", help="vLLM with torch.compile")
    parser.add_argument("--model", choices=[*SUBJECTS, "both"], default="tiny")
    parser.add_argument(
        "--model-directory", type=Path, help="where the model lies (found or made by default)"
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=8, help="of ours and vLLM (8)")
    parser.add_argument(
        "--transformers-rounds", type=int, default=1, help="of transformers, which is slow (1)"
    )
    parser.add_argument("--waves", type=int, default=2, help="requests of each client (2)")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="figures as JSON, nothing else")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the comparison; exit code 1 where a goal is missed or a side fails."""
    args, rows, verdicts = parse(argv), [], []
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    try:
        for subject in SUBJECTS.values() if args.model == "both" else [SUBJECTS[args.model]]:
            if not args.json:
                print(f"{subject.title}, {args.dtype}\n\n{table.HEAD}", flush=True)
            for outcome in outcomes(subject, args):
                rows.append({"model": subject.title, **table.json_row(outcome)})
                if not args.json:
                    print("\n".join(table.lines(outcome)), flush=True)
                if args.vllm_python and subject.has_goal:
                    verdicts.append(table.verdict(outcome, list(outcome.rounds)[1]))
    except (DifferentWorkError, ModelError, ServerError, TransformersError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(json.dumps({"rows": rows}, indent=1) if args.json else "\n" + "\n".join(verdicts))
    return 1 if any(verdict.endswith("MISSED") for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
