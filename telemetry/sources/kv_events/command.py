"""`stepscope import kv-events`, and the flags by which `collect` takes KV events."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telemetry.sources.live import LiveSource


def add_import(
    sources: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `stepscope import kv-events`."""
    parser = sources.add_parser(
        "kv-events",
        parents=parents,
        help="KV events that were captured from a vLLM's publisher",
        description="Reads captured KV events: of each message the length (u32, little endian), "
        "the number (8 bytes, as on the wire) and the payload; or JSON lines of sizes. May be "
        "gzip. Token ids are skipped; block hashes are stored keyed.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what to read")
    parser.add_argument(
        "--name",
        metavar="ENGINE",
        help="the engine that it is of: captures of one engine share a name (default: the file's "
        "name up to its first dot)",
    )
    parser.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> int:
    from telemetry.sources.importing import Import
    from telemetry.sources.kv_events.importing import import_file
    from telemetry.sources.opening import content_digest
    from telemetry.sources.summary import summary

    digest = content_digest([args.file])
    name = args.name or args.file.name.partition(".")[0]
    with Import(
        args.log, source="kv-events", name=str(args.file), digest=digest, unit="messages"
    ) as job:
        import_file(job, args.file, name)
    print(summary(job.told))
    return 0


def add_flags(parser: argparse._ArgumentGroup) -> None:
    """Adds the flags to `collect`."""
    parser.add_argument(
        "--kv-events",
        nargs="+",
        default=(),
        metavar="ADDRESS[,REPLAY]",
        help="take the KV events that a vLLM publishes at tcp://HOST:PORT (its endpoint has a "
        "wildcard); HOST:PORT-PORT for a port a data-parallel rank. Lost messages are asked for "
        "at REPLAY, if that is named",
    )
    parser.add_argument(
        "--kv-events-bind",
        nargs="+",
        default=(),
        metavar="ADDRESS[,REPLAY]",
        help="the same where the engine connects to us (its endpoint names this machine)",
    )


def from_flags(args: argparse.Namespace) -> list[LiveSource]:
    """Returns the live source that the flags ask for, if they do.

    Raises:
        StepscopeError: An address is none.
    """
    if not (args.kv_events or args.kv_events_bind):
        return []
    from telemetry.sources.kv_events.endpoints import BIND_FLAG, CONNECT_FLAG, read_endpoints
    from telemetry.sources.kv_events.subscriber import KvEventsListener

    endpoints = [
        *read_endpoints(CONNECT_FLAG, args.kv_events),
        *read_endpoints(BIND_FLAG, args.kv_events_bind),
    ]
    return [KvEventsListener(endpoints, args.log)]
