"""Encoder outputs from elsewhere: who waits for them, and what becomes of a failure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.config import EncoderConfig
from engine.connectors import ECConnectorMetadata
from engine.encoder_cache import EncoderItem
from engine.scheduler import ModelRunnerOutput, Scheduler, SchedulerOutput
from telemetry.records import ConnectorEvent
from telemetry.vocabulary import EventKind, FinishReason, SkipReason, StopReason, ZeroReason
from tests.engine.builders import Run, config


@dataclass
class Elsewhere:
    """Has the encoder outputs of some keys."""

    keys: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        return key in self.keys


def run_with(*keys: str, budget: int = 8, size: int = 16, **fields: object) -> Run:
    encoder = EncoderConfig(compute_budget=budget, cache_size=size)
    run = Run(replace(config(**fields), encoder=encoder))
    run.scheduler = Scheduler(run.config, recorder=run.recorder, ec_connector=Elsewhere(set(keys)))
    return run


def image(key: str, position: int, num_embeds: int = 8) -> tuple[EncoderItem, ...]:
    return (EncoderItem(key, position, num_embeds),)


def step(run: Run, arrived: str = "", failed: str = "") -> SchedulerOutput:
    output = run.scheduler.schedule()
    computed = run.runner.execute(output)
    result = ModelRunnerOutput(
        sampled_token_ids=computed.sampled_token_ids,
        finished_ec_recving=frozenset(arrived),
        failed_ec_recving=frozenset(failed),
    )
    run.results += run.scheduler.update_from_output(output, result)
    run.scheduler.check_integrity()
    return output


def kinds(run: Run) -> list[int]:
    return [event.kind for event in run.events(ConnectorEvent)]


def test_a_waiting_request_is_set_aside_while_its_item_is_on_its_way() -> None:
    run = run_with("i")
    request = run.add("a", prompt=12, encoder_items=image("i", 2))
    run.add("b", prompt=4)
    output = step(run)
    assert list(output.num_scheduled_tokens) == ["b"]
    assert output.ec_connector_metadata == ECConnectorMetadata(loads=image("i", 2))
    assert request.skipped_for is SkipReason.encoder_transfer
    assert request in run.scheduler.waiting


def test_what_has_arrived_is_not_encoded_and_costs_no_budget() -> None:
    run = run_with("i")
    run.add("a", prompt=12, encoder_items=image("i", 2))
    step(run, arrived="i")
    output = step(run)
    assert output.num_scheduled_tokens == {"a": 12}
    assert output.scheduled_encoder_inputs == {}
    assert run.last_step.num_encoder_embeds == 0
    assert output.ec_connector_metadata == ECConnectorMetadata()


def test_an_item_is_sent_for_once() -> None:
    run = run_with("i")
    for name in "ab":
        run.add(name, prompt=12, encoder_items=image("i", 2))
    step(run)
    assert step(run).ec_connector_metadata == ECConnectorMetadata()
    assert kinds(run) == [EventKind.load_started]


def test_a_transfer_that_fails_is_encoded_here() -> None:
    run = run_with("i")
    run.add("a", prompt=12, encoder_items=image("i", 2))
    step(run, failed="i")
    output = step(run)
    assert output.scheduled_encoder_inputs == {"a": [0]}
    assert kinds(run) == [EventKind.load_started, EventKind.load_failed]


def test_a_running_request_gets_the_tokens_before_the_item_and_then_none() -> None:
    run = run_with("i", max_num_batched_tokens=4)
    run.add("a", prompt=16, encoder_items=image("i", 6))
    given = [step(run).num_scheduled_tokens.get("a", 0) for _ in range(3)]
    assert given == [4, 2, 0]
    step(run, arrived="i")
    assert step(run).num_scheduled_tokens == {"a": 4}
    _, dense = run.recorder.step_requests[-2]
    assert dense.zero_reason is not None
    assert list(dense.zero_reason) == [ZeroReason.encoder_transfer]


def test_an_item_beyond_the_chunk_is_not_sent_for() -> None:
    run = run_with("i", max_num_batched_tokens=4)
    run.add("a", prompt=16, encoder_items=image("i", 6))
    assert step(run).ec_connector_metadata == ECConnectorMetadata()


def test_its_space_is_taken_while_it_is_on_its_way() -> None:
    run = run_with("i", size=12)
    run.add("a", prompt=12, encoder_items=image("i", 2))
    run.add("b", prompt=12, encoder_items=image("j", 0))
    step(run)
    assert run.last_step.stop_reason == StopReason.encoder_cache
    assert (run.last_step.encoder_cache_free, run.last_step.encoder_cache_reclaimable) == (4, 4)


def test_who_is_looked_at_first_is_not_robbed_of_what_has_arrived() -> None:
    run = run_with("i", "j", size=8, budget=8)
    run.add("a", prompt=12, max_tokens=1, encoder_items=image("i", 0))
    run.add("b", prompt=12, max_tokens=1, encoder_items=image("j", 0))
    step(run, arrived="i")
    assert list(step(run).num_scheduled_tokens) == ["a"]
    step(run)
    step(run, arrived="j")
    step(run)
    assert [result.request_id for result in run.results if result.finish_reason] == ["a", "b"]


def test_an_aborted_request_leaves_what_arrives_to_others() -> None:
    run = run_with("i")
    run.add("a", prompt=12, encoder_items=image("i", 2))
    step(run)
    run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    step(run, arrived="i")
    run.add("b", prompt=12, encoder_items=image("i", 2))
    assert step(run).num_scheduled_tokens == {"b": 12}


def test_a_reset_leaves_the_space_of_what_is_on_its_way() -> None:
    run = run_with("i")
    run.add("a", prompt=12, encoder_items=image("i", 2))
    step(run)
    run.scheduler.reset_encoder_cache()
    assert run.scheduler.encoder_cache is not None
    assert run.scheduler.encoder_cache.num_free == 8
    step(run, arrived="i")
    assert step(run).num_scheduled_tokens == {"a": 12}


def test_a_report_of_what_was_never_sent_for_changes_nothing() -> None:
    run = run_with()
    run.add("a", prompt=12, encoder_items=image("i", 2))
    assert step(run, arrived="x", failed="y").scheduled_encoder_inputs == {"a": [0]}


def test_items_encoded_and_items_sent_for_share_the_cache() -> None:
    run = run_with("j", size=12, budget=12)
    items = (EncoderItem("i", 0, 8), EncoderItem("j", 10, 8))
    run.add("a", prompt=4, max_tokens=9)
    step(run)
    run.add("b", prompt=24, encoder_items=items)
    while run.scheduler.has_requests():
        output = step(run, arrived="j")
        assert run.scheduler.encoder_cache is not None
        assert run.scheduler.encoder_cache.num_free >= 0
        assert output.step < 30
    assert kinds(run).count(EventKind.load_started) == kinds(run).count(EventKind.load_finished) > 0
