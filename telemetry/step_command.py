"""The command `step`: one step of the log, worked out by hand."""

from __future__ import annotations

import argparse
import sys

from telemetry.engine_id import parse_engine
from telemetry.errors import StepscopeError


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers the command; `parents` bring `--log`."""
    parser = commands.add_parser(
        "step",
        parents=parents,
        help="one step, worked out by hand",
        description="Explains one step: who was served in which order and what was left of the "
        "budget, who was evicted for whom, what ended admission, where the time went, who waits.",
    )
    parser.add_argument("step", type=int, metavar="N", help="the step, counted from 0")
    parser.add_argument(
        "--engine", metavar="HEX", help="16 hex digits (default: the engine that ran it last)"
    )
    parser.add_argument("--max-rows", type=int, default=200, metavar="N", help="rows of a table")
    parser.set_defaults(run=_step)


def _step(args: argparse.Namespace) -> int:
    from telemetry.step import explain_step
    from telemetry.step_facts import read_step
    from telemetry.store import open_log

    if args.step < 0:
        raise StepscopeError(f"step is {args.step}: steps are counted from 0")
    engine = None if args.engine is None else parse_engine(args.engine)
    with open_log(args.log) as log:
        facts = read_step(log, args.step, engine)
    if facts is None:
        print(f"{args.log} holds no steps yet: nothing to explain", file=sys.stderr)
        return 3
    sys.stdout.write(explain_step(facts, max_rows=args.max_rows))
    return 0
