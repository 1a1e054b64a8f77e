"""Temperature, and which tokens may be drawn at all: min-p, top-k, top-p; in vLLM's order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.sampling import SamplingParams

NUM_BEST = (256, 4096)
"""Among so many of the best tokens top-p is looked for before all are sorted."""


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
    """Masks what top-k and top-p leave out. Few rows need a sort of the whole vocabulary."""
    vocab_size = logits.shape[1]
    limited = [0 < s.top_k < vocab_size for s in samplings]
    with_k = [row for row, is_limited in enumerate(limited) if is_limited]
    with_p = [row for row, s in enumerate(samplings) if s.top_p < 1 and not limited[row]]
    if with_k:
        _keep_k(logits, with_k, [samplings[row] for row in with_k])
    if with_p:
        top_p = torch.tensor([samplings[row].top_p for row in with_p], device=logits.device)
        _keep_p(logits, with_p, top_p[:, None])


def _keep_k(logits: torch.Tensor, rows: list[int], samplings: Sequence[SamplingParams]) -> None:
    """Masks all but the top-k of some rows, and of these what top-p leaves out."""
    device = logits.device
    best = logits[rows].topk(max(s.top_k for s in samplings), dim=-1).values
    top_k = torch.tensor([s.top_k for s in samplings], device=device)[:, None]
    top_p = torch.tensor([s.top_p for s in samplings], device=device)[:, None]
    ranks = torch.arange(best.shape[1], device=device)
    best.masked_fill_(ranks >= top_k, float("-inf"))
    num_kept = torch.minimum(_num_kept(best.softmax(dim=-1), top_p), top_k)
    _mask_below(logits, rows, best.gather(1, num_kept - 1))


def _keep_p(logits: torch.Tensor, rows: list[int], top_p: torch.Tensor) -> None:
    """Masks what top-p leaves out of some rows, looking for it among ever more of the best."""
    total = logits[rows].logsumexp(dim=-1, keepdim=True)
    for width in (*NUM_BEST, logits.shape[1]):
        is_all = width >= logits.shape[1]
        best = logits[rows].topk(min(width, logits.shape[1]), dim=-1).values
        probs = (best - total).exp_()
        reached = ((probs.sum(dim=-1) >= top_p[:, 0]) | is_all).tolist()
        done = [i for i, is_reached in enumerate(reached) if is_reached]
        if done:
            num_kept = _num_kept(probs[done], top_p[done])
            _mask_below(logits, [rows[i] for i in done], best[done].gather(1, num_kept - 1))
        left = [i for i, is_reached in enumerate(reached) if not is_reached]
        if not left:
            return
        rows, top_p, total = [rows[i] for i in left], top_p[left], total[left]


def _num_kept(probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Returns how many of the likeliest tokens top-p keeps, `[num_rows, 1]`: up to the one that
    reaches it.

    Args:
        probs: `[num_rows, n]`, the likeliest first.
        top_p: `[num_rows, 1]`.
    """
    before = probs.cumsum(dim=-1) - probs
    return ((before < top_p) | (top_p == 1)).sum(dim=-1, keepdim=True).clamp_(min=1)


def _mask_below(logits: torch.Tensor, rows: list[int], least: torch.Tensor) -> None:
    """Masks logits below a row's least; a token as likely as the last that is kept stays too."""
    part = logits[rows]
    logits[rows] = part.masked_fill_(part < least, float("-inf"))
