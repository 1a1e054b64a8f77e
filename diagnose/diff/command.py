"""`stepscope diff`: two windows of a log, or two logs, side by side."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.diff.comparison import Diff
    from diagnose.diff.side import Side
    from diagnose.reading import QueryLog
    from diagnose.rule import Rule

FINE, USAGE, NOT_ENOUGH_DATA = 0, 2, 3


def add_diff(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `diff`."""
    parser = commands.add_parser(
        "diff",
        parents=parents,
        help="put two windows of a log, or two logs, side by side",
        description="What was found in A and in B, which settings and which traffic differ, and "
        "which numbers differ by more than noise. docs/diff.md says how that is judged.",
        epilog="exit codes: 0 fine, 2 usage, 3 too little data",
    )
    parser.add_argument(
        "--a", metavar="FROM..TO", help="window A: UTC times, or -20m..-10m (default: all of it)"
    )
    parser.add_argument("--b", metavar="FROM..TO", help="window B, likewise")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="the log of B (default: the log of A)"
    )
    parser.add_argument("--engine-a", metavar="HEX", help="engine of A: its 16 hex digits")
    parser.add_argument("--engine-b", metavar="HEX", help="engine of B: its 16 hex digits")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON: docs/diff.schema.json")
    form.add_argument("--markdown", action="store_true", help="Markdown instead of text")
    parser.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    parser.set_defaults(run=run_diff)


def run_diff(args: argparse.Namespace) -> int:
    """Compares and prints; returns the exit code."""
    from telemetry.store import open_log

    if args.against is None and args.a is None and args.b is None:
        print("stepscope diff: name two windows with --a and --b, or --against", file=sys.stderr)
        return USAGE
    with ExitStack() as opened:
        a = opened.enter_context(open_log(args.log))
        b = a if args.against is None else opened.enter_context(open_log(args.against))
        return diff_of(a, b, args)


def diff_of(a: QueryLog, b: QueryLog, args: argparse.Namespace) -> int:
    """Compares two open logs, or a log with itself, and prints; returns the exit code."""
    from diagnose.diff.comparison import compare
    from diagnose.user_rules.loading import chosen_rules

    try:
        rules = chosen_rules(None, args.log)
        sides = (
            _side("A", a, args.a, args.engine_a, rules),
            _side("B", b, args.b, args.engine_b, rules),
        )
    except ValueError as error:
        print(f"stepscope diff: {error}", file=sys.stderr)
        return USAGE
    diff = compare(*sides)
    print_diff(diff, args)
    return FINE if diff.has_enough_data else NOT_ENOUGH_DATA


def _side(
    name: str, log: QueryLog, span: str | None, engine: str | None, rules: Sequence[Rule]
) -> Side:
    from diagnose.diff.side import read_side
    from diagnose.diff.span import parse_span
    from diagnose.window import choose_window
    from telemetry.engine_id import parse_engine

    whole = choose_window(log)
    window = whole if span is None else parse_span(span, whole)
    number = None if engine is None else parse_engine(engine)
    return read_side(name, log, window, number, rules=rules)


def print_diff(diff: Diff, args: argparse.Namespace) -> None:
    """Prints a comparison in the form that was asked for."""
    if args.json:
        from diagnose.diff.json_output import to_json

        print(to_json(diff))
    elif args.markdown:
        from diagnose.diff.page import to_page
        from diagnose.markdown import to_markdown

        print(to_markdown(to_page(diff)), end="")
    else:
        from diagnose.diff.text import write_diff
        from diagnose.text.lines import print_report

        print_report(write_diff(diff), sys.stdout, ascii_only=args.ascii)
