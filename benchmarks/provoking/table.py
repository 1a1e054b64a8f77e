"""A matrix written down: for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from benchmarks.provoking.matrix import RIGHT_GOAL, Matrix, Share, Trial

NO_FAULT = "(no fault)"
"""Row of the runs in which nothing was provoked."""


def confusion(matrix: Matrix) -> dict[str, Counter[str]]:
    """Returns how often each rule came first, by what was provoked."""
    table: dict[str, Counter[str]] = {}
    for trial in matrix.trials:
        row = table.setdefault(trial.scenario.expected or NO_FAULT, Counter())
        row["(broken)" if trial.error else trial.answer.first] += 1
    return dict(sorted(table.items()))


def write(matrix: Matrix, rules: Collection[str]) -> Iterator[str]:
    """Yields the lines of a matrix; `rules` are the ids of all there are."""
    yield from _confusion(matrix)
    yield ""
    for trial in matrix.failures:
        yield from _failure(trial)
    guards = {rule for rule in rules if rule.startswith("guard-")}
    never = sorted(set(rules) - guards - matrix.fired - {"no-scheduler-fault"})
    yield f"rules never seen to fire: {', '.join(never) or 'none'}"
    silent = sorted(guards - matrix.guarding)
    yield f"guards never seen to guard: {', '.join(silent) or 'none'}"
    figures = matrix.figures
    yield f"right rule first   {_share(figures.right)}  (goal {RIGHT_GOAL:.0%})"
    yield f"no fault: clean    {_share(figures.clean)}"
    yield f"look-alikes silent {_share(figures.silent)}"


def _confusion(matrix: Matrix) -> Iterator[str]:
    yield f"{'provoked':34} runs   right  came first instead"
    for expected, row in confusion(matrix).items():
        right = row["no-scheduler-fault"] if expected == NO_FAULT else row[expected]
        wrong = [f"{rule} {n}" for rule, n in row.most_common() if rule != expected]
        if expected == NO_FAULT:
            wrong = [text for text in wrong if not text.startswith("no-scheduler-fault ")]
        share = right / row.total()
        yield f"{expected:34} {row.total():4} {share:7.1%}  {', '.join(wrong)}".rstrip()


def _failure(trial: Trial) -> Iterator[str]:
    where = f"{trial.scenario.name} (seed {trial.seed}, load {trial.load:g})"
    for complaint in trial.complaints:
        yield f"FAILED {where}: {complaint}"
    if trial.answer.sentence:
        yield f"       {trial.answer.sentence}"


def _share(share: Share) -> str:
    return f"{share.ratio:7.2%} of {share.all}"


def as_json(matrix: Matrix) -> dict[str, Any]:
    """Returns a matrix as an object for JSON."""
    figures = matrix.figures
    return {
        "figures": {
            name: {"good": share.good, "all": share.all, "ratio": share.ratio}
            for name, share in (
                ("right_first", figures.right),
                ("healthy_clean", figures.clean),
                ("lookalikes_silent", figures.silent),
            )
        },
        "are_met": figures.are_met,
        "confusion": {expected: dict(row) for expected, row in confusion(matrix).items()},
        "fired": sorted(matrix.fired),
        "guarding": sorted(matrix.guarding),
        "trials": [_trial(trial) for trial in matrix.trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "scenario": trial.scenario.name,
        "source": trial.scenario.source,
        "seed": trial.seed,
        "load": trial.load,
        "expected": trial.scenario.expected,
        "silent": list(trial.scenario.silent),
        "first": trial.answer.first,
        "sentence": trial.answer.sentence,
        "fired": sorted(trial.answer.fired),
        "guarding": sorted(trial.answer.guarding),
        "complaints": list(trial.complaints),
    }
