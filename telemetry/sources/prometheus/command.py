"""`stepscope import prometheus`, and the flags by which `collect` scrapes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    from telemetry.sources.live import LiveSource
    from telemetry.sources.prometheus.fetch import Access

DESCRIPTION = """\
Brings what a vLLM's or an SGLang's /metrics said into a step log. SOURCE is one of

  DIR               pages saved as metrics_<unix seconds>.prom, gzip if they end in .gz; those of
                    several targets in directories of their own. A config.json beside them holds the
                    launch flags: {"max_num_seqs": 256}
  FILE              OpenMetrics text with times (promtool tsdb dump-openmetrics), a page of
                    /federate, or one page of such a DIR
  http://HOST:9090  a Prometheus server, or what answers like one: the window that --since, --start
                    and --end name, as it was scraped

The same scrapes are never in a log twice.
"""


def add_import(
    sources: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `stepscope import prometheus`."""
    parser = sources.add_parser(
        "prometheus",
        parents=parents,
        help="scrapes of /metrics: saved pages, OpenMetrics text, a Prometheus server",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("place", metavar="SOURCE", help="a directory, a file or an address")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="what the pages are of, where they do not say it (default: the name of SOURCE). The "
        "same name is the same engine in the log",
    )
    _add_window(parser)
    _add_access(parser, "")
    parser.set_defaults(run=_import)


def _add_window(parser: argparse.ArgumentParser) -> None:
    server = parser.add_argument_group("of a Prometheus server")
    server.add_argument(
        "--since", metavar="LENGTH", help="so far back from --end: 90s, 10m, 1h, 2d (default 1h)"
    )
    server.add_argument(
        "--start", metavar="TIME", help="a day and time in UTC (2026-11-29T14:02), or unix seconds"
    )
    server.add_argument("--end", metavar="TIME", help="the same (default: now)")
    server.add_argument(
        "--step",
        metavar="LENGTH",
        help="take one value in each such length, the last (default: all as scraped)",
    )
    server.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="only series with this label, like namespace=prod; may be given more than once",
    )


def _add_access(parser: argparse._ActionsContainer, prefix: str) -> None:
    parser.add_argument(
        f"--{prefix}token-file",
        type=Path,
        metavar="FILE",
        help="show the bearer token in it to the server; read anew each time",
    )
    parser.add_argument(
        f"--{prefix}ca-file",
        type=Path,
        metavar="FILE",
        help="trust these certificates (PEM) with https, instead of the system's",
    )
    parser.add_argument(
        f"--{prefix}insecure", action="store_true", help="with https, trust any certificate"
    )


def _access(args: argparse.Namespace, prefix: str) -> Access:
    from telemetry.sources.prometheus.fetch import Access

    return Access(
        token_file=getattr(args, f"{prefix}token_file"),
        ca_file=getattr(args, f"{prefix}ca_file"),
        verify=not getattr(args, f"{prefix}insecure"),
    )


def _import(args: argparse.Namespace) -> int:
    from telemetry.sources.prometheus.choosing import import_source
    from telemetry.sources.summary import summary

    told = import_source(args, _access(args, ""))
    print(summary(told))
    return 0


def add_flags(parser: argparse._ArgumentGroup) -> None:
    """Adds the flags to `collect`."""
    parser.add_argument(
        "--scrape",
        action="append",
        default=[],
        metavar="URL",
        help="ask a vLLM or an SGLang for its /metrics, like http://127.0.0.1:8000; may be given "
        "more than once",
    )
    parser.add_argument(
        "--scrape-interval",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="so often (default %(default)g: a storm of preemptions can be over in seven)",
    )
    parser.add_argument(
        "--scrape-timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="a page that is not there by then has failed, and is a gap (default %(default)g)",
    )
    _add_access(parser, "scrape-")


def from_flags(args: argparse.Namespace) -> list[LiveSource]:
    """Returns a live source for each address that is to be scraped.

    Raises:
        StepscopeError: An address is none, is given twice, or the interval is too short.
    """
    if not args.scrape:
        return []
    from telemetry.sources.prometheus.fetch import read_url
    from telemetry.sources.prometheus.scrape import SHORTEST_INTERVAL_SECONDS, Scrape

    interval = _seconds("--scrape-interval", args.scrape_interval, SHORTEST_INTERVAL_SECONDS, 3600)
    timeout = _seconds("--scrape-timeout", args.scrape_timeout, 0.1, 120)
    access = _access(args, "scrape_")
    scrapes: list[LiveSource] = []
    targets: set[str] = set()
    for index, text in enumerate(args.scrape):
        offset = interval * index / len(args.scrape)
        url = read_url("--scrape", text)
        scrape = Scrape(
            url,
            access,
            interval_seconds=interval,
            timeout_seconds=timeout,
            offset_seconds=offset,
        )
        if scrape.target in targets:
            raise StepscopeError(f"--scrape names {text} twice")
        targets.add(scrape.target)
        scrapes.append(scrape)
    return scrapes


def _seconds(flag: str, value: float, least: float, most: float) -> float:
    """Returns a number of seconds that makes sense.

    Raises:
        StepscopeError: It makes none.
    """
    if not least <= value <= most:
        raise StepscopeError(f"{flag} is {value:g}: between {least:g} and {most:g} s make sense")
    return value
