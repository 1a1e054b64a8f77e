"""Who loses its blocks, why, and by which rule."""

from __future__ import annotations

from collections.abc import Callable

from telemetry.vocabulary import PreemptionCause, VictimRule
from tests.engine.builders import Run
from tests.engine.reasons.stage import stage


def the_last_one_goes() -> Run:
    """First come, first served: the first needs a block, the last one has to go."""
    play = stage(num_usable_blocks=2)
    play.run.add("a", prompt=4, max_tokens=9)
    play.run.add("b", prompt=3, max_tokens=9)
    play.steps(2)
    return play.run


def it_goes_itself() -> Run:
    """The last one needs a block, and is the last one."""
    play = stage(num_usable_blocks=2)
    play.run.add("a", prompt=3, max_tokens=9)
    play.run.add("b", prompt=4, max_tokens=9)
    play.steps(2)
    return play.run


def the_less_urgent_goes() -> Run:
    play = stage(policy="priority", num_usable_blocks=2)
    play.run.add("a", prompt=3, max_tokens=9, priority=5)
    play.run.add("b", prompt=4, max_tokens=9, priority=0)
    play.steps(2)
    return play.run


def all_go_for_a_reset() -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.step()
    play.run.scheduler.reset_prefix_cache(reset_running=True)
    play.step()
    return play.run


CAUSES: dict[PreemptionCause, Callable[[], Run]] = {
    PreemptionCause.kv_full: the_last_one_goes,
    PreemptionCause.priority: the_less_urgent_goes,
    PreemptionCause.cache_reset: all_go_for_a_reset,
}
RULES: dict[VictimRule, Callable[[], Run]] = {
    VictimRule.running_tail: the_last_one_goes,
    VictimRule.lowest_priority: the_less_urgent_goes,
    VictimRule.itself: it_goes_itself,
    VictimRule.all: all_go_for_a_reset,
}
