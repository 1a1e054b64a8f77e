import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workload.plan import (
    PlanLimits,
    PlannedRequest,
    PromptPart,
    WorkloadError,
    cut_prompt,
)
from engine.workload.presets import PRESETS, find_preset


def request(offset_seconds: float, length: int = 10, max_tokens: int = 5) -> PlannedRequest:
    part = PromptPart((1, int(offset_seconds * 10)), length)
    return PlannedRequest(offset_seconds=offset_seconds, prompt=(part,), max_tokens=max_tokens)


@given(lengths=st.lists(st.integers(1, 20), max_size=5), limit=st.integers(0, 60))
def test_a_cut_prompt_is_the_beginning_of_the_whole(lengths: list[int], limit: int) -> None:
    whole = PlannedRequest(
        offset_seconds=0,
        prompt=tuple(PromptPart((9, i), length) for i, length in enumerate(lengths)),
        max_tokens=1,
    )
    cut = PlannedRequest(offset_seconds=0, prompt=cut_prompt(whole.prompt, limit), max_tokens=1)
    assert cut.token_ids(vocab_size=50, seed=3) == whole.token_ids(vocab_size=50, seed=3)[:limit]


def test_token_ids_stay_below_the_vocabulary() -> None:
    assert set(request(1, 500).token_ids(vocab_size=7, seed=0)) == set(range(7))


def test_a_plan_starts_at_zero_in_arrival_order_at_its_speed() -> None:
    plan = PlanLimits(speed=10).apply([request(30), request(10), request(20)])
    assert [r.offset_seconds for r in plan] == [0, 1, 2]


def test_limits_cut_requests_prompts_and_outputs() -> None:
    limits = PlanLimits(num_requests=1, max_prompt=4, max_tokens=2)
    (only,) = limits.apply([request(1), request(2)])
    assert (only.num_prompt_tokens, only.max_tokens) == (4, 2)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"num_requests": 0}, "--limit is 0"),
        ({"max_prompt": 0}, "--max-prompt"),
        ({"max_tokens": -1}, "--max-tokens"),
        ({"speed": 0}, "--speed"),
    ],
)
def test_a_limit_that_leaves_nothing_is_refused(limits: dict[str, int], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        PlanLimits(**limits)  # type: ignore[arg-type]


def test_an_empty_plan_is_refused() -> None:
    with pytest.raises(WorkloadError, match="no request"):
        PlanLimits().apply([])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_draws_what_it_says_and_the_same_again(name: str) -> None:
    preset = PRESETS[name]
    plan = preset.plan(seed=4)
    assert plan == preset.plan(seed=4)
    assert len(plan) == preset.num_requests
    low, high = preset.prompt_tokens
    assert all(low <= request.num_prompt_tokens <= high for request in plan)
    prefixes = {tuple(r.token_ids(vocab_size=99, seed=0)[: preset.shared_prefix]) for r in plan}
    assert len(prefixes) == 1


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match=r"storm, .*steady"):
        find_preset("calm")
