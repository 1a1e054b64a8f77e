"""The random numbers: looked up by place, alike everywhere, and spread as they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.runner.sampler.draws import Stream, gumbels, row_keys, uniforms
from tests.engine.runner.chi_square import p_value
from tests.engine.runner.sampler import plain

NUM_DRAWS = 20_000
VOCAB_SIZE = 32
LEAST_P = 0.001


@pytest.mark.parametrize("seed", [0, -1, 12345, 1 << 63, (1 << 70) + 3])
def test_the_noise_is_that_of_plain_arithmetic(seed: int) -> None:
    outputs = [0, 1, 77]
    found = gumbels(row_keys([seed] * 3, outputs), 50)
    expected = np.array([plain.noise(seed, output, 50) for output in outputs])
    assert found.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("along", ["outputs", "seeds"])
def test_tokens_are_drawn_as_often_as_they_are_likely(along: str) -> None:
    logits = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 1.5
    numbers, same = list(range(NUM_DRAWS)), [9] * NUM_DRAWS
    keys = row_keys(same, numbers) if along == "outputs" else row_keys(numbers, same)
    drawn = (logits + gumbels(keys, VOCAB_SIZE)).argmax(dim=-1)
    counts = torch.bincount(drawn, minlength=VOCAB_SIZE)
    assert p_value(counts[None], logits.softmax(dim=-1)[None]) > LEAST_P


def test_neighbouring_outputs_draw_independently() -> None:
    drawn = gumbels(row_keys([4] * NUM_DRAWS, range(NUM_DRAWS)), 6).argmax(dim=-1)
    pairs = torch.bincount(drawn[:-1] * 6 + drawn[1:], minlength=36)
    assert p_value(pairs[None], torch.full((1, 36), 1 / 36)) > LEAST_P


def test_streams_draw_independently() -> None:
    of_streams = [
        gumbels(row_keys([4] * NUM_DRAWS, range(NUM_DRAWS), stream), 6).argmax(dim=-1)
        for stream in (Stream.TOKEN, Stream.DRAFT)
    ]
    pairs = torch.bincount(of_streams[0] * 6 + of_streams[1], minlength=36)
    assert p_value(pairs[None], torch.full((1, 36), 1 / 36)) > LEAST_P


def test_uniform_numbers_are_uniform() -> None:
    found = uniforms(row_keys([4] * NUM_DRAWS, range(NUM_DRAWS), Stream.ACCEPTANCE))
    counts = torch.bincount((found * 50).long(), minlength=50)
    assert p_value(counts[None], torch.full((1, 50), 1 / 50)) > LEAST_P


def test_a_place_has_the_same_noise_in_any_batch() -> None:
    alone = gumbels(row_keys([7], [30]), 1000)
    among = gumbels(row_keys([1, 7, 7], [30, 30, 31]), 1000)
    assert torch.equal(alone[0], among[1])


def test_the_last_bits_of_logits_turn_hardly_a_draw_over() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 20_000, generator=generator)
    other = logits + 1e-5 * torch.randn(logits.shape, generator=generator)
    noise = gumbels(row_keys([5] * 200, range(200)), 20_000)
    changed = (logits + noise).argmax(dim=-1) != (other + noise).argmax(dim=-1)
    assert int(changed.sum()) <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_draws_as_a_processor_does() -> None:
    keys = row_keys([7] * 4, range(4))
    there = gumbels(keys.cuda(), 1000).cpu()
    assert torch.allclose(there, gumbels(keys, 1000), rtol=1e-5, atol=1e-5)
