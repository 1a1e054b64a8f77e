"""`stepscope whatif`: what a change of settings would have done to a recorded load."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.reading import QueryLog
    from diagnose.replay.workload import Workload

FINE, USAGE, NOT_REPLAYABLE = 0, 2, 3


def add_whatif(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `whatif`."""
    parser = commands.add_parser(
        "whatif",
        parents=parents,
        help="replay a recorded load under other settings",
        description="Schedule a recorded load again under other settings, and say what would have "
        "been gained and what it would have cost. docs/whatif.md has the settings.",
        epilog="exit codes: 0 fine, 2 usage, 3 the log cannot be replayed",
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE[,...]",
        help="settings to change, all together; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--scan", metavar="NAME[=V1,V2,...]",
        help="one setting at many values, and the smallest changes that remove the preemptions",
    )  # fmt: skip
    parser.add_argument(
        "--without", action="append", default=[], metavar="FILTER",
        help="leave requests out: adapter=NAME, priority=N, tenant=KEY, prefix=N, prompt>=N",
    )  # fmt: skip
    parser.add_argument(
        "--clients", metavar="open|closed[:N]",
        help="how clients behave (default: as detected)",
    )  # fmt: skip
    parser.add_argument(
        "--replays", type=int, default=9, metavar="N",
        help="replays under other step times, for the bands (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--since", metavar="TIME", help="the log's last 90s, 10m, 1h only")
    parser.add_argument("--engine", metavar="HEX", help="one engine: its 16 hex digits")
    parser.add_argument("--all", action="store_true", help="every quantity, not the main ones")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    parser.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    parser.set_defaults(run=run_whatif)


def run_whatif(args: argparse.Namespace) -> int:
    """Replays and prints; returns the exit code."""
    from diagnose.replay.rows import ReplayError
    from engine.config_error import ConfigError
    from telemetry.store import open_log

    try:
        with open_log(args.log) as log:
            workload = _workload_of(log, args)
        _print(workload, args)
    except ReplayError as error:
        print(f"stepscope whatif: {error}", file=sys.stderr)
        return NOT_REPLAYABLE
    except (ConfigError, ValueError) as error:
        print(f"stepscope whatif: {error}", file=sys.stderr)
        return USAGE
    return FINE


def _workload_of(log: Any, args: argparse.Namespace) -> Workload:
    from diagnose.replay.asked import parse_clients, read_asked
    from diagnose.window import choose_window, parse_duration

    if args.replays < 1:
        raise ValueError(f"--replays is {args.replays}: it must be 1 or more")
    if not (args.settings or args.scan or args.without):
        raise ValueError("nothing is changed: give --set NAME=VALUE, --scan NAME or --without")
    since_ns = None if args.since is None else parse_duration(args.since)
    window = choose_window(log, since_ns, is_live=log.is_live)
    engine = _engine_of(log, args.engine)
    is_whole = args.since is None and not log.is_live
    return read_asked(log, engine, window, parse_clients(args.clients), is_whole=is_whole)


def _engine_of(log: QueryLog, wanted: str | None) -> int:
    """Returns the engine to replay: the one asked for, or the one that did most steps."""
    from diagnose.reading import read_rows
    from diagnose.words import engine_hex
    from telemetry.engine_id import parse_engine

    sql = "SELECT engine FROM (SELECT engine, count(*) AS num FROM steps GROUP BY engine UNION ALL "
    sql += "SELECT engine, 0 AS num FROM engines) GROUP BY engine ORDER BY max(num) DESC, engine"
    present = [row["engine"] for row in read_rows(log, sql)]
    if wanted is not None:
        engine = parse_engine(wanted)
        if engine not in present:
            known = ", ".join(engine_hex(number) for number in present) or "none"
            raise ValueError(f"no engine {engine_hex(engine)} in this log: there are {known}")
        return engine
    if not present:
        raise ValueError("the log is empty: there is nothing to replay")
    return int(present[0])


def _print(workload: Workload, args: argparse.Namespace) -> None:
    import json

    from diagnose.replay.asked import parse_changes
    from diagnose.replay.prediction import Replays, predict
    from diagnose.replay.smallest import smallest_changes
    from diagnose.replay.whatif_json import whatif_json
    from diagnose.replay.whatif_text import write_prediction, write_scan, write_smallest
    from diagnose.text.lines import print_report

    changes = parse_changes(args.settings)
    if args.without:
        changes["without"] = tuple(args.without)
    before = Replays.of(workload, args.replays)
    if args.scan is None:
        told = [predict(workload, changes, num_replays=args.replays, before=before)]
        name, steps = "", []
    else:
        name, values = _scanned(workload, args.scan, before)
        told = [
            predict(workload, {**changes, name: v}, num_replays=args.replays, before=before)
            for v in values
        ]
        steps = smallest_changes(workload, num_replays=args.replays, before=before)
    if args.json:
        print(json.dumps(whatif_json(workload, told, steps), indent=2))
        return
    if args.scan is None:
        report = write_prediction(workload, told[0], is_full=args.all)
    else:
        report = write_scan(workload, name, told)
        write_smallest(report, steps)
    print_report(report, sys.stdout, ascii_only=args.ascii)


def _scanned(workload: Workload, text: str, before: Any) -> tuple[str, list[Any]]:
    """Returns the setting that a scan is of, and its values."""
    from diagnose.replay.settable import changed, normal_name, parse_value
    from diagnose.replay.smallest import MAX_TRIED, values_to_try
    from diagnose.replay.step_times import DECODES
    from engine.config_error import ConfigError

    written, sign, listed = text.partition("=")
    name = normal_name(written)
    if sign:
        return name, [parse_value(name, value) for value in listed.split(",")]
    values = []
    for value in values_to_try(workload, name, before.outcomes[0].largest[DECODES])[:MAX_TRIED]:
        try:
            changed(workload, {name: value})
        except ConfigError:
            continue
        values.append(value)
    if not values:
        raise ValueError(f"{name} has no other value that these settings allow")
    return name, values
