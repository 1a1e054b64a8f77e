"""Rules about the prefix cache, about what lies outside the scheduler, and for information."""

from __future__ import annotations

import json
from typing import Any

from diagnose.finding import Severity, Suppressed
from tests.diagnose.logs import log_of, preempting_step
from tests.diagnose.step_rules.states import (
    EventKind,
    LogBuilder,
    calm,
    described,
    found,
    is_healthy,
    judge,
    missing,
    verdicts,
)
from tests.telemetry.log_builder import MS

TWO_GROUPS = (
    '{"cache": {"groups": [{"kind": "full", "block_size": 16},'
    ' {"kind": "sliding_window", "block_size": 16, "sliding_window": 32}]}}'
)


def looked_up(
    *, shared: int | None, hit: int, number: int = 10, engine: dict[str, Any] | None = None,
    **admission: Any,
) -> LogBuilder:  # fmt: skip
    """Requests of 320 tokens that share so many with earlier ones and find so many in the cache."""
    log = calm(described(**(engine or {})))
    for request in range(number):
        log.arrived(request, num_prompt_tokens=320, num_shared_tokens=shared)
        calm(log, 1)
        log.admitted(request, num_hit_tokens=hit, **admission).first_token(request)
        calm(log, 1)
        log.finished(request)
    return calm(log)


# ------------------------------------------------------------------------------ prefix-cache-thrash


def test_prefixes_that_were_there_before_and_are_gone_are_found() -> None:
    finding = found(looked_up(shared=240, hit=0), "prefix-cache-thrash")
    assert [item.value for item in finding.evidence] == [0.75, 150]


def test_half_of_what_missed_has_to_have_been_there() -> None:
    assert is_healthy(looked_up(shared=160, hit=0), "prefix-cache-thrash")


def test_a_hundred_blocks_are_needed() -> None:
    assert is_healthy(looked_up(shared=240, hit=0, number=6), "prefix-cache-thrash")


def test_prefixes_that_are_found_do_not_thrash() -> None:
    assert is_healthy(looked_up(shared=240, hit=240), "prefix-cache-thrash")


def test_without_shared_prefixes_it_is_not_measured() -> None:
    log = looked_up(shared=None, hit=0)
    assert missing(log, "prefix-cache-thrash") == ("request_arrivals.num_shared_tokens",)


# --------------------------------------------------------------------------- hybrid-cache-alignment


def hybrid(number: int = 20, *, hit: int = 0, engine: dict[str, Any] | None = None) -> LogBuilder:
    settings = {"settings": TWO_GROUPS} if engine is None else engine
    return looked_up(
        shared=240, hit=hit, number=number, engine=settings, num_hit_tokens_full_group=240
    )


def test_a_prefix_that_only_the_full_group_has_is_lost() -> None:
    finding = found(hybrid(), "hybrid-cache-alignment")
    assert finding.evidence[0].value == 1.0


def test_twenty_lost_prefixes_are_needed() -> None:
    assert is_healthy(hybrid(19), "hybrid-cache-alignment")


def test_with_one_group_nothing_is_misaligned() -> None:
    assert is_healthy(hybrid(engine={}), "hybrid-cache-alignment")


def test_where_all_groups_hit_nothing_is_lost() -> None:
    assert is_healthy(hybrid(hit=240), "hybrid-cache-alignment")


# ---------------------------------------------------------------------- guard-prefix-hit-inflated


def resumed(own: int) -> LogBuilder:
    """A hundred tokens hit by a new request, and so many by one that was evicted."""
    log = looked_up(shared=100, hit=100, number=1)
    log.arrived(5).admitted(5, num_hit_tokens=0)
    preempting_step(log, [5])
    return calm(log.resumed(5, hit=own))


def test_hits_of_evicted_requests_are_told() -> None:
    verdict = judge(resumed(12), "guard-prefix-hit-inflated")
    assert isinstance(verdict, Suppressed)
    assert "10.7 % of 112 tokens" in verdict.number


def test_few_of_them_say_nothing() -> None:
    assert "guard-prefix-hit-inflated" not in verdicts(resumed(11))


# ----------------------------------------------------------------------------- prefix-identity-miss


def repeated(
    blocks: int | None, number: int = 10, *, keys: tuple[dict[str, Any], ...] = ({},),
    engine: dict[str, Any] | None = None, admission: dict[str, Any] | None = None, **arrival: Any,
) -> LogBuilder:  # fmt: skip
    """Requests of 320 tokens, so many blocks of which repeat text; `keys` take turns."""
    log = calm(described(**(engine or {})))
    for request in range(number):
        columns = {"num_prompt_tokens": 320, "shared_content_blocks": blocks} | arrival
        log.arrived(request, **(columns | keys[request % len(keys)]))
        calm(log, 1)
        log.admitted(request, **({"num_hit_tokens": 0} | (admission or {})))
    return calm(log)


def test_text_that_repeats_behind_something_else_is_found() -> None:
    finding = found(repeated(15), "prefix-identity-miss")
    assert [item.value for item in finding.evidence] == [0.75, 150, 0, 0]
    assert finding.sentence.startswith("what changes stands in front of what repeats: 150 KV")
    assert finding.confidence.level == "medium"


def test_half_of_what_was_computed_has_to_repeat() -> None:
    assert is_healthy(repeated(10), "prefix-identity-miss")


def test_a_hundred_repeated_blocks_are_needed() -> None:
    assert is_healthy(repeated(15, number=6), "prefix-identity-miss")
    assert found(repeated(15, number=7), "prefix-identity-miss").evidence[1].value == 105


def test_new_text_of_other_requests_counts_as_well() -> None:
    log = repeated(15, 20, keys=({}, {"shared_content_blocks": 0}))
    assert is_healthy(log, "prefix-identity-miss")


def test_what_hits_or_a_connector_brings_is_not_computed_again() -> None:
    log = repeated(15, 30, admission={"num_hit_tokens": 128, "num_external_tokens": 128})
    assert found(log, "prefix-identity-miss").evidence[1].value == 30 * (320 - 2 * 128) // 16
    log = repeated(15, 20, admission={"num_hit_tokens": 128, "num_external_tokens": 192})
    assert is_healthy(log, "prefix-identity-miss")


def test_a_request_that_does_not_look_its_prefix_up_misses_nothing() -> None:
    assert is_healthy(repeated(15, reads_cache=False), "prefix-identity-miss")


def test_salts_are_named_and_may_be_meant() -> None:
    salts = tuple({"salt_key": f"{number:016x}"} for number in range(5))
    finding = found(repeated(15, keys=salts), "prefix-identity-miss")
    assert finding.sentence.startswith("the same text comes under 5 cache salts")
    assert finding.confidence.level == "low"
    assert "keep tenants apart on purpose" in finding.confidence.why


def test_one_salt_is_no_reason() -> None:
    finding = found(repeated(15, salt_key="0" * 16), "prefix-identity-miss")
    assert finding.sentence.startswith("what changes stands in front")


def test_adapters_are_named_and_have_other_kv() -> None:
    adapters = ({"adapter": "a"}, {"adapter": "b"})
    finding = found(repeated(15, keys=adapters), "prefix-identity-miss")
    assert finding.sentence.startswith("the same text comes for 2 adapters")
    assert finding.confidence.level == "low"


def test_with_several_groups_a_hashed_block_is_what_divides_theirs() -> None:
    groups = json.dumps({"kv_cache_groups": [
        {"kind": "full", "block_size": 32, "num_layers": 1},
        {"kind": "sliding_window", "block_size": 16, "sliding_window": 64, "num_layers": 1},
    ]})  # fmt: skip
    log = repeated(15, engine={"settings": groups, "block_size": 32})
    assert found(log, "prefix-identity-miss").evidence[1].value == 150


def test_without_a_prefix_cache_nothing_can_miss() -> None:
    log = repeated(15, engine={"enable_prefix_caching": False})
    assert is_healthy(log, "prefix-identity-miss")


def test_without_hashes_of_content_it_is_not_measured() -> None:
    log = repeated(None)
    assert missing(log, "prefix-identity-miss") == ("request_arrivals.shared_content_blocks",)


# ------------------------------------------------------------------------------- frontend-cpu-bound


def served(before_ns: int, *, number: int = 20) -> LogBuilder:
    """Requests that reach the queue so long after the server, and their first token in 10 ms."""
    log = calm(described())
    for request in range(number):
        log.arrived(request, received_ts=log.now - before_ns)
        calm(log, 1)
        log.admitted(request).first_token(request)
        calm(log, 1)
        log.finished(request)
    return calm(log)


def test_time_before_the_queue_is_the_frontends() -> None:
    assert (found(served(30 * MS), "frontend-cpu-bound").evidence[0].value or 0) > 0.7


def test_less_than_half_before_the_queue_is_fine() -> None:
    assert is_healthy(served(8 * MS), "frontend-cpu-bound")


def test_twenty_first_tokens_are_needed() -> None:
    log = served(30 * MS, number=19)
    assert missing(log, "frontend-cpu-bound") == ("request_arrivals.received_ts",)


# ------------------------------------------------------------------------ kv-pool-shrunk-by-reserve


def restarted(new_blocks: int, **columns: Any) -> tuple[LogBuilder, LogBuilder]:
    own = {"model": "m", "host": "h", "gpu_memory_utilization": 0.92}
    old = calm(LogBuilder(1).described(**(own | {"num_usable_blocks": 1000})))
    new = LogBuilder(2, start=old.now + 1000 * MS)
    return old, calm(new.described(**(own | {"num_usable_blocks": new_blocks} | columns)))


def shrunk(new_blocks: int, **columns: Any) -> Any:
    from diagnose.diagnosis import diagnose

    diagnosis = diagnose(log_of(*restarted(new_blocks, **columns)), engines=[2])
    return [f.rule for f in diagnosis.findings if f.rule == "kv-pool-shrunk-by-reserve"]


def test_a_much_smaller_pool_after_a_restart_is_found() -> None:
    assert shrunk(599) == ["kv-pool-shrunk-by-reserve"]


def test_sixty_per_cent_of_the_pool_are_fine() -> None:
    assert shrunk(600) == []


def test_another_utilisation_is_no_surprise() -> None:
    assert shrunk(500, gpu_memory_utilization=0.5) == []


# ------------------------------------------------------------------------ gpu-memory-overcommit-oom


def test_an_engine_that_failed_for_memory_is_found() -> None:
    log = calm(described(gpu_memory_utilization=0.98, device="cuda"))
    log.event(EventKind.engine_failed, text="OutOfMemoryError: CUDA out of memory")
    finding = found(log, "gpu-memory-overcommit-oom")
    assert finding.actions[0].new == "0.96"


def test_another_failure_is_not_for_memory() -> None:
    log = calm(described())
    log.event(EventKind.engine_failed, text="ValueError: bad checkpoint")
    assert is_healthy(log, "gpu-memory-overcommit-oom")


# ------------------------------------------------------------------------------ gpu-memory-headroom

GIB = 1 << 30


def device(kv: float, **columns: Any) -> LogBuilder:
    own = {
        "device": "cuda", "memory_total_bytes": 80 * GIB, "memory_weights_bytes": 16 * GIB,
        "memory_activation_bytes": 4 * GIB, "memory_graph_bytes": 2 * GIB,
        "memory_kv_bytes": round(kv * GIB), "gpu_memory_utilization": 0.92,
    }  # fmt: skip
    return calm(described(**(own | columns)))


def test_a_device_with_little_left_is_told_for_information() -> None:
    finding = found(device(55), "gpu-memory-headroom")
    assert finding.severity is Severity.info
    assert not finding.actions


def test_a_device_with_enough_left_is_fine() -> None:
    assert is_healthy(device(53), "gpu-memory-headroom")


def test_a_share_above_the_default_is_told() -> None:
    finding = found(device(50, gpu_memory_utilization=0.96), "gpu-memory-headroom")
    assert finding.actions[0].new == "0.92"


def test_without_a_profile_it_is_not_measured() -> None:
    log = device(55, memory_graph_bytes=None)
    assert missing(log, "gpu-memory-headroom") == ("engines.memory_graph_bytes",)


def test_on_a_cpu_there_is_no_such_share() -> None:
    assert is_healthy(device(55, device="cpu"), "gpu-memory-headroom")


# ------------------------------------------------------------------------ prompt-mix-exceeds-limits


def mixed(number: int, tokens: int = 160) -> LogBuilder:
    """Requests that are in the engine together; ten of 160 tokens fill the pool."""
    log = calm(described(num_usable_blocks=100))
    for request in range(30):
        log.arrived(request, num_prompt_tokens=tokens - 16)
        calm(log, 1)
        log.admitted(request).first_token(request)
        if request >= number:
            log.finished(request - number, num_output_tokens=16)
    for request in range(30 - number, 30):
        log.finished(request, num_output_tokens=16)
    return calm(log)


def test_more_at_once_than_fit_is_told_for_information() -> None:
    finding = found(mixed(12), "prompt-mix-exceeds-limits")
    assert finding.severity is Severity.info
    assert "holds 10 of these requests" in finding.sentence


def test_as_many_as_fit_is_fine() -> None:
    assert is_healthy(mixed(9), "prompt-mix-exceeds-limits")
