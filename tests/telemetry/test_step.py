"""One step worked out by hand: the sums are right, the text keeps to its rules."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings

from telemetry import step_command
from telemetry.errors import StepscopeError
from telemetry.step import WIDTH, explain_step
from telemetry.step_facts import read_step
from telemetry.step_headline import headline, stop_sentence
from telemetry.store.files import DayFile, attach, day_of
from telemetry.store.schema import create_tables
from telemetry.tables import TABLES
from telemetry.vocabulary import PreemptionCause, SkipReason, StopReason
from tests.telemetry.log_builder import LogBuilder, connect, insert, truncate
from tests.telemetry.test_sql_preemptions import REQUESTS, RUNS, played

FREE = {"num_blocks_free_unhashed": 0, "num_blocks_free_cached": 0}


class ConnectionLog:
    """A log that is a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def query(self, sql: str) -> pa.Table:
        return self.connection.execute(sql).to_arrow_table()


def facts_of(log: LogBuilder, step: int = 0) -> Any:
    facts = read_step(ConnectionLog(connect(log)), step)
    assert facts is not None
    return facts


def text_of(log: LogBuilder, step: int = 0) -> str:
    return explain_step(facts_of(log, step))


def line_of(text: str, start: str) -> list[str]:
    """Returns the words of the line that begins with `start`."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line.split()


def storm(*, dense: bool = True) -> LogBuilder:
    """28 requests in 63 blocks of 32 tokens; 27 need one block more, 6 are free."""

    def rows(requests: range, num_blocks: int, computed: int) -> list[dict[str, Any]]:
        one = {"num_wanted_tokens": 1, "num_scheduled_tokens": 1, "num_computed_tokens": computed}
        return [{"request": r, "num_blocks": 3 if r == 0 else num_blocks, **one} for r in requests]

    log = LogBuilder().described(block_size=32)
    log.step(num_waiting=0, requests=rows(range(28), 2, 63) if dense else ())
    log.step(
        num_waiting=7,
        num_running=21,
        token_budget=2048,
        num_scheduled_tokens=21,
        num_preempted=7,
        stop_reason=StopReason.preempted_this_step,
        schedule_ns=740_000,
        forward_ns=7_500_000,
        requests=rows(range(21), 3, 64) if dense else (),
        **FREE,
    )
    for asked, victim in zip(range(7, 20, 2), range(27, 20, -1), strict=True):
        log.preempted(victim, lost=64, beneficiary=asked, num_blocks_freed=2)
    return log


# --------------------------------------------------------------------------------- the headline


def test_a_storm_is_a_sum() -> None:
    expected = (
        "27 requests needed one more block each, 6 were free: 7 were evicted to feed the other 20."
    )
    assert headline(facts_of(storm(), 1)) == expected


def test_without_dense_rows_the_sum_is_that_of_the_events() -> None:
    expected = "7 requests needed 7 blocks, 0 were free at the first: 7 were evicted."
    assert headline(facts_of(storm(dense=False), 1)) == expected


def test_drafts_are_told_where_there_were_some() -> None:
    log = LogBuilder().step(num_placed=6, num_accepted=2).step()
    assert line_of(text_of(log), "tokens scheduled")[-4:] == ["6", "drafts", "(2", "right)"]
    assert "drafts" not in text_of(log, 1)


def test_one_eviction_names_both() -> None:
    log = LogBuilder().step().preempted(4, beneficiary=2, num_blocks_needed=3)
    expected = "Request 2 needed 3 blocks, 0 were free: request 4 was evicted."
    assert headline(facts_of(log)) == expected


def test_a_request_that_evicts_itself_is_told_so() -> None:
    log = LogBuilder().step().preempted(4, num_blocks_free_before=1, num_blocks_needed=2)
    expected = "Request 4 needed 2 blocks, 1 was free: it evicted itself."
    assert headline(facts_of(log)) == expected


def test_a_reset_is_nobodys_need() -> None:
    log = (
        LogBuilder().step().preempted(4, cause=PreemptionCause.cache_reset, num_blocks_needed=None)
    )
    assert headline(facts_of(log)) == "A reset of the cache evicted 1 request."


def test_a_head_that_does_not_fit_is_named_with_its_number() -> None:
    log = (
        LogBuilder()
        .described()
        .step(
            num_waiting=3,
            num_scheduled_tokens=2,
            num_prefill_requests=0,
            num_decode_requests=2,
            stop_reason=StopReason.kv_blocks_chunk,
            head_request=9,
            head_blocks_needed=5,
            num_blocks_free_unhashed=1,
            num_blocks_free_cached=2,
        )
    )
    assert headline(facts_of(log)) == (
        "2 requests got 2 tokens; the first chunk of request 9 needed 5 blocks, 3 were free, "
        "so 3 wait."
    )


def test_a_quiet_step_says_that_nobody_waits() -> None:
    columns = {"num_waiting": 0, "num_scheduled_tokens": 0, "stop_reason": StopReason.queue_empty}
    assert (
        headline(facts_of(LogBuilder().step(**columns))) == "Nothing was scheduled; nobody waits."
    )


@pytest.mark.parametrize("reason", StopReason)
def test_every_stop_has_a_sentence(reason: StopReason) -> None:
    log = LogBuilder().described().step(stop_reason=reason, num_waiting=1)
    assert stop_sentence(facts_of(log)) != "why is not recorded"


def test_a_stop_that_is_not_recorded_is_not_guessed() -> None:
    assert stop_sentence(facts_of(LogBuilder().step())) == "why is not recorded"


# ------------------------------------------------------------------------------------- the page


def test_evictions_are_listed_in_order_with_needed_free_and_freed() -> None:
    (section,) = [s for s in text_of(storm(), 1).split("\n\n") if s.startswith("evictions")]
    rows = [" ".join(line.split()) for line in section.splitlines()[2:]]
    assert rows[0] == "1 7 1 0 27 2 64 - kv_full, running_tail"
    assert rows[6] == "7 19 1 0 21 2 64 - kv_full, running_tail"


def test_the_budget_is_counted_down_request_by_request() -> None:
    log = LogBuilder().step(
        token_budget=100,
        num_scheduled_tokens=90,
        requests=[
            {"request": 5, "num_wanted_tokens": 1, "num_scheduled_tokens": 1},
            {"request": 3, "num_wanted_tokens": 400, "num_scheduled_tokens": 89},
            {"request": 8, "num_wanted_tokens": 1, "num_scheduled_tokens": 0, "zero_reason": 3},
        ],
    )
    text = text_of(log)
    assert line_of(text, "1  ")[:5] == ["1", "5", "1", "1", "99"]
    assert line_of(text, "2  ")[:5] == ["2", "3", "400", "89", "10"]
    assert line_of(text, "3  ") == ["3", "8", "1", "0", "10", "-", "-", "-", "max_model_len"]


def test_who_was_let_in_and_who_evicted_is_noted_beside_it() -> None:
    log = LogBuilder().step(requests=[{"request": 1}, {"request": 2}])
    log.preempted(9, beneficiary=1).preempted(8, beneficiary=1)
    log.admitted(2, num_hit_tokens=48)
    text = text_of(log)
    assert "evicts 9, 8" in text
    assert "admitted, 48 from the cache" in text


def test_without_dense_rows_it_names_the_detail_that_keeps_them() -> None:
    log = LogBuilder().step().admitted(4, num_scheduled_tokens=33, num_hit_tokens=16)
    text = text_of(log)
    assert line_of(text, "1  ") == ["1", "4", "33", "16", "admitted"]
    assert "--detail full" in text
    assert "--detail full" not in text_of(storm(), 1)


def test_the_time_adds_up_to_the_step() -> None:
    text = text_of(storm(), 1)
    assert "took 9.00 ms" in text
    assert "schedule 0.74 ms   forward 7.50 ms   between them 0.76 ms" in text


def test_who_waits_is_counted_by_reason() -> None:
    log = LogBuilder().arrived(0).arrived(1)
    log.step(num_waiting=2, head_request=1, stop_reason=StopReason.max_num_seqs)
    log.skipped(0, SkipReason.lora_slots)
    text = text_of(log)
    assert "waiting after this step: 2" in text
    assert line_of(text, "lora_slots") == ["lora_slots", "1"]
    assert " ".join(line_of(text, "max_num_seqs")) == "max_num_seqs 1 request 1, the head"


def test_what_was_not_measured_is_a_dash_and_what_was_counted_a_zero() -> None:
    text = text_of(LogBuilder().step(num_admitted=0))
    assert "admitted, resumed, evicted  0, -, -" in text
    assert "waiting after this step: -" in text


def test_equal_steps_told_in_one_row_are_all_found() -> None:
    log = LogBuilder().step(num_repeats=5).step(step=5)
    text = text_of(log, 3)
    assert "steps 0 to 4 were equal, told once; step 3 is one of them" in text


def test_a_cut_is_named() -> None:
    text = explain_step(facts_of(storm(), 1), max_rows=5)
    assert "showing 5 of 21: --max-rows" in text
    assert "showing 5 of 7: --max-rows" in text


def test_a_hostile_name_neither_moves_the_cursor_nor_breaks_the_page() -> None:
    log = LogBuilder().described(model="\x1b[2J\n\u202e" + "é" * 300).step()
    text = text_of(log)
    assert text.isascii()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.fixture(scope="module")
def log() -> ConnectionLog:
    """One connection for all examples."""
    return ConnectionLog(connect())


@settings(max_examples=25, deadline=None)
@given(RUNS, REQUESTS)
def test_every_step_of_every_run_keeps_to_the_page(
    log: ConnectionLog, limits: dict[str, Any], requests: list[tuple[Any, ...]]
) -> None:
    run = played(limits, requests, 40)
    truncate(log.connection)
    recorded = LogBuilder.of_recorder(run.recorder).described(block_size=limits["block_size"])
    insert(log.connection, recorded)
    steps = run.recorder.steps
    chosen = next((s for s in steps if s.num_preempted), steps[-1])
    facts = read_step(log, chosen.step)
    assert facts is not None
    text = explain_step(facts)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH
    given = sum(row["num_scheduled_tokens"] for row in facts.requests)
    assert given == chosen.num_scheduled_tokens


# ---------------------------------------------------------------------------------- the command


def test_a_step_that_is_not_there_is_answered_with_those_that_are() -> None:
    log = ConnectionLog(connect(LogBuilder(engine=10).step().step()))
    with pytest.raises(StepscopeError, match=r"step 7 is not in the log.*0 to 1 of engine 0{15}a"):
        read_step(log, 7)


def test_a_log_without_steps_has_nothing_to_explain() -> None:
    assert read_step(ConnectionLog(connect()), 0) is None


def test_of_two_engines_the_newer_is_explained_and_the_other_named() -> None:
    older, newer = LogBuilder(engine=1).step(), LogBuilder(engine=2).advance(10**9).step()
    log = ConnectionLog(connect(older, newer))
    facts = read_step(log, 0)
    assert facts is not None
    assert facts.step["engine"] == 2
    assert "step 0 is also told of 0000000000000001: --engine" in explain_step(facts)
    chosen = read_step(log, 0, engine=1)
    assert chosen is not None
    assert chosen.step["engine"] == 1


def write_log(directory: Path, log: LogBuilder) -> Path:
    """Writes a closed log of one day, as the collector leaves it."""
    connection = duckdb.connect()
    for dense in (False, True):
        file = DayFile(day_of(log.now), dense, directory)
        attach(connection, file, read_only=False)
        for statement in create_tables(file.database, dense):
            connection.execute(statement)
        connection.execute(f"USE {file.database}")
        insert(connection, log, tables=["step_requests"] if dense else TABLES)
        connection.execute("USE memory")
    connection.close()
    return directory


def run_command(*words: str, log: Path) -> int:
    parser = argparse.ArgumentParser()
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--log", type=Path, default=log)
    step_command.add_commands(parser.add_subparsers(), [parent])
    args = parser.parse_args(["step", *words])
    code: int = args.run(args)
    return code


def test_the_command_explains_a_step_of_a_closed_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, storm())
    assert run_command("1", "--engine", "0000000000000001", log=tmp_path) == 0
    shown = capsys.readouterr().out
    assert "27 requests needed one more block each" in shown
    assert shown == text_of(storm(), 1)


def test_a_log_without_steps_is_not_enough_data(tmp_path: Path) -> None:
    assert run_command("0", log=write_log(tmp_path, LogBuilder())) == 3


@pytest.mark.parametrize("words", [("0", "--engine", "storm"), ("0", "--engine", "-1"), ("-4",)])
def test_a_number_that_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises((StepscopeError, SystemExit)):
        run_command(*words, log=tmp_path)
