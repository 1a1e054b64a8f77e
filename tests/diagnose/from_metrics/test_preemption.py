"""Pressure, thrash and their guard, judged by scrapes alone."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Healthy, NotMeasured, Severity, Suppressed
from tests.diagnose.logs import finding_of, log_of, verdict_of
from tests.diagnose.scrapes import NS, calm, histogram, scraped, steady, storm
from tests.telemetry.log_builder import LogBuilder

PRESSURE, THRASH, LIGHT = "kv-preemption-pressure", "kv-preemption-thrash", "guard-light-preemption"
HUNDREDS = [100 * i for i in range(8)]
POOL = {"block_size": 16, "num_usable_blocks": 63, "max_num_seqs": 32}


def thrashing(**series: list[float]) -> LogBuilder:
    """Four good scrapes, then evictions without arrivals, prompts again and hardly any output."""
    own = {
        "running": steady(12, 8),
        "waiting": steady(12, 0),
        "kv": [0.95, 0.95, 0.95, 0.95, *steady(8, 1.0)],
        "gen_tps": [240, 240, 240, 240, *steady(8, 40)],
        "prompt_tps": [0, 0, 0, 0, *steady(8, 800)],
        "preempt": [0, 0, 0, 0, 1, 3, 4, 6, 8, 9, 11, 13],
        "finished": steady(12, 5),
    }
    return scraped(**(own | series))


# ----------------------------------------------------------------------------------------- pressure


def test_a_full_pool_that_evicts_is_pressure() -> None:
    finding = finding_of(log_of(storm()), PRESSURE)
    assert finding.severity is Severity.high
    assert "84 preemptions were counted for 70 requests that ended" in finding.sentence
    assert finding.sentence.endswith("(from 8 scrapes alone, 10.0 s apart).")


@pytest.mark.parametrize(("fullest", "fires"), [(0.96, False), (0.97, True), (1.0, True)])
def test_the_pool_has_to_be_full(fullest: float, fires: bool) -> None:
    verdict = verdict_of(log_of(storm(kv=steady(8, fullest))), PRESSURE)
    assert isinstance(verdict, Finding) == fires


def test_a_counter_that_rises_with_blocks_to_spare_is_not_for_want_of_blocks() -> None:
    verdict = verdict_of(log_of(storm(kv=steady(8, 0.44))), PRESSURE)
    assert isinstance(verdict, Healthy)
    assert verdict.number == "84 counted, KV at most 44.0 %: not for want of blocks"


def test_the_gauge_counts_where_preemptions_were_counted() -> None:
    log = calm(preempt=[0, 9, 9, 9, 9, 9, 9, 9], kv=[0.4, 0.4, 0.4, 0.4, 1.0, 1.0, 1.0, 1.0])
    assert isinstance(verdict_of(log_of(log), PRESSURE), Healthy)


@pytest.mark.parametrize(("per_interval", "fires"), [(9, False), (10, True), (50, True)])
def test_one_preemption_for_ten_requests_is_pressure(per_interval: int, fires: bool) -> None:
    log = storm(preempt=[per_interval * i for i in range(8)], finished=HUNDREDS)
    verdict = verdict_of(log_of(log), PRESSURE)
    assert isinstance(verdict, Finding) == fires


def test_few_preemptions_are_not_called_harmless_where_pauses_are_not_measured() -> None:
    verdict = verdict_of(log_of(storm(preempt=list(range(8)), finished=HUNDREDS)), PRESSURE)
    assert isinstance(verdict, NotMeasured)
    assert "vllm:inter_token_latency_seconds_bucket" in verdict.missing
    assert "vllm:request_num_preemptions_bucket" in verdict.missing


def with_histograms(pause: str) -> LogBuilder:
    """Few preemptions; in the second half, in which they come, 60 tokens took up to `pause` s."""
    log = storm(0)
    for index in range(8):
        later = max(index - 3, 0)
        page = storm(2, preempt=[later] * 2, finished=[100 * index] * 2).rows["samples"]
        for row in page[: len(page) // 2]:
            log.rows["samples"].append(row | {"ts": log.now})
        upto = {"0.05": 1000.0 * index, "0.5": 1000.0 * index, "+Inf": 1000.0 * index + 60 * later}
        if pause == "0.5":
            upto["0.5"] = upto["+Inf"]
        if pause == "0.05":
            upto = dict.fromkeys(upto, upto["+Inf"])
        histogram(log, "vllm:inter_token_latency_seconds", upto)
        ended = 100.0 * index
        histogram(log, "vllm:request_num_preemptions", {"1.0": ended, "2.0": ended, "+Inf": ended})
        log.advance(10 * NS)
    return log


def test_few_preemptions_that_nobody_felt_are_light() -> None:
    finding = finding_of(log_of(with_histograms("0.05")), LIGHT)
    assert finding.severity is Severity.info
    verdict = diagnose(log_of(with_histograms("0.05"))).verdict
    assert verdict.rule in ("no-scheduler-fault", "undetermined")


def test_few_preemptions_that_were_felt_are_pressure() -> None:
    finding = finding_of(log_of(with_histograms("inf")), PRESSURE)
    assert "over 500 ms while preemptions were counted" in finding.impact.users[0]


def test_a_request_that_is_evicted_again_and_again_is_pressure() -> None:
    log = storm(preempt=list(range(8)), finished=HUNDREDS)
    for index, ts in enumerate(sorted({row["ts"] for row in log.rows["samples"]})):
        log.now = ts
        ended = 100.0 * index
        upto = {"1.0": 0.9 * ended, "2.0": ended, "+Inf": ended}
        histogram(log, "vllm:request_num_preemptions", upto)
    assert isinstance(verdict_of(log_of(log), PRESSURE), Finding)


def test_pressure_names_the_setting_that_lets_in_more_than_the_pool_holds() -> None:
    finding = finding_of(log_of(storm(settings=POOL)), PRESSURE)
    assert finding.cause.kind == "setting"
    flags = {action.flag: action for action in finding.actions}
    assert int(flags["--max-num-seqs"].new or 0) < 32


def test_no_flag_is_advised_whose_setting_is_not_known() -> None:
    finding = finding_of(log_of(storm()), PRESSURE)
    assert [action.flag for action in finding.actions] == [None]


def test_without_the_counter_pressure_is_not_measured() -> None:
    verdict = verdict_of(log_of(calm(preempt=[])), PRESSURE)
    assert isinstance(verdict, NotMeasured)
    assert verdict.missing == ("vllm:num_preemptions_total",)


def test_two_scrapes_are_too_few() -> None:
    verdict = verdict_of(log_of(storm(2)), PRESSURE)
    assert isinstance(verdict, NotMeasured)
    assert verdict.why == "2 scrapes, 3 are needed"


def test_a_storm_that_ended_is_cleared() -> None:
    log = storm(8, waiting=[0, 9, 9, 0, 0, 0, 0, 0], preempt=[0, 12, 24, 24, 24, 24, 24, 24])
    assert not finding_of(log_of(log), PRESSURE).is_open


def test_a_restart_is_no_preemption() -> None:
    verdict = verdict_of(log_of(storm(preempt=[410, 410, 410, 410, 0, 0, 0, 0])), PRESSURE)
    assert isinstance(verdict, Healthy)


# ------------------------------------------------------------------------------------------- thrash


def test_evictions_without_arrivals_and_without_output_are_thrash() -> None:
    diagnosis = diagnose(log_of(thrashing()))
    assert diagnosis.verdict.rule == THRASH
    finding = diagnosis.findings[0]
    assert finding.severity is Severity.critical
    assert "13 preemptions while 0 requests arrived" in finding.sentence


def test_thrash_explains_pressure_away() -> None:
    verdict = verdict_of(log_of(thrashing()), PRESSURE)
    assert isinstance(verdict, Suppressed)
    assert verdict.by == THRASH


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"finished": [5, 5, 5, 5, 9, 13, 17, 21, 25, 29, 33, 37]}, "requests come and go"),
        ({"gen_tps": steady(12, 240)}, "output is as before"),
        ({"prompt_tps": steady(12, 0)}, "no prompt is computed"),
        ({"kv": steady(12, 0.9)}, "the pool is not full"),
        ({"preempt": [0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2]}, "too few evictions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_look_alike_is_not_thrash(change: dict[str, list[float]], why: str) -> None:
    assert isinstance(verdict_of(log_of(thrashing(**change)), THRASH), Healthy)


def test_one_request_that_only_evicts_itself_is_thrash_though_no_better_time_was_seen() -> None:
    log = scraped(
        running=steady(8, 1),
        waiting=steady(8, 0),
        kv=steady(8, 1.0),
        gen_tps=steady(8, 0.8),
        prompt_tps=steady(8, 100),
        preempt=list(range(8)),
        finished=steady(8, 0),
    )
    assert isinstance(verdict_of(log_of(log), THRASH), Finding)
