"""`python -m telemetry.collector --log DIR`: a collector as a process of its own."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from telemetry.collector.analyst import AnalystKeeper
from telemetry.collector.collector import DEFAULT_LINGER_SECONDS, Collector
from telemetry.collector.detail import Detail, chosen_detail
from telemetry.collector.process import environment
from telemetry.collector.retention import RetentionLimits, read_limits
from telemetry.errors import StepscopeError
from telemetry.exporters.settings import ExportSettings, read_settings
from telemetry.sources.live import LiveSource
from telemetry.store.niceness import be_expendable
from telemetry.store.token import Door


def run(
    log: Path,
    *,
    linger_seconds: float,
    detail: Detail,
    exports: ExportSettings | None = None,
    limits: RetentionLimits | None = None,
    tcp: Door | None = None,
    sources: Sequence[LiveSource] = (),
    analyst: str | None = None,
) -> int:
    """Collects until SIGTERM, SIGINT or the end of the linger time; returns the exit code.

    Without `exports` and `limits` the environment says what is exported, and what is kept.
    `analyst` is the module of the analyst to keep beside it.

    Raises:
        CollectorError: The log is taken, or cannot be used.
    """
    exports = read_settings(os.environ) if exports is None else exports
    limits = read_limits(os.environ) if limits is None else limits
    be_expendable()
    os.umask(0o077)  # DuckDB makes files when it needs them: all of a log's are for its owner alone
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    with Collector(
        log,
        linger_seconds=linger_seconds,
        detail=detail,
        exports=exports,
        limits=limits,
        tcp=tcp,
        sources=sources,
        analyst=AnalystKeeper(log.absolute(), analyst, environment()),
    ) as collector:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: collector.stop())
        collector.run()
    return 0


def main() -> int:
    """Parses the command line and collects."""
    parser = argparse.ArgumentParser(prog="python -m telemetry.collector")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--linger", type=float, default=DEFAULT_LINGER_SECONDS)
    parser.add_argument("--detail")
    parser.add_argument("--analyst")
    args = parser.parse_args()
    try:
        detail = chosen_detail(args.detail, os.environ)
        return run(args.log, linger_seconds=args.linger, detail=detail, analyst=args.analyst)
    except StepscopeError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
