"""The command line of `benchmarks.whatif`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.whatif.proof import change, predict, read_predictions, record
from benchmarks.whatif.runs import RUNS, Run, chosen
from benchmarks.whatif.tables import report

PREDICTIONS = Path(__file__).parent / "predictions.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Lists, records, predicts, changes or reports."""
    args = _parser().parse_args(argv)
    match args.what:
        case "list":
            for run in chosen([]):
                clients = "open" if run.clients is None else f"{run.clients} clients"
                name, value = run.change
                print(f"{run.name:<18} seed {run.seed:<3} {clients:<11} then {name}={value}")
        case "record":
            return _each(args.runs, lambda run: record(run, args.folder))
        case "predict":
            return _each(args.runs, lambda run: predict(run, args.folder, args.file))
        case "change":
            return _each(args.runs, lambda run: change(run, args.folder, args.file))
        case "report":
            print("\n".join(report(args.folder, read_predictions(args.file), RUNS)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whatif")
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("list", help="the runs, their seeds and their changes")
    for name, told in (
        ("record", "play each run as it is"),
        ("predict", "write down what each change would do, from the logs of the runs"),
        ("change", "make each change, and play the same load again"),
        ("report", "print the tables"),
    ):
        command = commands.add_parser(name, help=told)
        command.add_argument("folder", metavar="DIR", type=Path, help="where the logs lie")
        if name in ("predict", "report"):
            command.add_argument("file", metavar="FILE", type=Path, help="of the predictions")
        if name == "change":
            command.add_argument(
                "--file", type=Path, default=PREDICTIONS, help="of the predictions (%(default)s)"
            )
        if name != "report":
            command.add_argument("runs", nargs="*", metavar="RUN", help="names (default: all)")
    return parser


def _each(names: list[str], act: Callable[[Run], None]) -> int:
    """Does something with each run; one that fails is told and keeps no others from theirs."""
    num_failed = 0
    for run in chosen(names):
        try:
            act(run)
        except (RuntimeError, OSError, ValueError) as error:
            num_failed += 1
            print(f"{run.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            print(run.name, flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
