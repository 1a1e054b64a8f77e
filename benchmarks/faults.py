"""The fault matrix: are the rules right about runs whose fault is known, because it was made?

    python -m benchmarks.faults                       every scenario, seeds 100 to 102, two loads
    python -m benchmarks.faults --seed 0-99 --only kv-preemption-thrash --load 0.8 1.3

Each scenario (`benchmarks/provoking/scenarios`) makes a run with a fault, with something that looks
like one, or with none, at several loads and seeds; all rules judge its log. What they have to say
is the scenario's label, never read from the log. Seeds 0 to 99 are for tuning thresholds, figures
come from seeds from 100 on.

Exit code 1 where the right rule comes first in under 95 % of the faults, anything above info is
found in a run without one, or a rule fires that a look-alike must not wake.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.provoking.matrix import Answer, Matrix, Trial, try_one
from benchmarks.provoking.scenario import Scenario
from benchmarks.provoking.scenarios import read_all
from benchmarks.provoking.table import as_json, write
from diagnose.rules import RULES

LOADS = (0.8, 1.25)
"""Of a scenario's usual traffic."""


def seeds_of(text: str) -> Sequence[int]:
    """Returns the seeds that `7` or `0-99` names.

    Raises:
        ValueError: it names none.
    """
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"--seed {text}: the last is before the first")
    return seeds


def chosen(scenarios: Sequence[Scenario], names: Sequence[str] | None) -> Sequence[Scenario]:
    """Returns the scenarios of these names, or that provoke these rules; all without names.

    Raises:
        KeyError: a name is no scenario's and no provoked rule's.
    """
    if not names:
        return scenarios
    known = {each.name for each in scenarios} | {each.expected for each in scenarios}
    unknown = set(names) - known
    if unknown:
        raise KeyError(f"no scenario is called {', '.join(sorted(unknown))}: see --list")
    return [each for each in scenarios if each.name in names or each.expected in names]


def _try(beside: Path, name: str, seed: int, load: float) -> tuple[Answer, str | None]:
    """Returns a trial without its scenario, whose run cannot be sent from process to process."""
    scenario = next(each for each in read_all() if each.name == name)
    trial = try_one(scenario, seed, load, beside=beside)
    return trial.answer, trial.error


def try_in_processes(
    scenarios: Sequence[Scenario], seeds: Sequence[int], loads: Sequence[float], jobs: int
) -> Iterator[Trial]:
    """Yields the trials, made by so many processes."""
    tasks = list(product(scenarios, seeds, loads))
    named = [(each.name, seed, load) for each, seed, load in tasks]
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-faults-") as name,
        ProcessPoolExecutor(jobs) as pool,
    ):
        answers = pool.map(partial(_try, Path(name)), *zip(*named, strict=True))
        for (each, seed, load), (answer, error) in zip(tasks, answers, strict=True):
            yield Trial(scenario=each, seed=seed, load=load, answer=answer, error=error)


def main(argv: list[str] | None = None) -> int:
    """Runs the matrix and prints it; returns 1 where it is not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=seeds_of, default=range(100, 103), help="7 or 0-99")
    parser.add_argument("--load", type=float, nargs="+", default=LOADS, help="(0.8 1.25)")
    parser.add_argument("--only", action="append", help="this scenario, or this rule's")
    parser.add_argument("--json", type=Path, help="also write all of it here")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--live", action="store_true", help="served engines too: minutes a seed")
    parser.add_argument("--vllm", action="store_true", help="a stock vLLM too, where it is there")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    args = parser.parse_args(argv)
    sources = {"scripted"} | ({"engine", "scrapes"} if args.live else set())
    sources |= {"vllm"} if args.vllm else set()
    scenarios = [each for each in chosen(read_all(), args.only) if each.source in sources]
    if args.list:
        for scenario in scenarios:
            print(f"{scenario.name:44} {scenario.source:9} {scenario.expected or 'no fault'}")
        return 0
    matrix = Matrix()
    total = len(scenarios) * len(args.seed) * len(args.load)
    for trial in try_in_processes(scenarios, args.seed, args.load, args.jobs):
        matrix.trials.append(trial)
        if sys.stderr.isatty():
            print(f"\r{len(matrix.trials)} of {total} runs", end="", file=sys.stderr)
    for line in write(matrix, RULES):
        print(line)
    if args.json is not None:
        args.json.write_text(json.dumps(as_json(matrix), indent=1) + "\n")
    return 0 if matrix.figures.are_met else 1


if __name__ == "__main__":
    sys.exit(main())
