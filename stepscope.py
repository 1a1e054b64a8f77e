"""The command line: wires the packages together, nothing else.

Each package brings its own commands; this module gives them the log directory, and gives the engine
its recorder, its metrics page and its collector. A command whose extra is not installed names it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from functools import partial
from pathlib import Path

from telemetry.errors import StepscopeError

__version__ = "0.1.0"

COMMANDS = (
    "engine.commands",
    "telemetry.commands",
    "diagnose.commands",
    "dashboard.commands",
)

EXTRAS = {
    "collect": ("duckdb", "pyarrow", "rich", "opentelemetry", "prometheus_client"),
    "engine": ("torch", "transformers", "tokenizers", "safetensors", "fastapi", "uvicorn", "httpx"),
    "dashboard": ("streamlit", "altair", "pandas"),
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
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(name).add_commands(commands, [log])
    return parser


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
            f"stepscope: {options.command} needs {error.name}: "
            f"pip install 'stepscope[{extra}]'",
            file=sys.stderr,
        )
    except (StepscopeError, ValueError) as error:
        print(f"stepscope: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 2


def _extra_of(module: str) -> str | None:
    package = module.partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


if __name__ == "__main__":
    sys.exit(main())
