"""`stepscope import vllm-log`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import ImportRefused, StepscopeError

if TYPE_CHECKING:
    from telemetry.sources.importing import Import
    from telemetry.sources.vllm_log.importer import LogImporter
    from telemetry.sources.vllm_log.reading import Advance, LogFile

DESCRIPTION = """\
Reads what a vLLM wrote to its console: the line of every ten seconds, the line of every step
(--enable-logging-iteration-details), the start with its settings, and what went wrong. vLLM 0.4 to
0.32; plain, coloured, from docker, Kubernetes, journald or Ray; gzip files and standard input:

  stepscope import vllm-log vllm.log vllm.log.1.gz
  kubectl logs vllm-0 --timestamps | stepscope import vllm-log --name vllm-0 -
"""


def add_import(
    sources: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `stepscope import vllm-log`; `parents` bring `--log`."""
    parser = sources.add_parser(
        "vllm-log",
        parents=parents,
        help="what a vLLM wrote to its console",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="log files, oldest first; - is standard input"
    )
    parser.add_argument(
        "--name",
        help="what the server is called: one name is one server, in every import (default: the "
        "file's name without .gz and the numbers of log rotation)",
    )
    parser.add_argument(
        "--tz",
        default="UTC",
        metavar="ZONE",
        help="time zone of times that name none, like Europe/Berlin (default UTC)",
    )
    parser.add_argument(
        "--year",
        type=int,
        metavar="YYYY",
        help="year of the first line (default: the newest in which it is not later than the file)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Imports each file; a file that cannot be imported is told, and the others are."""
    from telemetry.sources.vllm_log.moments import zone_named

    zone_named(args.tz)
    if args.year is not None and not 1970 <= args.year <= 9000:
        raise StepscopeError(f"--year is {args.year}: write a year between 1970 and 9000")
    num_refused = 0
    for file in args.files:
        try:
            _import(args, None if file == "-" else Path(file))
        except (ImportRefused, OSError) as error:
            num_refused += 1
            print(f"stepscope: {error}", file=sys.stderr)
    return 2 if num_refused else 0


def _import(args: argparse.Namespace, path: Path | None) -> None:
    """Imports one file, and says what came of it.

    Raises:
        ImportRefused: It is empty, no log of vLLM, or in the step log already.
        OSError: It cannot be read.
    """
    from telemetry.sources.importing import Import
    from telemetry.sources.vllm_log.importer import LogImporter
    from telemetry.sources.vllm_log.moments import LogClock, zone_named
    from telemetry.sources.vllm_log.naming import log_name
    from telemetry.sources.vllm_log.notes import notes_of
    from telemetry.sources.vllm_log.reading import LogFile, lines_of
    from telemetry.sources.vllm_log.sample_rows import SOURCE

    with LogFile(path) as file:
        name = args.name or (file.name if path is None else log_name(path))
        has_name = path is not None or args.name is not None
        with _progress(file, "checking") as advance:
            digest = _digest_of_log(file, advance)
        clock = LogClock(zone_named(args.tz), file.modified_ns, args.year)
        with (
            Import(args.log, source=SOURCE, name=file.name, digest=digest, unit="lines") as job,
            _progress(file, "reading") as advance,
        ):
            importer = LogImporter(job, name, clock)
            importer.take(lines_of(file.chunks(advance)))
            notes = notes_of(file, clock, args.tz, importer, has_name=has_name)
            job.told.notes.extend(notes)
    _tell(job, importer)


def _digest_of_log(file: LogFile, advance: Advance) -> bytes:
    """Returns the digest of a file, which is read to its end.

    Raises:
        ImportRefused: No line in it begins as vLLM's do.
    """
    from telemetry.sources.vllm_log.heads import Head, parse
    from telemetry.sources.vllm_log.prefixes import Unwrapper
    from telemetry.sources.vllm_log.reading import Digesting, lines_of

    content, unwrapper, num_lines = Digesting(file.chunks(advance)), Unwrapper(), 0
    for num_lines, line in lines_of(content):  # noqa: B007 - told below
        unwrapped = unwrapper.unwrap(line)
        if unwrapped is not None and isinstance(parse(unwrapped.text), Head):
            return content.digest()
    if file.damage is not None and not num_lines:
        raise ImportRefused(f"{file.name} {file.damage}: nothing of it can be unpacked")
    raise ImportRefused(
        f"{file.name} is no log of vLLM: none of its {num_lines:,} lines begins with a level, a "
        "time and a place in the source, like INFO 11-29 12:00:00 [loggers.py:123]"
    )


@contextmanager
def _progress(file: LogFile, what: str) -> Iterator[Callable[[int], None]]:
    """Shows on a terminal how much of a file has been read."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{what} {escape(file.name)}", total=file.size)
        yield lambda num_bytes: bar.advance(task, num_bytes)


def _tell(job: Import, importer: LogImporter) -> None:
    """Prints what was read, what was not, and of which engines."""
    from telemetry.rendering import engine_hex
    from telemetry.sources.summary import summary

    print(summary(job.told))
    for rank in importer.engines.ranks:
        print(f"  engine    {engine_hex(importer.engines.number(rank))}, rank {rank}")
