"""Which change of state is named, and what is not."""

from __future__ import annotations

from diagnose.causes.attribution import Effort
from diagnose.changes import NOT_REPLAYED, Explanation
from diagnose.diagnosis import read_context
from diagnose.window import choose_window, engines_in
from tests.diagnose.logs import Arrival, MemoryLog, Run, config, log_of, pressed, run


def explained(log: MemoryLog, engine: int | None = None, effort: Effort = "usual") -> Explanation:
    window = choose_window(log)
    context = read_context(log, window, engine or engines_in(log, window)[0], effort)
    assert context.storm is not None
    return context.storm.explanation


def change(explanation: Explanation, kind: str) -> tuple[str, str]:
    found = next(change for change in explanation.changes if change.kind == kind)
    return found.status, found.number


def test_longer_outputs_are_named_with_both_medians() -> None:
    arrivals = [Arrival(30 * i, max_tokens=60) for i in range(40)]
    arrivals += [Arrival(1200 + 30 * i, max_tokens=600) for i in range(40)]
    explanation = explained(run(config(), arrivals).log())
    assert explanation.cause.kind == "longer_outputs"
    assert "median 60 -> 600 tokens" in explanation.cause.sentence


def test_longer_prompts_are_named_with_both_medians() -> None:
    arrivals = [Arrival(30 * i, num_prompt_tokens=40, max_tokens=160) for i in range(40)]
    arrivals += [Arrival(1200 + 30 * i, num_prompt_tokens=700, max_tokens=160) for i in range(40)]
    explanation = explained(run(config(), arrivals).log())
    assert explanation.cause.kind == "longer_prompts"
    assert "median 40 -> 700 tokens" in explanation.cause.sentence


def test_mixed_lengths_without_a_change_are_not_called_longer() -> None:
    arrivals = [Arrival(7 * i, max_tokens=40 + 97 * i % 240) for i in range(150)]
    explanation = explained(run(config(), arrivals).log())
    assert change(explanation, "longer_outputs")[0] == "rejected"
    assert explanation.cause.kind == "setting"


def test_a_smaller_pool_than_at_the_last_start_is_named() -> None:
    arrivals = [Arrival(12 * i) for i in range(100)]
    before = run(config(num_gpu_blocks=200), arrivals)
    after = run(config(num_gpu_blocks=64), arrivals)
    explanation = explained(two_starts(before, after), engine=2)
    assert explanation.cause.kind == "smaller_pool"
    assert "199 -> 63 blocks" in explanation.cause.sentence


def test_more_slots_than_at_the_last_start_are_named() -> None:
    arrivals = [Arrival(7 * i) for i in range(100)]
    before = run(config(max_num_seqs=8), arrivals)
    after = run(config(max_num_seqs=32), arrivals)
    explanation = explained(two_starts(before, after), engine=2)
    assert explanation.cause.kind == "config_change"
    assert "max_num_seqs 8 -> 32" in explanation.cause.sentence


def test_another_hosts_start_is_no_earlier_start_of_this_engine() -> None:
    arrivals = [Arrival(12 * i) for i in range(100)]
    before, after = run(config(num_gpu_blocks=200), arrivals), run(config(), arrivals)
    explanation = explained(two_starts(before, after, host="elsewhere"), engine=2)
    assert change(explanation, "smaller_pool")[0] == "rejected"


def two_starts(before: Run, after: Run, host: str | None = None) -> MemoryLog:
    """The log of one engine that was started twice, an hour apart."""
    first, second = before.builder(), after.builder()
    second.engine = 2
    for rows in second.rows.values():
        for row in rows:
            row["engine"] = 2
    first.rows["engines"][0]["started_ts"] -= 3600 * 10**9
    first.rows["engines"][0]["host"] = host
    for table in ("steps", "request_events", "request_arrivals", "request_finishes"):
        first.rows[table] = []
    return log_of(first, second)


def test_urgent_requests_that_evict_others_are_priority_churn() -> None:
    arrivals = [Arrival(1 + 40 * i, priority=5) for i in range(40)]
    arrivals += [Arrival(18 * i, priority=0) for i in range(60)]
    explanation = explained(run(config(policy="priority"), arrivals).log())
    status, number = change(explanation, "priority_churn")
    assert status == "confirmed"
    assert "by priority" in number


def test_one_priority_is_no_churn() -> None:
    explanation = explained(log_of(pressed(num_evicted=20)))
    assert change(explanation, "priority_churn") == ("rejected", "1 priority value")


def test_one_giant_among_small_ones_is_the_oversized_request() -> None:
    arrivals = [Arrival(1 + 20 * i, max_tokens=100) for i in range(60)]
    arrivals.append(Arrival(300, num_prompt_tokens=1500, max_tokens=200))
    explanation = explained(run(config(), arrivals).log())
    assert change(explanation, "oversized_request")[0] == "confirmed"


def test_every_candidate_is_told_with_a_number() -> None:
    explanation = explained(log_of(pressed(num_evicted=20)))
    assert len(explanation.changes) == 13
    assert all(change.number for change in explanation.changes)


def test_all_preemptions_are_charged_once() -> None:
    explanation = explained(run(config(), [Arrival(1)] * 28).log())
    charged = [change.num_preemptions for change in explanation.changes]
    assert sum(charged) > 0
    assert sorted(charged)[:-1] == [0] * 12


def test_without_a_change_or_a_setting_the_cause_is_undetermined() -> None:
    log = pressed(num_evicted=20)
    log.rows["engines"][0]["num_usable_blocks"] = 10_000
    explanation = explained(log_of(log))
    assert explanation.cause.kind == "undetermined"
    assert "at full length, and nothing changed" in explanation.cause.sentence
    assert explanation.confidence.level == "low"


def test_without_the_pools_size_the_cause_is_undetermined() -> None:
    log = pressed(num_evicted=20)
    log.rows["engines"][0]["num_usable_blocks"] = None
    explanation = explained(log_of(log))
    assert explanation.cause.kind == "undetermined"
    assert any("num_usable_blocks" in missing for missing in explanation.missing)


def test_a_full_pool_is_never_the_cause() -> None:
    explanation = explained(run(config(), [Arrival(1)] * 28).log())
    assert explanation.cause.kind != "undetermined"
    assert "100 %" not in explanation.cause.sentence


def test_a_look_without_replays_is_not_sure_of_a_change() -> None:
    arrivals = [Arrival(30 * i, max_tokens=60) for i in range(40)]
    arrivals += [Arrival(1200 + 30 * i, max_tokens=600) for i in range(40)]
    log = run(config(), arrivals).log()
    first, replayed = explained(log, effort="none"), explained(log)
    assert first.cause.kind == replayed.cause.kind == "longer_outputs"
    assert first.confidence.level == "medium"
    assert NOT_REPLAYED in first.confidence.why
    assert NOT_REPLAYED not in replayed.confidence.why
