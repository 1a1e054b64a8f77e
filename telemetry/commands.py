"""The commands of telemetry: `collect`, `import`, `query`, `bundle` and `doctor`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from telemetry.bundle import command as bundle
from telemetry.errors import StepscopeError
from telemetry.probe import PARTS, STALL_SECONDS, exit_code, probe, report
from telemetry.query import command as query
from telemetry.sources import commands as sources


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
    *,
    analyst: str | None = None,
) -> None:
    """Registers the commands; `parents` bring `--log`, `analyst` is the module that finds."""
    _add_collect(commands, parents, analyst)
    sources.add_import(commands, parents)
    query.add_command(commands, parents)
    bundle.add_command(commands, parents)
    _add_doctor(commands, parents)


def _add_collect(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
    analyst: str | None,
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
        metavar="steps|transitions|full|sampled=N",
        help="what to keep: transitions is all but the row that each request has in each step; "
        "full keeps these too, sampled=N those of every Nth step; steps leaves out why requests "
        "were set aside (default: $STEPSCOPE_DETAIL, else transitions)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve the collector's numbers at http://HOST:PORT/metrics for Prometheus; 0 takes a "
        "free port, which `doctor` shows (default: $STEPSCOPE_METRICS_PORT, else no page)",
    )
    parser.add_argument(
        "--metrics-host",
        metavar="HOST",
        help="address to serve them at (default: $STEPSCOPE_METRICS_HOST, else 127.0.0.1)",
    )
    parser.add_argument(
        "--otel-steps",
        type=float,
        metavar="RATIO",
        help="export this part of the steps as OpenTelemetry spans, where OTEL_EXPORTER_OTLP_* "
        "names a receiver (default: $STEPSCOPE_OTEL_STEPS, else 0)",
    )
    _add_retention(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="answer readers over TCP too, who open the log as tcp://HOST:PORT and show the token "
        "of --token-file; nothing is encrypted (default: only this user, by a Unix socket)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file of the token, outside the log directory and its owner's alone; made if missing. "
        "Readers name their copy in STEPSCOPE_TOKEN_FILE",
    )
    parser.add_argument(
        "--no-analyst",
        action="store_true",
        help="without the analyst beside it, which evaluates the rules every 10 s and has their "
        "findings stored and exported",
    )
    sources.add_flags(parser)
    parser.set_defaults(run=_collect, analyst=analyst)


def _add_retention(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("what is removed, once a minute; without a limit nothing is")
    limits.add_argument(
        "--keep-days",
        metavar="N",
        help="remove days that lie more than N days before today (default: $STEPSCOPE_KEEP_DAYS)",
    )
    limits.add_argument(
        "--keep-dense-days",
        metavar="N",
        help="the same for the rows that each request has in each step, which are most of a log "
        "(default: $STEPSCOPE_KEEP_DENSE_DAYS)",
    )
    limits.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="remove the oldest days, dense rows first, while the log is larger than this, like "
        "500M or 20G; never today's (default: $STEPSCOPE_MAX_BYTES)",
    )


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
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also have each running engine check its KV blocks, queues and hashes; it does so "
        "between two steps and serves nobody meanwhile: some 10 ms with 10,000 blocks and 256 "
        "requests. Exit code 0 healthy, 1 broken, 3 none could be checked",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="with --deep: check the engine at this address, like http://127.0.0.1:8000 (those "
        "that write to the log)",
    )
    parser.add_argument(
        "--probe",
        nargs="?",
        const="all",
        choices=PARTS,
        help="only say whether engines and collector get on, by their progress: for Kubernetes and "
        "Docker. Exit code 1 where one stands still, else 0; `engine` needs the base install alone",
    )
    parser.add_argument(
        "--stall",
        type=float,
        default=STALL_SECONDS,
        metavar="SECONDS",
        help="with --probe: the longest that a phase of a step may take (default %(default)g)",
    )
    parser.set_defaults(run=_doctor)


def _collect(args: argparse.Namespace) -> int:
    from telemetry.collector.__main__ import run
    from telemetry.collector.detail import chosen_detail
    from telemetry.collector.retention import read_limits
    from telemetry.exporters.settings import read_settings
    from telemetry.store.token import open_door

    detail = chosen_detail(args.detail, os.environ)
    exports = read_settings(
        os.environ,
        metrics_port=args.metrics_port,
        metrics_host=args.metrics_host,
        step_ratio=args.otel_steps,
    )
    limits = read_limits(
        os.environ,
        keep_days=args.keep_days,
        keep_dense_days=args.keep_dense_days,
        max_bytes=args.max_bytes,
    )
    return run(
        args.log,
        linger_seconds=args.linger,
        detail=detail,
        exports=exports,
        limits=limits,
        tcp=open_door(args.listen, args.token_file, args.log),
        sources=sources.from_flags(args),
        analyst=None if args.no_analyst else args.analyst,
    )


def _doctor(args: argparse.Namespace) -> int:
    if args.probe is not None:
        signs = probe(args.log, args.probe, stall_seconds=args.stall)
        print(report(signs))
        return exit_code(signs)
    from telemetry.doctor import examine, json_report, text_report
    from telemetry.doctor import exit_code as deep_exit_code

    if args.url is not None and not args.deep:
        raise StepscopeError("--url names the engine of a deep check: add --deep")
    examination = examine(args.log, deep=args.deep, url=args.url)
    if args.format == "json":
        print(json_report(examination))
    else:
        print(text_report(examination, colour=_wants_colour()))
    if examination.deep is not None:
        return deep_exit_code(examination.deep)
    return 0 if examination.engines else 3


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
