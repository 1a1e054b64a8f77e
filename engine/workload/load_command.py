"""`stepscope load`: replays a trace or a preset against any OpenAI-compatible API."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.workload.plan import PlanLimits, PlannedRequest, WorkloadError
from engine.workload.presets import PRESETS, find_preset
from engine.workload.trace_file import read_trace

EXIT_OK, EXIT_FAILED = 0, 1


def add_command(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Registers `load`."""
    parser = commands.add_parser(
        "load",
        parents=parents,
        help="replay a trace or a preset against any OpenAI-compatible API",
        description="Send requests as a trace or a preset has them, and sum up what came back.",
        epilog="exit codes: 0 every request was answered to its end, 1 not so, 2 usage",
    )
    _add_arguments(parser)
    parser.set_defaults(run=run_load)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--url", required=True, help="of the API, without /v1")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--trace", type=Path, metavar="FILE", help="Azure CSV or Mooncake JSONL, plain or .gz"
    )
    what.add_argument("--preset", metavar="NAME", help=f"one of {', '.join(PRESETS)}")
    add("--limit", type=int, metavar="N", help="send only the first N requests")
    add("--speed", type=float, default=1.0, help="10 sends ten times as fast (%(default)s)")
    add("--max-prompt", type=int, metavar="TOKENS", help="cut prompts to so many tokens")
    add("--max-tokens", type=int, metavar="TOKENS", help="ask for at most so many")
    add(
        "--scale",
        type=int,
        default=1,
        metavar="N",
        help="divide a trace's lengths and hash blocks by N (%(default)s)",
    )
    add(
        "--concurrency",
        type=int,
        metavar="N",
        help="closed loop: N requests at once, whatever their times",
    )
    add("--model", metavar="NAME", help="model to ask for (the first that is served)")
    add("--vocab", type=int, metavar="SIZE", help="token ids stay below it (as /v1/models tells)")
    add("--seed", type=int, default=0, help="of the prompts (%(default)s)")
    add(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="longest silence of one request (%(default)s)",
    )
    add("--json", action="store_true", help="print the summary as JSON")


def run_load(args: argparse.Namespace) -> int:
    """Replays and sums up; 0 only if every request was answered to its end.

    Raises:
        WorkloadError: the trace, an option, or the API makes no replay possible.
    """
    import asyncio
    import json

    from engine.workload.replay import ReplayOptions, replay
    from engine.workload.terminal import print_report, progress_bar

    plan = _plan(args)
    options = ReplayOptions(
        model=args.model,
        vocab_size=args.vocab,
        concurrency=args.concurrency,
        seed=args.seed,
        timeout_seconds=args.timeout,
    )
    with progress_bar(len(plan)) as progress:
        report = asyncio.run(replay(args.url, plan, options, progress))
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print_report(report)
    return EXIT_OK if report.is_complete else EXIT_FAILED


def _plan(args: argparse.Namespace) -> list[PlannedRequest]:
    limits = PlanLimits(
        num_requests=args.limit,
        max_prompt=args.max_prompt,
        max_tokens=args.max_tokens,
        speed=args.speed,
    )
    if args.trace is not None:
        return limits.apply(read_trace(args.trace, scale=args.scale))
    if args.scale != 1:
        raise WorkloadError("--scale divides a trace's lengths: a preset has none to divide")
    return limits.apply(find_preset(args.preset).plan(args.seed))
