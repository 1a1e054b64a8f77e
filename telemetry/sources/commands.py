"""`stepscope import`, and the flags by which `collect` listens to sources.

Each source brings a module `command` with some of: `add_import(parsers, parents)` registers its
`stepscope import NAME`; `add_flags(parser)` adds its flags to `collect`, and `from_flags(args)`
returns the live sources that they ask for.
"""

from __future__ import annotations

import argparse
from types import ModuleType
from typing import TYPE_CHECKING

from telemetry.sources.kv_events import command as kv_events
from telemetry.sources.otlp import command as otlp
from telemetry.sources.prometheus import command as prometheus
from telemetry.sources.vllm_log import command as vllm_log

if TYPE_CHECKING:
    from telemetry.sources.live import LiveSource

_IMPORTS: tuple[ModuleType, ...] = (prometheus, otlp, vllm_log, kv_events)
_LIVE: tuple[ModuleType, ...] = (prometheus, otlp, kv_events)


def add_import(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Registers `stepscope import`."""
    parser = commands.add_parser(
        "import",
        help="bring scrapes, log files and traces of a vLLM into a step log",
        description="Brings what an operator already has of an engine into a step log. What it "
        "tells is diagnosed as far as it goes; what it cannot tell is named as not measured.",
    )
    sources = parser.add_subparsers(
        dest="source", metavar="SOURCE", required=True, help="what it comes from"
    )
    for module in _IMPORTS:
        module.add_import(sources, parents)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all live sources to `collect`."""
    group = parser.add_argument_group("what else is listened to, for engines without a recorder")
    for module in _LIVE:
        module.add_flags(group)


def from_flags(args: argparse.Namespace) -> list[LiveSource]:
    """Returns the live sources that the flags ask for.

    Raises:
        StepscopeError: A flag's value is not one.
    """
    return [source for module in _LIVE for source in module.from_flags(args)]
