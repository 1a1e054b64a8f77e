"""Running requests that are given nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.config import KVConnectorConfig, SpeculationConfig
from engine.scheduler import PauseState
from telemetry.vocabulary import ZeroReason
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight
from tests.engine.reasons.stage import ENCODER, Elsewhere, Stage, item, stage


def after_steps(play: Stage, count: int) -> Run:
    """Plays steps and returns the run with all its rows."""
    play.steps(count)
    return play.ended()


def token_budget() -> Run:
    play = stage(max_num_batched_tokens=4)
    play.run.add("a", prompt=2, max_tokens=9)
    play.run.add("b", prompt=2, max_tokens=9)
    play.step()
    play.run.scheduler.append_known_tokens("a", [21] * 5)
    return after_steps(play, 1)


def max_tokens_in_flight() -> Run:
    run = Run(config(async_scheduling=True))
    run.add("a", max_tokens=1)
    InFlight(run, 2).to_the_end()
    return run


def max_model_len() -> Run:
    """A step in flight fills the model's length; no further position is left."""
    run = Run(config(async_scheduling=True, max_model_len=8))
    run.add("a", prompt=6, max_tokens=99)
    InFlight(run, 2).to_the_end()
    return run


def pipeline_cadence() -> Run:
    run = Run(config(pp_size=2))
    run.add("a", max_tokens=3)
    InFlight(run, 2).to_the_end()
    return run


def encoder_budget() -> Run:
    play = stage(encoder=ENCODER, max_num_batched_tokens=4)
    play.run.add("a", prompt=16, encoder_items=item("i", 4, num_embeds=12))
    return after_steps(play, 2)


def encoder_cache() -> Run:
    """The first holds the cache until it has passed its item; the second reaches its own."""
    play = stage(
        encoder=replace(ENCODER, compute_budget=16, cache_size=8), long_prefill_token_threshold=4
    )
    play.run.add("a", prompt=16, encoder_items=item("i", 0))
    play.run.add("b", prompt=16, encoder_items=item("j", 4))
    return after_steps(play, 2)


def block_alignment() -> Run:
    play = stage(max_num_batched_tokens=9, chunk_alignment=8)
    play.run.add("a", prompt=4, max_tokens=9)
    play.run.add("long", prompt=30)
    play.steps(2)
    play.run.scheduler.append_known_tokens("a", [21] * 2)
    return after_steps(play, 1)


def prefill_lookahead() -> Run:
    speculation = SpeculationConfig(prefill_lookahead=2)
    play = stage(encoder=ENCODER, speculation=speculation, max_num_batched_tokens=4)
    play.run.add("a", prompt=20, encoder_items=item("i", 5, num_embeds=12))
    return after_steps(play, 2)


def prefill_throttled() -> Run:
    play = stage(max_num_batched_tokens=8)
    play.run.add("a", prompt=4, max_tokens=9)
    play.step()
    play.run.add("b", prompt=20)
    play.step()
    play.step(throttle=True)
    return play.ended()


def behind_preempted() -> Run:
    """The one that needs a block is the least urgent itself: the scan ends with it."""
    play = stage(policy="priority", num_usable_blocks=2)
    play.run.add("a", prompt=3, max_tokens=9, priority=5)
    play.step()
    play.run.add("b", prompt=3, max_tokens=9, priority=0)
    return after_steps(play, 2)


def victim_not_releasable() -> Run:
    play = stage(
        connector=KVConnectorConfig(role="kv_consumer"),
        num_usable_blocks=4,
        async_scheduling=True,
    )
    for name in "ab":
        play.run.add(name, prompt=8, max_tokens=6)
    InFlight(play.run, 2).to_the_end()
    return play.run


def paused_all() -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.step()
    play.run.scheduler.set_pause(PauseState.PAUSED_ALL)
    return after_steps(play, 1)


def encoder_transfer() -> Run:
    play = stage(
        elsewhere=Elsewhere(keys=frozenset("i")), encoder=ENCODER, max_num_batched_tokens=4
    )
    play.run.add("a", prompt=16, encoder_items=item("i", 4))
    return after_steps(play, 2)


SCENARIOS: dict[ZeroReason, Callable[[], Run]] = {
    ZeroReason.token_budget: token_budget,
    ZeroReason.max_tokens_in_flight: max_tokens_in_flight,
    ZeroReason.max_model_len: max_model_len,
    ZeroReason.pipeline_cadence: pipeline_cadence,
    ZeroReason.encoder_budget: encoder_budget,
    ZeroReason.encoder_cache: encoder_cache,
    ZeroReason.block_alignment: block_alignment,
    ZeroReason.prefill_lookahead: prefill_lookahead,
    ZeroReason.prefill_throttled: prefill_throttled,
    ZeroReason.behind_preempted: behind_preempted,
    ZeroReason.victim_not_releasable: victim_not_releasable,
    ZeroReason.paused_all: paused_all,
    ZeroReason.encoder_transfer: encoder_transfer,
}
