"""Rules about requests that wait: for a grammar, an adapter, a slot, an encoder, a transfer."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.finding import Finding, Severity, Suppressed
from tests.diagnose.step_rules.states import (
    SECOND,
    EventKind,
    LogBuilder,
    SkipReason,
    StopReason,
    calm,
    described,
    found,
    is_healthy,
    lasting,
    missing,
    steps,
    verdicts,
)

# ------------------------------------------------------------------------------- grammar-wait-stall


def compiling(seconds: float | None, *, until: EventKind = EventKind.grammar_ready) -> LogBuilder:
    """A request that waits so long for its grammar; for ever with `None`."""
    log = calm(described())
    log.arrived(1, grammar_key="g1").event(EventKind.grammar_started, 1)
    log.skipped(1, SkipReason.grammar_compiling)
    lasting(log, 90 if seconds is None else seconds, waiting=1)
    if seconds is not None:
        log.event(until, 1)
        calm(log)
        log.admitted(1).first_token(1).finished(1)
    return calm(log)


def test_a_slow_compile_makes_a_request_wait() -> None:
    finding = found(compiling(5), "grammar-wait-stall")
    assert finding.cause.kind == "slow_grammars"
    assert finding.severity is Severity.high
    assert not finding.is_open


def test_two_seconds_for_a_grammar_are_allowed() -> None:
    assert is_healthy(compiling(1.5), "grammar-wait-stall")


def test_a_compile_that_never_ends_is_critical() -> None:
    finding = found(compiling(None), "grammar-wait-stall")
    assert finding.severity is Severity.critical
    assert finding.is_open


def test_a_failed_compile_is_counted() -> None:
    finding = found(compiling(5, until=EventKind.grammar_failed), "grammar-wait-stall")
    assert "1 failed" in finding.cause.sentence


def test_a_wait_for_an_adapter_is_no_grammar() -> None:
    log = calm(described())
    log.arrived(1).skipped(1, SkipReason.lora_slots)
    assert is_healthy(lasting(log, 5, waiting=1), "grammar-wait-stall")


# ----------------------------------------------------------------------------- lora-slot-contention


def adapters(num_waits: int = 3, seconds: float = 2, **engine: Any) -> LogBuilder:
    log = calm(described(**({"max_loras": 2} | engine)))
    for request in range(num_waits):
        log.arrived(request, adapter=f"tenant-{request}")
        log.skipped(request, SkipReason.lora_slots)
    lasting(log, seconds, waiting=num_waits, num_adapters=2)
    for request in range(num_waits):
        log.admitted(request).first_token(request).finished(request)
    return calm(log)


def test_requests_that_wait_for_an_adapter_slot_are_told_with_their_adapters() -> None:
    finding = found(adapters(), "lora-slot-contention")
    assert finding.cause.kind == "more_adapters"
    assert "tenant-0, tenant-1, tenant-2" in finding.cause.sentence
    assert (finding.actions[0].flag, finding.actions[0].new) == ("--max-loras", "5")


def test_two_waits_are_no_contention() -> None:
    assert is_healthy(adapters(2), "lora-slot-contention")


def test_short_waits_are_no_contention() -> None:
    assert is_healthy(adapters(seconds=0.5), "lora-slot-contention")


def test_without_adapters_there_is_none() -> None:
    assert is_healthy(adapters(max_loras=None), "lora-slot-contention")


# ------------------------------------------------------------------------- deferred-slot-exhaustion


def set_aside(seconds: float = 31, *, ends: bool = False, **columns: Any) -> LogBuilder:
    log = described()
    for request in range(32):
        log.arrived(request)
        if request >= 4:
            log.skipped(request, SkipReason.remote_kv_loading)
    own = {
        "running": 4, "waiting": 30, "num_skipped_waiting": 28, "free": 50,
        "num_admitted": 0, "num_resumed": 0,
    }  # fmt: skip
    calm(log)
    lasting(log, seconds, **(own | columns))
    if ends:
        log.finished(0)
        lasting(log, 1, **(own | columns))
    return log


def test_requests_set_aside_fill_the_slots() -> None:
    finding = found(set_aside(), "deferred-slot-exhaustion")
    assert "28 requests set aside (28 remote_kv_loading)" in finding.sentence
    assert finding.cause.kind == "stuck_loads"


def test_thirty_seconds_are_needed() -> None:
    assert is_healthy(set_aside(29), "deferred-slot-exhaustion")


def test_one_slot_short_of_the_limit_is_not_full() -> None:
    assert is_healthy(set_aside(num_skipped_waiting=27), "deferred-slot-exhaustion")


def test_with_a_full_pool_blocks_are_short() -> None:
    assert is_healthy(set_aside(free=20), "deferred-slot-exhaustion")


def test_where_requests_end_slots_turn_over() -> None:
    assert is_healthy(set_aside(ends=True), "deferred-slot-exhaustion")


def test_without_the_count_of_those_set_aside_it_is_not_measured() -> None:
    log = set_aside(num_skipped_waiting=None)
    assert missing(log, "deferred-slot-exhaustion") == ("steps.num_skipped_waiting",)


# ------------------------------------------------------------------------ connector-parked-deadlock


def parked(seconds: float = 31, **columns: Any) -> LogBuilder:
    log = described(kv_connector="OffloadConnector")
    own = {
        "running": 0, "waiting": 3, "tokens": 0, "free": 5, "num_loaded_not_promoted": 2,
        "num_blocks_waiting": 58, "head_request": 1, "head_blocks_needed": 9,
        "stop": StopReason.loaded_needs_blocks,
    }  # fmt: skip
    return lasting(calm(log), seconds, **(own | columns))


def test_loaded_requests_that_hold_each_others_blocks_are_found() -> None:
    finding = found(parked(), "connector-parked-deadlock")
    assert finding.cause.kind == "stuck_loads"
    assert "2 requests whose KV has been loaded hold 58 of 63 blocks" in finding.sentence


def test_a_short_standstill_is_not() -> None:
    assert is_healthy(parked(29), "connector-parked-deadlock")


def test_a_head_that_fits_is_not_parked() -> None:
    assert is_healthy(parked(head_blocks_needed=5), "connector-parked-deadlock")


def test_nothing_received_is_another_rule() -> None:
    assert is_healthy(parked(num_loaded_not_promoted=0), "connector-parked-deadlock")


def test_the_standstill_names_its_cause() -> None:
    finding = found(parked(), "admission-deadlock")
    assert finding.cause.kind == "stuck_loads"
    assert finding.rejected == ()


# --------------------------------------------------------------------- encoder-budget-zero-progress


def spinning(number: int = 1001, **columns: Any) -> LogBuilder:
    log = described()
    log.arrived(1, item_embeds=[900], item_positions=[0])
    own = {
        "running": 0, "waiting": 1, "tokens": 0, "encoder_budget": 512, "encoder_cache_free": 512,
        "stop": StopReason.encoder_budget, "head_request": 1,
    }  # fmt: skip
    calm(log)
    return steps(log, 1, num_repeats=number, **(own | columns))


def test_steps_that_the_encoder_keeps_empty_are_found() -> None:
    finding = found(spinning(), "encoder-budget-zero-progress")
    assert "1,001 steps" in finding.sentence
    assert "the largest item has 900 embeddings" in finding.sentence


def test_a_thousand_empty_steps_are_not_enough() -> None:
    assert is_healthy(spinning(1000), "encoder-budget-zero-progress")


def test_empty_steps_for_want_of_blocks_are_not_the_encoders() -> None:
    log = spinning(stop=StopReason.kv_blocks_chunk)
    assert is_healthy(log, "encoder-budget-zero-progress")


def test_a_chunk_that_cannot_be_aligned_is_the_encoders_too() -> None:
    finding = found(spinning(stop=StopReason.block_alignment), "encoder-budget-zero-progress")
    assert "1,001 steps" in finding.sentence


@pytest.mark.parametrize(("largest", "fires"), [(513, True), (512, False)])
def test_a_runner_whose_item_no_step_has_room_for_is_found(largest: int, fires: bool) -> None:
    """Without a row a request nobody says why it got nothing; its item is too large for any."""
    log = described()
    log.arrived(1, item_embeds=[largest], item_positions=[0])
    calm(log)
    columns = {
        "running": 1, "waiting": 0, "tokens": 0, "encoder_budget": 512, "num_zero_requests": 1,
        "encoder_cache_reclaimable": 4096,
    }  # fmt: skip
    steps(log, 1, num_repeats=1001, **columns)
    assert is_healthy(log, "encoder-budget-zero-progress") is not fires


# -------------------------------------------------------------------------------- connector-*-stuck


def transfer(began: EventKind, ended: EventKind, seconds: float | None) -> LogBuilder:
    log = calm(described(kv_connector="SharedDirectory"))
    log.arrived(1).admitted(1).first_token(1).event(began, 1, num_blocks=12, peer="store-3")
    lasting(log, 130 if seconds is None else seconds)
    if seconds is not None:
        log.event(ended, 1)
    return calm(log.finished(1))


SAVE = (EventKind.save_started, EventKind.save_finished)
ACK = (EventKind.ack_wait_started, EventKind.ack_received)


def test_a_save_that_never_ends_is_found_with_its_blocks() -> None:
    finding = found(transfer(*SAVE, None), "connector-save-stuck")
    assert "1 have not ended and hold 12 KV blocks" in finding.sentence
    assert "store-3" in finding.cause.sentence
    assert finding.severity is Severity.critical


def test_a_save_under_two_minutes_is_slow_and_fine() -> None:
    assert is_healthy(transfer(*SAVE, 119), "connector-save-stuck")
    assert found(transfer(*SAVE, 121), "connector-save-stuck").severity is Severity.high


def test_a_missing_acknowledgement_is_no_stuck_save() -> None:
    assert is_healthy(transfer(*ACK, None), "connector-save-stuck")
    assert found(transfer(*ACK, None), "connector-ack-stuck").cause.kind == "peer"


def test_a_save_that_never_ends_explains_its_acknowledgement_and_its_blocks() -> None:
    log = calm(described(kv_connector="SharedDirectory"))
    log.arrived(1).admitted(1).first_token(1).event(ACK[0], 1, num_blocks=12)
    log.event(SAVE[0], 1, num_blocks=12).finished(1)
    lasting(log, 130, running=0, tokens=0, num_blocks_running=0)
    said = verdicts(log)
    assert isinstance(said["connector-save-stuck"], Finding)
    for rule in ("connector-ack-stuck", "kv-block-leak"):
        silenced = said[rule]
        assert isinstance(silenced, Suppressed), rule
        assert silenced.by == "connector-save-stuck"


def test_a_late_acknowledgement_is_fine() -> None:
    assert is_healthy(transfer(*ACK, 60), "connector-ack-stuck")


def test_without_a_connector_nothing_is_stuck() -> None:
    log = calm(described())
    assert is_healthy(log, "connector-save-stuck")
    assert is_healthy(log, "connector-ack-stuck")


# ------------------------------------------------------------------------- pd-producer-lease-expiry


def test_an_expired_lease_is_found() -> None:
    log = calm(described(kv_connector="P2pConnector"))
    log.arrived(1).admitted(1).first_token(1).finished(1)
    log.event(EventKind.lease_expired, 1, num_blocks=12)
    finding = found(calm(log), "pd-producer-lease-expiry")
    assert "1 lease of KV blocks expired" in finding.sentence
    assert "12 blocks" in finding.sentence


def test_no_lease_expired_is_healthy() -> None:
    assert is_healthy(calm(described(kv_connector="P2pConnector")), "pd-producer-lease-expiry")


# -------------------------------------------------------------------------------- client-abort-leak


def left(seconds: float, **engine: Any) -> LogBuilder:
    log = calm(described(**engine))
    log.arrived(1).admitted(1).first_token(1).event(EventKind.client_gone, 1)
    lasting(log, seconds)
    return calm(log.finished(1))


def test_a_request_that_outlives_its_client_leaks() -> None:
    finding = found(left(11), "client-abort-leak")
    assert finding.evidence[0].value == 11 * SECOND
    assert not finding.is_open


def test_ten_seconds_without_a_client_are_allowed() -> None:
    assert is_healthy(left(9), "client-abort-leak")


def test_a_source_that_sees_no_clients_is_not_judged() -> None:
    assert missing(left(11, source="vllm"), "client-abort-leak") == ("request_events.kind",)
