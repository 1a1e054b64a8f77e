"""The tables of back-tests and of predictions, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.whatif.judging import measured
from benchmarks.whatif.playing import is_played
from benchmarks.whatif.proof import Told
from benchmarks.whatif.runs import Run
from diagnose.replay.measures import QUANTITIES, Measures, Quantity
from diagnose.replay.whatif_words import amount

WITHIN = 0.05
"""Preemptions that are so close to the recorded ones are counted as right."""
_SHOWN = (
    "num_preemptions",
    "ttft_p95",
    "longest_pause_p95",
    "e2e_mean",
    "output_tokens_per_second",
)


def report(folder: Path, told: Told, runs: Sequence[Run]) -> list[str]:
    """Returns all tables."""
    told = {run.name: told[run.name] for run in runs if _is_of(run, told)}
    return [*_backtests(told, runs), "", *_errors(told), "", *_proof(folder, told, runs)]


def _is_of(run: Run, told: Told) -> bool:
    return run.name in told and told[run.name]["seed"] == run.seed


def _backtests(told: Told, runs: Sequence[Run]) -> Iterator[str]:
    yield "| run | seed | clients (detected) | requests | step | recorded | replayed | error |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|"
    num_right = num_all = 0
    for run in runs:
        if run.name not in told:
            yield f"| {run.name} | {run.seed} | not played | | | | | |"
            continue
        one = told[run.name]
        count = one["quantities"]["num_preemptions"]
        is_right = abs(count["replayed"] - count["recorded"]) <= WITHIN * count["recorded"]
        num_right, num_all = num_right + is_right, num_all + 1
        yield (
            f"| {run.name} | {run.seed} | {_clients(one)} | {one['num_requests']} "
            f"| {one['step_ms']:.1f} ms ± {one['step_error']:.0%} | {count['recorded']:,.0f} "
            f"| {count['replayed']:,.0f} | {_error(count)} |"
        )
    yield ""
    yield f"Preemptions within {WITHIN:.0%} of the recorded: {num_right} of {num_all} runs."


def _clients(one: dict[str, Any]) -> str:
    return "open" if one["clients"] == "open" else f"{one['num_in_flight']} in flight"


def _errors(told: Told) -> Iterator[str]:
    """Yields the back-test's error of every quantity."""
    yield f"| run | {' | '.join(quantity.label for quantity in QUANTITIES)} |"
    yield f"|---|{'--:|' * len(QUANTITIES)}"
    for name, one in told.items():
        cells = [_error(one["quantities"][quantity.name]) for quantity in QUANTITIES]
        yield f"| {name} | {' | '.join(cells)} |"


def _error(numbers: dict[str, Any]) -> str:
    error = numbers["error"]
    return "–" if error is None else f"{100 * error:+.0f} %"


def _proof(folder: Path, told: Told, runs: Sequence[Run]) -> Iterator[str]:
    """Yields what was predicted beside what was measured, and counts wrong signs."""
    shown = [quantity for quantity in QUANTITIES if quantity.name in _SHOWN]
    yield f"| run | change | {' | '.join(quantity.label for quantity in shown)} |"
    yield f"|---|---|{'---|' * len(shown)}"
    signs = _Signs()
    for run in runs:
        if run.name not in told:
            continue
        one = told[run.name]
        if not is_played(run, folder, is_changed=True):
            yield f"| {run.name} | {_change(run)} | not made |"
            continue
        try:
            _, after = measured(run, folder)
        except (OSError, ValueError) as error:
            yield f"| {run.name} | {_change(run)} | not measured: {error} |"
            continue
        for quantity in QUANTITIES:
            signs.count(one["quantities"][quantity.name], after, quantity)
        cells = [_pair(quantity, one["quantities"][quantity.name], after) for quantity in shown]
        yield f"| {run.name} | {_change(run)} | {' | '.join(cells)} |"
    yield ""
    yield str(signs)


def _change(run: Run) -> str:
    name, value = run.change
    return f"{name} {run.settings.get(name, '(default)')} → {value}"


def _pair(quantity: Quantity, numbers: dict[str, Any], after: Measures) -> str:
    was = amount(quantity, numbers["recorded"])
    now = amount(quantity, after.value(quantity.name))
    said = (
        amount(quantity, numbers["predicted"]) if numbers["predicted"] is not None else "withheld"
    )
    return f"{was} → {said}; {now}"


class _Signs:
    """Counts predicted changes that went the other way when the change was made."""

    def __init__(self) -> None:
        self.num_told = self.num_wrong = self.num_withheld = self.num_unclear = 0

    def count(self, numbers: dict[str, Any], after: Measures, quantity: Quantity) -> None:
        """Takes in one quantity of one run."""
        now, was = after.value(quantity.name), numbers["recorded"]
        if numbers["predicted"] is None or now is None:
            self.num_withheld += 1
        elif not numbers["is_clear"]:
            self.num_unclear += 1
        else:
            self.num_told += 1
            is_wrong = (numbers["predicted"] - numbers["replayed"]) * (now - was) < 0
            self.num_wrong += is_wrong

    def __str__(self) -> str:
        return (
            f"Of {self.num_told} changes that were told, {self.num_wrong} went the other way; "
            f"{self.num_unclear} were told to be none, {self.num_withheld} were withheld."
        )
