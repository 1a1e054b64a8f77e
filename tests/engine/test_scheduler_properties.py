"""What holds in every run: random settings, arrivals and aborts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.records import RequestAdmitted, RequestFinished, RequestPreempted
from telemetry.vocabulary import FinishReason
from tests.engine.builders import Run, config

SETTINGS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["fcfs", "priority"]),
        "num_usable_blocks": st.integers(12, 30),
        "block_size": st.sampled_from([1, 2, 4]),
        "max_num_seqs": st.integers(1, 8),
        "max_num_batched_tokens": st.integers(4, 40),
        "enable_prefix_caching": st.booleans(),
        "scheduler_reserve_full_isl": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.1]),
    }
)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "arrives": st.integers(0, 12),
            "prompt": st.integers(1, 8),
            "shared": st.booleans(),
            "max_tokens": st.integers(1, 4),
            "priority": st.integers(0, 2),
            "aborts_after": st.one_of(st.none(), st.integers(0, 6)),
        }
    ),
    min_size=1,
    max_size=12,
)


def play(settings_: dict, requests: list[dict]) -> Run:
    run = Run(config(**settings_))
    step = 0
    while step <= 13 or run.scheduler.has_requests():
        for number, spec in enumerate(requests):
            if spec["arrives"] == step:
                prompt = range(spec["prompt"]) if spec["shared"] else spec["prompt"]
                run.add(
                    f"r{number}",
                    prompt=prompt,
                    max_tokens=spec["max_tokens"],
                    priority=spec["priority"],
                )
            if spec["aborts_after"] is not None and spec["arrives"] + spec["aborts_after"] == step:
                run.scheduler.finish_requests([f"r{number}"], FinishReason.abort_client)
        output = run.step()
        limits = run.config.scheduler
        assert output.total_num_scheduled_tokens <= limits.scheduled_tokens
        assert len(run.scheduler.running) <= limits.active_seqs
        step += 1
        assert step < 2000, "the run does not end"
    return run


@settings(max_examples=150, deadline=None)
@given(SETTINGS, REQUESTS)
def test_what_holds_in_every_run(settings_: dict, requests: list[dict]) -> None:
    run = play(settings_, requests)
    scheduler = run.scheduler
    assert scheduler.kv.pool.num_free == scheduler.kv.pool.num_usable
    ends = Counter(event.request for event in run.events(RequestFinished))
    assert ends == dict.fromkeys(range(run.num_requests), 1)
    preemptions = run.events(RequestPreempted)
    assert len(preemptions) == scheduler.num_preemptions == run.recorder.num_preemptions
    _check_token_work(run)
    _check_losses(run)


def _check_token_work(run: Run) -> None:
    for row in run.recorder.steps:
        parts = (row.num_prefill_tokens, row.num_decode_tokens, row.num_recomputed_tokens)
        assert sum(part or 0 for part in parts) == row.num_scheduled_tokens


def _check_losses(run: Run) -> None:
    """Each lost token was found again or computed again, unless its request ended before."""
    lost: Counter[int] = Counter()
    for event in run.recorder.events:
        if isinstance(event, RequestPreempted):
            lost[event.request] += event.num_computed_tokens_lost
        elif isinstance(event, RequestAdmitted) and lost[event.request]:
            lost[event.request] -= event.num_hit_tokens
    aborted = [e for e in run.events(RequestFinished) if e.reason == FinishReason.abort_client]
    if not aborted:
        recomputed = sum(row.num_recomputed_tokens or 0 for row in run.recorder.steps)
        assert sum(lost.values()) == recomputed


@settings(max_examples=30, deadline=None)
@given(SETTINGS, REQUESTS)
def test_the_same_input_gives_the_same_output(settings_: dict, requests: list[dict]) -> None:
    first, second = play(settings_, requests), play(settings_, requests)
    assert first.results == second.results
    assert [s.num_scheduled_tokens for s in first.recorder.steps] == [
        s.num_scheduled_tokens for s in second.recorder.steps
    ]
