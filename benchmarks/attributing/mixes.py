"""Two causes in one run, each of which can be left out: the real scheduler on a simulated clock.

Requests are drawn once for each seed, with all that both causes need; a cause that is left out
changes nothing but what it is about. So runs with and without it are runs of the same traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.provoking.recording import Recording
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about
from diagnose.finding import CauseKind

CALM_SECONDS = 60.0
"""How long all is as it always was, before the first change."""
END_SECONDS = 110.0
"""When the last request comes."""
GAP_SECONDS = 1800.0
"""Between two starts of the same engine."""
COMMON, URGENT = 5, 0
"""Priorities."""

Present = frozenset[CauseKind]
"""The causes that a run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Two causes, and how strong each is.

    Factors are against what was before; a pool and slots are those after and before the last start.
    """

    name: str
    causes: tuple[CauseKind, CauseKind]
    rate: float = 3.0
    num_burst: int = 0
    burst_at: float = 70.0
    rate_factor: float = 1.0
    prompt_factor: float = 1.0
    output_factor: float = 1.0
    urgent_ratio: tuple[float, float] = (0.0, 0.0)
    """Part of the requests that are urgent, before and after."""
    num_blocks: int = 420
    num_blocks_before: int = 420
    max_num_seqs: int = 64
    max_num_seqs_before: int = 64

    @property
    def has_two_starts(self) -> bool:
        """Whether a cause lies in how the engine was started."""
        return bool({"smaller_pool", "config_change"} & set(self.causes))

    def run(self, seed: int, present: Present) -> tuple[Recording, ...]:
        """Returns the engine starts of a run with some of the causes, the last one last."""
        last = self.last_start(seed, present)
        if not self.has_two_starts:
            return (last,)
        first = self._start(seed + 1000, frozenset(), engine=1, started=0.0)
        first.run(until=2 * CALM_SECONDS)
        first.stop()
        return first, last

    def last_start(self, seed: int, present: Present) -> Recording:
        """Returns the start that preempts, run to its end."""
        last = self._start(seed, present, engine=2, started=GAP_SECONDS)
        last.run()
        last.stop()
        return last

    def _start(self, seed: int, present: Present, *, engine: int, started: float) -> Recording:
        is_small, is_wide = "smaller_pool" in present, "config_change" in present
        config = settings(
            num_blocks=self.num_blocks if is_small else self.num_blocks_before,
            max_num_seqs=self.max_num_seqs if is_wide else self.max_num_seqs_before,
            policy="priority" if "priority_churn" in self.causes else "fcfs",
        )
        recording = Recording(config, Random(f"pace/{seed}"), engine=engine, started=started)
        recording.send(self.calls(Random(f"calls/{seed}"), present))
        return recording

    def calls(self, random: Random, present: Present) -> Iterator[Call]:
        """Yields the requests of a start with some of the causes."""
        for at, is_extra in self._arrivals(random):
            call = self._call(random, at, present)
            if is_extra is None or is_extra in present:
                yield call

    def _arrivals(self, random: Random) -> list[tuple[float, CauseKind | None]]:
        """Returns moments of arrival, each with the cause without which it would not come."""
        found: list[tuple[float, CauseKind | None]] = []
        at = 0.0
        while (at := at + random.expovariate(self.rate)) < END_SECONDS:
            found.append((at, None))
        if self.rate_factor > 1:
            at, more = CALM_SECONDS, self.rate * (self.rate_factor - 1)
            while (at := at + random.expovariate(more)) < END_SECONDS:
                found.append((at, "more_arrivals"))
        for _ in range(self.num_burst):
            found.append((self.burst_at + random.uniform(0, 0.5), "burst_of_arrivals"))
        return sorted(found, key=lambda each: each[0])

    def _call(self, random: Random, at: float, present: Present) -> Call:
        """Draws a request: always the same draws, whatever is present."""
        prompt, output, mood = about(random, 256), about(random, 128), random.random()
        is_after = at >= CALM_SECONDS

        def factor(cause: CauseKind, times: float) -> float:
            return times if is_after and cause in present else 1.0

        urgent = self.urgent_ratio[is_after and "priority_churn" in present]
        return Call(
            at=at,
            num_prompt_tokens=round(prompt * factor("longer_prompts", self.prompt_factor)),
            max_tokens=round(output * factor("longer_outputs", self.output_factor)),
            priority=URGENT if mood < urgent else COMMON,
        )


def _mild(mix: Mix, name: str, **changed: object) -> Mix:
    return replace(mix, name=name, **changed)  # type: ignore[arg-type]


_BURST_PROMPTS = Mix(
    name="burst x longer prompts",
    causes=("burst_of_arrivals", "longer_prompts"),
    num_burst=24,
    prompt_factor=2.0,
)
_POOL_BURST = Mix(
    name="smaller pool x burst",
    causes=("smaller_pool", "burst_of_arrivals"),
    num_blocks=300,
    num_burst=24,
)
_OUTPUTS_PRIORITY = Mix(
    name="longer outputs x priority churn",
    causes=("longer_outputs", "priority_churn"),
    output_factor=2.0,
    urgent_ratio=(0.05, 0.5),
)
_SLOTS_PROMPTS = Mix(
    name="more slots x longer prompts",
    causes=("config_change", "longer_prompts"),
    max_num_seqs_before=10,
    prompt_factor=2.0,
)
_RATE_OUTPUTS = Mix(
    name="more arrivals x longer outputs",
    causes=("more_arrivals", "longer_outputs"),
    rate_factor=1.5,
    output_factor=1.5,
)
_POOL_RATE = Mix(
    name="smaller pool x more arrivals",
    causes=("smaller_pool", "more_arrivals"),
    num_blocks=320,
    rate_factor=1.5,
)
MIXES: tuple[Mix, ...] = (
    _BURST_PROMPTS,
    _mild(_BURST_PROMPTS, "large burst x slightly longer prompts", num_burst=40, prompt_factor=1.5),
    _POOL_BURST,
    _mild(_POOL_BURST, "slightly smaller pool x large burst", num_blocks=360, num_burst=36),
    _OUTPUTS_PRIORITY,
    _SLOTS_PROMPTS,
    _RATE_OUTPUTS,
    _POOL_RATE,
    _mild(_RATE_OUTPUTS, "twice the arrivals x longer outputs", rate_factor=2.0),
    _mild(_POOL_RATE, "smaller pool x twice the arrivals", rate_factor=2.0),
)
"""In the order of the table."""
