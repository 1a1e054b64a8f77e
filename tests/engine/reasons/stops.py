"""What ends the scan of the waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.config import KVConnectorConfig, SpeculationConfig
from engine.scheduler import PauseState
from telemetry.vocabulary import StopReason
from tests.engine.builders import Run
from tests.engine.reasons.stage import ENCODER, Elsewhere, Stage, item, stage


def two_prompts(first: int, second: int, play: Stage) -> Run:
    """Plays a step with two prompts, the second of which does not get in."""
    play.run.add("a", prompt=first, max_tokens=9)
    play.run.add("b", prompt=second, max_tokens=9)
    play.step()
    return play.ended()


def queue_empty() -> Run:
    play = stage()
    play.run.add("a")
    play.step()
    return play.ended()


def token_budget() -> Run:
    return two_prompts(8, 4, stage(max_num_batched_tokens=8))


def input_budget() -> Run:
    slots = SpeculationConfig(draft_slots_per_request=3)
    return two_prompts(8, 4, stage(max_num_batched_tokens=12, speculation=slots))


def max_num_seqs() -> Run:
    return two_prompts(4, 4, stage(max_num_seqs=1))


def max_num_active_seqs() -> Run:
    return two_prompts(4, 4, stage(max_num_seqs=2, max_num_active_seqs=1))


def kv_blocks_chunk() -> Run:
    play = stage(num_usable_blocks=3, scheduler_reserve_full_isl=False)
    return two_prompts(8, 8, play)


def kv_blocks_whole_prompt() -> Run:
    play = stage(num_usable_blocks=4, max_num_batched_tokens=12)
    return two_prompts(8, 12, play)


def kv_watermark() -> Run:
    return two_prompts(8, 8, stage(num_usable_blocks=5, watermark=0.4))


def kv_reserved_for_loads() -> Run:
    """The prefill has 2 of its 7 blocks, the load wants 3: 7 are free, and 5 promised."""
    play = stage(
        elsewhere=Elsewhere({"b": 12}),
        connector=KVConnectorConfig(),
        num_usable_blocks=9,
        long_prefill_token_threshold=8,
    )
    return two_prompts(25, 15, play)


def loaded_needs_blocks() -> Run:
    """The load takes 2 of 3 blocks and its request will need the third, which another takes."""
    play = stage(elsewhere=Elsewhere({"a": 8}), connector=KVConnectorConfig(), num_usable_blocks=3)
    play.run.add("a", prompt=12)
    play.run.add("b", prompt=3, max_tokens=9)
    play.step(finished_recving=frozenset(["a"]))
    play.step()
    return play.ended()


def preempted_this_step() -> Run:
    play = stage(num_usable_blocks=2)
    play.run.add("a", prompt=4, max_tokens=9)
    play.run.add("b", prompt=4, max_tokens=9)
    play.steps(2)
    return play.ended()


def chunked_prefill_disabled() -> Run:
    play = stage(enable_chunked_prefill=False, max_num_batched_tokens=16, max_model_len=16)
    return two_prompts(10, 10, play)


def encoder_budget() -> Run:
    play = stage(encoder=ENCODER)
    play.run.add("a", prompt=12, encoder_items=item("i", 0))
    play.run.add("b", prompt=12, encoder_items=item("j", 0))
    play.step()
    return play.ended()


def encoder_cache() -> Run:
    play = stage(encoder=replace(ENCODER, compute_budget=16, cache_size=8))
    play.run.add("a", prompt=12, encoder_items=item("i", 0))
    play.run.add("b", prompt=12, encoder_items=item("j", 0))
    play.step()
    return play.ended()


def draft_padding() -> Run:
    """Beside a decode, one token to do is padded to 5, and 3 are left."""
    play = stage(max_num_batched_tokens=4, speculation=SpeculationConfig(num_speculative_tokens=4))
    play.run.add("a", prompt=1, max_tokens=9)
    play.step()
    play.run.add("b", prompt=1)
    play.step()
    return play.ended()


def prefill_throttled() -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.steps(2)
    play.run.add("b", prompt=8)
    play.step(throttle=True)
    return play.ended()


def block_alignment() -> Run:
    return two_prompts(8, 21, stage(max_num_batched_tokens=12, chunk_alignment=8))


def prefill_lookahead() -> Run:
    """A token lies before the item, and the drafter looks at two: the item does not fit."""
    play = stage(encoder=ENCODER, speculation=SpeculationConfig(prefill_lookahead=2))
    play.run.add("a", prompt=16, encoder_items=item("i", 1, num_embeds=12))
    play.step()
    return play.ended()


def paused_new() -> Run:
    play = stage()
    play.run.scheduler.set_pause(PauseState.PAUSED_NEW)
    play.run.add("a")
    play.step()
    return play.ended()


def paused_all() -> Run:
    play = stage()
    play.run.scheduler.set_pause(PauseState.PAUSED_ALL)
    play.run.add("a")
    play.step()
    return play.ended()


SCENARIOS: dict[StopReason, Callable[[], Run]] = {
    StopReason.queue_empty: queue_empty,
    StopReason.token_budget: token_budget,
    StopReason.input_budget: input_budget,
    StopReason.max_num_seqs: max_num_seqs,
    StopReason.max_num_active_seqs: max_num_active_seqs,
    StopReason.kv_blocks_chunk: kv_blocks_chunk,
    StopReason.kv_blocks_whole_prompt: kv_blocks_whole_prompt,
    StopReason.kv_watermark: kv_watermark,
    StopReason.kv_reserved_for_loads: kv_reserved_for_loads,
    StopReason.loaded_needs_blocks: loaded_needs_blocks,
    StopReason.preempted_this_step: preempted_this_step,
    StopReason.chunked_prefill_disabled: chunked_prefill_disabled,
    StopReason.encoder_budget: encoder_budget,
    StopReason.encoder_cache: encoder_cache,
    StopReason.draft_padding: draft_padding,
    StopReason.prefill_throttled: prefill_throttled,
    StopReason.block_alignment: block_alignment,
    StopReason.prefill_lookahead: prefill_lookahead,
    StopReason.paused_new: paused_new,
    StopReason.paused_all: paused_all,
}
