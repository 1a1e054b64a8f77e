"""The views of steps: admission stops, KV pressure, token work."""

from __future__ import annotations

from typing import Any

from telemetry.vocabulary import StopReason
from tests.telemetry.log_builder import LogBuilder, connect, records

BLOCKS = {
    "num_blocks_free_unhashed": 2,
    "num_blocks_free_cached": 3,
    "num_blocks_running": 50,
    "num_blocks_waiting": 5,
    "num_blocks_finished": 2,
    "num_blocks_deferred_free": 1,
}


def only(log: LogBuilder, view: str) -> dict[str, Any]:
    (row,) = records(connect(log), f"FROM {view}")
    return row


def test_a_stop_names_its_reason_and_what_the_head_lacks() -> None:
    log = LogBuilder().step(
        stop_reason=StopReason.kv_watermark,
        head_request=4,
        head_blocks_needed=9,
        num_repeats=3,
        **BLOCKS,
    )
    row = only(log, "admission_stops")
    assert (row["stop_reason"], row["head_request"], row["num_repeats"]) == ("kv_watermark", 4, 3)
    assert (row["head_blocks_needed"], row["num_blocks_free"]) == (9, 5)


def test_a_step_whose_stop_is_not_measured_is_no_stop() -> None:
    assert records(connect(LogBuilder().step()), "FROM admission_stops") == []


def test_blocks_by_state_add_up_to_the_pool() -> None:
    row = only(LogBuilder().described().step(**BLOCKS), "kv_pressure")
    assert row["num_blocks_pool"] == 63 == row["num_blocks_free"] + 50 + 5 + 2 + 1
    assert row["usage_ratio"] == 1 - 5 / 63


def test_the_shortage_is_what_the_free_blocks_lack() -> None:
    short = LogBuilder().step(head_blocks_needed=9, **BLOCKS)
    assert only(short, "kv_pressure")["num_blocks_short"] == 4


def test_a_head_that_fits_is_short_of_nothing() -> None:
    fits = LogBuilder().step(head_blocks_needed=5, **BLOCKS)
    assert only(fits, "kv_pressure")["num_blocks_short"] == 0


def test_without_a_need_or_a_pool_nothing_is_claimed() -> None:
    row = only(LogBuilder().step(**BLOCKS), "kv_pressure")
    assert (row["num_blocks_short"], row["num_blocks_pool"], row["usage_ratio"]) == (None,) * 3


WORK = {
    "num_scheduled_tokens": 100,
    "num_prefill_tokens": 40,
    "num_decode_tokens": 20,
    "num_recomputed_tokens": 25,
    "num_draft_tokens": 12,
    "num_padding_tokens": 3,
    "num_accepted": 7,
}


def test_the_parts_of_the_work_add_up() -> None:
    row = only(LogBuilder().step(**WORK), "token_work")
    parts = {
        "num_useful_prefill_tokens": 40,
        "num_useful_decode_tokens": 27,
        "num_recomputed_tokens": 25,
        "num_rejected_draft_tokens": 5,
        "num_padding_tokens": 3,
    }
    assert {name: row[name] for name in parts} == parts
    assert sum(parts.values()) == row["num_scheduled_tokens"]


def test_without_speculation_no_draft_is_rejected() -> None:
    plain = {**WORK, "num_draft_tokens": None, "num_padding_tokens": None, "num_accepted": None}
    row = only(LogBuilder().step(**plain), "token_work")
    assert (row["num_rejected_draft_tokens"], row["num_padding_tokens"]) == (0, 0)
    assert row["num_useful_decode_tokens"] == 20


def test_drafts_that_are_not_judged_yet_are_not_called_rejected() -> None:
    in_flight = {**WORK, "num_accepted": None, "updated_ts": None}
    row = only(LogBuilder().step(**in_flight), "token_work")
    assert row["num_rejected_draft_tokens"] is None


def test_drafts_whose_verdict_nobody_took_were_not_accepted() -> None:
    row = only(LogBuilder().step(**{**WORK, "num_accepted": None}), "token_work")
    assert (row["num_rejected_draft_tokens"], row["num_useful_decode_tokens"]) == (12, 20)


def test_padding_that_proved_right_is_useful_work() -> None:
    filled = {**WORK, "num_draft_tokens": 5, "num_padding_tokens": 10, "num_accepted": 7}
    row = only(LogBuilder().step(**filled), "token_work")
    assert (row["num_rejected_draft_tokens"], row["num_padding_tokens"]) == (0, 8)
    assert row["num_useful_decode_tokens"] == 27


def test_a_source_that_tells_no_recomputation_leaves_it_open() -> None:
    row = only(LogBuilder().step(num_scheduled_tokens=5), "token_work")
    assert row["num_recomputed_tokens"] is None
