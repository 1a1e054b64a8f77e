"""What an engine's log alone tells: errors by kind, recomputation by iteration lines."""

from __future__ import annotations

import pytest

from diagnose.diagnosis import diagnose
from diagnose.finding import Finding, Healthy, NotMeasured
from diagnose.report import write_report
from tests.diagnose.logs import finding_of, log_of, verdict_of
from tests.diagnose.scrapes import NS, calm, sample
from tests.telemetry.log_builder import LogBuilder

PRESSURE = "kv-preemption-pressure"


def told(*kinds: str, settings: dict[str, object] | None = None) -> LogBuilder:
    """An engine of whose log only these lines are known, one a second."""
    log = LogBuilder()
    log._add("engines", {"started_ts": log.now, "source": "vllm"} | (settings or {}))
    for kind in kinds:
        log._add("log_lines", {"ts": log.now, "source": "vllm-log", "kind": kind})
        log.advance(NS)
    return log


def iterations(*steps: tuple[int, int, int], used: float = 1.0, **settings: object) -> LogBuilder:
    """Iteration lines: prompt tokens, generation requests and generation tokens of each step."""
    log = told("engine_starting", settings=settings)
    for prompts, requests, outputs in steps:
        for name, value in (
            ("context_tokens", prompts),
            ("generation_requests", requests),
            ("generation_tokens", outputs),
            ("kv_cache_usage", used),
        ):
            sample(log, f"log:iteration_{name}", value, source="vllm-log")
        log.advance(NS // 100)
    return log


RECOMPUTING = ((64, 0, 0), *(((0, 8, 8),) * 20), (0, 8, 100), (0, 8, 8))


@pytest.mark.parametrize(
    ("kinds", "rule"),
    [
        (("engine_starting", "out_of_memory"), "gpu-memory-overcommit-oom"),
        (("engine_ready", "collective_timeout"), "worker-hang"),
        (("engine_ready", "step_timeout"), "worker-hang"),
        (("kv_load_failed",), "kv-load-failure"),
        (("kv_lease_expired",), "pd-producer-lease-expiry"),
    ],
)
def test_a_line_of_a_kind_is_a_finding(kinds: tuple[str, ...], rule: str) -> None:
    diagnosis = diagnose(log_of(told(*kinds)))
    assert diagnosis.verdict.rule == rule
    assert diagnosis.verdict.sentence.endswith("(from 1 line of its log).")


def test_a_failed_allocation_says_whether_the_engine_was_ready() -> None:
    rule = "gpu-memory-overcommit-oom"
    before = finding_of(log_of(told("engine_starting", "out_of_memory")), rule)
    after = finding_of(log_of(told("engine_ready", "out_of_memory")), rule)
    assert "before it was ready" in before.sentence
    assert "while it served" in after.sentence


def test_a_failed_allocation_lowers_the_utilisation_that_was_set() -> None:
    log = told("out_of_memory", settings={"gpu_memory_utilization": 0.98})
    (action,) = finding_of(log_of(log), "gpu-memory-overcommit-oom").actions
    assert (action.old, action.new) == ("0.98", "0.96")


def test_without_its_log_a_failed_allocation_is_not_measured() -> None:
    rule = "gpu-memory-overcommit-oom"
    assert isinstance(verdict_of(log_of(calm()), rule), NotMeasured)
    assert isinstance(verdict_of(log_of(told("engine_ready")), rule), Healthy)


def test_more_output_than_requests_with_a_full_pool_is_pressure() -> None:
    finding = finding_of(log_of(iterations(*RECOMPUTING)), PRESSURE)
    assert "at least 92 tokens were computed again" in finding.sentence
    assert finding.evidence[0].provenance == "inferred"
    assert dict(finding.impact.numbers)["num_preemptions"] is None


@pytest.mark.parametrize(
    "log",
    [
        iterations(*RECOMPUTING, used=0.9),
        iterations(*RECOMPUTING, num_speculative_tokens=3),
        iterations((64, 0, 0), *(((0, 8, 8),) * 20)),
        iterations(*(((0, 8, 8),) * 400), (0, 8, 100)),
    ],
    ids=("the pool is not full", "drafts", "nothing again", "hardly anything again"),
)
def test_a_look_alike_of_recomputation_is_no_pressure(log: LogBuilder) -> None:
    assert not isinstance(verdict_of(log_of(log), PRESSURE), Finding)


def test_an_empty_window_of_a_log_reads_well() -> None:
    text = write_report(diagnose(log_of(told("engine_starting")))).text()
    assert "rules (steps, samples)" in text
    assert "0 steps" not in text
