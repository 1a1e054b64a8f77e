"""KV loads: when one may start, what it waits for, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from engine.config import KVConnectorConfig, KVGroupConfig
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, Scheduler, SchedulerOutput
from engine.session import Session
from telemetry.records import ConnectorEvent, RequestPreempted
from telemetry.vocabulary import EventKind, FinishReason, SkipReason, StopReason, ZeroReason
from tests.engine.builders import Run, config


@dataclass
class Connector:
    """Has so many tokens of every request whose id is listed."""

    tokens: dict[str, int | None] = field(default_factory=dict)
    is_async: bool = True
    sends: bool = False

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        tokens = self.tokens.get(request.request_id, 0)
        return None if tokens is None else max(0, tokens - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return self.is_async

    def delays_free(self, request: Request) -> bool:
        return self.sends


def run_with(
    connector: Connector, *, settings: KVConnectorConfig | None = None, **fields: object
) -> Run:
    run = Run(replace(config(**fields), kv_connector=settings or KVConnectorConfig()))
    run.scheduler = Scheduler(run.config, recorder=run.recorder, connector=connector)
    return run


def step(run: Run, sampled: Iterable[str] = (), **reports: object) -> SchedulerOutput:
    output = run.scheduler.schedule()
    result = ModelRunnerOutput(
        sampled_token_ids={name: [7] for name in sampled},
        **reports,  # type: ignore[arg-type]
    )
    run.results += run.scheduler.update_from_output(output, result)
    run.scheduler.check_integrity()
    return output


def test_an_asynchronous_load_takes_blocks_and_no_slot() -> None:
    run = run_with(Connector({"a": 8}), max_num_seqs=1)
    request = run.add("a", prompt=12)
    run.add("b", prompt=4)
    output = step(run, ["b"])
    assert output.kv_loads_started == {"a": (8, 0, 8)}
    assert list(output.num_scheduled_tokens) == ["b"]
    assert run.scheduler.kv.num_blocks_held(request) == 2
    assert request.skipped_for is SkipReason.load_started
    assert (run.last_step.num_loads_in_flight, run.last_step.num_blocks_waiting) == (1, 2)


def test_a_received_load_runs_from_where_it_ends() -> None:
    run = run_with(Connector({"a": 8}))
    run.add("a", prompt=12)
    step(run, finished_recving=frozenset(["a"]))
    output = step(run, ["a"])
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.num_prefix_hit_tokens == {"a": None}


def test_of_a_whole_prompt_the_last_token_is_computed() -> None:
    run = run_with(Connector({"a": 12}))
    run.add("a", prompt=12)
    step(run, finished_recving=frozenset(["a"]))
    assert step(run, ["a"]).num_scheduled_tokens == {"a": 1}


def test_of_a_prompt_of_one_token_that_was_loaded_the_blocks_are_kept() -> None:
    run = run_with(Connector({"a": 1}))
    run.add("a", prompt=1)
    step(run, finished_recving=frozenset(["a"]))
    output = step(run, ["a"])
    assert output.num_scheduled_tokens == {"a": 1}
    assert output.num_prefix_hit_tokens == {"a": None}


def test_a_synchronous_load_is_part_of_its_step() -> None:
    run = run_with(Connector({"a": 8}, is_async=False))
    run.add("a", prompt=12)
    output = step(run, ["a"])
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.num_external_tokens == {"a": 8}


def test_a_look_up_without_answer_is_skipped_and_asked_again() -> None:
    connector = Connector({"a": None})
    run = run_with(connector)
    request = run.add("a", prompt=12)
    step(run)
    assert request.skipped_for is SkipReason.remote_kv_lookup_pending
    connector.tokens["a"] = 0
    assert "a" in step(run, ["a"]).num_scheduled_tokens


@pytest.mark.parametrize(("num_usable_blocks", "starts"), [(10, True), (9, False)])
def test_a_load_leaves_a_prefill_the_blocks_it_still_needs(
    num_usable_blocks: int, starts: bool
) -> None:
    """The prefill holds 2 of its 7 blocks, the load needs 3: 3 <= 8 - 5, but not 3 <= 7 - 5."""
    run = run_with(
        Connector({"load": 12}),
        num_usable_blocks=num_usable_blocks,
        long_prefill_token_threshold=8,
    )
    run.add("prefill", prompt=25)
    run.add("load", prompt=15)
    output = step(run)
    assert bool(output.kv_loads_started) is starts
    if not starts:
        assert run.last_step.stop_reason == StopReason.kv_reserved_for_loads
        assert run.last_step.head_blocks_needed == 3 + 5


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_failed_load_starts_over_or_ends_its_request(policy: str) -> None:
    settings = KVConnectorConfig(load_failure_policy=policy)  # type: ignore[arg-type]
    run = run_with(Connector({"a": 8}), settings=settings)
    run.add("a", prompt=12)
    step(run, failed_recving=frozenset(["a"]), finished_recving=frozenset(["a"]))
    failed = [e for e in run.events(ConnectorEvent) if e.kind == EventKind.load_failed]
    assert len(failed) == 1
    if policy == "fail":
        assert run.results[-1].finish_reason == FinishReason.error
        assert run.results[-1].error
    else:
        assert step(run).kv_loads_started == {"a": (8, 0, 8)}


def test_a_block_that_failed_to_load_is_no_hit_for_others() -> None:
    run = run_with(Connector({"a": 8}, is_async=False))
    prompt = list(range(100, 112))
    request = run.add("a", prompt=prompt)
    output = run.scheduler.schedule()
    second = run.scheduler.kv.block_ids(request)[0][1]
    run.scheduler.update_from_output(
        output, ModelRunnerOutput(invalid_block_ids=frozenset([second]))
    )
    assert request.num_computed_tokens == 4
    other = run.add("b", prompt=[*prompt, 1])
    assert run.scheduler.kv.find_hits(other).num_tokens == 4
    assert step(run, ["a", "b"]).num_prefix_hit_tokens["b"] == 12  # computed again in this step


def test_an_aborted_load_keeps_its_blocks_until_it_is_received() -> None:
    run = run_with(Connector({"a": 8}), num_usable_blocks=10)
    run.add("a", prompt=12)
    step(run)
    run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    step(run)
    assert run.scheduler.kv.pool.num_free == 8
    step(run, finished_recving=frozenset(["a"]))
    assert run.scheduler.kv.pool.num_free == 10


def test_blocks_that_are_being_sent_are_kept_until_then() -> None:
    run = run_with(Connector(sends=True), num_usable_blocks=10)
    run.add("a", prompt=4, max_tokens=1)
    step(run, ["a"])
    assert run.scheduler.kv.pool.num_free == 9
    assert run.scheduler.has_requests()
    step(run, finished_sending=frozenset(["a"]))
    assert run.scheduler.kv.pool.num_free == 10


def test_a_victim_in_flight_is_not_evicted_from_a_consumer() -> None:
    run = run_with(
        Connector(),
        settings=KVConnectorConfig(role="kv_consumer"),
        num_usable_blocks=4,
        async_scheduling=True,
    )
    for name in "ab":
        run.add(name, prompt=8, max_tokens=6)
    outputs = [run.scheduler.schedule(), run.scheduler.schedule()]
    assert outputs[1].num_scheduled_tokens == {}
    assert run.scheduler.num_preemptions == 0
    for output, sampled in zip(outputs, ({"a": [7], "b": [7]}, {}), strict=True):
        run.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))
    step(run)
    assert run.scheduler.num_preemptions == 1
    zeros = [dense.zero_reason for _, dense in run.recorder.step_requests]
    assert [list(z) for z in zeros if z is not None][1] == [ZeroReason.victim_not_releasable] * 2


def test_a_reset_leaves_blocks_of_a_step_in_flight_until_its_update() -> None:
    settings = KVConnectorConfig(role="kv_consumer")
    run = run_with(Connector(), settings=settings, async_scheduling=True)
    run.add("a", prompt=8, max_tokens=6)
    pool = run.scheduler.kv.pool
    in_flight = run.scheduler.schedule()
    assert not run.scheduler.reset_prefix_cache(reset_running=True)
    assert pool.num_free == pool.num_usable - 2
    run.scheduler.check_integrity()
    run.scheduler.update_from_output(in_flight, ModelRunnerOutput(sampled_token_ids={"a": [7]}))
    assert pool.num_free == pool.num_usable
    run.scheduler.check_integrity()
    (event,) = [e for e in run.recorder.events if isinstance(e, RequestPreempted)]
    assert (event.num_blocks_freed, event.num_blocks_deferred) == (0, 2)


def test_a_session_that_loads_takes_no_slot() -> None:
    run = run_with(Connector({"s": 8}), max_num_seqs=1)
    run.add("s", prompt=12, session=Session())
    step(run)
    run.add("b", prompt=4)
    assert step(run, ["b"]).num_scheduled_tokens == {"b": 4}


def test_who_reads_no_cache_loads_nothing_either() -> None:
    run = run_with(Connector({"a": 8}))
    run.add("a", prompt=12, reads_prefix_cache=False)
    assert step(run, ["a"]).num_scheduled_tokens == {"a": 12}


@pytest.mark.parametrize("num_usable_blocks", [3, 9])
def test_hits_left_of_a_window_that_a_load_moves_on_are_not_taken(num_usable_blocks: int) -> None:
    run = run_with(Connector({"b": 24}), num_usable_blocks=num_usable_blocks)
    group = KVGroupConfig("sliding_window", 4, 8)
    run.config = replace(run.config, cache=replace(run.config.cache, groups=(group,)))
    run.scheduler = Scheduler(run.config, connector=run.scheduler.connector)
    prompt = list(range(28))
    run.add("a", prompt=prompt[:9], max_tokens=1)
    step(run, ["a"])
    loading = run.add("b", prompt=prompt)
    step(run)
    (blocks,) = run.scheduler.kv.block_ids(loading)
    assert [block == 0 for block in blocks] == [True] * 4 + [False] * 2
    assert run.scheduler.kv.pool.num_free == num_usable_blocks - 2


def test_a_load_that_brought_nothing_gives_its_blocks_back_though_no_adapter_is_free() -> None:
    settings = KVConnectorConfig(load_failure_policy="recompute")
    run = run_with(Connector({"b": 8}), settings=settings, max_loras=1)
    loading = run.add("b", prompt=12, adapter="y")
    run.add("a", adapter="x", max_tokens=8)
    step(run, ["a"])
    lost = frozenset({"b"})
    step(run, ["a"], finished_recving=lost, failed_recving=lost)
    assert run.scheduler.kv.holds(loading)
    step(run, ["a"])
    assert not run.scheduler.kv.holds(loading)
    assert list(run.scheduler.waiting) == [loading]


def test_a_window_does_not_move_on_for_a_token_that_is_being_computed() -> None:
    run = run_with(Connector(sends=True), num_usable_blocks=9)
    group = KVGroupConfig("sliding_window", 4, 4)
    run.config = replace(run.config, cache=replace(run.config.cache, groups=(group,)))
    run.scheduler = Scheduler(run.config, connector=run.scheduler.connector)
    run.add("a", prompt=10)
    step(run, ["a"])
    run.scheduler.schedule()
    run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    assert run.scheduler.kv.pool.num_free == 7


def test_no_token_of_a_step_in_flight_is_delivered_after_a_load_that_failed() -> None:
    run = run_with(Connector({"a": 8}, is_async=False), async_scheduling=True)
    request = run.add("a", prompt=12, max_tokens=6)
    first, second = run.scheduler.schedule(), run.scheduler.schedule()
    block = run.scheduler.kv.block_ids(request)[0][0]
    failed = ModelRunnerOutput(sampled_token_ids={"a": [7]}, invalid_block_ids=frozenset([block]))
    assert not run.scheduler.update_from_output(first, failed)
    assert (request.num_computed_tokens, request.num_output_placeholders) == (0, 0)
    third = run.scheduler.schedule()
    late = ModelRunnerOutput(sampled_token_ids={"a": [8]})
    assert not run.scheduler.update_from_output(second, late)
    run.scheduler.check_integrity()
    assert third.num_scheduled_tokens == {"a": 12}
    result = run.scheduler.update_from_output(
        third, ModelRunnerOutput(sampled_token_ids={"a": [9]})
    )
    assert [each.new_token_ids for each in result] == [(9,)]
