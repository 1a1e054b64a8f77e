"""Chooses the tokens of a step, for all sequences together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.runner.rejection import verified
from engine.runner.sample_rows import SampledTokens, SampleRows
from engine.runner.sampler.acceptance import accept
from engine.runner.sampler.bitmask import apply_bitmask
from engine.runner.sampler.draws import Stream, gumbels, row_keys, uniforms
from engine.runner.sampler.likeliest import likeliest
from engine.runner.sampler.logprobs import RawLogprobs
from engine.runner.sampler.penalties import counts_for, penalise
from engine.runner.sampler.processors import add_biases, hold_back_ends
from engine.runner.sampler.rows import GREEDY_BELOW, Row, Wishes, rows_with_wishes
from engine.runner.sampler.truncation import truncated
from engine.sampling import SamplingParams


class Sampler:
    """Chooses the next tokens of each sequence.

    Args:
        vocab_size: of the model; a token id outside it is of no effect.
        eos_token_ids: tokens that `min_tokens` holds back, unless the request ignores them.
        seed: of the seeds that requests without one are given, in the order of their arrival.
    """

    def __init__(
        self, *, vocab_size: int, eos_token_ids: Sequence[int] = (), seed: int = 0
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(eos_token_ids)
        self._seeds = np.random.default_rng(seed)
        self._wishes: dict[str, Wishes] = {}

    def add(self, request_id: str, sampling: SamplingParams) -> None:
        """Takes in a request; it stays through preemptions, until `remove`."""
        self._wishes.pop(request_id, None)  # a session's next turn
        counts = counts_for(sampling)
        if _is_plain_greedy(sampling) and counts is None:
            return
        seed = sampling.seed
        if seed is None:
            seed = int(self._seeds.integers(1 << 63))
        ends = sampling.stop_token_ids
        if not sampling.ignore_eos:
            ends += self._eos_token_ids
        self._wishes[request_id] = Wishes(
            sampling=sampling,
            seed=seed,
            ends=[end for end in dict.fromkeys(ends) if 0 <= end < self._vocab_size],
            bias=self._bias_of(sampling),
            counts=counts,
        )

    def remove(self, request_id: str) -> None:
        """Forgets a request; one that is not known is no error."""
        self._wishes.pop(request_id, None)

    def sample(self, logits: torch.Tensor, rows: SampleRows) -> SampledTokens:
        """Returns the new tokens of each sequence.

        Args:
            logits: `[num_rows, vocab_size]`; may be written to.
            rows: what each of them is for.
        """
        if not rows.request_ids:
            return SampledTokens([])
        if rows.bitmask is not None:
            apply_bitmask(logits, rows.bitmask)
        wishing = rows_with_wishes(rows, self._wishes)
        if not wishing:
            return SampledTokens(accept(_greedy(logits), rows.draft_token_ids))
        are_all = len(wishing) == len(logits)
        chosen = [0] * len(logits) if are_all else _greedy(logits)
        own = (logits if are_all else logits[[row.index for row in wishing]]).float()
        raw = RawLogprobs(own, wishing)
        for row, token in zip(wishing, _choose(own, wishing, rows), strict=True):
            chosen[row.index] = token
        new_token_ids = accept(chosen, rows.draft_token_ids)
        logprobs = raw.of(chosen, new_token_ids)
        return SampledTokens(
            new_token_ids, {rows.request_ids[seq]: each for seq, each in logprobs.items()}
        )

    def draw_drafts(
        self,
        logits: torch.Tensor,
        request_ids: Sequence[str],
        outputs: Sequence[int],
        *,
        stream: Stream,
    ) -> tuple[list[int], dict[str, torch.Tensor]]:
        """Returns a draft for each request, and of those that draw what theirs was drawn from.

        Temperature and truncation are the requests' own; what else changes the target's logits is
        left to the verification.

        Args:
            logits: a draft model's, `[num_requests, vocab_size]`.
            request_ids: `[num_requests]`.
            outputs: `[num_requests]`, index of the output that each guesses at.
            stream: of the random numbers.
        """
        token_ids = _greedy(logits)
        wishes = [self._wishes.get(request_id) for request_id in request_ids]
        drawn = [(i, one) for i, one in enumerate(wishes) if one is not None and one.is_drawn]
        if not drawn:
            return token_ids, {}
        places = [i for i, _ in drawn]
        kept = truncated(logits[places].float(), [one.sampling for _, one in drawn])
        seeds, indices = [one.seed for _, one in drawn], [outputs[i] for i in places]
        keys = row_keys(seeds, indices, stream).to(kept.device)
        for i, token_id in zip(places, _greedy(kept + gumbels(keys, kept.shape[1])), strict=True):
            token_ids[i] = token_id
        return token_ids, {request_ids[i]: kept[n] for n, i in enumerate(places)}

    def _bias_of(self, sampling: SamplingParams) -> tuple[torch.Tensor, torch.Tensor] | None:
        biases = {t: bias for t, bias in sampling.logit_bias if 0 <= t < self._vocab_size}
        if not biases:
            return None
        values = torch.tensor(list(biases.values()), dtype=torch.float32)
        return torch.tensor(list(biases)), values


def _choose(logits: torch.Tensor, rows: Sequence[Row], known: SampleRows) -> list[int]:
    """Returns a token for each of these rows, `[num_rows, vocab_size]`."""
    hold_back_ends(logits, rows)
    add_biases(logits, rows)
    penalise(logits, rows, known)
    drawn = [place for place, row in enumerate(rows) if row.wishes.is_drawn]
    if len(drawn) == len(rows):
        return _draw(logits, rows, known)
    tokens = _greedy(logits)
    if drawn:
        chosen = _draw(logits[drawn], [rows[place] for place in drawn], known)
        for place, token in zip(drawn, chosen, strict=True):
            tokens[place] = token
    return tokens


def _draw(logits: torch.Tensor, rows: Sequence[Row], known: SampleRows) -> list[int]:
    """Returns a token drawn for each row of `[num_rows, vocab_size]`."""
    kept = truncated(logits, [row.wishes.sampling for row in rows])
    keys = row_keys([row.wishes.seed for row in rows], [row.output for row in rows])
    noise = gumbels(keys.to(kept.device), kept.shape[1])
    tokens = _greedy(kept + noise)
    if known.draft_logits:
        for place, token in _verified(kept, noise, rows, known).items():
            tokens[place] = token
    return tokens


def _verified(
    kept: torch.Tensor, noise: torch.Tensor, rows: Sequence[Row], known: SampleRows
) -> dict[int, int]:
    """Returns the tokens of the rows, by place, that have a drawn draft to be verified."""
    places, drafts, draft_logits = [], [], []
    for place, row in enumerate(rows):
        drawn_from = known.draft_logits.get(known.request_ids[row.seq])
        number, own = len(row.drafts), known.draft_token_ids[row.seq]
        if drawn_from is not None and number < len(own) and own[number] >= 0:
            places.append(place)
            drafts.append(own[number])
            draft_logits.append(drawn_from[number])
    if not places:
        return {}
    seeds, outputs = [rows[i].wishes.seed for i in places], [rows[i].output for i in places]
    tokens = verified(
        kept[places],
        torch.stack(draft_logits),
        torch.tensor(drafts, device=kept.device),
        uniforms=uniforms(row_keys(seeds, outputs, Stream.ACCEPTANCE).to(kept.device)),
        gumbels=noise[places],
    )
    return dict(zip(places, tokens.tolist(), strict=True))


def _greedy(logits: torch.Tensor) -> list[int]:
    tokens: list[int] = likeliest(logits).tolist()
    return tokens


def _is_plain_greedy(sampling: SamplingParams) -> bool:
    """Whether nothing but penalties could change a request's best token, or be asked about it."""
    return (
        sampling.temperature < GREEDY_BELOW
        and sampling.min_tokens == 0
        and not sampling.logit_bias
        and sampling.logprobs is None
    )
