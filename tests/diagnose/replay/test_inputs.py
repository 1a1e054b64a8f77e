"""Each kind of input comes back from the record, and a replay of it decides the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.replay import ReplayError, read_inputs
from diagnose.replay.calls import AddRequest, Schedule, TakeInput, TakeStep
from engine.config import KVConnectorConfig
from engine.session import Session, SessionInput
from telemetry.records import EngineRow, RequestPreempted
from telemetry.vocabulary import EventKind, FinishReason
from tests.diagnose.logs import MemoryLog
from tests.diagnose.replay.recording import assert_replays, log_of_run
from tests.engine.builders import Run, config
from tests.engine.test_encoder_loads import image, run_with
from tests.engine.test_encoder_loads import step as encoder_step
from tests.engine.test_kv_loads import Connector
from tests.engine.test_load_deadlines import Transfers
from tests.telemetry.log_builder import LogBuilder


def finished(run: Run) -> Run:
    run.to_the_end()
    run.scheduler.journal.flush()
    return run


def test_preempted_requests_that_share_a_prefix() -> None:
    run = Run(config(num_usable_blocks=6))
    for name in ("a", "b", "c"):
        run.add(name, prompt=range(9), max_tokens=9)
    assert finished(run).events(RequestPreempted)
    assert_replays(run.recorder, run.config)


def test_an_abort_and_another_request_under_the_same_id() -> None:
    run = Run(config())
    run.add("a", max_tokens=9)
    run.step()
    run.scheduler.finish_requests(["a"], FinishReason.abort_client)
    run.add("a", prompt=7)
    assert_replays(finished(run).recorder, run.config)


def test_appended_tokens_up_to_the_one_that_ends_the_request() -> None:
    run = Run(config())
    run.add("a", max_tokens=9)
    run.add("b", max_tokens=3)
    run.step()
    run.scheduler.append_known_tokens("a", [21, 22])
    run.scheduler.append_known_tokens("b", [21, 22, 23])
    assert_replays(finished(run).recorder, run.config)


def test_a_session_whose_input_and_end_are_queued() -> None:
    run = Run(config())
    run.add("a", prompt=6, session=Session())
    run.step()
    run.scheduler.add_session_input("a", SessionInput(range(50, 57), 3, 1.0))
    run.scheduler.close_session("a")
    assert_replays(finished(run).recorder, run.config)
    calls = read_inputs(log_of_run(run.recorder, run.config), engine=1).calls
    assert [call.queued for call in calls if isinstance(call, TakeInput)] == [True]


def test_a_load_that_took_too_long_and_starts_over() -> None:
    connector = KVConnectorConfig(load_timeout_seconds=5.0, lease_seconds=20.0)
    transfers = Transfers(Connector({"a": 8}), connector)
    transfers.run.add("a", prompt=12)
    transfers.step()
    transfers.step(["a"], after=6.0)
    transfers.step(["a"], after=20.0)
    transfers.step(["a"])
    assert {EventKind.load_timed_out, EventKind.lease_expired} <= set(transfers.kinds)
    assert_replays(transfers.run.recorder, transfers.run.config)


def test_encoder_items_from_elsewhere_that_come_and_that_fail() -> None:
    run = run_with("i", "j")
    run.add("a", prompt=12, encoder_items=image("i", 2))
    run.add("b", prompt=12, encoder_items=image("j", 2))
    for reports in ({}, {"arrived": "i"}, {"failed": "j"}, {}, {}, {}, {}, {}):
        encoder_step(run, **reports)
    run.scheduler.journal.flush()
    assert_replays(run.recorder, run.config)


def test_a_run_that_was_cut_off_is_replayed_as_far_as_it_was_told() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a", max_tokens=9)
    first = run.scheduler.schedule()
    run.scheduler.schedule()
    run.scheduler.update_from_output(first, run.runner.execute(first))
    run.scheduler.journal.flush()
    assert_replays(run.recorder, run.config)
    calls = read_inputs(log_of_run(run.recorder, run.config), engine=1).calls
    assert [type(call) for call in calls] == [AddRequest, Schedule, Schedule, TakeStep]


def test_equal_empty_steps_that_one_row_tells_are_all_replayed() -> None:
    run = Run(config(num_usable_blocks=2))
    run.add("a", prompt=20)
    run.steps(5)
    run.scheduler.journal.flush()
    assert len(run.recorder.steps) < 5
    assert_replays(run.recorder, run.config)


# ------------------------------------------------------------------------------- incomplete records


def test_missing_steps_are_named() -> None:
    run = Run(config())
    run.add("a")
    finished(run)
    del run.recorder.steps[1:3]
    run.recorder.step_requests.clear()
    with pytest.raises(ReplayError, match="steps 1 to 2 are missing"):
        read_inputs(log_of_run(run.recorder, run.config), engine=1)


def test_an_engine_that_never_said_its_settings_is_named() -> None:
    run = Run(config())
    run.recorder.describe_engine(EngineRow())
    log = MemoryLog([LogBuilder.of_recorder(run.recorder, engine=7)])
    with pytest.raises(ReplayError, match=r"engine 0000000000000007 .* engines\.settings"):
        read_inputs(log, engine=7)


def test_a_replay_uses_no_dense_rows() -> None:
    run = Run(config(num_usable_blocks=6))
    for name in ("a", "b"):
        run.add(name, prompt=9, max_tokens=9)
    finished(run)
    run.recorder.step_requests.clear()
    assert_replays(run.recorder, run.config)


def test_settings_come_back_as_they_were() -> None:
    settings = replace(
        config(policy="priority", watermark=0.1), kv_connector=KVConnectorConfig(role="kv_consumer")
    )
    log = log_of_run(Run(settings).recorder, settings)
    assert read_inputs(log, engine=1).config == settings
