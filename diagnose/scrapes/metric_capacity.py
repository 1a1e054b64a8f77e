"""How many requests of the usual length the KV pool holds, as far as scrapes tell.

The usual length is a mean: tokens counted in the window over requests that ended in it. It is
derived, not measured, and right only where as many requests came as went.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from diagnose.advice import VERIFY, prefix_cache, watermark, whole_prompt
from diagnose.facts import EngineSettings
from diagnose.finding import Action
from diagnose.scrapes.metric_facts import MetricFacts

MIN_FINISHED = 5
"""Requests that must have ended before their mean length says anything. Starting value."""

MEAN_SQL = "(sum(num_prompt_tokens) + sum(num_generation_tokens)) / sum(num_finished)"
"""The usual length, over `metric_intervals`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCapacity:
    """What the pool holds of requests of mean length. `None`: not known."""

    mean_tokens: float | None
    num_finished: int
    holds: int | None
    peak_in_flight: int | None


def measure_metric_capacity(facts: MetricFacts, settings: EngineSettings) -> MetricCapacity:
    """Returns how many requests of mean length the pool holds, against how many there were."""
    prompts, outputs = facts["num_prompt_tokens"].sum, facts["num_generation_tokens"].sum
    finished, peak = facts["num_finished"].sum or 0, facts.in_flight.max
    mean = None
    if prompts is not None and outputs is not None and finished >= MIN_FINISHED:
        mean = (prompts + outputs) / finished
    holds, pool = None, settings.num_usable_blocks
    if mean and pool and (blocks := settings.blocks_of(ceil(mean))):
        holds = pool // blocks
    return MetricCapacity(
        mean_tokens=mean,
        num_finished=finished,
        holds=holds,
        peak_in_flight=None if peak is None else round(peak),
    )


def fewer_slots(settings: EngineSettings, capacity: MetricCapacity) -> Action | None:
    """Lets in only as many requests as the pool holds at their mean length."""
    holds, old = capacity.holds, settings.max_num_seqs
    if holds is None or old is None or not 1 <= holds < old:
        return None
    return Action(
        what="let in as many as the pool holds at their mean length; with long tails fewer",
        flag="--max-num-seqs",
        old=str(old),
        new=str(holds),
        applies="restart",
        trade_off="the others queue: first tokens come later",
        verify=VERIFY,
        revert=f"--max-num-seqs {old}",
    )


def record_steps() -> Action:
    """Records steps from now on, so that the next time cause, victims and tokens are known."""
    return Action(
        what="install stepscope beside vLLM and set STEPSCOPE_LOG: then cause, victims and lost "
        "tokens are recorded",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="a tenth of a millisecond a step",
        verify="stepscope doctor",
        revert="unset STEPSCOPE_LOG",
    )


def against_preemption(settings: EngineSettings, capacity: MetricCapacity) -> tuple[Action, ...]:
    """Returns what can be done against preemptions with what is known of the settings."""
    actions = (
        whole_prompt(settings),
        fewer_slots(settings, capacity),
        watermark(settings),
        prefix_cache(settings),
        record_steps(),
    )
    return tuple(action for action in actions if action is not None)
