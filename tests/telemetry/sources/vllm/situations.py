"""Situations of vLLM's own scheduler in which one reason holds, by construction.

Runs in vLLM's environment. Each function is named after the reason that it brings about in its last
step; what it does not say is roomy enough never to matter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from telemetry.recorder import ListRecorder
from tests.telemetry.sources.vllm.lab import Lab, Script, Settings

BLOCK = 16


class Stage:
    """Makes labs, and keeps the one that a situation ends with."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir

    def lab(self, **settings: Any) -> Lab:
        """Returns a lab with these settings."""
        return Lab(Settings(**settings), self._model_dir, ListRecorder())

    def two(self, first: int, second: int, **settings: Any) -> Lab:
        """Plays a step with two prompts, the second of which does not get in."""
        lab = self.lab(**settings)
        lab.add(Script(name="a", prompt=first, max_tokens=99))
        lab.add(Script(name="b", prompt=second, max_tokens=99))
        lab.step()
        return lab


# --------------------------------------------------------------------------- admission ends


def queue_empty(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a"))
    lab.step()
    return lab


def token_budget(stage: Stage) -> Lab:
    return stage.two(64, 8, max_num_batched_tokens=64)


def input_budget(stage: Stage) -> Lab:
    """Each request takes 3 more slots of the model's input: 40 + 3 of 44 leave none."""
    lab = stage.lab(
        max_num_batched_tokens=44, max_num_scheduled_tokens=44, num_drafts=4, drafter="eagle",
        parallel_drafting=True,
    )  # fmt: skip
    lab.add(Script(name="a", prompt=40, max_tokens=99))
    lab.add(Script(name="b", prompt=8))
    lab.step()
    return lab


def max_num_seqs(stage: Stage) -> Lab:
    return stage.two(8, 8, max_num_seqs=1)


def max_num_active_seqs(stage: Stage) -> Lab:
    return stage.two(8, 8, max_num_seqs=2, max_num_active_seqs=1)


def kv_blocks_chunk(stage: Stage) -> Lab:
    return stage.two(2 * BLOCK, 2 * BLOCK, num_blocks=4, reserve_whole_prompt=False)


def kv_blocks_whole_prompt(stage: Stage) -> Lab:
    return stage.two(2 * BLOCK, 3 * BLOCK, num_blocks=5, max_num_batched_tokens=3 * BLOCK)


def kv_watermark(stage: Stage) -> Lab:
    return stage.two(2 * BLOCK, 2 * BLOCK, num_blocks=6, watermark=0.4)


def kv_reserved_for_loads(stage: Stage) -> Lab:
    """The prefill has 2 of its 7 blocks, the load wants 3: 7 are free, and 5 promised."""
    lab = stage.lab(
        num_blocks=10, connector_role="kv_both", long_prefill=2 * BLOCK, max_num_batched_tokens=64
    )
    lab.add(Script(name="a", prompt=6 * BLOCK + 1, max_tokens=9))
    lab.add(Script(name="b", prompt=3 * BLOCK + 4, external=3 * BLOCK, loads_async=True))
    lab.step()
    return lab


def loaded_needs_blocks(stage: Stage) -> Lab:
    """The load takes 2 of 3 blocks and its request needs the third, which another one takes."""
    lab = stage.lab(num_blocks=4, connector_role="kv_both")
    script = Script(name="a", prompt=3 * BLOCK, external=2 * BLOCK, loads_async=True)
    lab.add(script)
    lab.add(Script(name="b", prompt=12, max_tokens=3))
    lab.received.append("a")
    lab.step()
    lab.step()
    return lab


def preempted_this_step(stage: Stage) -> Lab:
    lab = stage.two(BLOCK, BLOCK, num_blocks=3)
    lab.step()
    return lab


def chunked_prefill_disabled(stage: Stage) -> Lab:
    return stage.two(40, 40, chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64)


def encoder_budget(stage: Stage) -> Lab:
    return _two_items(stage, encoder_budget=16, encoder_cache=64)


def encoder_cache(stage: Stage) -> Lab:
    return _two_items(stage, encoder_budget=64, encoder_cache=16)


def _two_items(stage: Stage, **settings: Any) -> Lab:
    lab = stage.lab(**settings)
    lab.add(Script(name="a", prompt=24, items=[("i", 0, 16)]))
    lab.add(Script(name="b", prompt=24, items=[("j", 0, 16)]))
    lab.step()
    return lab


def draft_padding(stage: Stage) -> Lab:
    """Beside a decode one token to do is padded to 4, and 3 are left."""
    lab = stage.lab(max_num_batched_tokens=4, max_num_seqs=4, num_drafts=3)
    lab.add(Script(name="a", prompt=1, max_tokens=99))
    lab.step()
    lab.scheduler.requests["a"].spec_token_ids = []
    lab.add(Script(name="b", prompt=1))
    lab.step()
    return lab


def prefill_throttled(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a", max_tokens=99))
    lab.step()
    lab.step()
    lab.add(Script(name="b", prompt=8))
    lab.step(throttle=True)
    return lab


def block_alignment(stage: Stage) -> Lab:
    return stage.two(16, 40, max_num_batched_tokens=28, aligns_chunks=True)


def prefill_lookahead(stage: Stage) -> Lab:
    """A token lies before the item, and the drafter looks at two: the item does not fit."""
    lab = stage.lab(encoder_budget=8, encoder_cache=64, prefill_lookahead=2)
    lab.add(Script(name="a", prompt=24, items=[("i", 1, 16)]))
    lab.step()
    return lab


def paused_new(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.pause("PAUSED_NEW")
    lab.add(Script(name="a"))
    lab.step()
    return lab


def paused_all(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.pause("PAUSED_ALL")
    lab.add(Script(name="a"))
    lab.step()
    return lab


STOPS: tuple[Callable[[Stage], Lab], ...] = (
    queue_empty, token_budget, input_budget, max_num_seqs, max_num_active_seqs, kv_blocks_chunk,
    kv_blocks_whole_prompt, kv_watermark, kv_reserved_for_loads, loaded_needs_blocks,
    preempted_this_step, chunked_prefill_disabled, encoder_budget, encoder_cache, draft_padding,
    prefill_throttled, block_alignment, prefill_lookahead, paused_new, paused_all,
)  # fmt: skip

# --------------------------------------------------------------------------- set aside


def grammar_compiling(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a", has_grammar=True))
    lab.step()
    return lab


def grammar_failed(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a", has_grammar=True))
    lab.grammar_is("a", ValueError("SECRET"))
    lab.step()
    return lab


def remote_kv_loading(stage: Stage) -> Lab:
    lab = _loading(stage)
    lab.step()
    return lab


def load_started(stage: Stage) -> Lab:
    return _loading(stage)


def _loading(stage: Stage) -> Lab:
    lab = stage.lab(connector_role="kv_both")
    lab.add(Script(name="a", prompt=40, external=32, loads_async=True))
    lab.step()
    return lab


def remote_kv_lookup_pending(stage: Stage) -> Lab:
    lab = stage.lab(connector_role="kv_both")
    lab.add(Script(name="a", prompt=40, external=32, num_unknown=1))
    lab.step()
    return lab


def lora_slots(stage: Stage) -> Lab:
    lab = stage.lab(max_loras=1)
    lab.add(Script(name="b", lora=1, max_tokens=99))
    lab.add(Script(name="a", lora=2))
    lab.step()
    return lab


def streaming_input(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a", max_tokens=1, is_session=True))
    lab.step()
    lab.step()
    return lab


def stale_output(stage: Stage) -> Lab:
    """Evicted with a token in flight, and looked at again before that has come."""
    lab = stage.lab(num_blocks=3, is_async=True)
    lab.add(Script(name="b", prompt=BLOCK - 1, max_tokens=99))
    lab.add(Script(name="a", prompt=BLOCK - 1, max_tokens=99))
    for _ in range(4):
        lab.schedule()
    return lab


def encoder_transfer(stage: Stage) -> Lab:
    lab = stage.lab(encoder_budget=64, encoder_cache=64, brings_items=True)
    lab.add(Script(name="a", prompt=24, items=[("i", 0, 16)]))
    lab.step()
    return lab


SKIPS: tuple[Callable[[Stage], Lab], ...] = (
    grammar_compiling, grammar_failed, remote_kv_loading, remote_kv_lookup_pending, load_started,
    lora_slots, streaming_input, stale_output, encoder_transfer,
)  # fmt: skip

# --------------------------------------------------------------------------- given nothing


def zero_token_budget(stage: Stage) -> Lab:
    lab = stage.lab(max_num_batched_tokens=4, max_num_seqs=4, num_drafts=3)
    lab.add(Script(name="b", prompt=2, max_tokens=99))
    lab.add(Script(name="a", prompt=2, max_tokens=99))
    lab.step()
    lab.step()
    return lab


def zero_max_tokens_in_flight(stage: Stage) -> Lab:
    lab = stage.lab(is_async=True)
    lab.add(Script(name="a", max_tokens=1))
    lab.schedule()
    lab.schedule()
    return lab


def zero_max_model_len(stage: Stage) -> Lab:
    lab = stage.lab(is_async=True, max_model_len=32)
    lab.add(Script(name="a", prompt=30, max_tokens=99))
    lab.schedule()
    lab.schedule()
    lab.schedule()
    return lab


def zero_pipeline_cadence(stage: Stage) -> Lab:
    lab = stage.lab(is_async=True, decode_stagger=2)
    lab.add(Script(name="a", max_tokens=99))
    lab.schedule()
    lab.schedule()
    return lab


def zero_encoder_budget(stage: Stage) -> Lab:
    lab = stage.lab(encoder_budget=8, encoder_cache=64, max_num_batched_tokens=16)
    lab.add(Script(name="a", prompt=40, items=[("i", 16, 16)]))
    lab.step()
    lab.step()
    return lab


def zero_encoder_cache(stage: Stage) -> Lab:
    """The first holds the cache until it has passed its item; the second reaches its own."""
    lab = stage.lab(encoder_budget=64, encoder_cache=16, long_prefill=8)
    lab.add(Script(name="b", prompt=24, items=[("i", 0, 16)]))
    lab.add(Script(name="a", prompt=32, items=[("j", 8, 16)]))
    lab.step()
    lab.step()
    return lab


def zero_block_alignment(stage: Stage) -> Lab:
    """The decode leaves 15 of 16 tokens, and the next chunk has to end at a block's end."""
    lab = stage.lab(max_num_batched_tokens=20, aligns_chunks=True)
    lab.add(Script(name="b", prompt=4, max_tokens=99))
    lab.add(Script(name="a", prompt=60))
    lab.step()
    lab.scheduler.max_num_scheduled_tokens = 16
    lab.step()
    return lab


def zero_prefill_lookahead(stage: Stage) -> Lab:
    lab = stage.lab(
        encoder_budget=8, encoder_cache=64, prefill_lookahead=2, max_num_batched_tokens=16
    )
    lab.add(Script(name="a", prompt=60, items=[("i", 17, 16)]))
    lab.step()
    lab.step()
    return lab


def zero_prefill_throttled(stage: Stage) -> Lab:
    lab = stage.lab(max_num_batched_tokens=16)
    lab.add(Script(name="b", prompt=4, max_tokens=99))
    lab.step()
    lab.add(Script(name="a", prompt=60))
    lab.step()
    lab.step(throttle=True)
    return lab


def zero_behind_preempted(stage: Stage) -> Lab:
    """The one that needs a block is the least urgent itself: the scan ends with it."""
    lab = stage.lab(policy="priority", num_blocks=3)
    lab.add(Script(name="b", prompt=BLOCK - 1, max_tokens=99, priority=5))
    lab.step()
    lab.add(Script(name="a", prompt=BLOCK - 3, max_tokens=99, priority=0))
    lab.step()
    lab.step()
    return lab


def zero_victim_not_releasable(stage: Stage) -> Lab:
    lab = stage.lab(is_async=True, connector_role="kv_consumer", num_blocks=5)
    lab.add(Script(name="a", prompt=2 * BLOCK, max_tokens=99))
    lab.add(Script(name="b", prompt=2 * BLOCK, max_tokens=99))
    lab.schedule()
    lab.schedule()
    return lab


def zero_paused_all(stage: Stage) -> Lab:
    lab = stage.lab()
    lab.add(Script(name="a", max_tokens=99))
    lab.step()
    lab.pause("PAUSED_ALL")
    lab.step()
    return lab


def zero_encoder_transfer(stage: Stage) -> Lab:
    lab = stage.lab(encoder_budget=64, encoder_cache=64, max_num_batched_tokens=16)
    lab.add(Script(name="a", prompt=40, items=[("i", 16, 16)]))
    lab.step()
    lab.bring_items()
    lab.step()
    return lab


ZEROS: tuple[Callable[[Stage], Lab], ...] = (
    zero_token_budget, zero_max_tokens_in_flight, zero_max_model_len, zero_pipeline_cadence,
    zero_encoder_budget, zero_encoder_cache, zero_block_alignment, zero_prefill_lookahead,
    zero_prefill_throttled, zero_behind_preempted, zero_victim_not_releasable, zero_paused_all,
    zero_encoder_transfer,
)  # fmt: skip

# --------------------------------------------------------------------------- preemptions


def evicts_the_tail(stage: Stage) -> Lab:
    """Two of one block each want a second, and none is free: the second one goes for the first."""
    lab = stage.two(BLOCK, BLOCK, num_blocks=3)
    lab.step()
    return lab


def evicts_itself(stage: Stage) -> Lab:
    """Two of one block each want a second; the first takes the last one there is."""
    lab = stage.two(BLOCK, BLOCK, num_blocks=4)
    lab.step()
    return lab


def evicts_the_least_urgent(stage: Stage) -> Lab:
    """The victim stands first and had its token of this step already: that is given back."""
    lab = stage.lab(policy="priority", num_blocks=4)
    lab.add(Script(name="a", prompt=BLOCK - 3, max_tokens=99, priority=7))
    lab.step()
    lab.add(Script(name="b", prompt=2 * BLOCK, max_tokens=99, priority=2))
    lab.step()
    lab.step()
    return lab


def evicts_in_vain(stage: Stage) -> Lab:
    """One that wants two blocks evicts another with one, and then itself."""
    lab = stage.lab(num_blocks=4, long_prefill=2 * BLOCK, reserve_whole_prompt=False)
    lab.add(Script(name="a", prompt=4 * BLOCK, max_tokens=9))
    lab.step()
    lab.add(Script(name="b", prompt=4, max_tokens=99))
    lab.step()
    lab.step()
    return lab


def resets(stage: Stage) -> Lab:
    lab = stage.two(20, 20)
    lab.step()
    lab.scheduler.reset_prefix_cache(reset_running_requests=True)
    lab.step()
    return lab


PREEMPTIONS: tuple[Callable[[Stage], Lab], ...] = (
    evicts_the_tail, evicts_itself, evicts_the_least_urgent, evicts_in_vain, resets,
)  # fmt: skip


def play_all(model_dir: Path) -> dict[str, ListRecorder]:
    """Returns what was recorded in each situation, by its name."""
    stage = Stage(model_dir)
    recorded = {}
    for situation in (*STOPS, *SKIPS, *ZEROS, *PREEMPTIONS):
        lab = situation(stage)
        lab.scheduler.shutdown()
        assert lab.recorder is not None
        recorded[situation.__name__] = lab.recorder
    return recorded
