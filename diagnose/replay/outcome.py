"""What became of a replayed load, and the account that is kept while it runs."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagnose.replay.measures import Measures, Times, percentile
from engine.request import Request
from engine.scheduler.journal import StepJournal, cause_of
from engine.scheduler.plan import StepPlan
from telemetry.recorder import NullRecorder
from telemetry.vocabulary import PreemptionCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """A preemption: whose (by its number in the record), when (ns since the start), why."""

    request: int
    ts_ns: int
    cause: PreemptionCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A replay's result. Arrays have a value (seconds) for each request that got so far.

    `num_unfinished` requests had no end when the replay stopped: `is_stuck` says that none was to
    be expected, `is_cut` that `max_steps` was reached.
    """

    preemptions: list[Preempted]
    num_tokens_lost: int
    num_tokens_recomputed: int
    queue: Times
    ttft: Times
    itl: Times
    longest_pause: Times
    e2e: Times
    num_output_tokens: int
    duration_ns: int
    num_steps: int
    num_finished: int
    num_unfinished: int
    is_stuck: bool = False
    is_cut: bool = False
    largest: tuple[float, ...] = ()
    """Largest value of each feature of a step (`step_times.FEATURES`)."""

    @property
    def num_preemptions(self) -> int:
        """Preemptions, of whatever cause."""
        return len(self.preemptions)

    @property
    def by_cause(self) -> dict[str, int]:
        """Preemptions by the name of their cause."""
        return dict(Counter(each.cause.name for each in self.preemptions))

    @property
    def output_tokens_per_second(self) -> float | None:
        """Outputs of the requests that ended, over the time that it took."""
        return self.num_output_tokens * 1e9 / self.duration_ns if self.duration_ns else None

    @property
    def measures(self) -> Measures:
        """The quantities that are compared."""
        return Measures(
            num_preemptions=self.num_preemptions,
            num_tokens_lost=self.num_tokens_lost,
            num_tokens_recomputed=self.num_tokens_recomputed,
            queue_p50=percentile(self.queue, 0.5),
            queue_p95=percentile(self.queue, 0.95),
            ttft_p50=percentile(self.ttft, 0.5),
            ttft_p95=percentile(self.ttft, 0.95),
            itl_p50=percentile(self.itl, 0.5),
            itl_p95=percentile(self.itl, 0.95),
            longest_pause_p50=percentile(self.longest_pause, 0.5),
            longest_pause_p95=percentile(self.longest_pause, 0.95),
            e2e_mean=float(self.e2e.mean()) if len(self.e2e) else None,
            output_tokens_per_second=self.output_tokens_per_second,
            by_cause=tuple(sorted(self.by_cause.items())),
        )


class Account(StepJournal):
    """A journal that writes no rows: it keeps sums of what the scheduler tells.

    `numbers` are the requests' numbers in the record, by their numbers in the replay.
    """

    def __init__(self, clock: Any, scheduler: Any, numbers: list[int]) -> None:
        super().__init__(NullRecorder(), clock, scheduler)
        self.preemptions: list[Preempted] = []
        self.num_tokens_lost = self.num_tokens_recomputed = self.num_output_tokens = 0
        self.num_finished = 0
        self.is_on = True
        """Off while a replay takes up the state with which its window begins."""
        self.last_end = 0
        self._numbers = numbers
        self._resumed_at: dict[int, int] = {}
        self._queue, self._ttft = array("d"), array("d")
        self._itl, self._pause, self._e2e = array("d"), array("d"), array("d")

    def preempted(self, victim: Request, beneficiary: Request | None, **told: Any) -> None:
        """Counts a loss, and what had been computed again since the loss before."""
        self._settle(victim)
        if self.is_on:
            policy = self._scheduler.config.scheduler.policy
            cause = cause_of(victim, beneficiary, policy)
            number = self._numbers[victim.number]
            self.preemptions.append(Preempted(request=number, ts_ns=self._clock(), cause=cause))
            self.num_tokens_lost += victim.num_computed_tokens
        super().preempted(victim, beneficiary, **told)

    def admitted(self, request: Request, plan: StepPlan) -> None:
        """Notes from where on a request that comes back is computed again."""
        if request.is_catching_up:
            self._resumed_at[request.number] = request.num_computed_tokens
        super().admitted(request, plan)

    def ended(
        self, request: Request, *, is_finish: bool, is_answered: bool, num_outputs: int
    ) -> None:
        """Takes in a request that has ended.

        Args:
            is_finish: it ended in the record too.
            is_answered: its answer is complete, and its times are compared.
            num_outputs: its outputs since the replay began.
        """
        self._settle(request)
        if not is_finish:
            return
        self.num_finished += 1
        self.num_output_tokens += num_outputs
        self.last_end = self._clock()
        if is_answered:
            self._take_times(request)

    def _take_times(self, request: Request) -> None:
        times = request.times
        self._e2e.append((self._clock() - times.arrived) / 1e9)
        if times.admitted is not None:
            self._queue.append((times.admitted - times.arrived) / 1e9)
        if times.first_token is None or times.last_token is None:
            return
        self._ttft.append((times.first_token - times.arrived) / 1e9)
        if request.num_output_tokens > 1:
            decode_ns = times.last_token - times.first_token
            self._itl.append(decode_ns / (request.num_output_tokens - 1) / 1e9)
        if times.max_itl_ns is not None:
            self._pause.append(times.max_itl_ns / 1e9)

    def outcome(self, **more: Any) -> Outcome:
        """Returns the sums so far."""
        return Outcome(
            preemptions=self.preemptions,
            num_tokens_lost=self.num_tokens_lost,
            num_tokens_recomputed=self.num_tokens_recomputed,
            queue=np.array(self._queue),
            ttft=np.array(self._ttft),
            itl=np.array(self._itl),
            longest_pause=np.array(self._pause),
            e2e=np.array(self._e2e),
            num_output_tokens=self.num_output_tokens,
            num_finished=self.num_finished,
            **more,
        )

    def _settle(self, request: Request) -> None:
        """Counts what was computed again between a return and now: below its high-water mark."""
        resumed_at = self._resumed_at.pop(request.number, None)
        if resumed_at is not None and self.is_on:
            reached = min(request.num_computed_tokens, request.high_water_mark)
            self.num_tokens_recomputed += max(0, reached - resumed_at)
