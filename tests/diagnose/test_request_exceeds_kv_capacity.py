from __future__ import annotations

from typing import Any

from diagnose.finding import Healthy, NotMeasured, Suppressed
from telemetry.vocabulary import FinishReason, StopReason
from tests.diagnose.logs import (
    described,
    finding_of,
    log_of,
    preempting_step,
    steps,
    verdict_of,
)
from tests.telemetry.log_builder import LogBuilder

RULE = "request-exceeds-kv-capacity"
POOL_TOKENS = 63 * 16


def waiting_for(num_prompt_tokens: int, *, head_blocks: int | None, **engine: Any) -> LogBuilder:
    log = described(**engine).arrived(0, num_prompt_tokens=num_prompt_tokens)
    return steps(
        log,
        30,
        running=0,
        waiting=1,
        tokens=0,
        free=63,
        stop=StopReason.kv_blocks_whole_prompt,
        head_request=0,
        head_blocks_needed=head_blocks,
    )


def test_a_prompt_of_one_token_too_many_is_found() -> None:
    finding = finding_of(log_of(waiting_for(POOL_TOKENS + 1, head_blocks=64)), RULE)
    assert finding.evidence[0].value == 64
    assert finding.is_open


def test_a_prompt_that_just_fits_is_not() -> None:
    log = log_of(waiting_for(POOL_TOKENS, head_blocks=63))
    assert isinstance(verdict_of(log, RULE), Healthy)


def test_a_need_that_is_only_the_watermarks_is_not() -> None:
    log = log_of(waiting_for(POOL_TOKENS - 16, head_blocks=65, watermark=0.05))
    assert isinstance(verdict_of(log, RULE), Healthy)


def test_a_head_that_outgrew_the_pool_is_found() -> None:
    finding = finding_of(log_of(waiting_for(500, head_blocks=70)), RULE)
    assert "needs 70 KV blocks" in finding.sentence


def test_a_limit_that_might_not_fit_is_no_fault() -> None:
    log = described().arrived(0, num_prompt_tokens=64, max_tokens=4000)
    steps(log, 50)
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_a_refused_request_is_no_fault_but_counted() -> None:
    log = described().arrived(0, num_prompt_tokens=5000)
    log.finished(0, FinishReason.refused, num_output_tokens=0)
    steps(log, 50)
    verdict = verdict_of(log_of(log), RULE)
    assert isinstance(verdict, Healthy)
    assert "1 refused" in verdict.number


def test_without_the_pools_size_it_is_not_measured() -> None:
    verdict = verdict_of(log_of(waiting_for(99, head_blocks=1, num_usable_blocks=None)), RULE)
    assert isinstance(verdict, NotMeasured)
    assert "engines.num_usable_blocks" in verdict.missing


def test_it_clears_when_the_request_has_gone() -> None:
    log = waiting_for(POOL_TOKENS + 1, head_blocks=64)
    log.finished(0, FinishReason.abort_client, num_output_tokens=0)
    assert not finding_of(log_of(log), RULE).is_open


def test_only_a_longer_limit_is_lowered() -> None:
    log = waiting_for(POOL_TOKENS + 1, head_blocks=64, max_model_len=POOL_TOKENS)
    flags = {action.flag for action in finding_of(log_of(log), RULE).actions}
    assert flags == {"--num-gpu-blocks-override"}


def test_the_door_is_only_closed_where_it_is_open() -> None:
    closed = waiting_for(POOL_TOKENS + 1, head_blocks=64, settings='{"allow_oversize": false}')
    opened = waiting_for(POOL_TOKENS + 1, head_blocks=64, settings='{"allow_oversize": true}')
    door = "--allow-oversize"
    assert door not in {a.flag for a in finding_of(log_of(closed), RULE).actions}
    assert door in {a.flag for a in finding_of(log_of(opened), RULE).actions}


def test_evictions_by_it_are_not_pressure() -> None:
    log = described().arrived(0, num_prompt_tokens=900, max_tokens=200)
    steps(log, 50)
    for nth in range(4):
        preempting_step(log, [0], beneficiary=0, lost=POOL_TOKENS, num_output_tokens_kept=108 + nth)
    memory = log_of(log)
    assert finding_of(memory, RULE).evidence[0].value == 64
    pressure = verdict_of(memory, "kv-preemption-pressure")
    assert isinstance(pressure, Suppressed)
    assert pressure.by == RULE
