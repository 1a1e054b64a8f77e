"""What a step log says of transfers: each stage, as it really happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.connectors.settings import KVTransferConfig
from engine.runner.model import LoadedModel
from tests.engine.connectors.real_engine import RealEngine, prompts, requests, transfer
from tests.telemetry.log_builder import LogBuilder, connect

PROMPTS = prompts(6, seed=3)
STAGES = """
SELECT event_kind_name(kind) AS stage, count(*) AS n FROM request_events
WHERE connector IS NOT NULL AND stage NOT LIKE 'lookup%' GROUP BY ALL
"""

Make = Callable[..., RealEngine]


@pytest.fixture
def make(small_model: LoadedModel) -> Iterator[Make]:
    engines: list[RealEngine] = []

    def new(settings: KVTransferConfig, *faults: str, **how: Any) -> RealEngine:
        engines.append(RealEngine(small_model, settings, *faults, **how))
        return engines[-1]

    yield new
    for engine in engines:
        engine.close()


def stored(make: Make, directory: Path) -> None:
    """Leaves the blocks of all prompts in a directory."""
    make(transfer(directory)).run(requests(PROMPTS))


def ask(engine: RealEngine, sql: str) -> list[dict[str, Any]]:
    """Returns what DuckDB says of the engine's record."""
    with connect(LogBuilder.of_recorder(engine.recorder)) as log:
        return log.execute(sql).to_arrow_table().to_pylist()


def stages(engine: RealEngine) -> dict[str, int]:
    return {row["stage"]: row["n"] for row in ask(engine, STAGES)}


def test_saves_are_told_from_begin_to_acknowledgement(make: Make, tmp_path: Path) -> None:
    engine = make(transfer(tmp_path / "kv"))
    engine.run(requests(PROMPTS))
    told = stages(engine)
    names = ("ack_wait_started", "save_started", "save_finished", "ack_received")
    assert set(told) == set(names)
    assert len({told[name] for name in names}) == 1


def test_each_load_is_a_row_with_its_outcome(make: Make, tmp_path: Path) -> None:
    stored(make, tmp_path / "kv")
    engine = make(
        transfer(tmp_path / "kv", load_timeout_seconds=45.0),
        "load=fail:n=1",
        "load=stall:n=1",
        step_seconds=10.0,
    )
    engine.run(requests(PROMPTS), arrivals_per_step=len(PROMPTS))
    rows = ask(engine, "SELECT outcome, count(*) AS n FROM connector_loads GROUP BY ALL")
    assert {row["outcome"]: row["n"] for row in rows} == {
        "failed": 1,
        "timed_out": 1,
        "finished": len(PROMPTS) - 2,
    }


def test_a_load_that_was_delayed_took_that_long(make: Make, tmp_path: Path) -> None:
    stored(make, tmp_path / "kv")
    engine = make(transfer(tmp_path / "kv"), "load=delay:0.2")
    engine.run(requests(PROMPTS), arrivals_per_step=len(PROMPTS))
    (row,) = ask(
        engine, "SELECT min(load_ns) AS ns, any_value(connector) AS c FROM connector_loads"
    )
    assert row["ns"] >= 200_000_000
    assert row["c"] == "SharedDirectoryConnector"


def test_a_load_that_failed_half_way_says_which_blocks_lack(make: Make, tmp_path: Path) -> None:
    stored(make, tmp_path / "kv")
    engine = make(transfer(tmp_path / "kv"), "load=fail_half:n=1")
    engine.run(requests(PROMPTS[:1]))
    (row,) = ask(
        engine,
        "SELECT num_tokens, num_invalid_blocks, invalid_blocks, policy FROM request_events "
        "WHERE kind = event_kind('load_failed')",
    )
    num_blocks = len(PROMPTS[0]) // 8
    missing = list(range(num_blocks // 2, num_blocks))
    assert row["invalid_blocks"] == missing
    assert (row["num_tokens"], row["num_invalid_blocks"]) == (missing[0] * 8, len(missing))
    assert row["policy"] == 0


def test_a_look_up_that_was_delayed_is_told_as_pending(make: Make, tmp_path: Path) -> None:
    engine = make(transfer(tmp_path / "kv"), "lookup=delay:0.02,n=1")
    engine.run(requests(PROMPTS))
    sql = "SELECT count(*) AS n FROM request_events WHERE kind = event_kind('lookup_pending')"
    assert ask(engine, sql) == [{"n": 1}]


def test_blocks_of_a_lost_acknowledgement_are_given_up_by_the_lease(
    make: Make, tmp_path: Path
) -> None:
    settings = transfer(tmp_path / "kv", ack_timeout_seconds=45.0, lease_seconds=300.0)
    engine = make(settings, "ack=lose:n=2", step_seconds=10.0)
    engine.run(requests(PROMPTS))
    told = stages(engine)
    assert (told["ack_timed_out"], told["lease_expired"]) == (2, 2)
    assert told["ack_received"] == told["ack_wait_started"] - 2
    (row,) = ask(engine, "SELECT max(num_blocks_finished) AS n FROM steps")
    assert row["n"] > 0


def test_a_save_that_failed_is_told(make: Make, tmp_path: Path) -> None:
    engine = make(transfer(tmp_path / "kv"), "save=fail:n=1")
    engine.run(requests(PROMPTS))
    told = stages(engine)
    assert told["save_failed"] == 1
    assert told["save_finished"] == told["save_started"] - 1


def test_time_spent_on_transfers_is_a_phase_of_the_step(make: Make, tmp_path: Path) -> None:
    engine = make(transfer(tmp_path / "kv", load_async=False))
    stored(make, tmp_path / "kv")
    engine.run(requests(PROMPTS))
    (row,) = ask(
        engine,
        "SELECT count(connector_ns) AS n, count(*) AS steps, min(connector_ns) AS least FROM steps",
    )
    assert 0 < row["n"] < row["steps"]
    assert row["least"] > 0
