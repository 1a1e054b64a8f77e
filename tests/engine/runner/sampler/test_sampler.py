from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.runner.sample_rows import SampleRows
from engine.runner.sampler import Sampler
from engine.runner.sampler.truncation import truncated
from engine.sampling import SamplingParams
from tests.engine.runner.sampler import plain

EOS = 1
LOGITS = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]).log()
"""Probabilities of tokens 0 to 4, in that order."""


def choose(
    sampler: Sampler, logits: torch.Tensor, request_ids: list[str], num_outputs: list[int]
) -> list[int]:
    """Returns the next token of each row, for sequences without drafts."""
    rows = SampleRows(
        request_ids=request_ids,
        num_outputs=num_outputs,
        num_prompt_tokens=[0] * len(request_ids),
        known_token_ids=[np.zeros(n, np.int32) for n in num_outputs],
        draft_token_ids=[()] * len(request_ids),
    )
    return [token for (token,) in sampler.sample(logits, rows).token_ids]


def draws(sampling: SamplingParams, count: int, logits: torch.Tensor = LOGITS) -> list[int]:
    sampler = Sampler(vocab_size=len(LOGITS), eos_token_ids=(EOS,))
    sampler.add("a", sampling)
    return [choose(sampler, logits[None].clone(), ["a"], [n])[0] for n in range(count)]


def test_greedy_takes_the_best_token_of_each_row() -> None:
    sampler = Sampler(vocab_size=50)
    for request_id in "abc":
        sampler.add(request_id, SamplingParams())
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    assert choose(sampler, logits, ["a", "b", "c"], [0, 0, 0]) == logits.argmax(-1).tolist()


def test_a_greedy_row_stays_greedy_beside_a_drawn_one() -> None:
    sampler = Sampler(vocab_size=50)
    sampler.add("greedy", SamplingParams())
    sampler.add("drawn", SamplingParams(temperature=2.0, seed=3))
    rows = [choose(sampler, LOGITS.repeat(2, 1), ["drawn", "greedy"], [n, n]) for n in range(40)]
    assert {greedy for _, greedy in rows} == {0}
    assert len({drawn for drawn, _ in rows}) > 1


def test_draws_follow_the_probabilities() -> None:
    counts = Counter(draws(SamplingParams(temperature=1.0, seed=5), 4000))
    for token, probability in enumerate(LOGITS.exp().tolist()):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_temperature_sharpens() -> None:
    sharp = Counter(draws(SamplingParams(temperature=0.25, seed=5), 1000))
    flat = Counter(draws(SamplingParams(temperature=2.0, seed=5), 1000))
    assert sharp[0] > 600 > 400 > flat[0]


def test_top_k_keeps_the_k_best() -> None:
    assert set(draws(SamplingParams(temperature=2.0, top_k=2, seed=1), 400)) == {0, 1}


def test_top_p_keeps_the_token_that_reaches_it() -> None:
    assert set(draws(SamplingParams(temperature=1.0, top_p=0.75, seed=1), 400)) == {0, 1, 2}


def test_top_p_below_the_best_probability_is_greedy() -> None:
    assert set(draws(SamplingParams(temperature=1.0, top_p=0.1, seed=1), 100)) == {0}


def test_top_p_counts_among_what_top_k_kept() -> None:
    sampling = SamplingParams(temperature=1.0, top_k=2, top_p=0.5, seed=1)
    assert set(draws(sampling, 200)) == {0}


def test_equal_seeds_draw_equally() -> None:
    sampling = SamplingParams(temperature=1.0, seed=11)
    assert draws(sampling, 50) == draws(sampling, 50)


def test_other_seeds_draw_otherwise() -> None:
    first = draws(SamplingParams(temperature=1.0, seed=11), 50)
    assert first != draws(SamplingParams(temperature=1.0, seed=12), 50)


def test_a_seeded_request_does_not_notice_its_neighbours() -> None:
    sampling = SamplingParams(temperature=1.0, seed=11)
    sampler = Sampler(vocab_size=50)
    sampler.add("seeded", sampling)
    for request_id in ("n1", "n2"):
        sampler.add(request_id, SamplingParams(temperature=1.0))
    drawn = []
    for n in range(50):
        ids = (["n1", "seeded", "n2"], ["seeded"], ["seeded", "n2"])[n % 3]
        tokens = choose(sampler, LOGITS.repeat(len(ids), 1), ids, [n] * len(ids))
        drawn.append(tokens[ids.index("seeded")])
    assert drawn == draws(sampling, 50)


def test_requests_without_a_seed_draw_independently() -> None:
    sampler = Sampler(vocab_size=50)
    sampler.add("a", SamplingParams(temperature=1.0))
    sampler.add("b", SamplingParams(temperature=1.0))
    rows = [choose(sampler, LOGITS.repeat(2, 1), ["a", "b"], [n, n]) for n in range(60)]
    assert [a for a, _ in rows] != [b for _, b in rows]


def test_min_tokens_holds_the_ends_back_until_then() -> None:
    sampling = SamplingParams(max_tokens=9, min_tokens=2, stop_token_ids=(0,))
    assert draws(sampling, 4) == [2, 2, 0, 0]


def test_min_tokens_leaves_an_ignored_end_alone() -> None:
    sampling = SamplingParams(max_tokens=9, min_tokens=2, stop_token_ids=(0,), ignore_eos=True)
    assert draws(sampling, 3) == [EOS, EOS, 0]


def test_a_removed_request_is_greedy_when_its_id_comes_again() -> None:
    sampler = Sampler(vocab_size=50)
    sampler.add("a", SamplingParams(temperature=2.0, seed=1))
    sampler.remove("a")
    sampler.add("a", SamplingParams())
    assert [choose(sampler, LOGITS[None].clone(), ["a"], [n])[0] for n in range(20)] == [0] * 20


def test_the_smallest_temperature_is_greedy() -> None:
    assert set(draws(SamplingParams(temperature=1e-300, seed=1), 50)) == {0}


def test_a_stop_token_outside_the_vocabulary_is_harmless() -> None:
    sampling = SamplingParams(max_tokens=9, min_tokens=2, stop_token_ids=(5, 10**9))
    assert draws(sampling, 2) == [0, 0]


def test_min_p_drops_what_is_less_likely_than_that_share_of_the_best() -> None:
    assert set(draws(SamplingParams(temperature=1.0, min_p=0.3, seed=1), 400)) == {0, 1, 2}


def test_min_p_counts_after_temperature() -> None:
    assert set(draws(SamplingParams(temperature=0.5, min_p=0.3, seed=1), 400)) == {0, 1}


def test_a_token_as_likely_as_the_last_that_is_kept_is_kept_too() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 1.0, 0.0])
    assert set(draws(SamplingParams(temperature=2.0, top_k=2, seed=1), 300, logits)) == {1, 2, 3}


@pytest.mark.parametrize("top_k", [5, 6, 10**30])
def test_a_top_k_beyond_the_vocabulary_keeps_all_of_it(top_k: int) -> None:
    sampling = SamplingParams(temperature=1.0, top_p=0.9, seed=1)
    assert draws(replace(sampling, top_k=top_k), 50) == draws(sampling, 50)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0])
def test_top_p_of_a_large_vocabulary_is_the_plain_one(spread: float) -> None:
    logits = torch.randn(9000, generator=torch.Generator().manual_seed(4)) * spread
    sampling = SamplingParams(temperature=1.0, top_p=0.9, seed=1)
    kept = truncated(logits[None].clone(), [sampling])[0].isfinite()
    expected = np.isfinite(plain.truncated(logits.double().numpy(), sampling))
    assert abs(int(kept.sum()) - expected.sum()) <= 1
    assert (kept.numpy() != expected).sum() <= 1


def test_a_draw_does_not_depend_on_how_its_neighbours_are_cut() -> None:
    sampling = SamplingParams(temperature=1.0, top_k=3, seed=11)
    sampler = Sampler(vocab_size=len(LOGITS))
    sampler.add("a", sampling)
    sampler.add("k", SamplingParams(temperature=1.0, top_k=5))
    sampler.add("p", SamplingParams(temperature=1.0, top_p=0.3, min_p=0.2))
    rows = LOGITS.repeat(3, 1)
    drawn = [choose(sampler, rows.clone(), ["k", "a", "p"], [n] * 3)[1] for n in range(50)]
    assert drawn == draws(sampling, 50)


def test_a_bias_moves_the_best_token() -> None:
    assert draws(SamplingParams(logit_bias=((3, 2.0), (0, -1.0))), 1) == [3]


def test_a_bias_of_a_token_outside_the_vocabulary_is_harmless() -> None:
    assert draws(SamplingParams(logit_bias=((5, 100.0), (3, 2.0))), 1) == [3]


def test_biases_come_before_penalties() -> None:
    # With its bias token 3 has a logit above 0, so that its penalty halves it; below it doubles.
    assert after([3], SamplingParams(logit_bias=((3, 3.0),), repetition_penalty=2.0)) == 3


def after(known: list[int], sampling: SamplingParams, num_prompt_tokens: int = 0) -> int:
    """Returns what follows a text."""
    sampler = Sampler(vocab_size=len(LOGITS))
    sampler.add("a", sampling)
    return sampler.sample(LOGITS[None].clone(), one_row(known, num_prompt_tokens)).token_ids[0][0]


def one_row(known: list[int], num_prompt_tokens: int = 0) -> SampleRows:
    return SampleRows(
        request_ids=["a"],
        num_outputs=[len(known) - num_prompt_tokens],
        num_prompt_tokens=[num_prompt_tokens],
        known_token_ids=[np.array(known, np.int32)],
        draft_token_ids=[()],
    )


def test_a_presence_penalty_counts_an_output_once() -> None:
    sampling = SamplingParams(presence_penalty=1.5)
    assert after([0], sampling) == after([0, 0, 0], sampling) == 1


def test_a_frequency_penalty_counts_each_output() -> None:
    sampling = SamplingParams(frequency_penalty=0.2)
    assert [after([0] * n, sampling) for n in range(3)] == [0, 0, 1]


def test_both_leave_the_prompt_alone() -> None:
    sampling = SamplingParams(presence_penalty=2.0, frequency_penalty=2.0)
    assert after([0, 0], sampling, num_prompt_tokens=2) == 0


def test_a_repetition_penalty_counts_the_prompt() -> None:
    assert after([0, 1], SamplingParams(repetition_penalty=3.0), num_prompt_tokens=2) == 2


def test_penalties_go_on_counting_as_the_text_grows() -> None:
    sampler = Sampler(vocab_size=len(LOGITS))
    sampler.add("a", SamplingParams(presence_penalty=2.0))
    known: list[int] = []
    for _ in range(4):
        known += sampler.sample(LOGITS[None].clone(), one_row(known)).token_ids[0]
    assert known == [0, 1, 2, 3]


def test_any_integer_is_a_seed() -> None:
    for seed in (-1, 1 << 70):
        assert len(draws(SamplingParams(temperature=1.0, seed=seed), 3)) == 3


def test_broken_logits_still_give_a_token_of_the_vocabulary() -> None:
    broken = torch.full_like(LOGITS, float("nan"))
    assert all(0 <= t < 5 for t in draws(SamplingParams(temperature=1.0, seed=1), 5, broken))
