"""A served engine, run for the matrix: both of its witnesses tell of the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.provoking.scenario import Attempt
from benchmarks.provoking.served import Clients, LiveRun, Traffic, call_of
from diagnose.diagnosis import diagnose
from diagnose.finding import NO_FAULT
from diagnose.reading import QueryLog, read_row

NUM_REQUESTS = 30

RUN = LiveRun(
    name="small",
    flags=lambda random, folder: ("--num-gpu-blocks-override", "512", "--max-num-seqs", "16"),
    traffic=lambda random, load: Traffic(
        clients=[Clients([call_of(random, 20, 30) for _ in range(NUM_REQUESTS)], 4)]
    ),
)


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    folder = tmp_path_factory.mktemp("served") / "attempt"
    folder.mkdir()
    return Attempt(seed=1, load=1.0, folder=folder)


def value(log: QueryLog, sql: str) -> object:
    return read_row(log, f"SELECT ({sql}) AS value")["value"]


def test_the_log_has_every_request(attempt: Attempt) -> None:
    log = RUN.log(attempt)
    assert value(log, "SELECT count(*) FROM request_finishes") == NUM_REQUESTS
    assert diagnose(log).verdict.rule == NO_FAULT


def test_the_scrapes_are_of_the_same_run(attempt: Attempt) -> None:
    scrapes = RUN.scrapes(attempt)
    ended = "SELECT sum(num_finished)::BIGINT FROM metric_intervals"
    assert value(scrapes, ended) == NUM_REQUESTS
    assert diagnose(scrapes).engines[0].settings.max_num_seqs == 16
    runs = [each for each in attempt.folder.parent.iterdir() if each.name.startswith("live-")]
    assert len(runs) == 1


def test_half_of_a_run_is_none(attempt: Attempt) -> None:
    refused = replace(RUN, name="refused", flags=lambda random, folder: ("--no-such-flag",))
    with pytest.raises(RuntimeError, match="ended before it was ready"):
        refused.log(attempt)
    assert not Path(attempt.folder.parent / "live-refused-1-1").exists()
