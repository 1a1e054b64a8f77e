"""A served engine, run for the matrix: both of its witnesses tell of the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.provoking.scenario import Attempt
from benchmarks.provoking.served import Ask, Clients, LiveRun, Scaled, Traffic, call_of
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


NUM_ASKED, NUM_CHOSEN = 3, 5
OUTPUT, OUTPUT_THAT_GOES_ON = 30, 7


async def _as_measured(random: Random, load: float, ask: Ask) -> Traffic:
    seconds = await ask([call_of(random, 20, OUTPUT) for _ in range(NUM_ASKED)])
    assert seconds > 0
    chosen = [call_of(random, 20, OUTPUT) for _ in range(NUM_CHOSEN)]
    going_on = [call_of(random, 20, OUTPUT_THAT_GOES_ON)]
    return Traffic(clients=[Clients(going_on, 1, goes_on=True), Clients(chosen, 1)])


@pytest.fixture(scope="module")
def measured(attempt: Attempt) -> QueryLog:
    """A run whose traffic was chosen by what three calls took."""
    return replace(RUN, name="measured", traffic=Scaled(_as_measured)).log(attempt)


def test_traffic_is_chosen_by_what_the_engine_answers(measured: QueryLog) -> None:
    long = f"SELECT count(*) FROM request_finishes WHERE num_output_tokens = {OUTPUT}"
    assert value(measured, long) == NUM_ASKED + NUM_CHOSEN


def test_what_goes_on_is_sent_again_until_the_others_are_through(measured: QueryLog) -> None:
    again = f"num_output_tokens = {OUTPUT_THAT_GOES_ON}"
    assert value(measured, f"SELECT count(*) > 1 FROM request_finishes WHERE {again}")
    last_of_the_others = f"SELECT max(ts) FROM request_finishes WHERE NOT ({again})"
    begun_later = (
        f"SELECT count(*) FROM request_arrivals WHERE ts > ({last_of_the_others})"
        f" AND max_tokens = {OUTPUT_THAT_GOES_ON}"
    )
    assert value(measured, begun_later) <= 1  # it was on its way
