"""The command `bundle`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DESCRIPTION = """\
Writes a window of the step log into one file that opens anywhere with --log FILE:

  stepscope bundle --since 15m --out incident.stepscope
  stepscope diagnose --log incident.stepscope

It holds the steps of the window, every request that lived in it with its whole story, the engines'
configuration and the findings. Names of requests, sessions, traces and hosts are replaced by digits
that only tell them apart. There is no prompt, no output text and no token id in a log.
"""


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers the command; `parents` bring `--log`."""
    parser = commands.add_parser(
        "bundle",
        parents=parents,
        help="write a window of the log into one file to give away",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a new file")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="so far back from the log's newest row (90s, 10m, 1h), or a time in UTC (14:02, "
        "2025-11-29T14:02) (default: all of a closed log, 15m of a live one)",
    )
    parser.add_argument("--until", metavar="TIME", help="in the same way (default: the newest row)")
    parser.add_argument(
        "--keep-names",
        action="store_true",
        help="leave the names of requests, sessions, traces and hosts as they are",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Makes the bundle; returns the exit code."""
    from telemetry.bundle.making import MAX_ROWS, make_bundle
    from telemetry.query.window import choose_window
    from telemetry.rendering import bytes_text
    from telemetry.store import open_log
    from telemetry.store.guard import Limits

    with open_log(args.log, limits=Limits(timeout_seconds=300.0, max_rows=MAX_ROWS)) as log:
        window = choose_window(log, args.since, args.until)
        if window.until_ns == 0:
            print(f"{args.log} holds nothing yet: nothing to bundle", file=sys.stderr)
            return 3
        report = make_bundle(log, window, args.out, salted=not args.keep_names)
    seconds = (window.until_ns - window.from_ns) / 1e9
    num = report.num_rows
    print(
        f"{report.path}: {bytes_text(report.size_bytes)}, {seconds:,.1f} s with "
        f"{num['steps']:,} steps of {num['engines']:,} engines, {num['request_arrivals']:,} "
        f"requests, {num['step_requests']:,} dense rows, {num['findings']:,} findings"
    )
    print(f"open it with: stepscope diagnose --log {report.path}")
    return 0
