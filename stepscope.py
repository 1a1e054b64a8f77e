"""The command line: wires the packages together, nothing else.

Each package brings its own commands; this module gives them the log directory, and gives the engine
its recorder, its metrics page and its collector. A command whose extra is not installed names it.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import dashboard.commands
import diagnose.commands
import diagnose.life.commands
import diagnose.watch.commands
import engine.commands
import telemetry.commands
import telemetry.step_command
from telemetry.errors import StepscopeError
from telemetry.recorder import Recorder
from telemetry.records import RunClock
from telemetry.ring import open_recorder

if TYPE_CHECKING:
    from engine.server.server import Server

__version__ = "0.1.0"

ANALYST = "diagnose.analyst"
"""The program that a collector keeps beside itself: telemetry knows no rules."""

EXTRAS = {
    "collect": (
        *("duckdb", "pyarrow", "rich", "opentelemetry", "prometheus_client"),
        *("google", "grpc", "msgspec", "zmq", "yaml"),
    ),
    "engine": (
        *("torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate"),
        *("xgrammar", "jinja2", "tqdm", "fastapi", "uvicorn", "httpx"),
    ),
    "dashboard": ("streamlit", "altair", "pandas", "vl_convert"),
}


def default_log() -> Path:
    """Returns the log directory that is used without `--log`."""
    if log := os.environ.get("STEPSCOPE_LOG"):
        return Path(log)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "stepscope"


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="stepscope",
        description="Records every scheduler step of an LLM inference engine and explains it.",
    )
    parser.add_argument("--version", action="version", version=f"stepscope {__version__}")
    log = argparse.ArgumentParser(add_help=False)
    log.add_argument(
        "--log",
        type=Path,
        default=default_log(),
        metavar="DIR",
        help="log directory (default: $STEPSCOPE_LOG, else $XDG_STATE_HOME/stepscope)",
    )
    log.set_defaults(default_log=default_log())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wiring = engine.commands.ServeWiring(recorder_factory=_recorder_factory, prepare=_prepare)
    engine.commands.add_commands(commands, [log], wiring)
    telemetry.commands.add_commands(commands, [log], analyst=ANALYST)
    telemetry.step_command.add_commands(commands, [log])
    diagnose.commands.add_commands(commands, [log])
    diagnose.life.commands.add_commands(commands, [log])
    diagnose.watch.commands.add_commands(commands, [log])
    dashboard.commands.add_commands(commands, [log])
    return parser


# ------------------------------------------------------------------- what a served engine is given


@dataclass(frozen=True, slots=True)
class _RingFactory:
    """Makes the engine's recorder, inside the engine process."""

    log: Path

    def __call__(self, clock: RunClock) -> Recorder:
        return open_recorder(self.log, clock)


def _recorder_factory(options: argparse.Namespace) -> _RingFactory:
    return _RingFactory(options.log.absolute())


def _prepare(options: argparse.Namespace, server: Server) -> None:
    """Gives a served engine its metrics page and, where it is recorded, a collector."""
    from telemetry.exporters.prometheus import metrics_app

    server.mount("/metrics", metrics_app(server.stats))
    if not (options.no_record or options.no_collector):
        from telemetry.collector import keep_collector, prepare_log
        from telemetry.collector.detail import chosen_detail

        prepare_log(options.log, linger_seconds=options.linger)
        server.on_start(
            partial(
                keep_collector,
                options.log,
                detail=chosen_detail(options.detail, os.environ),
                linger_seconds=options.linger,
                analyst=None if options.no_analyst else ANALYST,
            )
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 fine, 1 finding, 2 usage, 3 not enough data."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            raise
        print(
            f"stepscope: {options.command} needs {error.name}: pip install 'stepscope[{extra}]'",
            file=sys.stderr,
        )
    except (StepscopeError, ValueError) as error:
        print(f"stepscope: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file, a folder or a port that this machine does not give
        print(f"stepscope: {options.command} failed: {error}", file=sys.stderr)
    return 2


def _extra_of(module: str) -> str | None:
    package = module.partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


if __name__ == "__main__":
    sys.exit(main())
