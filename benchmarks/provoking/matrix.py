"""Judges the diagnoses of many runs by what was done to each: right first, clean, silent.

Labels are the scenarios' own. A diagnosis is boiled down to an `Answer`, so that any diagnoser can
be tried: one that says nothing fails at every fault, one that always says the same at all others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from benchmarks.provoking.scenario import Attempt, Scenario
from diagnose.diagnosis import Diagnosis, diagnose
from diagnose.finding import Severity
from diagnose.reading import QueryLog

RIGHT_GOAL = 0.95
"""Least share of provoked faults whose rule comes first."""
NOTHING = "nothing"
"""Stands for a rule where a diagnosis names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a diagnoser said of a run.

    `first` is the rule of the first finding above info or, without one, the verdict's; `above_info`
    are the rules of all findings above info, worst first; `fired` are those of all findings;
    `guarding` are the guards that kept a rule quiet or noted something.
    """

    first: str = NOTHING
    sentence: str = ""
    above_info: tuple[str, ...] = ()
    fired: frozenset[str] = frozenset()
    guarding: frozenset[str] = frozenset()


Ask = Callable[[QueryLog], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run and its answer. `error` says why it could not be made, if it could not."""

    scenario: Scenario
    seed: int
    load: float
    answer: Answer
    error: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether the provoked fault's rule came first, and what had to be seen was."""
        expected = self.scenario.expected
        is_first = expected is None or self.answer.first == expected
        return self.error is None and is_first and not self.unseen

    @property
    def unseen(self) -> tuple[str, ...]:
        """Guards and informing rules that had to be seen and were not."""
        seen = self.answer.fired | self.answer.guarding
        return tuple(rule for rule in self.scenario.shown if rule not in seen)

    @property
    def is_clean(self) -> bool:
        """Whether nothing above info was found."""
        return self.error is None and not self.answer.above_info

    @property
    def loud(self) -> tuple[str, ...]:
        """Rules that fired and had to be silent."""
        return tuple(rule for rule in self.scenario.silent if rule in self.answer.fired)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with the answer; empty where nothing is."""
        if self.error is not None:
            return (f"could not be made: {self.error}",)
        said = []
        expected, answer = self.scenario.expected, self.answer
        if expected is not None and answer.first != expected:
            said.append(f"{answer.first} instead of {expected}")
        if expected is None and not self.is_clean:
            said.append(f"{', '.join(answer.above_info)} where nothing is wrong")
        if self.unseen:
            said.append(f"{', '.join(self.unseen)} was not seen")
        if self.loud:
            said.append(f"{', '.join(self.loud)} had to be silent")
        return tuple(said)


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many; without any it is whole."""

    good: int
    all: int

    @property
    def ratio(self) -> float:
        """The share."""
        return self.good / self.all if self.all else 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a matrix comes to: faults named first, runs without a fault clean, rules silent."""

    right: Share
    clean: Share
    silent: Share

    @property
    def are_met(self) -> bool:
        """Whether they are as they have to be."""
        met = self.right.ratio >= RIGHT_GOAL
        return met and self.clean.ratio == 1.0 and self.silent.ratio == 1.0


@dataclass(slots=True)
class Matrix:
    """Trials, and what they come to."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def figures(self) -> Figures:
        """Returns the three figures."""
        faults = [trial for trial in self.trials if trial.scenario.provokes]
        faultless = [trial for trial in self.trials if trial.scenario.expected is None]
        lookalikes = [trial for trial in self.trials if trial.scenario.silent]
        is_silent = [trial.error is None and not trial.loud for trial in lookalikes]
        return Figures(
            right=Share(sum(trial.is_right for trial in faults), len(faults)),
            clean=Share(sum(trial.is_clean for trial in faultless), len(faultless)),
            silent=Share(sum(is_silent), len(lookalikes)),
        )

    @property
    def failures(self) -> list[Trial]:
        """Returns the trials that somebody has to look at."""
        return [trial for trial in self.trials if trial.complaints]

    @property
    def fired(self) -> frozenset[str]:
        """Returns the rules that have been seen to fire."""
        return frozenset[str]().union(*(trial.answer.fired for trial in self.trials))

    @property
    def guarding(self) -> frozenset[str]:
        """Returns the guards that have been seen to guard."""
        return frozenset[str]().union(*(trial.answer.guarding for trial in self.trials))


def answer_of(diagnosis: Diagnosis) -> Answer:
    """Returns what a diagnosis comes to."""
    above = [found for found in diagnosis.findings if found.severity > Severity.info]
    suppressed = [each for engine in diagnosis.engines for each in engine.suppressed]
    fired = frozenset(found.rule for found in diagnosis.findings)
    guarding = {each.by for each in suppressed} | fired
    return Answer(
        first=above[0].rule if above else diagnosis.verdict.rule,
        sentence=above[0].sentence if above else diagnosis.verdict.sentence,
        above_info=tuple(found.rule for found in above),
        fired=fired,
        guarding=frozenset(name for name in guarding if name.startswith("guard-")),
    )


def ask_all_rules(log: QueryLog) -> Answer:
    """Returns what all rules say of a log."""
    return answer_of(diagnose(log, effort="none"))


def try_one(
    scenario: Scenario,
    seed: int,
    load: float,
    ask: Ask = ask_all_rules,
    *,
    beside: Path | None = None,
) -> Trial:
    """Makes one run and has it judged; a run that breaks is a trial that failed.

    Args:
        beside: where its folder is made; what scenarios share of a run lies there too.
    """
    folder = Path(tempfile.mkdtemp(prefix="stepscope-faults-", dir=beside))
    answer, error = Answer(), None
    try:
        answer = ask(scenario.provoke(Attempt(seed=seed, load=load, folder=folder)))
    except Exception as broken:  # the other trials are worth having
        error = f"{type(broken).__name__}: {broken}"
    finally:
        shutil.rmtree(folder)
    return Trial(scenario=scenario, seed=seed, load=load, answer=answer, error=error)


def try_all(
    scenarios: Sequence[Scenario],
    seeds: Sequence[int],
    loads: Sequence[float],
    ask: Ask = ask_all_rules,
) -> Iterator[Trial]:
    """Yields a trial of every scenario at every seed and load."""
    for scenario, seed, load in product(scenarios, seeds, loads):
        yield try_one(scenario, seed, load, ask)
