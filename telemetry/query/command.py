"""The command `query`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import QueryRefused, StepscopeError

if TYPE_CHECKING:
    import pyarrow as pa

    from telemetry.sql.documentation import SavedQuery
    from telemetry.store import Log

FORMATS = ("table", "csv", "json", "arrow", "parquet")

DESCRIPTION = """\
Runs one reading SQL statement on the step log, live or closed; or a saved query, by its name:

  stepscope query "SELECT cause, count(*) FROM preemptions GROUP BY cause"
  stepscope query preemptions-by-minute --since 1h
  stepscope query request-story --param request_id=req-7
  stepscope query --list

$from_ns and $until_ns in a statement are the window that --since and --until name, and $engine is
--param engine=HEX. Every table and view: docs/step-log.md; questions and answers: docs/cookbook.md.
"""


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers the command; `parents` bring `--log`."""
    parser = commands.add_parser(
        "query",
        parents=parents,
        help="run one SQL statement, or a saved query, on the step log",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "sql",
        metavar="SQL|NAME",
        nargs="?",
        help="the statement, or the name of a saved query; - reads a statement from standard input",
    )
    parser.add_argument(
        "--list", action="store_true", help="name the saved queries, views, macros and tables"
    )
    _add_choices(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="$from_ns: so far back from the log's newest row (90s, 10m, 1h), or a time in UTC "
        "(14:02, 2025-11-29T14:02) (default: all of a closed log, 15m of a live one)",
    )
    parser.add_argument(
        "--until", metavar="TIME", help="$until_ns, in the same way (default: the newest row)"
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value for $NAME in the statement; may be given more than once",
    )
    parser.add_argument(
        "--queries",
        type=Path,
        metavar="DIR",
        help="your own saved queries, NAME.sql each (default $XDG_CONFIG_HOME/stepscope/queries)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="of the rows (default table)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there, not to stdout")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="stop it then (default 30)"
    )
    parser.add_argument(
        "--max-rows",
        type=int,
        default=1_000_000,
        metavar="N",
        help="print no more (default 1000000)",
    )


def run(args: argparse.Namespace) -> int:
    """Answers one question; returns the exit code."""
    from telemetry.query.saved import saved_queries
    from telemetry.store import open_log
    from telemetry.store.guard import Limits

    if args.list:
        from telemetry.query.listing import listing

        _print(listing(saved_queries(args.queries)))
        return 0
    _refuse_terminal(args)
    query = _wanted(args)
    with open_log(args.log, limits=Limits(args.timeout, args.max_rows)) as log:
        table = _answer(log, query, args)
        is_truncated = log.truncated
    _write_or_explain(table, args)
    if is_truncated:
        print(
            f"only the first {table.num_rows:,} rows are shown: raise --max-rows", file=sys.stderr
        )
    return 0


def _wanted(args: argparse.Namespace) -> SavedQuery:
    """Returns the saved query that is named, or one around the statement that is given."""
    from telemetry.query.saved import find_query, is_name, saved_queries
    from telemetry.sql.documentation import SavedQuery

    if args.sql is None:
        raise QueryRefused("nothing was asked: write a statement or a name, or --list for names")
    if is_name(args.sql):
        return find_query(args.sql, saved_queries(args.queries))
    sql = sys.stdin.read() if args.sql == "-" else args.sql
    return SavedQuery(name="the statement", doc="", question="", columns=(), parameters=(), sql=sql)


def _answer(log: Log, query: SavedQuery, args: argparse.Namespace) -> pa.Table:
    from telemetry.query.parameters import WINDOW, parse_assignments, used_in, values_for
    from telemetry.query.window import choose_window

    has_window = bool(used_in(query.sql) & set(WINDOW))
    if not has_window and (args.since or args.until):
        raise QueryRefused(
            f"--since and --until choose nothing in {query.name}: it needs "
            "ts BETWEEN $from_ns AND $until_ns"
        )
    window = choose_window(log, args.since, args.until) if has_window else None
    values = values_for(query, parse_assignments(args.param), window)
    return log.query(query.sql, values or None)


def _refuse_terminal(args: argparse.Namespace) -> None:
    if args.format in ("arrow", "parquet") and args.output is None and sys.stdout.isatty():
        raise StepscopeError(f"{args.format} is not for a terminal: add --output FILE, or redirect")


def _write_or_explain(table: pa.Table, args: argparse.Namespace) -> None:
    try:
        _write(table, args.format, args.output)
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = args.output or "standard output"
        raise StepscopeError(
            f"cannot write {where}: {error.strerror or error}; name another file with --output"
        ) from None


def _write(table: pa.Table, form: str, output: Path | None) -> None:
    from telemetry import rendering

    as_text = {
        "table": rendering.table_text,
        "csv": rendering.csv_text,
        "json": rendering.json_text,
    }
    if form in as_text:
        text = as_text[form](table).rstrip("\n") + "\n"
        if output is not None:
            output.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
            sys.stdout.flush()
        return
    write = rendering.write_arrow if form == "arrow" else rendering.write_parquet
    if output is not None:
        with output.open("wb") as file:
            write(table, file)
        return
    write(table, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
