"""Presence, frequency and repetition penalties, over the distinct tokens of the texts alone.

Source: OpenAI's for presence and frequency, which count outputs; Keskar et al. 2019
(https://arxiv.org/abs/1909.05858) for repetition, which looks at the prompt too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.runner.sample_rows import SampleRows
from engine.runner.sampler.rows import Row
from engine.runner.sampler.token_counts import TokenCounts
from engine.sampling import SamplingParams


def penalise(logits: torch.Tensor, rows: Sequence[Row], known: SampleRows) -> None:
    """Applies the penalties of all rows; behind a draft they count it as an output.

    Args:
        logits: `[num_rows, vocab_size]` float32, of these rows; written to.
        known: has the texts.
    """
    penalised = [
        (place, row.wishes.sampling, counts)
        for place, row in enumerate(rows)
        if (counts := _counts(row, known)) is not None
    ]
    if not penalised:
        return
    columns = [counts.columns() for *_, counts in penalised]
    lengths = [len(token_ids) for token_ids, _ in columns]

    def spread(values: Sequence[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.tensor(np.repeat(values, lengths), dtype=dtype, device=logits.device)

    samplings = [sampling for _, sampling, _ in penalised]
    where = (
        spread([place for place, *_ in penalised], torch.int64),
        torch.from_numpy(np.concatenate([ids for ids, _ in columns])).to(logits.device),
    )
    times = torch.from_numpy(np.concatenate([times for _, times in columns])).to(logits.device)
    values = logits[where]
    repetition = spread([s.repetition_penalty for s in samplings])
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= spread([s.frequency_penalty for s in samplings]) * times
    values -= spread([s.presence_penalty for s in samplings]) * (times > 0)
    logits[where] = values


def counts_for(sampling: SamplingParams) -> TokenCounts | None:
    """Returns what a request's penalties need to be counted; None if it has none."""
    if sampling.repetition_penalty != 1:
        return TokenCounts(with_prompt=True)
    if sampling.presence_penalty or sampling.frequency_penalty:
        return TokenCounts(with_prompt=False)
    return None


def _counts(row: Row, known: SampleRows) -> TokenCounts | None:
    counts = row.wishes.counts
    if counts is None:
        return None
    if row.drafts:
        return counts.with_drafts(row.drafts)
    counts.grow(known.known_token_ids[row.seq], known.num_prompt_tokens[row.seq])
    return counts
