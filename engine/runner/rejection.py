"""Verifies drafts that were drawn from a draft model's distribution, and keeps the target's.

A draft x, drawn from q, is let through with probability min(1, p(x) / q(x)); if it is not, the
token comes from what p has more than q, max(0, p - q) over its sum. Either way the token is
distributed as p. It differs from the draft then, which ends the list: what was drafted behind it
was a guess at another text.

Source: Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding"
(https://arxiv.org/abs/2211.17192), algorithm 1; Chen et al. 2023
(https://arxiv.org/abs/2302.01318).
"""

from __future__ import annotations

import torch


def verified(
    target_logits: torch.Tensor,
    draft_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    *,
    uniforms: torch.Tensor,
    gumbels: torch.Tensor,
) -> torch.Tensor:
    """Returns the token of each place, `[num_places]`: its draft exactly where it is let through.

    Args:
        target_logits: `[num_places, vocab_size]`, -inf where a token is not to be drawn.
        draft_logits: the same of the draft model: what the drafts were drawn from.
        draft_token_ids: `[num_places]`.
        uniforms: `[num_places]`, a number between 0 and 1 for each decision.
        gumbels: `[num_places, vocab_size]`, noise for the tokens of those who are not let through.
    """
    p, q = target_logits.softmax(dim=-1), draft_logits.softmax(dim=-1)
    column = draft_token_ids[:, None]
    passes = uniforms < acceptance(p.gather(1, column)[:, 0], q.gather(1, column)[:, 0])
    rest = (p - q).clamp_(min=0)
    # Where rounding leaves nothing, p and q are as good as equal.
    rest = torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, p)
    others = (rest.log() + gumbels).argmax(dim=-1)
    return torch.where(passes, draft_token_ids, others)


def acceptance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Returns with which probability drafts pass, given what both models gave them."""
    return (p / q).clamp(max=1.0)
