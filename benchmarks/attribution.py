"""Shares against truth: `python -m benchmarks.attribution [--seeds N --mix TEXT --json]`.

Runs of the real scheduler have two causes each (`attributing.mixes`). Truth is found by leaving
causes out of the generator and running the scheduler again: the mean over both orders of removing
them. What is judged is `diagnose` alone, which sees nothing but the log of the run with both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from benchmarks.attributing.mixes import MIXES, Mix, Present
from benchmarks.provoking.recording import log_of
from diagnose.causes.attribution import Effort
from diagnose.changes import Explanation
from diagnose.diagnosis import read_context
from diagnose.window import Window, choose_window

POINTS = 0.10
"""How far a share may be from the truth."""
FIRST_SEED = 100
"""Figures come from seeds from here on; thresholds were chosen on those below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run: what each of its causes truly accounts for, and what the diagnosis says.

    Shares are of the run's preemptions, from 0 to 1, in the order of the mix's causes, with the
    rest last. `said` is `None` where nothing was shared out; `why` says why. `others` is what went
    to causes that the run does not have.
    """

    mix: str
    seed: int
    num_preemptions: int
    true: tuple[float, float, float]
    said: tuple[float, float, float] | None
    others: float
    cause: str
    why: str

    @property
    def miss(self) -> float | None:
        """The largest distance from the truth, of a cause or of the rest."""
        if self.said is None:
            return None
        return max(abs(one - other) for one, other in zip(self.said, self.true, strict=True))

    @property
    def names_the_greater(self) -> bool:
        """Whether the cause named is the greater of the two; either will do where they are near."""
        first, second = self.true[:2]
        return abs(first - second) < POINTS or self.cause == self.greater

    @property
    def greater(self) -> str:
        """The cause that truly accounts for more."""
        mix = next(mix for mix in MIXES if mix.name == self.mix)
        return mix.causes[0] if self.true[0] >= self.true[1] else mix.causes[1]


def judge(mix: Mix, seed: int, effort: Effort = "usual") -> Judged:
    """Runs a mix with both causes, with each and with none, and diagnoses the first of these."""
    both: Present = frozenset(mix.causes)
    starts = mix.run(seed, both)
    explanation = _explained(log_of(*starts), starts[-1].engine, effort)
    num_all = starts[-1].scheduler.num_preemptions
    first, second = mix.causes
    num_first = _count(mix, seed, frozenset({first}))
    num_second = _count(mix, seed, frozenset({second}))
    num_none = _count(mix, seed, frozenset())
    true_first = ((num_all - num_second) + (num_first - num_none)) / 2 / max(num_all, 1)
    true_second = ((num_all - num_first) + (num_second - num_none)) / 2 / max(num_all, 1)
    said, others = None, 0.0
    if explanation.shares:
        kinds = {share.kind: share.ratio for share in explanation.shares}
        said = (kinds.get(first, 0.0), kinds.get(second, 0.0), kinds.get(None, 0.0))
        others = 1.0 - sum(said)
    return Judged(
        mix=mix.name,
        seed=seed,
        num_preemptions=num_all,
        true=(true_first, true_second, num_none / max(num_all, 1)),
        said=said,
        others=others,
        cause=explanation.cause.kind,
        why=explanation.attribution.why,
    )


def _count(mix: Mix, seed: int, present: Present) -> int:
    return mix.last_start(seed, present).scheduler.num_preemptions


def _explained(log: Any, engine: int, effort: Effort) -> Explanation:
    whole = choose_window(log)
    started = log.query(f"SELECT started_ts FROM engines WHERE engine = {engine}").to_pylist()
    window = Window(start_ts=started[0]["started_ts"], end_ts=whole.end_ts)
    storm = read_context(log, window, engine, effort).storm
    if storm is None:
        raise ValueError("the run had no preemption: make its causes stronger")
    return storm.explanation


def table(judged: Sequence[Judged]) -> str:
    """Returns the mean of each mix over its seeds as Markdown, truth beside what was said."""
    lines = [
        "| mix | preemptions | truth | said | largest miss of the means | runs within 10 points |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(each.mix for each in judged):
        mine = [each for each in judged if each.mix == name]
        told = [each for each in mine if each.said is not None]
        true = [mean(each.true[i] for each in mine) for i in range(3)]
        said = [mean(each.said[i] for each in told if each.said) for i in range(3)] if told else []
        miss = max((abs(a - b) for a, b in zip(true, said, strict=False)), default=None)
        near = sum(each.miss is not None and each.miss <= POINTS for each in mine)
        counts = [each.num_preemptions for each in mine]
        lines.append(
            f"| {name} | {min(counts)} to {max(counts)} | {_percents(true)} | "
            f"{_percents(said) if said else 'nothing'} | "
            f"{'–' if miss is None else f'{100 * miss:.0f}'} | {near} of {len(mine)} |"
        )
    return "\n".join(lines)


def _percents(parts: Iterable[float]) -> str:
    return ", ".join(f"{100 * part:.0f} %" for part in parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Judges all mixes; returns 1 where the mean of one is further from the truth than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each mix (5)")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--mix", default="", help="only mixes whose name has this text")
    parser.add_argument("--thorough", action="store_true", help="as `diagnose --thorough` does")
    parser.add_argument("--json", action="store_true", help="every run as JSON")
    args = parser.parse_args(argv)
    effort: Effort = "thorough" if args.thorough else "usual"
    judged = []
    for mix in MIXES:
        if args.mix in mix.name:
            for seed in range(args.first_seed, args.first_seed + args.seeds):
                judged.append(judge(mix, seed, effort))
                print(_line(judged[-1]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps([asdict(each) for each in judged], indent=1))
    else:
        print(table(judged))
        named = sum(each.names_the_greater for each in judged)
        print(f"\nthe greater cause is named in {named} of {len(judged)} runs")
    return int(any(_misses(judged, mix.name) for mix in MIXES))


def _line(run: Judged) -> str:
    said = _percents(run.said) if run.said else run.why
    return (
        f"{run.mix}, seed {run.seed}: {run.num_preemptions} preemptions, truth "
        f"{_percents(run.true)}, said {said}, others {100 * run.others:.0f} %, {run.cause}"
    )


def _misses(judged: Sequence[Judged], name: str) -> bool:
    mine = [each for each in judged if each.mix == name]
    told = [each.said for each in mine if each.said is not None]
    if len(told) < len(mine):
        return True
    return any(
        abs(mean(each.true[i] for each in mine) - mean(said[i] for said in told)) > POINTS
        for i in range(3)
        if mine
    )


if __name__ == "__main__":
    raise SystemExit(main())
