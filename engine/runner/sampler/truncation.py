"""Temperature, and which tokens may be drawn at all: min-p, top-k, top-p; in vLLM's order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.sampling import SamplingParams


def truncated(logits: torch.Tensor, samplings: Sequence[SamplingParams]) -> torch.Tensor:
    """Returns logits over their temperatures, with -inf for the tokens that are not kept.

    Args:
        logits: `[num_rows, vocab_size]` float32, of rows that are not greedy; written to.
        samplings: `[num_rows]`.
    """
    device = logits.device
    temperatures = torch.tensor([s.temperature for s in samplings], device=device)
    logits.sub_(logits.amax(dim=-1, keepdim=True)).div_(temperatures[:, None])
    if any(s.min_p for s in samplings):
        # The best token is at 0, so its share p of the probability is at log(p).
        logs = torch.tensor([s.min_p for s in samplings], device=device).log()
        logits.masked_fill_(logits < logs[:, None], float("-inf"))
    _keep_top(logits, samplings)
    return logits


def _keep_top(logits: torch.Tensor, samplings: Sequence[SamplingParams]) -> None:
    """Masks what top-k and top-p leave out; rows with a top-k need no sort of the vocabulary."""
    vocab_size = logits.shape[1]
    limited = [0 < s.top_k < vocab_size for s in samplings]
    with_k = [row for row, is_limited in enumerate(limited) if is_limited]
    with_p = [row for row, s in enumerate(samplings) if s.top_p < 1 and not limited[row]]
    if with_k:
        largest = max(samplings[row].top_k for row in with_k)
        best = logits[with_k].topk(largest, dim=-1).values
        _mask_below(logits, with_k, _last_kept(best, [samplings[row] for row in with_k]))
    if with_p:
        best = logits[with_p].sort(dim=-1, descending=True).values
        _mask_below(logits, with_p, _last_kept(best, [samplings[row] for row in with_p]))


def _last_kept(best: torch.Tensor, samplings: Sequence[SamplingParams]) -> torch.Tensor:
    """Returns the smallest logit that each row keeps, `[num_rows, 1]`.

    Top-p counts among what top-k has kept, and keeps the token that reaches it.

    Args:
        best: `[num_rows, n]`, the rows' n best logits, best first.
    """
    device, width = best.device, best.shape[1]
    # A top-k beyond the vocabulary keeps all of it, however large it is.
    top_k = torch.tensor([min(s.top_k or width, width) for s in samplings], device=device)[:, None]
    top_p = torch.tensor([s.top_p for s in samplings], device=device)[:, None]
    ranks = torch.arange(width, device=device)
    probs = best.masked_fill(ranks >= top_k, float("-inf")).softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs
    kept = (ranks < top_k) & ((before < top_p) | (top_p == 1))
    return best.gather(1, (kept.sum(dim=-1, keepdim=True) - 1).clamp(min=0))


def _mask_below(logits: torch.Tensor, rows: list[int], least: torch.Tensor) -> None:
    """Masks logits below a row's least; a token as likely as the last that is kept stays too."""
    part = logits[rows]
    logits[rows] = part.masked_fill_(part < least, float("-inf"))
