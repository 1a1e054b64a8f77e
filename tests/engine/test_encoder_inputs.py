"""Encoder inputs: what a step encodes, what it may not, and how that is recorded."""

from __future__ import annotations

from dataclasses import replace

from engine.config import EncoderConfig
from engine.encoder_cache import EncoderCache, EncoderItem
from telemetry.records import EncoderItemScheduled
from telemetry.vocabulary import EventKind, FinishReason, StopReason, ZeroReason
from tests.engine.builders import Run, config


def run_with(budget: int = 8, size: int = 16, *, unsplit: bool = False, **fields: object) -> Run:
    encoder = EncoderConfig(
        compute_budget=budget, cache_size=size, disable_chunked_mm_input=unsplit
    )
    return Run(replace(config(**fields), encoder=encoder))


def image(key: str, position: int, num_embeds: int = 8) -> tuple[EncoderItem, ...]:
    return (EncoderItem(key, position, num_embeds),)


def test_an_item_is_encoded_in_the_step_that_touches_it() -> None:
    run = run_with()
    run.add("a", prompt=12, encoder_items=image("i", 2))
    assert run.step().scheduled_encoder_inputs == {"a": [0]}
    event = run.events(EncoderItemScheduled)[0]
    assert (event.position, event.num_embeds) == (2, 8)
    assert event.item_key != "i"


def test_a_shared_item_is_encoded_once() -> None:
    run = run_with()
    for name in "ab":
        run.add(name, prompt=12, encoder_items=image("i", 2))
    assert run.step().scheduled_encoder_inputs == {"a": [0]}


def test_admission_stops_before_an_item_beyond_the_budget() -> None:
    run = run_with()
    run.add("a", prompt=12, encoder_items=image("i", 0))
    run.add("b", prompt=12, encoder_items=image("j", 0))
    run.step()
    assert run.last_step.stop_reason == StopReason.encoder_budget
    assert (run.last_step.encoder_budget, run.last_step.num_encoder_embeds) == (8, 8)


def test_admission_stops_where_the_cache_is_full() -> None:
    run = run_with(budget=32, size=8)
    run.add("a", prompt=12, encoder_items=image("i", 0))
    run.add("b", prompt=12, encoder_items=image("j", 0))
    run.step()
    assert run.last_step.stop_reason == StopReason.encoder_cache
    assert run.last_step.encoder_cache_reclaimable == 0


def test_a_running_prompt_waits_at_an_item_that_does_not_fit() -> None:
    run = run_with(budget=8, max_num_batched_tokens=4)
    run.add("a", prompt=12, encoder_items=image("i", 4, num_embeds=12))
    run.steps(2)
    run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert list(dense.zero_reason) == [ZeroReason.encoder_budget]


def test_an_unsplittable_item_starts_a_chunk_of_its_own() -> None:
    run = run_with(unsplit=True, max_num_batched_tokens=10)
    run.add("a", prompt=16, encoder_items=image("i", 6))
    assert run.step().num_scheduled_tokens == {"a": 6}
    assert run.step().num_scheduled_tokens == {"a": 10}


def test_the_entry_that_was_released_first_is_evicted_first() -> None:
    run = run_with(size=16)
    for name, key in (("a", "i"), ("b", "j"), ("c", "k")):
        run.add(name, prompt=12, max_tokens=1, encoder_items=image(key, 0))
        run.to_the_end()
    evicted = [event for event in run.recorder.events if event.kind == EventKind.item_evicted]
    assert len(evicted) == 1
    assert run.scheduler.encoder_cache is not None
    assert run.scheduler.encoder_cache.length_of("i") is None


def test_a_key_with_two_lengths_ends_its_request_with_an_error() -> None:
    run = run_with(budget=32, size=32)
    run.add("a", prompt=12, encoder_items=image("i", 0))
    run.add("b", prompt=12, encoder_items=image("i", 0, num_embeds=4))
    run.step()
    ended = {result.request_id: result for result in run.results if result.finish_reason}
    assert ended["b"].finish_reason == FinishReason.error
    assert "'i' has 4 embeddings here and 8" in (ended["b"].error or "")


def test_equal_text_with_another_image_shares_no_block() -> None:
    run = run_with(budget=32, size=32)
    text = list(range(16))
    run.add("a", prompt=text, max_tokens=1, encoder_items=image("i", 0))
    run.to_the_end()
    run.add("b", prompt=text, max_tokens=1, encoder_items=image("j", 0))
    assert run.step().num_prefix_hit_tokens == {"b": 0}


def test_equal_text_with_an_image_elsewhere_shares_no_block() -> None:
    run = run_with(budget=32, size=32)
    text = list(range(16))
    run.add("a", prompt=text, max_tokens=1, encoder_items=image("i", 0, num_embeds=2))
    run.to_the_end()
    run.add("b", prompt=text, max_tokens=1, encoder_items=image("i", 1, num_embeds=2))
    assert run.step().num_prefix_hit_tokens == {"b": 0}


def test_a_withdrawn_item_is_not_found_again() -> None:
    cache = EncoderCache(8)
    item = EncoderItem("i", 0, 8)
    cache.enter(item, (0, 0))
    cache.let_go("i", (0, 0))
    cache.withdraw("i")
    assert cache.length_of("i") is None
    assert cache.make_room(8)
    cache.enter(item, (1, 0))
    assert cache.length_of("i") == 8
    cache.check_integrity()


def reclaimable(run: Run) -> int:
    cache = run.scheduler.encoder_cache
    assert cache is not None
    return cache.num_reclaimable


def test_an_item_that_repeats_another_of_its_chunk_keeps_the_entry() -> None:
    run = run_with(max_num_batched_tokens=16)
    run.add("a", prompt=24, encoder_items=image("i", 0) + image("i", 12))
    assert run.step().scheduled_encoder_inputs == {"a": [0]}
    assert reclaimable(run) == 8
    run.step()
    assert reclaimable(run) == 16


def test_tokens_that_are_expected_do_not_pass_an_item() -> None:
    run = run_with(async_scheduling=True)
    run.add("a", prompt=8, max_tokens=8, encoder_items=image("i", 0))
    outputs = [run.scheduler.schedule(), run.scheduler.schedule()]
    run.scheduler.update_from_output(outputs[0], run.runner.execute(outputs[0]))
    assert reclaimable(run) == 8
    run.scheduler.schedule()
    run.scheduler.update_from_output(outputs[1], run.runner.execute(outputs[1]))
    assert reclaimable(run) == 16


def test_entries_are_released_in_scheduling_order_whoever_ends() -> None:
    run = run_with(16)
    run.add("a", prompt=12, max_tokens=4, encoder_items=image("i", 0))
    run.add("b", prompt=12, max_tokens=1, encoder_items=image("j", 0))
    run.step()
    run.add("c", prompt=12, encoder_items=image("k", 0))
    assert list(run.step().free_encoder_mm_hashes) == ["i"]


def test_an_unsplittable_item_is_not_split_where_it_is_cached() -> None:
    run = run_with(unsplit=True, max_num_batched_tokens=14)
    run.add("a", prompt=8, max_tokens=1, encoder_items=image("i", 0))
    run.add("b", prompt=16, encoder_items=image("i", 2))
    assert run.step().num_scheduled_tokens == {"a": 8, "b": 2}


def test_an_entry_that_is_back_in_the_same_step_is_not_reported_as_evicted() -> None:
    cache = EncoderCache(8)
    item = EncoderItem("i", 0, 8)
    cache.enter(item, (0, 0))
    cache.let_go("i", (0, 0))
    assert cache.make_room(8)
    cache.enter(item, (1, 0))
    assert cache.take_evicted() == []
