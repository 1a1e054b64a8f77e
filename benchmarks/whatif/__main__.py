"""The command line of `benchmarks.whatif`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.whatif.judging import predict_all
from benchmarks.whatif.playing import play
from benchmarks.whatif.runs import chosen
from benchmarks.whatif.tables import report


def main(argv: Sequence[str] | None = None) -> int:
    """Lists, plays, predicts, measures or reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whatif")
    parser.add_argument("what", choices=("list", "record", "predict", "measure", "report"))
    parser.add_argument("folder", nargs="?", type=Path, help="where the logs lie")
    parser.add_argument("runs", nargs="*", help="names of runs, or the file of predictions")
    args = parser.parse_args(argv)
    match args.what:
        case "list":
            for run in chosen([]):
                clients = "open" if run.clients is None else f"{run.clients} clients"
                name, value = run.change
                print(f"{run.name:<18} seed {run.seed:<3} {clients:<11} then {name}={value}")
        case "record" | "measure":
            return _play_all(args.folder, args.runs, is_changed=args.what == "measure")
        case "predict":
            (file,) = map(Path, args.runs)
            file.write_text(json.dumps(predict_all(args.folder), indent=1) + "\n")
        case "report":
            (file,) = map(Path, args.runs)
            print("\n".join(report(args.folder, json.loads(file.read_text()))))
    return 0


def _play_all(folder: Path, names: list[str], *, is_changed: bool) -> int:
    """Plays runs; one that fails is told and does not keep others from being played."""
    num_failed = 0
    folder.mkdir(parents=True, exist_ok=True)
    for run in chosen(names):
        try:
            play(run, folder, is_changed=is_changed)
        except (RuntimeError, OSError, TimeoutError) as error:
            num_failed += 1
            print(f"{run.name}: {error}", file=sys.stderr)
        else:
            print(run.name, flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
