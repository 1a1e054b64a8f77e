"""`stepscope diagnose`: what is wrong, since when, why, and what to do."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import TYPE_CHECKING

from diagnose.diff.command import add_diff
from diagnose.replay.command import add_whatif
from diagnose.user_rules.commands import add_command as add_rules
from diagnose.user_rules.commands import add_rules_option

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.life.said import SaidOf
    from diagnose.reading import QueryLog
    from diagnose.window import Window

FINE, FOUND, USAGE, NOT_ENOUGH_DATA = 0, 1, 2, 3
LEVELS = ("info", "medium", "high", "critical")


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `diagnose`, `diff`, `whatif` and `rules`."""
    parser = commands.add_parser(
        "diagnose",
        parents=parents,
        help="say what is wrong with the scheduler, why, and what to do",
        epilog="exit codes: 0 fine, 1 a finding at or above --fail-on, 2 usage, 3 too little data",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="look back from the log's newest row: 90s, 10m, 1h "
        "(default: all of a closed log, 15m of a live one)",
    )
    parser.add_argument("--engine", metavar="HEX", help="one engine only: its 16 hex digits")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON instead of text")
    form.add_argument("--markdown", action="store_true", help="an incident report in Markdown")
    parser.add_argument(
        "--fail-on",
        choices=LEVELS,
        metavar="LEVEL",
        help=f"exit 1 from here: {', '.join(LEVELS)}; what is silenced does not count",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="replay the load however long that takes, to share preemptions out among causes",
    )
    parser.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    parser.add_argument("--sql", metavar="ID", help="print the SQL behind a finding")
    add_rules_option(parser)
    parser.set_defaults(run=run_diagnose)
    add_diff(commands, parents)
    add_whatif(commands, parents)
    add_rules(commands, parents)


def run_diagnose(args: argparse.Namespace) -> int:
    """Diagnoses a log and prints what was found; returns the exit code."""
    from diagnose.life import is_closed
    from diagnose.window import choose_window, parse_duration
    from telemetry.engine_id import parse_engine
    from telemetry.store import open_log

    try:
        since_ns = None if args.since is None else parse_duration(args.since)
        engine = None if args.engine is None else parse_engine(args.engine)
    except ValueError as error:
        print(f"stepscope diagnose: {error}", file=sys.stderr)
        return USAGE
    with open_log(args.log) as log:
        window = choose_window(log, since_ns, is_live=log.is_live)
        return report_on(log, args, window, engine, is_closed=is_closed(log))


def report_on(
    log: QueryLog,
    args: argparse.Namespace,
    window: Window,
    engine: int | None,
    *,
    is_closed: bool = False,
) -> int:
    """Diagnoses a window of an open log and prints it; returns the exit code."""
    from diagnose.diagnosis import diagnose
    from diagnose.life.said import with_life
    from diagnose.user_rules.loading import chosen_rules
    from diagnose.window import engines_in
    from diagnose.words import engine_hex

    present = engines_in(log, window)
    if engine is not None and engine not in present:
        known = ", ".join(engine_hex(number) for number in present) or "none"
        message = f"no engine {engine_hex(engine)} in this window: there are {known}"
        print(f"stepscope diagnose: {message}", file=sys.stderr)
        return USAGE
    diagnosis = diagnose(
        log,
        window,
        None if engine is None else [engine],
        rules=chosen_rules(getattr(args, "rules", None), args.log),
        effort="thorough" if getattr(args, "thorough", False) else "usual",
    )
    if args.sql is not None:
        return print_sql(diagnosis, args.sql)
    diagnosis, said = with_life(log, diagnosis, time.time_ns(), is_closed=is_closed)
    if args.markdown:
        print_markdown(log, diagnosis, said)
        return exit_code(diagnosis, args.fail_on, said)
    print_diagnosis(diagnosis, said, as_json=args.json, ascii_only=args.ascii)
    if diagnosis.findings and not args.json and args.log != getattr(args, "default_log", args.log):
        print(f"with each command: --log {shlex.quote(str(args.log))}")
    return exit_code(diagnosis, args.fail_on, said)


def print_diagnosis(diagnosis: Diagnosis, said: SaidOf, *, as_json: bool, ascii_only: bool) -> None:
    """Prints a diagnosis, and what people said of its findings, to standard output."""
    if as_json:
        from diagnose.json_output import to_json

        print(to_json(diagnosis, {name: each.document for name, each in said.items()}))
        return
    from diagnose.report import write_report
    from diagnose.text.lines import print_report

    print_report(write_report(diagnosis, said), sys.stdout, ascii_only=ascii_only)


def print_markdown(log: QueryLog, diagnosis: Diagnosis, said: SaidOf) -> None:
    """Prints the incident report of a diagnosis to standard output."""
    from diagnose.incident import write_incident
    from diagnose.markdown import to_markdown

    print(to_markdown(write_incident(log, diagnosis, said=said)), end="")


def print_sql(diagnosis: Diagnosis, finding_id: str) -> int:
    """Prints the statements behind a finding; returns the exit code."""
    for finding in diagnosis.findings:
        if finding.id == finding_id:
            for item in finding.evidence:
                print(f"-- {item.name} ({item.provenance})\n{item.sql};\n")
            return FINE
    known = ", ".join(finding.id for finding in diagnosis.findings) or "none"
    message = f"no finding {finding_id!r} in this window: there are {known}"
    print(f"stepscope diagnose: {message}; widen it with --since", file=sys.stderr)
    return USAGE


def exit_code(diagnosis: Diagnosis, fail_on: str | None, said: SaidOf) -> int:
    """Returns the exit code of a diagnosis; findings that somebody silenced do not count."""
    from diagnose.finding import Severity
    from diagnose.life.said import NOTHING_SAID

    if not diagnosis.has_enough_data:
        return NOT_ENOUGH_DATA
    told = (
        finding.severity
        for finding in diagnosis.findings
        if not said.get(finding.id, NOTHING_SAID).is_silenced
    )
    worst = max(told, default=None)
    if fail_on is not None and worst is not None and worst >= Severity[fail_on]:
        return FOUND
    return FINE
