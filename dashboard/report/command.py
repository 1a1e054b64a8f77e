"""`stepscope report`: a diagnosis as one file to hand on, HTML with charts or Markdown."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.incident.predictions import WhatIf
    from diagnose.replay.asked import Clients
    from telemetry.store import Log

DEFAULT_FILE = "stepscope-report.html"
Wish: TypeAlias = "tuple[dict[str, Any], Clients | None]"
"""Settings to change, and how clients behave."""


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `report`."""
    parser = commands.add_parser(
        "report",
        parents=parents,
        help="write an incident report to hand on: one HTML file with charts, or Markdown",
        description="Writes what was found, and what is stored of each finding's life, to hand on. "
        "With --set also what a change of settings would do, as `stepscope whatif` says it.",
        epilog="exit codes: 0 written, 2 usage, 3 too little data (the report says so), or the log "
        "cannot be replayed (nothing is written)",
    )
    parser.add_argument("--since", metavar="TIME", help="look back from the newest row: 90s, 10m")
    parser.add_argument("--engine", metavar="HEX", help="one engine only: its 16 hex digits")
    parser.add_argument("--finding", metavar="ID", help="one finding only")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE[,...]",
        help="a what-if in the report: settings to change, all together; may be given several "
        "times; docs/whatif.md has them",
    )
    parser.add_argument(
        "--clients",
        metavar="open|closed[:N]",
        help="how clients behave in the what-if (default: as detected)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"where to write (default: {DEFAULT_FILE})"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="Markdown, to standard output without --output"
    )
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    """Diagnoses a log and writes the report; returns the exit code."""
    from diagnose.commands import FINE, NOT_ENOUGH_DATA
    from diagnose.replay.rows import ReplayError

    try:
        found, text = _read(args)
    except ReplayError as error:
        print(f"stepscope report: {error}", file=sys.stderr)
        return NOT_ENOUGH_DATA
    if args.markdown and args.output is None:
        print(text, end="")
    else:
        path = args.output or Path(DEFAULT_FILE)
        write(path, text)
        print(
            f"{path}: {len(text.encode()) / 1e6:.1f} MB, {found.verdict.sentence}", file=sys.stderr
        )
    return FINE if found.has_enough_data else NOT_ENOUGH_DATA


def _read(args: argparse.Namespace) -> tuple[Diagnosis, str]:
    """Returns a diagnosis and its report.

    Raises:
        ReplayError: the what-if that is asked for needs what the log lacks.
        ValueError: something that is asked for is not there, or not possible.
    """
    from dashboard.report.writing import html_report, markdown_report
    from diagnose.diagnosis import diagnose
    from diagnose.user_rules.loading import chosen_rules
    from diagnose.window import choose_window, engines_in, parse_duration
    from diagnose.words import engine_hex
    from telemetry.engine_id import parse_engine
    from telemetry.store import open_log

    since_ns = None if args.since is None else parse_duration(args.since)
    engine = None if args.engine is None else parse_engine(args.engine)
    wish = _wish(args)
    with open_log(args.log) as log:
        window = choose_window(log, since_ns, is_live=log.is_live)
        if engine is not None and engine not in engines_in(log, window):
            known = ", ".join(engine_hex(n) for n in engines_in(log, window)) or "none"
            raise ValueError(f"no engine {engine_hex(engine)} in this window: there are {known}")
        rules = chosen_rules(None, args.log)
        found = diagnose(log, window, None if engine is None else [engine], rules=rules)
        is_whole = since_ns is None and not log.is_live
        whatifs = () if wish is None else (_foresee(log, found, args, wish, is_whole=is_whole),)
        report = markdown_report if args.markdown else html_report
        return found, report(log, found, args.finding, whatifs)


def _wish(args: argparse.Namespace) -> Wish | None:
    """Returns the what-if that is asked for; `None` where none is."""
    from diagnose.replay.asked import parse_changes, parse_clients

    clients = parse_clients(args.clients)
    if not args.settings and clients is not None:
        raise ValueError("--clients says how clients behave in a what-if: give --set NAME=VALUE")
    return (parse_changes(args.settings), clients) if args.settings else None


def _foresee(
    log: Log, found: Diagnosis, args: argparse.Namespace, wish: Wish, *, is_whole: bool
) -> WhatIf:
    """Returns the what-if, of the engine of the finding, else of the one that did most steps."""
    from dashboard.report.writing import find
    from diagnose.incident.predictions import foresee

    engines = list(found.engines)
    if args.finding is not None:
        own = find(found, args.finding).engine
        engines = [each for each in engines if each.scope.engine == own]
    if not engines:
        raise ValueError("the log is empty: there is nothing to replay")
    busiest = max(engines, key=lambda each: each.steps.num_steps)
    return foresee(log, busiest, found.window, *wish, is_whole=is_whole)


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
