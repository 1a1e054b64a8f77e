"""How likely the model found tokens: the log softmax of its logits, whatever is done to them next.

That is vLLM's `raw_logprobs`: temperature, penalties, biases and truncation do not change them. A
grammar does, since what it does not let through has been taken out before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.runner.sampler.rows import Row
from engine.scheduler.output import TokenLogprobs


class RawLogprobs:
    """The log probabilities of the rows that want them; made before the logits change.

    Args:
        logits: `[num_rows, vocab_size]` float32, of these rows.
    """

    def __init__(self, logits: torch.Tensor, rows: Sequence[Row]) -> None:
        wanted = [i for i, row in enumerate(rows) if row.wishes.sampling.logprobs is not None]
        self._rows = [rows[i] for i in wanted]
        if wanted:
            self._logprobs = logits[wanted].log_softmax(dim=-1)

    def of(
        self, chosen: Sequence[int], new_token_ids: Sequence[Sequence[int]]
    ) -> dict[int, list[TokenLogprobs]]:
        """Returns, by sequence, one for each new token.

        Args:
            chosen: a token for each row of the step.
            new_token_ids: `[num_seqs]`, how many of each sequence's count.
        """
        if not self._rows:
            return {}
        token_ids = [chosen[row.index] for row in self._rows]
        column = torch.tensor(token_ids, device=self._logprobs.device)[:, None]
        logprobs = self._logprobs.gather(1, column)[:, 0].tolist()
        found: dict[int, list[TokenLogprobs]] = {}
        rows = zip(self._rows, token_ids, logprobs, self._likeliest(), strict=True)
        for row, token_id, logprob, top in rows:
            of_sequence = found.setdefault(row.seq, [])
            if len(of_sequence) < len(new_token_ids[row.seq]):
                one = TokenLogprobs(token_id=token_id, logprob=logprob, top=top)
                of_sequence.append(one)
        return found

    def _likeliest(self) -> list[tuple[tuple[int, float], ...]]:
        """Returns of each row as many of the likeliest tokens as it wants, best first."""
        wanted = [row.wishes.sampling.logprobs or 0 for row in self._rows]
        most = min(max(wanted), self._logprobs.shape[1])
        if not most:
            return [()] * len(wanted)
        best = self._logprobs.topk(most, dim=-1)
        rows = zip(best.indices.tolist(), best.values.tolist(), wanted, strict=True)
        return [tuple(zip(ids[:k], values[:k], strict=True)) for ids, values, k in rows]
