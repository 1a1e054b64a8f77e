"""With a connector a request gets the tokens that it gets without, whatever loads and fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine.connectors.settings import KVTransferConfig
from engine.runner.model import LoadedModel
from engine.sampling import SamplingParams
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.connectors.real_engine import RealEngine, prompts, requests, transfer
from tests.engine.runner.builders import reference_tokens, request

NUM_OUTPUTS = 12
PROMPTS = prompts(14)
TIE = 1e-4
"""Two best logits nearer than this may change places with the order of additions."""

Make = Callable[..., RealEngine]


@pytest.fixture(scope="module")
def expected(small_reference: LlamaForCausalLM) -> list[tuple[list[int], list[float]]]:
    """The tokens of a plain loop, and how near each choice was."""
    return [reference_tokens(small_reference, prompt, NUM_OUTPUTS) for prompt in PROMPTS]


@pytest.fixture
def make(small_model: LoadedModel) -> Iterator[Make]:
    engines: list[RealEngine] = []

    def new(settings: KVTransferConfig | None, *faults: str, **how: Any) -> RealEngine:
        engines.append(RealEngine(small_model, settings, *faults, **how))
        return engines[-1]

    yield new
    for engine in engines:
        engine.close()


def check(tokens: dict[str, list[int]], expected: list[tuple[list[int], list[float]]]) -> None:
    """Every output is the plain loop's, up to a tie."""
    for number, (wanted, margins) in enumerate(expected):
        got = tokens[f"r{number}"]
        assert len(got) == len(wanted)
        first = next((i for i, token in enumerate(wanted) if got[i] != token), None)
        assert first is None or margins[first] <= TIE, f"r{number} differs at output {first}"


def run_again(engine: RealEngine) -> dict[str, list[int]]:
    """Runs the same requests once more, with nothing left in the local cache."""
    assert engine.scheduler.reset_prefix_cache()
    engine.results.clear()
    return engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS))


@pytest.mark.parametrize("is_shared", [False, True], ids=["host", "directory"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("load=fail_half:p=0.6",),
        ("load=fail:p=0.6",),
        ("load=delay:0.01,p=0.5", "load=fail_half:p=0.3"),
        ("save=fail:p=0.3", "save=lose:p=0.3", "lookup=fail:p=0.2"),
    ],
    ids=["sound", "half", "fail", "late", "lost"],
)
def test_loads_change_no_token(
    make: Make, expected: list, tmp_path: Path, is_shared: bool, is_async: bool, faults: tuple
) -> None:
    directory = tmp_path / "kv" if is_shared else None
    engine = make(transfer(directory, load_async=is_async), *faults)
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(run_again(engine), expected)
    assert engine.num_loaded > 50
    has_failed = any("load=fail" in fault for fault in faults)
    assert bool(engine.count(EventKind.load_failed)) == has_failed


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_evictions_while_others_load_change_no_token(
    make: Make, expected: list, is_async: bool
) -> None:
    engine = make(
        transfer(load_async=is_async),
        "load=delay:0.002,p=0.5",
        "load=fail_half:p=0.3",
        num_blocks=34,
    )
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(run_again(engine), expected)
    assert engine.scheduler.num_preemptions > 0
    assert engine.count(EventKind.load_failed) >= 1
    assert engine.num_loaded > 100


def test_an_evicted_request_finds_what_it_had_computed(make: Make, expected: list) -> None:
    engine = make(transfer(), num_blocks=34)
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    assert engine.scheduler.num_preemptions > 0
    events = [e for e in engine.recorder.events if e.kind == EventKind.resumed]
    assert any(getattr(event, "num_external_tokens", 0) for event in events)


def test_of_a_prompt_that_is_stored_whole_nothing_is_missing(make: Make, expected: list) -> None:
    """96 tokens are 12 blocks of 8: an asynchronous load brings them all."""
    engine = make(transfer())
    (prompt,) = prompts(1, seed=4)
    whole = [(prompt * 3)[:96]]
    first = engine.run(requests(whole, num_outputs=NUM_OUTPUTS))
    assert engine.scheduler.reset_prefix_cache()
    engine.results.clear()
    assert engine.run(requests(whole, num_outputs=NUM_OUTPUTS)) == first
    assert engine.num_loaded == 96 - 1


def test_a_next_turn_finds_what_the_last_one_said(
    make: Make, small_reference: LlamaForCausalLM
) -> None:
    """Each answer ends where a block does: its last token was never computed."""
    engine = make(transfer())
    firsts = [
        request(n, prompt, SamplingParams(max_tokens=16 - len(prompt) % 8, ignore_eos=True))
        for n, prompt in enumerate(PROMPTS)
    ]
    answers = engine.run(firsts)
    turns = [[*prompt, *answers[f"r{n}"], 5, 6] for n, prompt in enumerate(PROMPTS)]
    assert engine.scheduler.reset_prefix_cache()
    engine.results.clear()
    before = engine.num_loaded
    second = engine.run(requests(turns, num_outputs=NUM_OUTPUTS), arrivals_per_step=len(turns))
    check(second, [reference_tokens(small_reference, turn, NUM_OUTPUTS) for turn in turns])
    num_said = sum(len(turn) - 2 for turn in turns)
    assert engine.num_loaded - before == num_said - 8 * len(turns)


def test_a_second_engine_hits_what_the_first_stored(
    make: Make, expected: list, tmp_path: Path
) -> None:
    settings = transfer(tmp_path / "kv")
    first, second = make(settings), make(settings)
    check(first.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(second.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    assert first.num_loaded < second.num_loaded
    assert second.count(EventKind.save_started) == 0


def test_a_producer_and_a_consumer_share_a_directory(
    make: Make, expected: list, tmp_path: Path
) -> None:
    producer = make(transfer(tmp_path / "kv", role="kv_producer"))
    consumer = make(transfer(tmp_path / "kv", role="kv_consumer"))
    check(producer.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(consumer.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    assert (producer.num_loaded, consumer.count(EventKind.save_started)) == (0, 0)
    assert consumer.num_loaded > 200


def spoil(path: Path, how: int) -> None:
    """Breaks a file in one of four ways."""
    content = path.read_bytes()
    broken = content[: len(content) // 2], b"", content[:-9] + bytes(9), bytes(len(content))
    path.write_bytes(broken[how % 4])


def test_spoiled_files_change_no_token(make: Make, expected: list, tmp_path: Path) -> None:
    settings = transfer(tmp_path / "kv")
    check(make(settings).run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    files = sorted(tmp_path.rglob("*.kv"))
    for how, path in enumerate(files[::3]):
        spoil(path, how)
    second = make(settings)
    check(second.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    assert second.count(EventKind.load_failed) >= 2
    assert second.num_loaded > 0


def test_a_store_that_is_too_small_changes_no_token(make: Make, expected: list) -> None:
    engine = make(transfer(cpu_bytes_to_use=20_000))
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(run_again(engine), expected)


@pytest.mark.parametrize("kind", ["stall", "lose", "delay:3600"])
def test_a_load_that_takes_too_long_changes_no_token(make: Make, expected: list, kind: str) -> None:
    settings = transfer(load_timeout_seconds=30.0, lease_seconds=300.0)
    engine = make(settings, f"load={kind}", step_seconds=10.0)
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    check(run_again(engine), expected)
    assert engine.count(EventKind.load_timed_out) >= 3
    leases = engine.count(EventKind.lease_expired)
    assert bool(leases) == (kind != "stall")


@pytest.mark.parametrize(
    ("fault", "settings"),
    [("load=fail", {}), ("load=fail_half", {}), ("load=stall", {"load_timeout_seconds": 30.0})],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_the_policy_fail_ends_a_request_with_an_error(
    make: Make, expected: list, fault: str, settings: dict, is_async: bool
) -> None:
    if fault == "load=stall" and not is_async:
        pytest.skip("a synchronous load has no time-out: it hangs its step")
    how = {"step_seconds": 10.0} if settings else {}
    engine = make(transfer(policy="fail", load_async=is_async, **settings), fault, **how)
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS), arrivals_per_step=14), expected)
    assert engine.scheduler.reset_prefix_cache()
    engine.results.clear()
    engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS), arrivals_per_step=14)
    ends = [results[-1] for results in engine.results.values()]
    errors = [end for end in ends if end.finish_reason is FinishReason.error]
    assert len(ends) == len(PROMPTS)
    assert errors
    assert all(end.error for end in errors)


def test_aborts_while_loading_and_saving_end_each_request_once(make: Make, expected: list) -> None:
    engine = make(transfer(lease_seconds=60.0), "load=delay:0.02", "save=delay:0.02")
    check(engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS)), expected)
    assert engine.scheduler.reset_prefix_cache()
    engine.results.clear()
    aborted: set[str] = set()

    def abort_one(step: int) -> None:
        names = [name for name in engine.scheduler.requests if name not in aborted]
        if step % 2 and names and len(aborted) < 7:
            aborted.add(names[0])
            engine.scheduler.finish_requests([names[0]], FinishReason.abort_client)

    engine.run(requests(PROMPTS, num_outputs=NUM_OUTPUTS), before_step=abort_one)
    ends = [e.request for e in engine.recorder.events if e.kind == EventKind.finished]
    assert len(aborted) == 7
    assert sorted(ends) == sorted(list(range(len(PROMPTS))) * 2)
    others = {n: e for n, e in enumerate(expected) if f"r{n}" not in aborted}
    for number, (tokens, _) in others.items():
        assert engine.tokens(f"r{number}") == tokens
