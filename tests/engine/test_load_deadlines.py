"""Deadlines of KV transfers: what a time-out decides, and when blocks are given back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from engine.config import ConfigError, KVConnectorConfig
from engine.connectors import KVConnectorMetadata
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, Scheduler, SchedulerOutput
from engine.scheduler.output import KVSaves
from telemetry.records import ConnectorEvent
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.builders import Run, config
from tests.engine.test_kv_loads import Connector

SECOND = 1_000_000_000


@dataclass
class Clock:
    """A clock that stands still until it is told to go on."""

    now: int = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


@dataclass
class Transfers:
    """A run with a connector, whose clock and transfers the test moves."""

    connector: Connector
    settings: KVConnectorConfig
    num_usable_blocks: int = 10
    clock: Clock = field(default_factory=Clock)
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        settings = replace(
            config(num_usable_blocks=self.num_usable_blocks), kv_connector=self.settings
        )
        self.run = Run(settings)
        self.run.scheduler = Scheduler(
            settings, recorder=self.run.recorder, clock=self.clock, connector=self.connector
        )

    def step(
        self, sampled: Iterable[str] = (), *, after: float = 0.0, **reports: object
    ) -> SchedulerOutput:
        self.clock.now += int(after * SECOND)
        output = self.run.scheduler.schedule()
        result = ModelRunnerOutput(
            sampled_token_ids={name: [7] for name in sampled},
            **reports,  # type: ignore[arg-type]
        )
        self.run.results += self.run.scheduler.update_from_output(output, result)
        self.run.scheduler.check_integrity()
        return output

    @property
    def kinds(self) -> list[EventKind]:
        """Stages of transfers in the order they were recorded, answers of look-ups left out."""
        stages = [EventKind(event.kind) for event in self.run.events(ConnectorEvent)]
        return [kind for kind in stages if kind is not EventKind.lookup_answered]

    @property
    def num_free(self) -> int:
        return self.run.scheduler.kv.pool.num_free


def loading(**settings: object) -> tuple[Transfers, Request]:
    transfers = Transfers(
        Connector({"a": 8}),
        KVConnectorConfig(load_timeout_seconds=5.0, **settings),  # type: ignore[arg-type]
    )
    request = transfers.run.add("a", prompt=12)
    output = transfers.step()
    assert output.kv_loads_started == {"a": (8, 0, 8)}
    return transfers, request


def test_a_load_in_time_is_no_matter() -> None:
    transfers, _ = loading()
    transfers.step(after=4.9, finished_recving=frozenset(["a"]))
    assert transfers.step(["a"], after=60.0).num_scheduled_tokens == {"a": 4}
    assert EventKind.load_timed_out not in transfers.kinds


def test_a_late_load_is_given_up_and_its_request_computes_for_itself() -> None:
    transfers, request = loading()
    output = transfers.step(["a"], after=5.0)
    assert output.num_scheduled_tokens == {"a": 12}
    assert output.kv_connector_metadata == KVConnectorMetadata(given_up=("a",))
    assert transfers.kinds == [EventKind.load_started, EventKind.load_timed_out]
    assert request.num_computed_tokens == 12


def test_blocks_of_a_late_load_are_kept_until_it_ends() -> None:
    transfers, request = loading()
    transfers.step(["a"], after=5.0)
    held = transfers.run.scheduler.kv.num_blocks_held(request)
    assert transfers.num_free == 10 - held - 2
    assert transfers.run.last_step.num_blocks_given_up == 2
    transfers.step(["a"], finished_recving=frozenset(["a"]))
    held = transfers.run.scheduler.kv.num_blocks_held(request)
    assert transfers.num_free == 10 - held
    assert transfers.kinds[-1] is EventKind.load_finished


def test_a_late_end_says_nothing_of_the_request() -> None:
    transfers, request = loading()
    transfers.step(after=5.0)
    transfers.step(finished_recving=frozenset(["a"]))
    assert not request.has_loaded
    assert request in transfers.run.scheduler.running


def test_while_a_late_load_is_out_its_request_is_not_loaded_again() -> None:
    transfers, _ = loading()
    transfers.step(["a"], after=5.0)
    transfers.run.scheduler.reset_prefix_cache(reset_running=True)
    assert transfers.step(["a"]).kv_loads_started == {}
    transfers.step(["a"], finished_recving=frozenset(["a"]))
    transfers.run.scheduler.reset_prefix_cache(reset_running=True)
    transfers.run.scheduler.kv.reset_prefix_cache()
    assert transfers.step().kv_loads_started != {}


def test_under_the_fail_policy_a_late_load_ends_its_request() -> None:
    transfers, _ = loading(load_failure_policy="fail")
    transfers.step(after=5.0)
    (result,) = transfers.run.results
    assert result.finish_reason is FinishReason.error
    assert "not done after 5 s" in (result.error or "")
    assert transfers.num_free == 8
    transfers.step(finished_recving=frozenset(["a"]))
    assert transfers.num_free == 10


def test_a_lease_gives_the_blocks_of_a_late_load_back() -> None:
    transfers, _ = loading(lease_seconds=30.0)
    transfers.step(["a"], after=5.0)
    transfers.step(["a"], after=29.9)
    assert EventKind.lease_expired not in transfers.kinds
    transfers.step(["a"], after=0.1)
    assert transfers.kinds[-1] is EventKind.lease_expired
    assert transfers.run.scheduler.transfers.given_up == {}


def test_a_lease_gives_the_blocks_of_an_aborted_load_back() -> None:
    transfers, _ = loading(lease_seconds=30.0)
    transfers.run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    transfers.step(after=29.0)
    assert transfers.num_free == 8
    transfers.step(after=1.0)
    assert transfers.num_free == 10
    assert transfers.kinds == [EventKind.load_started, EventKind.lease_expired]


def test_without_a_time_out_a_load_may_take_for_ever() -> None:
    transfers = Transfers(Connector({"a": 8}), KVConnectorConfig())
    transfers.run.add("a", prompt=12)
    transfers.step()
    transfers.step(after=1e6)
    assert transfers.kinds == [EventKind.load_started]
    assert transfers.run.last_step.oldest_load_ns == int(1e6) * SECOND


def sending(**settings: object) -> Transfers:
    transfers = Transfers(
        Connector(sends=True),
        KVConnectorConfig(ack_timeout_seconds=5.0, **settings),  # type: ignore[arg-type]
    )
    transfers.run.add("a", prompt=4, max_tokens=1)
    transfers.step(["a"])
    return transfers


def test_an_acknowledgement_in_time_is_told() -> None:
    transfers = sending()
    transfers.step(finished_sending=frozenset(["a"]))
    assert transfers.kinds == [EventKind.ack_wait_started, EventKind.ack_received]
    assert transfers.num_free == 10


def test_a_late_acknowledgement_is_told_once_and_the_blocks_stay() -> None:
    transfers = sending()
    transfers.step(after=5.0)
    transfers.step(after=60.0)
    assert transfers.kinds == [EventKind.ack_wait_started, EventKind.ack_timed_out]
    assert transfers.num_free == 9
    transfers.step(finished_sending=frozenset(["a"]))
    assert transfers.num_free == 10


def test_a_lease_gives_blocks_that_nobody_fetched_back() -> None:
    transfers = sending(lease_seconds=20.0)
    transfers.step(after=20.0)
    assert transfers.kinds[1:] == [EventKind.ack_timed_out, EventKind.lease_expired]
    assert transfers.num_free == 10
    transfers.step()
    assert not transfers.run.scheduler.has_requests()


def test_an_id_whose_transfer_is_out_cannot_come_again() -> None:
    transfers = sending()
    with pytest.raises(ValueError, match="'a' is in use"):
        transfers.run.add("a")


def test_an_unknown_look_up_is_told_once() -> None:
    transfers = Transfers(Connector({"a": None}), KVConnectorConfig())
    transfers.run.add("a", prompt=12)
    for _ in range(3):
        transfers.step()
    assert transfers.kinds == [EventKind.lookup_pending]


def test_saves_are_told() -> None:
    transfers = Transfers(Connector(), KVConnectorConfig())
    transfers.run.add("a", prompt=4, max_tokens=9)
    transfers.step(["a"], kv_saves=KVSaves(started=frozenset(["a"])))
    transfers.step(["a"], kv_saves=KVSaves(finished=frozenset(["a"]), failed=frozenset(["x"])))
    assert transfers.kinds == [EventKind.save_started, EventKind.save_finished]


def test_a_step_names_the_loads_that_begin_with_it_and_their_blocks() -> None:
    transfers = Transfers(Connector({"a": 8, "b": 4}), KVConnectorConfig())
    request = transfers.run.add("a", prompt=12)
    output = transfers.step()
    assert output.kv_connector_metadata is not None
    (load,) = output.kv_connector_metadata.loads
    assert (load.request_id, load.num_external_tokens, load.is_async) == ("a", 8, True)
    assert load.block_ids == transfers.run.scheduler.kv.block_ids(request)
    transfers.connector.is_async = False
    transfers.run.add("b", prompt=6)
    output = transfers.step(["b"])
    assert output.kv_connector_metadata is not None
    assert [load.is_async for load in output.kv_connector_metadata.loads] == [False]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"load_timeout_seconds": 0}, "load_timeout_seconds is 0"),
        ({"lease_seconds": -1.0}, "lease_seconds is -1.0"),
        ({"ack_timeout_seconds": 9.0, "lease_seconds": 5.0}, "given up before their time-out"),
    ],
)
def test_deadlines_that_make_no_sense_are_refused(settings: dict[str, float], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        KVConnectorConfig(**settings)  # type: ignore[arg-type]
