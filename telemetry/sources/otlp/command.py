"""`stepscope import otlp`, and the flags by which `collect` takes spans."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    from telemetry.sources.live import LiveSource
    from telemetry.sources.otlp.listener import Address

GRPC, HTTP = ("127.0.0.1", 4317), ("127.0.0.1", 4318)


def add_import(
    sources: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `stepscope import otlp`."""
    parser = sources.add_parser(
        "otlp",
        parents=parents,
        help="traces that a vLLM exported, from files",
        description="Reads the spans that a vLLM exported: raw export requests (protobuf), OTLP "
        "JSON, or JSON lines as the OpenTelemetry collector's file exporter writes them; each may "
        "be gzip. Spans of other services are counted and left out.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what to read")
    parser.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> int:
    from telemetry.sources.importing import Import
    from telemetry.sources.opening import content_digest
    from telemetry.sources.otlp.importing import import_files
    from telemetry.sources.summary import summary

    first, *others = args.files
    name = f"{first} and {len(others)} more" if others else str(first)
    digest = content_digest(args.files)
    with Import(args.log, source="otlp", name=name, digest=digest, unit="spans") as job:
        import_files(job, args.files)
    print(summary(job.told))
    return 0


def add_flags(parser: argparse._ArgumentGroup) -> None:
    """Adds the flags to `collect`."""
    parser.add_argument(
        "--otlp-listen",
        action="store_true",
        help="take the spans that a vLLM exports (its --otlp-traces-endpoint), over gRPC and HTTP",
    )
    parser.add_argument(
        "--otlp-grpc",
        metavar="HOST:PORT",
        help="take them over gRPC there (default with --otlp-listen: 127.0.0.1:4317)",
    )
    parser.add_argument(
        "--otlp-http",
        metavar="HOST:PORT",
        help="take them over HTTP there (default with --otlp-listen: 127.0.0.1:4318)",
    )


def from_flags(args: argparse.Namespace) -> list[LiveSource]:
    """Returns the live source that the flags ask for, if they do.

    Raises:
        StepscopeError: An address is none.
    """
    grpc = _address("--otlp-grpc", args.otlp_grpc, GRPC if args.otlp_listen else None)
    http = _address("--otlp-http", args.otlp_http, HTTP if args.otlp_listen else None)
    if grpc is None and http is None:
        return []
    from telemetry.sources.otlp.listener import Addresses, OtlpListener

    return [OtlpListener(Addresses(grpc=grpc, http=http))]


def _address(flag: str, text: str | None, otherwise: Address | None) -> Address | None:
    if text is None:
        return otherwise
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise StepscopeError(f"{flag} is {text!r}: write HOST:PORT, like 127.0.0.1:{GRPC[1]}")
    return host, int(port)
