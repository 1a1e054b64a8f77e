"""The command line of `benchmarks.whatif`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.whatif.judging import predicted
from benchmarks.whatif.playing import play
from benchmarks.whatif.runs import chosen
from benchmarks.whatif.tables import report


def main(argv: Sequence[str] | None = None) -> int:
    """Lists, plays or reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whatif")
    parser.add_argument("what", choices=("list", "play", "report"))
    parser.add_argument("folder", nargs="?", type=Path, help="where the logs lie")
    parser.add_argument("file", nargs="?", type=Path, help="where the predictions lie")
    parser.add_argument("runs", nargs="*", help="names of runs (default: all)")
    args = parser.parse_args(argv)
    match args.what:
        case "list":
            for run in chosen([]):
                clients = "open" if run.clients is None else f"{run.clients} clients"
                name, value = run.change
                print(f"{run.name:<18} seed {run.seed:<3} {clients:<11} then {name}={value}")
        case "play":
            return _play_all(args.folder, args.file, args.runs)
        case "report":
            print("\n".join(report(args.folder, _read(args.file))))
    return 0


def _play_all(folder: Path, file: Path, names: list[str]) -> int:
    """Plays runs: each as it is, then what is predicted is written down, then with its change.

    One that fails is told and does not keep others from being played.
    """
    num_failed = 0
    folder.mkdir(parents=True, exist_ok=True)
    for run in chosen(names):
        try:
            play(run, folder, is_changed=False)
            if run.name not in (told := _read(file)):
                file.write_text(json.dumps(told | {run.name: predicted(run, folder)}, indent=1))
            play(run, folder, is_changed=True)
        except (RuntimeError, OSError, ValueError) as error:
            num_failed += 1
            print(f"{run.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            print(run.name, flush=True)
    return 1 if num_failed else 0


def _read(file: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return told


if __name__ == "__main__":
    sys.exit(main())
