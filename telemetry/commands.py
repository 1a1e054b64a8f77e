"""The commands of telemetry: `collect`, `query` and `doctor`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "arrow", "parquet")


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers the commands; `parents` bring `--log`."""
    _add_collect(commands, parents)
    _add_query(commands, parents)
    _add_doctor(commands, parents)


def _add_collect(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    parser = commands.add_parser(
        "collect",
        parents=parents,
        help="drain the rings of engines into the step log",
        description="Drains the rings of running engines into the step log until Ctrl-C, SIGTERM, "
        "or until there has been no engine for the linger time. `serve` starts one by itself.",
    )
    parser.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="end so long after the last ring was drained (default 60; inf: never)",
    )
    parser.add_argument(
        "--detail",
        choices=("transitions", "full"),
        default="transitions",
        help="full: keep a row a request a step as well (default transitions)",
    )
    parser.set_defaults(run=_collect)


def _add_query(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    parser = commands.add_parser(
        "query",
        parents=parents,
        help="run one SQL statement on the step log",
        description="Runs one reading SQL statement on the step log, live or closed.",
    )
    parser.add_argument("sql", metavar="SQL", help="the statement; - reads it from standard input")
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
    parser.set_defaults(run=_query)


def _add_doctor(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    parser = commands.add_parser(
        "doctor",
        parents=parents,
        help="what is attached, dropped, missing",
        description="Says what is recorded and what is not: engines attached, alive or dead and "
        "where, rows dropped, errors of the recorder, how far behind, what is missing.",
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="of the report (default table)"
    )
    parser.set_defaults(run=_doctor)


def _collect(args: argparse.Namespace) -> int:
    from telemetry.collector.__main__ import run

    return run(args.log, linger_seconds=args.linger, detail=args.detail)


def _query(args: argparse.Namespace) -> int:
    from telemetry.store import open_log
    from telemetry.store.guard import Limits

    sql = sys.stdin.read() if args.sql == "-" else args.sql
    with open_log(args.log, limits=Limits(args.timeout, args.max_rows)) as log:
        table = log.query(sql)
        truncated = log.truncated
    try:
        _write(table, args.format, args.output)
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = args.output or "standard output"
        raise StepscopeError(
            f"cannot write {where}: {error.strerror or error}; name another file with --output"
        ) from None
    if truncated:
        print(
            f"only the first {table.num_rows:,} rows are shown: raise --max-rows", file=sys.stderr
        )
    return 0


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
    if sys.stdout.isatty():
        raise StepscopeError(f"{form} is not for a terminal: add --output FILE, or redirect")
    write(table, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _doctor(args: argparse.Namespace) -> int:
    from telemetry.doctor import examine, json_report, text_report

    examination = examine(args.log)
    if args.format == "json":
        print(json_report(examination))
    else:
        print(text_report(examination, colour=_wants_colour()))
    return 0 if examination.engines else 3


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
