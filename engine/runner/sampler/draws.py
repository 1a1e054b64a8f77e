"""Random numbers that are looked up, not drawn in turn: each depends on its place alone.

A request's output i is drawn with the numbers at (its seed, i, a token id), whatever the batch,
the preemptions before and the drafts. A row's token is the one with the largest sum of logit and
Gumbel noise, which has the softmax's distribution. Unlike a search in the cumulated probabilities,
that hardly notices the last bits of logits, which differ between batches: only a near tie of the
two best can turn over.

The numbers come from an integer hash, so a CPU and a GPU draw alike.

Source: Gumbel (1954) for the largest sum; SplitMix64 (Steele, Lea, Flood 2014) for the keys. The
rounds of the hash are those of C. Wellons' lowbias32 (https://github.com/skeeto/hash-prospector),
keyed before each of its two multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
HASH_FACTORS = (0x7FEB352D, 0x846CA68B - (1 << 32))
CACHED_NUMBERS = 1 << 18
"""So many at once stay in a processor's cache from one operation to the next."""

TOKEN_FACTOR = 0x9E3779B1 - (1 << 32)
"""Spreads token ids over all 32 bits."""


class Stream(IntEnum):
    """What a number is for; numbers of different streams are independent of each other."""

    TOKEN = 0
    """The token at an output's place."""
    ACCEPTANCE = 1
    """Whether a draft that was drawn from a distribution is let through there."""
    DRAFT = 2
    """A draft model's own choice for that place."""


def row_keys(
    seeds: Sequence[int], outputs: Sequence[int], stream: Stream = Stream.TOKEN
) -> torch.Tensor:
    """Returns the key of each place, `[num_rows, 2]` int32.

    Args:
        seeds: of the rows' requests, any integers.
        outputs: index of the output that each row chooses.
    """
    seed = np.array([seed % (1 << 64) for seed in seeds], np.uint64)
    mixed = _mixed(seed + np.uint64(int(GOLDEN) * (stream + 1) % (1 << 64)))
    keys = _mixed(mixed + GOLDEN * (np.array(outputs, np.uint64) + np.uint64(1)))
    return torch.from_numpy(keys.view(np.int32).reshape(-1, 2))


def uniforms(keys: torch.Tensor) -> torch.Tensor:
    """Returns a number between 0 and 1 for each place, `[num_rows]`."""
    return _uniforms(keys, 1)[:, 0]


def gumbels(keys: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Returns the noise of each place's tokens, `[num_rows, vocab_size]`, on the keys' device."""
    num_rows = len(keys) if keys.is_cuda else max(1, CACHED_NUMBERS // vocab_size)
    few = [_gumbels(part, vocab_size) for part in torch.split(keys, num_rows)]
    return few[0] if len(few) == 1 else torch.cat(few)


def _gumbels(keys: torch.Tensor, vocab_size: int) -> torch.Tensor:
    # -log(-log(u)) with u = 1 - uniform: exact where it matters, at the largest noise.
    return _uniforms(keys, vocab_size).neg_().log1p_().neg_().log_().neg_()


def _uniforms(keys: torch.Tensor, width: int) -> torch.Tensor:
    """Returns `[num_rows, width]` numbers, never 0 or 1: multiples of 2^-31 and a half of it."""
    hashed = _hash(keys, width).bitwise_and_(0x7FFFFFFF)
    uniform = hashed.float().mul_(2.0**-31).add_(2.0**-32)
    return uniform.clamp_(max=1 - 2.0**-24)  # float32 would round the last few to 1


def _hash(keys: torch.Tensor, width: int) -> torch.Tensor:
    """Returns `[num_rows, width]` int32; arithmetic wraps around."""
    columns = torch.arange(width, dtype=torch.int32, device=keys.device) * TOKEN_FACTOR
    x = columns ^ keys[:, :1]
    x ^= (x >> 16) & 0xFFFF
    x *= HASH_FACTORS[0]
    x += keys[:, 1:]
    x ^= (x >> 15) & 0x1FFFF
    x *= HASH_FACTORS[1]
    x ^= (x >> 16) & 0xFFFF
    return x


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
