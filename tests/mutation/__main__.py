"""Tries every break, and says who noticed: `python -m tests.mutation [--only NAME] [--jobs N]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

# Loaded once, before any fork: what the tests need from outside this project.
import duckdb
import hypothesis
import numpy
import pyarrow

from tests.mutation.table import MUTATIONS
from tests.mutation.trial import TESTS, copy_tree, first_failure, try_out

ROOT = Path(__file__).parents[2]
MOST_MISSED_RATIO = 1 / 30
_PRELOADED = (duckdb, hypothesis, numpy, pyarrow)


def main(arguments: list[str] | None = None) -> int:
    """Tries the breaks; returns 0 unless more than one in thirty goes unnoticed."""
    options = _parser().parse_args(arguments)
    chosen = [m for m in MUTATIONS if options.only is None or options.only in m.name]
    if not chosen:
        print(f"no break is named {options.only!r}: see tests/mutation/table.py", file=sys.stderr)
        return 2
    tests = tuple(options.tests or TESTS)
    started, num_noticed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="unbroken-") as directory:
        root = Path(directory)
        copy_tree(ROOT, root)  # so that who edits meanwhile changes nothing
        if options.only is None and (failing := first_failure(root, tests)) is not None:
            print(f"{failing} fails though nothing is broken: mend that first", file=sys.stderr)
            return 2
        attempt = partial(try_out, root=root, tests=tests)
        with get_context("fork").Pool(options.jobs) as pool:
            for mutation, test in zip(chosen, pool.imap(attempt, chosen), strict=True):
                num_noticed += test is not None
                rule = f"{mutation.name} (rule {mutation.rule})"
                told = f"NOT NOTICED {rule}" if test is None else f"noticed {rule} by {test}"
                print(told, flush=True)
    print(f"{time.monotonic() - started:.0f} s")
    print(f"mutations: {num_noticed}/{len(chosen)}")
    return int(len(chosen) - num_noticed > len(chosen) * MOST_MISSED_RATIO)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="breaks whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time")
    parser.add_argument(
        "--tests", nargs="+", metavar="TEST", help="these tests, not the usual ones"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
