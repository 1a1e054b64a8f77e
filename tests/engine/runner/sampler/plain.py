"""A plain sampler: one row at a time, in float64, by the definitions. Slow, and easy to check.

The random numbers are worked out here once more, in integers of unlimited size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.sampling import SamplingParams

Floats = npt.NDArray[np.float64]
WORD, LONG = (1 << 32) - 1, (1 << 64) - 1


def noise(seed: int, output: int, vocab_size: int, stream: int = 0) -> Floats:
    """Returns the Gumbel noise of an output's tokens."""
    key = _mixed((seed + GOLDEN * (stream + 1)) & LONG)
    key = _mixed((key + GOLDEN * (output + 1)) & LONG)
    uniforms = [_uniform(key & WORD, key >> 32, token) for token in range(vocab_size)]
    return np.array([-math.log(-math.log1p(-u)) for u in uniforms])


def choose(
    logits: Floats,
    sampling: SamplingParams,
    prompt: Sequence[int],
    outputs: Sequence[int],
    eos_token_ids: Sequence[int] = (),
) -> tuple[int, float]:
    """Returns the token that follows, and how far the second best was behind it."""
    scores = processed(logits, sampling, prompt, outputs, eos_token_ids)
    if sampling.temperature > 0:
        assert sampling.seed is not None
        scores = truncated(scores, sampling) + noise(sampling.seed, len(outputs), len(scores))
    second, best = np.sort(scores)[-2:]
    return int(scores.argmax()), float(best - second)


def processed(
    logits: Floats,
    sampling: SamplingParams,
    prompt: Sequence[int],
    outputs: Sequence[int],
    eos_token_ids: Sequence[int] = (),
) -> Floats:
    """Returns logits after held-back ends, biases and penalties."""
    scores = logits.astype(np.float64)
    if len(outputs) < sampling.min_tokens:
        ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)]
        scores[[end for end in ends if end < len(scores)]] = -math.inf
    for token, bias in sampling.logit_bias:
        scores[token] += bias
    for token in {*prompt, *outputs}:
        factor = sampling.repetition_penalty
        scores[token] = scores[token] / factor if scores[token] > 0 else scores[token] * factor
    for token, count in Counter(outputs).items():
        scores[token] -= sampling.frequency_penalty * count + sampling.presence_penalty
    return scores


def truncated(scores: Floats, sampling: SamplingParams) -> Floats:
    """Returns logits over the temperature, without the tokens that are not kept."""
    scores = (scores - scores.max()) / sampling.temperature
    probs = np.exp(scores)
    scores = np.where(probs < sampling.min_p * probs.max(), -math.inf, scores)
    best_first = np.sort(scores)[::-1]
    if sampling.top_k:
        best_first = best_first[: sampling.top_k]
    shares = np.exp(best_first) / np.exp(best_first).sum()
    total, num_kept = 0.0, 0
    while num_kept < len(shares) and (total < sampling.top_p or sampling.top_p == 1):
        total += shares[num_kept]
        num_kept += 1
    return np.where(scores < best_first[num_kept - 1], -math.inf, scores)


GOLDEN = 0x9E3779B97F4A7C15


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & LONG
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & LONG
    return x ^ (x >> 31)


def _uniform(low: int, high: int, token: int) -> float:
    x = ((token * 0x9E3779B1) & WORD) ^ low
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & WORD
    x = (x + high) & WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & WORD
    x ^= x >> 16
    return min((x & 0x7FFFFFFF) * 2.0**-31 + 2.0**-32, 1 - 2.0**-24)
