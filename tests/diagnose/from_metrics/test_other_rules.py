"""Slots, loads, leaks, adapters, drafts, ranks and guards, judged by scrapes alone."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Healthy, NotMeasured, Suppressed
from tests.diagnose.logs import finding_of, log_of, verdict_of
from tests.diagnose.scrapes import NS, calm, sample, scraped, steady
from tests.telemetry.log_builder import LogBuilder

SLOTS = {"max_num_seqs": 8}


def verdict(log: LogBuilder, rule: str) -> object:
    return verdict_of(log_of(log), rule)


# ------------------------------------------------------------------------------------------- slots


def limited(**series: object) -> LogBuilder:
    own = {"waiting": steady(8, 5), "capacity": steady(8, 5), "settings": SLOTS}
    return calm(**(own | series))  # type: ignore[arg-type]


def test_all_slots_taken_with_blocks_to_spare_is_the_slot_limit() -> None:
    finding = finding_of(log_of(limited()), "seq-slot-limit")
    assert "All 8 slots were taken while up to 5 requests waited" in finding.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"running": steady(8, 7)},
        {"kv": steady(8, 0.85)},
        {"capacity": steady(8, 0), "deferred": steady(8, 5)},
        {"gen_tps": steady(8, 0)},
    ],
    ids=("a slot is free", "KV is full", "all set aside", "no output"),
)
def test_a_look_alike_is_no_slot_limit(change: dict[str, list[float]]) -> None:
    assert isinstance(verdict(limited(**change), "seq-slot-limit"), Healthy)


def test_more_running_than_slots_is_a_sum_over_engines() -> None:
    said = verdict(limited(running=steady(8, 40)), "seq-slot-limit")
    assert isinstance(said, NotMeasured)
    assert said.missing == ("samples.engine",)


def test_without_max_num_seqs_the_slot_limit_is_not_measured() -> None:
    said = verdict(limited(settings={}), "seq-slot-limit")
    assert isinstance(said, NotMeasured)
    assert said.missing == ("engines.max_num_seqs",)


def parked(**series: object) -> LogBuilder:
    own = {"running": steady(8, 2), "waiting": steady(8, 6), "deferred": steady(8, 6)}
    own |= {"capacity": steady(8, 0), "finished": steady(8, 0), "settings": SLOTS}
    return calm(**(own | series))  # type: ignore[arg-type]


def test_deferred_requests_that_fill_the_slots_are_found() -> None:
    finding = finding_of(log_of(parked()), "deferred-slot-exhaustion")
    assert "6 requests set aside and 2 running ones fill the 8 slots" in finding.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"deferred": steady(8, 5)},
        {"finished": list(range(8))},
        {"kv": steady(8, 0.6)},
        {"running": steady(8, 8), "deferred": steady(8, 0)},
    ],
    ids=("a slot is free", "requests end", "KV is used", "all run"),
)
def test_a_look_alike_is_no_exhaustion(change: dict[str, list[float]]) -> None:
    assert isinstance(verdict(parked(**change), "deferred-slot-exhaustion"), Healthy)


def test_without_the_split_by_reason_exhaustion_is_not_measured() -> None:
    said = verdict(parked(deferred=[], capacity=[]), "deferred-slot-exhaustion")
    assert isinstance(said, NotMeasured)
    assert said.missing == ('vllm:num_requests_waiting_by_reason{reason="deferred"}',)


# ------------------------------------------------------------------------------------ blocks, loads

LEAK = {
    "running": [12, 11, 10, 9, 8, 7, 6, 5],
    "kv": [0.4, 0.46, 0.53, 0.6, 0.68, 0.76, 0.85, 0.93],
}


def test_usage_that_rises_as_requests_leave_is_a_leak() -> None:
    finding = finding_of(log_of(calm(**LEAK)), "kv-block-leak")
    assert "from 40.0 % to 93.0 %" in finding.sentence
    assert "from 12 to 5" in finding.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"running": [12, 11, 10, 9, 8, 7, 6, 6]},
        {"kv": [0.4, 0.44, 0.5, 0.55, 0.6, 0.65, 0.68, 0.7]},
        {"preempt": [0, 0, 0, 1, 1, 1, 1, 1]},
        {"running": [12, 11, 10, 9, 12, 7, 6, 5]},
    ],
    ids=("half still runs", "rose by 0.3", "preempted", "requests came"),
)
def test_a_look_alike_is_no_leak(change: dict[str, list[float]]) -> None:
    assert isinstance(verdict(calm(**(LEAK | change)), "kv-block-leak"), Healthy)


@pytest.mark.parametrize(
    ("series", "rule"),
    [("expired", "pd-producer-lease-expiry"), ("failed", "kv-load-failure")],
)
def test_a_counter_of_a_connector_that_rises_is_found(series: str, rule: str) -> None:
    finding = finding_of(log_of(calm(**{series: [3, 3, 3, 4, 4, 4, 4, 4]})), rule)
    assert finding.evidence[0].value == 1
    assert not finding.is_open
    assert isinstance(verdict(calm(**{series: steady(8, 3)}), rule), Healthy)
    assert isinstance(verdict(calm(), rule), NotMeasured)


def waiting_for_kv(**series: object) -> LogBuilder:
    own = {"waiting": steady(8, 3), "deferred": steady(8, 3), "failed": [0, 1, 2, 3, 3, 3, 3, 3]}
    return calm(**(own | {"interval_s": 30} | series))  # type: ignore[arg-type]


def test_deferred_requests_that_never_come_back_while_transfers_fail_are_stuck() -> None:
    finding = finding_of(log_of(waiting_for_kv()), "remote-kv-wait-stuck")
    assert finding.cause.kind == "stuck_loads"
    assert "3 transfers failed" in finding.sentence


def test_loads_that_stay_in_progress_are_stuck_without_any_failure() -> None:
    log = waiting_for_kv(failed=[], loading=steady(8, 2))
    finding = finding_of(log_of(log), "remote-kv-wait-stuck")
    assert finding.confidence.level == "high"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interval_s": 10}, Healthy),
        ({"deferred": [3, 3, 2, 3, 3, 2, 3, 3]}, Healthy),
        ({"failed": steady(8, 3)}, NotMeasured),
        ({"failed": []}, NotMeasured),
        ({"failed": [], "loading": steady(8, 0)}, Healthy),
        ({"deferred": []}, NotMeasured),
    ],
    ids=("too short", "some come back", "none failed", "not counted", "none loads", "no reasons"),
)
def test_a_look_alike_is_not_stuck(change: dict[str, object], said: type) -> None:
    assert isinstance(verdict(waiting_for_kv(**change), "remote-kv-wait-stuck"), said)


GATHERING = {
    "failed": [],
    "deferred": [1, 1, 2, 2, 3, 3, 4, 5],
    "settings": {"kv_connector": "DynamoConnector"},
}


def test_a_crowd_that_only_grows_behind_a_connector_is_stuck_with_low_confidence() -> None:
    finding = finding_of(log_of(waiting_for_kv(**GATHERING)), "remote-kv-wait-stuck")
    assert finding.confidence.level == "low"
    assert "failures are not counted" in finding.cause.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {}},
        {"settings": {"kv_connector": "DynamoConnector", "max_loras": 4}},
        {"deferred": steady(8, 38)},
        {"deferred": [2, 2, 2, 3, 3, 3, 4, 4]},
        {"kv": steady(8, 0.6)},
        {"finished": steady(8, 3)},
    ],
    ids=("no connector", "adapters", "as many", "hardly more", "blocks used", "nobody ends"),
)
def test_a_look_alike_of_such_a_crowd_is_not_measured(change: dict[str, object]) -> None:
    said = verdict(waiting_for_kv(**(GATHERING | change)), "remote-kv-wait-stuck")
    assert isinstance(said, NotMeasured)


# ------------------------------------------------------------------------------------------ answers

PROMPTS = {"prompt_tps": [0, 0, 0, 900, 900, 900, 0, 0]}


@pytest.mark.parametrize(("slow", "fires"), [(130, True), (143, True), (145, False), (240, False)])
def test_answers_that_crawl_beside_prompts_are_found(slow: float, fires: bool) -> None:
    log = calm(**PROMPTS, gen_tps=[240, 240, 240, slow, slow, slow, 240, 240])
    assert isinstance(verdict(log, "prefill-stalls-decode"), Finding) == fires


@pytest.mark.parametrize(("interval_s", "fires"), [(4, True), (3, False)])
def test_prompts_of_under_ten_seconds_stall_nobody(interval_s: float, fires: bool) -> None:
    outputs = [240, 240, 240, 100, 100, 100, 240, 240]
    log = calm(**PROMPTS, gen_tps=outputs, interval_s=interval_s)  # type: ignore[arg-type]
    assert isinstance(verdict(log, "prefill-stalls-decode"), Finding) == fires


def test_answers_that_do_not_come_back_are_not_stalled_by_prompts() -> None:
    log = calm(prompt_tps=[0, 0, 0, 0, 0, 900, 900, 900], gen_tps=[*steady(5, 240), *steady(3, 20)])
    assert isinstance(verdict(log, "prefill-stalls-decode"), Healthy)


def test_prompts_all_the_time_leave_nothing_to_compare_with() -> None:
    said = verdict(calm(prompt_tps=steady(8, 900)), "prefill-stalls-decode")
    assert isinstance(said, NotMeasured)


def test_hardly_any_draft_right_is_found() -> None:
    log = calm(drafted=[3000 * i for i in range(8)], accepted=[100 * i for i in range(8)])
    assert isinstance(verdict(log, "spec-decode-unprofitable"), Finding)
    good = calm(drafted=[3000 * i for i in range(8)], accepted=[600 * i for i in range(8)])
    assert isinstance(verdict(good, "spec-decode-unprofitable"), Healthy)
    few = calm(drafted=[100 * i for i in range(8)], accepted=steady(8, 0))
    assert isinstance(verdict(few, "spec-decode-unprofitable"), NotMeasured)
    assert isinstance(verdict(calm(), "spec-decode-unprofitable"), NotMeasured)


def adapters(running: str, waiting: str, slots: str = "2") -> LogBuilder:
    log = calm(0, running=[])
    for index in range(4):
        sample(log, "vllm:num_requests_running", 2)
        sample(log, "vllm:num_requests_waiting", 1)
        labels = {"max_lora": slots, "waiting_lora_adapters": waiting}
        sample(log, "vllm:lora_requests_info", index, labels | {"running_lora_adapters": running})
        # a set of labels that was once true stays on the page, with the time when it was
        sample(log, "vllm:lora_requests_info", -1, labels | {"running_lora_adapters": "old"})
        log.advance(10 * NS)
    return log


def test_an_adapter_that_waits_for_a_slot_is_found() -> None:
    finding = finding_of(log_of(adapters("a,b", "c")), "lora-slot-contention")
    assert (finding.actions[0].old, finding.actions[0].new) == ("2", "3")


@pytest.mark.parametrize(
    ("running", "waiting", "slots"),
    [("a", "c", "2"), ("a,b", "", "2"), ("a,b", "b", "2"), ("a,b", "c", "4")],
    ids=("a slot is free", "nobody waits", "its adapter runs", "more slots"),
)
def test_a_look_alike_is_no_contention(running: str, waiting: str, slots: str) -> None:
    said = verdict(adapters(running, waiting, slots), "lora-slot-contention")
    assert isinstance(said, Healthy)


def ranks(*waiting: float, interval_s: float = 10) -> list[LogBuilder]:
    return [
        scraped(
            engine,
            running=steady(8, 8),
            waiting=steady(8, mean),
            gen_tps=steady(8, 100),
            interval_s=interval_s,
        )
        for engine, mean in enumerate(waiting, 1)
    ]


@pytest.mark.parametrize(
    ("waiting", "fires"),
    [
        ((20, 1, 0), True), ((8, 2, 2), True), ((7, 0, 0), False), ((20, 15, 18), False),
        ((8, 2), True), ((8, 3), False), ((7, 0), False), ((20, 0), True),
    ],
)  # fmt: skip
def test_an_engine_that_queues_beside_idle_peers_is_found(
    waiting: tuple[float, ...], fires: bool
) -> None:
    engines = diagnose(log_of(*ranks(*waiting))).engines
    rules = {engine.scope.engine: [f.rule for f in engine.findings] for engine in engines}
    assert ("dp-rank-imbalance" in rules[1]) == fires
    others = rules.keys() - {1}
    assert all("dp-rank-imbalance" not in rules[other] for other in others)


@pytest.mark.parametrize(
    ("running", "fires"), [((20, 5), True), ((20, 6), False), ((4, 1), False), ((20, 0), False)],
    ids=("at", "both run", "few run", "a standby"),
)  # fmt: skip
def test_a_rank_that_runs_nearly_all_is_found(running: tuple[int, int], fires: bool) -> None:
    both = [
        scraped(engine, running=steady(8, mean), waiting=steady(8, 0), gen_tps=steady(8, 100))
        for engine, mean in enumerate(running, 1)
    ]
    assert isinstance(verdict_of(log_of(*both), "dp-rank-imbalance"), Finding) == fires


def test_scrapes_from_before_a_restart_are_not_compared() -> None:
    before, after = ranks(20, 0)
    for row in (row for rows in after.rows.values() for row in rows):
        for name in row.keys() & {"ts", "started_ts"}:
            row[name] += 80 * NS
    said = verdict_of(log_of(before, after), "dp-rank-imbalance")
    assert isinstance(said, NotMeasured)
    assert "beside another engine" in said.why


def test_one_engine_has_no_peers() -> None:
    said = verdict(calm(), "dp-rank-imbalance")
    assert isinstance(said, NotMeasured)
    assert said.missing == ("samples.engine",)


def first_tokens(ttft: float, queued: float, prefill: float, *, ends_each: int = 1) -> LogBuilder:
    log = calm(0, running=[])
    names = ("time_to_first_token", "request_queue_time", "request_prefill_time")
    for index in range(4):
        sample(log, "vllm:num_requests_running", 6)
        sample(log, "vllm:num_requests_waiting", 0)
        for name, seconds in zip(names, (ttft, queued, prefill), strict=True):
            number = 10 * index * (1 if name == names[0] else ends_each)
            sample(log, f"vllm:{name}_seconds_sum", number * seconds)
            sample(log, f"vllm:{name}_seconds_count", number)
        log.advance(10 * NS)
    return log


@pytest.mark.parametrize(
    ("times", "fires"),
    [((9.0, 0.05, 1.0), True), ((2.0, 0.5, 0.6), False), ((0.35, 0.05, 0.1), False)],
    ids=("before the engine", "inside the engine", "too short to matter"),
)
def test_time_before_the_engine_is_found(times: tuple[float, ...], fires: bool) -> None:
    said = verdict(first_tokens(*times), "frontend-cpu-bound")
    assert isinstance(said, Finding) == fires


def test_first_tokens_and_ends_of_other_requests_are_not_compared() -> None:
    said = verdict(first_tokens(2.0, 0.1, 0.1, ends_each=2), "frontend-cpu-bound")
    assert isinstance(said, NotMeasured)
    assert "not of the same requests" in said.why


@pytest.mark.parametrize(("blocks", "fires"), [(599, True), (600, False), (1200, False)])
def test_a_pool_that_shrank_with_a_restart_is_found(blocks: int, fires: bool) -> None:
    log = calm(6)
    for index, ts in enumerate(sorted({row["ts"] for row in log.rows["samples"]})):
        log.now = ts
        size = {"num_gpu_blocks": str(1000 if index < 3 else blocks), "block_size": "16"}
        sample(log, "vllm:cache_config_info", 1.0, size)
    assert isinstance(verdict(log, "kv-pool-shrunk-by-reserve"), Finding) == fires


# ------------------------------------------------------------------------------------------- guards


def by_guard(log: LogBuilder, guard: str) -> list[str]:
    engine = diagnose(log_of(log)).engines[0]
    return [said.number for said in engine.suppressed if said.by == guard]


def test_a_reset_is_left_out_and_said() -> None:
    (number,) = by_guard(calm(preempt=[410, 410, 0, 0, 0, 0, 0, 0]), "guard-counter-reset")
    assert number.startswith("1 of 7 intervals left out")
    assert by_guard(calm(), "guard-counter-reset") == []


def test_a_full_pool_that_harms_nobody_is_a_forecast() -> None:
    rising = [0.88 + 0.01 * i for i in range(8)]
    (number,) = by_guard(calm(kv=rising), "guard-kv-high-healthy")
    assert number.endswith("nobody waiting; at this pace full in 50.0 s")
    assert by_guard(calm(kv=rising, waiting=steady(8, 1)), "guard-kv-high-healthy") == []
    assert by_guard(calm(kv=rising, preempt=[]), "guard-kv-high-healthy") == []


def test_short_requests_make_the_gauge_overstate() -> None:
    small = {"block_size": 16}
    short = {"kv": steady(8, 0.67), "finished": [30 * i for i in range(8)]}
    (number,) = by_guard(calm(settings=small, **short), "guard-kv-gauge-misread")  # type: ignore[arg-type]
    assert "counts blocks of 16 tokens" in number
    assert by_guard(calm(settings=small, kv=steady(8, 0.67)), "guard-kv-gauge-misread") == []


def test_hits_that_come_with_preemptions_are_no_reuse() -> None:
    cached = {"hits": [30 * i for i in range(8)], "queries": [100 * i for i in range(8)]}
    evicting = {"preempt": [0, 1, 2, 3, 3, 3, 3, 3]}
    (number,) = by_guard(calm(**cached, **evicting), "guard-prefix-hit-inflated")
    assert "hit rate of 30.0 %" in number
    assert by_guard(calm(**cached), "guard-prefix-hit-inflated") == []


def test_a_guard_that_only_annotates_names_no_rule() -> None:
    engine = diagnose(log_of(calm(preempt=[4, 0, 0, 0, 0, 0, 0, 0]))).engines[0]
    assert Suppressed in {type(said) for said in engine.suppressed}
    assert [said.rule for said in engine.suppressed] == [None]
