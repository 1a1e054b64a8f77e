"""`stepscope report`: a diagnosis as one file to hand on, HTML with charts or Markdown."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

DEFAULT_FILE = "stepscope-report.html"


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `report`."""
    parser = commands.add_parser(
        "report",
        parents=parents,
        help="write an incident report to hand on: one HTML file with charts, or Markdown",
        epilog="exit codes: 0 written, 2 usage, 3 too little data (the report says so)",
    )
    parser.add_argument("--since", metavar="TIME", help="look back from the newest row: 90s, 10m")
    parser.add_argument("--engine", metavar="HEX", help="one engine only: its 16 hex digits")
    parser.add_argument("--finding", metavar="ID", help="one finding only")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"where to write (default: {DEFAULT_FILE})"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="Markdown, to standard output without --output"
    )
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    """Diagnoses a log and writes the report; returns the exit code."""
    from dashboard.report.writing import html_report, markdown_report
    from diagnose.commands import FINE, NOT_ENOUGH_DATA
    from diagnose.diagnosis import diagnose
    from diagnose.user_rules.loading import chosen_rules
    from diagnose.window import choose_window, engines_in, parse_duration
    from diagnose.words import engine_hex
    from telemetry.engine_id import parse_engine
    from telemetry.store import open_log

    since_ns = None if args.since is None else parse_duration(args.since)
    engine = None if args.engine is None else parse_engine(args.engine)
    with open_log(args.log) as log:
        window = choose_window(log, since_ns, is_live=log.is_live)
        if engine is not None and engine not in engines_in(log, window):
            known = ", ".join(engine_hex(n) for n in engines_in(log, window)) or "none"
            raise ValueError(f"no engine {engine_hex(engine)} in this window: there are {known}")
        rules = chosen_rules(None, args.log)
        found = diagnose(log, window, None if engine is None else [engine], rules=rules)
        if args.markdown:
            text = markdown_report(log, found, args.finding)
        else:
            text = html_report(log, found, args.finding)
    if args.markdown and args.output is None:
        print(text, end="")
    else:
        path = args.output or Path(DEFAULT_FILE)
        write(path, text)
        print(
            f"{path}: {len(text.encode()) / 1e6:.1f} MB, {found.verdict.sentence}", file=sys.stderr
        )
    return FINE if found.has_enough_data else NOT_ENOUGH_DATA


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
